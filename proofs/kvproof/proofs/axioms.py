"""What the proofs take for granted about keys and about block tables.

On the unbounded reading keys are opaque; these are the only facts about them that the
solvers get. Each is written in the words of the specification, so that the tests evaluate
the same text on the keys of the concrete universe.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.proofs.readings import triggered
from kvproof.spec.logic import forall, iff, implies, ite, neg


@dataclass(frozen=True)
class Axiom:
    """One assumption, with its sentence."""

    name: str
    says: str
    statement: Callable[[Any], Any]


def _prefix_reflexive(u: Any) -> Any:
    return forall(u.keys, lambda key: u.is_prefix(key, key))


def _prefix_antisymmetric(u: Any) -> Any:
    return forall(
        (u.keys, u.keys),
        lambda a, b: implies(u.is_prefix(a, b) & u.is_prefix(b, a), a == b),
    )


def _prefix_transitive(u: Any) -> Any:
    return forall(
        (u.keys, u.keys, u.keys),
        lambda a, b, c: implies(u.is_prefix(a, b) & u.is_prefix(b, c), u.is_prefix(a, c)),
    )


def _prefix_tree(u: Any) -> Any:
    return forall(
        (u.keys, u.keys, u.keys),
        lambda a, b, c: implies(
            u.is_prefix(a, c) & u.is_prefix(b, c), u.is_prefix(a, b) | u.is_prefix(b, a)
        ),
    )


def _prefix_in_group(u: Any) -> Any:
    return forall(
        (u.keys, u.keys),
        lambda a, b: implies(u.is_prefix(a, b), u.group(a) == u.group(b)),
    )


def _no_key_apart(u: Any) -> Any:
    return forall(
        u.keys,
        lambda key: implies(
            u.is_prefix(u.no_key, key) | u.is_prefix(key, u.no_key), key == u.no_key
        ),
    )


def _same_block_is_equivalence(u: Any) -> Any:
    return forall(
        (u.keys, u.keys, u.keys),
        lambda a, b, c: (
            u.same_block(a, a)
            & implies(u.same_block(a, b), u.same_block(b, a))
            & implies(u.same_block(a, b) & u.same_block(b, c), u.same_block(a, c))
        ),
    )


def _full_is_longest(u: Any) -> Any:
    return forall(
        (u.keys, u.keys),
        lambda a, b: implies(u.is_full(a) & u.is_prefix(a, b) & u.same_block(a, b), a == b),
    )


KEY_AXIOMS = (
    Axiom("prefix-reflexive", "a key is a prefix of itself", _prefix_reflexive),
    Axiom(
        "prefix-antisymmetric",
        "keys that are prefixes of each other are equal",
        _prefix_antisymmetric,
    ),
    Axiom("prefix-transitive", "a prefix of a prefix is a prefix", _prefix_transitive),
    Axiom("prefix-tree", "of two prefixes of one key one is a prefix of the other", _prefix_tree),
    Axiom("prefix-in-group", "a prefix is in the same group", _prefix_in_group),
    Axiom("no-key-apart", "'no key' is a prefix of itself only", _no_key_apart),
    Axiom(
        "same-block-is-equivalence",
        "to end in the same block is an equivalence",
        _same_block_is_equivalence,
    ),
    Axiom("full-is-longest", "no prefix that ends in the same block is longer", _full_is_longest),
)


def _first_has_no_previous(u: Any) -> Any:
    return forall(
        triggered(u.slots, u.is_first),
        lambda slot: iff(u.is_first(slot), u.previous(slot) == slot),
    )


def _key_of_is_full(u: Any) -> Any:
    return forall(
        u.slots,
        lambda slot: neg(u.key_of(slot) == u.no_key) & u.is_full(u.key_of(slot)),
    )


def _parent_of_entry(u: Any) -> Any:
    return forall(
        triggered(u.slots, lambda slot: u.parent(u.key_of(slot))),
        lambda slot: (
            u.parent(u.key_of(slot)) == ite(u.is_first(slot), u.no_key, u.key_of(u.previous(slot)))
        ),
    )


def _parent_differs(u: Any) -> Any:
    return forall(u.keys, lambda key: implies(key != u.no_key, u.parent(key) != key))


TABLE_AXIOMS = (
    Axiom("first-has-no-previous", "only the first entry precedes itself", _first_has_no_previous),
    Axiom("key-of-is-full", "an entry's key is a full one", _key_of_is_full),
    Axiom("parent-of-entry", "an entry's parent key is the entry before's key", _parent_of_entry),
    Axiom("parent-differs", "no key is its own parent", _parent_differs),
)
