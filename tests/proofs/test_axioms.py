"""The axioms about keys and tables hold of the concrete universe."""

import random

import pytest

from kvproof.proofs.axioms import KEY_AXIOMS, TABLE_AXIOMS, Axiom
from kvproof.proofs.readings import SCOPES, TABLE_SCOPES, Scope
from kvproof.proofs.snapshots import table_universe
from kvproof.proofs.specification import Specification
from kvproof.spec.concrete import ConcreteUniverse
from kvproof.spec.quantities import NO_KEY, GroupId, Key, Slot, TokenId


def random_key(rng: random.Random) -> Key:
    tokens = tuple(TokenId(rng.randrange(2)) for _ in range(rng.randrange(1, 8)))
    return Key(tokens, GroupId(rng.randrange(2)))


@pytest.mark.parametrize("axiom", KEY_AXIOMS, ids=lambda axiom: axiom.name)
@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
def test_keys(axiom: Axiom, block_size: int) -> None:
    rng = random.Random(block_size)
    for _ in range(20):
        sizes = {GroupId(0): block_size, GroupId(1): rng.randrange(1, 5)}
        universe = ConcreteUniverse(2, True, sizes)
        universe.known_keys[NO_KEY] = None
        base = random_key(rng)
        related = [Key(base.block_hash[:length], base.group) for length in range(1, 8)]
        for key in (*related, *(random_key(rng) for _ in range(4))):
            if key.block_hash:
                universe.known_keys[key] = None
        assert axiom.statement(universe)


@pytest.mark.parametrize("axiom", TABLE_AXIOMS, ids=lambda axiom: axiom.name)
def test_tables(axiom: Axiom) -> None:
    rng = random.Random(0)
    for block_size in (1, 2, 3):
        universe = table_universe(Specification())(2, True, {GroupId(0): block_size})
        universe.previous_of, universe.key_of_slot, slot = {}, {}, 0
        for _ in range(3):
            tokens = tuple(TokenId(rng.randrange(2)) for _ in range(4 * block_size))
            for entry in range(4):
                universe.previous_of[slot] = slot if entry == 0 else slot - 1
                universe.key_of_slot[slot] = Key(tokens[: (entry + 1) * block_size], GroupId(0))
                universe.known_keys[universe.key_of_slot[slot]] = None
                universe.known_slots[Slot(slot)] = None
                slot += 1
        assert axiom.statement(universe)


@pytest.mark.parametrize("scope", SCOPES + TABLE_SCOPES)
def test_scopes(scope: Scope) -> None:
    """The keys of a bounded reading start with 'no key' and differ."""
    assert scope.keys[0] == NO_KEY
    assert len(set(scope.keys)) == len(scope.keys)


@pytest.mark.parametrize("scope", TABLE_SCOPES)
def test_table_scopes_have_parents(scope: Scope) -> None:
    universe = ConcreteUniverse(2, True, dict(scope.block_sizes))
    assert {universe.parent(key) for key in scope.keys} <= set(scope.keys)


def test_a_false_axiom_is_noticed() -> None:
    """The test above can fail: a prefix is not symmetric."""
    universe = ConcreteUniverse(2, True, {GroupId(0): 2})
    short, long = Key((TokenId(0),), GroupId(0)), Key((TokenId(0), TokenId(1)), GroupId(0))
    universe.known_keys.update({short: None, long: None})
    assert universe.is_prefix(short, long)
    assert not universe.is_prefix(long, short)
