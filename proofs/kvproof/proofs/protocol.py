"""Full attention: what its protocol keeps up, so that no suffix is ever stranded.

"A cached block's parent is cached" is not kept by a step from just any state in which it
holds. What is kept is more: the entries of a table are published from the front, a block in
use carries its entry's key or none, and the parent of a queued block is in use or stands
behind it in the queue, so that it is evicted later. From that the property follows.
"""

from collections.abc import Callable
from typing import Any

from kvproof.proofs.readings import triggered
from kvproof.spec.logic import Bool, exists, forall, implies, neg


def no_partial_keys(state: Any) -> Bool:
    """No block has a key besides its full one."""
    u = state.tables
    return forall((u.blocks, u.keys), lambda block, key: neg(state.partial_keys[block].has(key)))


def entries_are_real(state: Any) -> Bool:
    """No entry names the null block."""
    u = state.tables
    return forall(u.slots, lambda slot: implies(state.held[slot], state.table[slot] != u.null))


def tables_have_no_gap(state: Any) -> Bool:
    """The entry before a filled one is filled."""
    u = state.tables
    return forall(
        triggered(u.slots, u.previous),
        lambda slot: implies(state.held[slot], state.held[u.previous(slot)]),
    )


def published_from_the_front(state: Any) -> Bool:
    """The entry before a published one is published."""
    u = state.tables
    return forall(
        triggered(u.slots, u.previous),
        lambda slot: implies(
            state.held[slot] & state.published[slot], state.published[u.previous(slot)]
        ),
    )


def published_are_keyed(state: Any) -> Bool:
    """A published entry's block carries the entry's key."""
    u = state.tables
    return forall(
        u.slots,
        lambda slot: implies(
            state.held[slot] & state.published[slot],
            state.cached.contain(u.key_of(slot), state.table[slot]),
        ),
    )


def keyed_are_published(state: Any) -> Bool:
    """A key on a block in use is the key of each entry that names it, and was published there."""
    u = state.tables
    return forall(
        (u.slots, u.keys),
        lambda slot, key: implies(
            state.held[slot] & state.cached.contain(key, state.table[slot]),
            state.published[slot] & (key == u.key_of(slot)),
        ),
    )


def unpublished_are_unshared(state: Any) -> Bool:
    """A block that is not published yet has one holder."""
    u = state.tables
    return forall(
        u.slots,
        lambda slot: implies(
            state.held[slot] & neg(state.published[slot]), state.ref_cnt[state.table[slot]] == 1
        ),
    )


def parents_are_evicted_later(state: Any) -> Bool:
    """The parent of a queued block is in use, or stands behind it in the queue."""
    u = state.tables
    return forall(
        (u.keys, u.blocks),
        lambda key, block: implies(
            state.cached.contain(key, block)
            & (u.parent(key) != u.no_key)
            & state.free_queue.has(block),
            exists(
                u.blocks,
                lambda parent: (
                    state.cached.contain(u.parent(key), parent)
                    & ((state.ref_cnt[parent] > 0) | state.free_queue.before(block, parent))
                ),
            ),
        ),
    )


def parents_in_use(state: Any) -> Bool:
    """The parent of a block in use is what the first holder's table has before it.

    This follows from the others; it names the block whose existence the property asserts.
    """
    u = state.tables

    def holds(key: Any, block: Any) -> Any:
        parent = state.table[u.previous(state.holder[block, 0])]
        return implies(
            state.cached.contain(key, block)
            & (u.parent(key) != u.no_key)
            & (state.ref_cnt[block] > 0),
            state.cached.contain(u.parent(key), parent) & (state.ref_cnt[parent] > 0),
        )

    return forall((u.keys, u.blocks), holds)


PROTOCOL_INVARIANT: dict[str, Callable[[Any], Any]] = {
    "no-partial-keys": no_partial_keys,
    "entries-are-real": entries_are_real,
    "tables-have-no-gap": tables_have_no_gap,
    "published-from-the-front": published_from_the_front,
    "published-are-keyed": published_are_keyed,
    "keyed-are-published": keyed_are_published,
    "unpublished-are-unshared": unpublished_are_unshared,
    "parents-are-evicted-later": parents_are_evicted_later,
}
"""What the protocol's transitions keep, besides the pool's invariant."""

PROTOCOL_LEMMAS: dict[str, Callable[[Any], Any]] = {"parents-in-use": parents_in_use}
"""What follows from it."""
