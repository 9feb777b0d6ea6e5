"""The rules and properties: complete, named once, and true of what the specification does."""

import random

import pytest

from kvproof.spec import full_attention, transitions
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.concrete import ConcreteUniverse
from kvproof.spec.pool_properties import INVARIANT, STATE_PROPERTIES, SUPPORT
from kvproof.spec.properties import Kind, Property
from kvproof.spec.quantities import GroupId, TokenId
from kvproof.spec.rules import RULES, KVCacheError
from kvproof.spec.state import PoolState, is_initial
from kvproof.spec.steps import STEP_PROPERTIES, STEP_STATEMENTS

EVERY = {
    **STATE_PROPERTIES,
    **STEP_PROPERTIES,
    full_attention.NO_STRANDED_SUFFIX.name: full_attention.NO_STRANDED_SUFFIX,
}


@pytest.mark.parametrize("found", EVERY.values(), ids=EVERY)
def test_a_property_says_what_it_is(found: Property) -> None:
    assert found.says
    assert found.because
    assert found.source
    assert found.name == found.name.lower()
    assert (found.statement is not None) == (found.name in STATE_PROPERTIES)
    assert (found.kind is Kind.STATE) == (found.name not in STEP_PROPERTIES)


def test_every_step_statement_is_a_property() -> None:
    assert set(STEP_STATEMENTS) <= set(STEP_PROPERTIES)
    assert not set(STEP_PROPERTIES) & set(STATE_PROPERTIES)
    assert set(INVARIANT) == set(STATE_PROPERTIES) | set(SUPPORT)


def test_every_rule_is_named_once_and_used() -> None:
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    for rule in RULES.values():
        assert rule.says
        assert rule.advice
        assert rule.consequence
        assert issubclass(rule.error, KVCacheError)


def test_every_transition_is_exported() -> None:
    assert set(transitions.__all__) == {
        "acquire",
        "lookup",
        "pad",
        "publish",
        "publish_partial",
        "release",
        "reset",
        "retract",
        "share",
        "skip",
    }


@pytest.mark.parametrize("caching", [True, False])
def test_a_new_pool_is_initial_and_satisfies_the_invariant(caching: bool) -> None:
    state = PoolState(ConcreteUniverse(6, caching, {GroupId(0): 2}))
    assert is_initial(state)
    assert all(statement(state) for statement in INVARIANT.values() if statement is not None)


@pytest.mark.parametrize("seed", range(20))
def test_the_invariant_holds_on_the_states_that_calls_reach(seed: int) -> None:
    rng = random.Random(seed)
    pool = BlockPool(7, True, 2, {GroupId(0): 4})
    tokens = tuple(map(TokenId, (0, 0, 1, 1, 0, 0, 1, 1)))
    held: list[int] = []
    for _ in range(60):
        choice = rng.randrange(6)
        try:
            if choice == 0:
                held += pool.get_new_blocks(rng.randrange(3))
            elif choice == 1 and held:
                block = held.pop(rng.randrange(len(held)))
                pool.free_blocks([block])  # type: ignore[list-item]
            elif choice == 2 and held:
                index = rng.randrange(2)
                table = [rng.choice(held)] * (index + 1)
                pool.cache_full_blocks(tokens, table, index, index + 1, 4, GroupId(0))  # type: ignore[arg-type]
            elif choice == 3 and held:
                block = rng.choice(held)
                pool.cache_partial_block(tokens, block, rng.choice([2, 6]), GroupId(0), 4)  # type: ignore[arg-type]
            elif choice == 4:
                found = pool.get_cached_block(tokens[: rng.choice([2, 4, 6, 8])], [GroupId(0)])
                pool.touch(found or [])
                held += found or []
            elif choice == 5:
                pool.evict_blocks([rng.randrange(7)])  # type: ignore[list-item]
        except KVCacheError:
            pass  # the state must be as good as before
        for name, statement in INVARIANT.items():
            assert statement is not None
            assert statement(pool.state), name
