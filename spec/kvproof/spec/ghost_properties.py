"""What holds of the ghost contents: two statements of what is read and written, and the
invariant from which they follow.

In words: a keyed block names a full prefix, and its promise is that prefix; every entry below a
request's scheduled tokens is promised the request's own prefix; a key on a held block is the
holder's own, of known tokens; two holders of a block agree; content and promise differ only
where a live request has the slot scheduled and unwritten; what is null is read by no token that
may still be computed.
"""

from collections.abc import Callable

from kvproof.spec.ghost_state import (
    GhostState,
    RequestId,
    end_of,
    for_every_entry,
    has_entry,
    is_full,
    is_pending,
    own_key,
    place_of,
)
from kvproof.spec.logic import Bool, forall, implies, neg
from kvproof.spec.quantities import GroupId


def reads_own_prefix(state: GhostState, request: RequestId, group: GroupId, position: int) -> Bool:
    """What is stored for this position of the request is its own prefix up to there."""
    u = state.universe
    block, offset = place_of(state, request, group, position)
    return (
        has_entry(state, request, group, u.index(group, position))
        & (block != u.null)
        & (state.content[block, offset] == u.prefix(group, state.tokens[request], position))
    )


def writes_exclusive(state: GhostState, request: RequestId, group: GroupId, position: int) -> Bool:
    """The position has a real block; its key, and every other table that names it, expect there
    what the request writes.
    """
    u = state.universe
    block, offset = place_of(state, request, group, position)
    written = u.prefix(group, state.tokens[request], position)
    index, key = u.index(group, position), state.block_key[block]

    def expects(other: RequestId, its_group: GroupId, its_index: int) -> Bool:
        due = u.content_at(own_key(state, other, its_group, its_index), offset)
        return implies(
            state.table[other, its_group, its_index] == block,
            (its_group == group)
            & (its_index == index)
            & implies(position < state.num_scheduled[other, its_group], due == written),
        )

    return (
        (block != u.null)
        & implies(key != u.no_key, u.content_at(key, offset) == written)
        & for_every_entry(state, expects)
    )


def counts_in_order(state: GhostState) -> Bool:
    """What is written is scheduled, and what is scheduled lies in the table."""
    u = state.universe
    return forall(
        (u.requests, u.groups),
        lambda request, group: (
            (state.num_written[request, group] >= 0)
            & (state.num_written[request, group] <= state.num_scheduled[request, group])
            & (state.num_entries[request, group] >= 0)
            & (
                state.num_scheduled[request, group]
                <= u.start(group, state.num_entries[request, group])
            )
        ),
    )


def running_is_live(state: GhostState) -> Bool:
    """A running request is live, and no number of its tokens is negative."""
    return forall(
        state.universe.requests,
        lambda request: (
            (state.num_computed[request] >= 0)
            & (state.num_known[request] >= 0)
            & implies(state.running[request], state.live[request])
        ),
    )


def ended_holds_nothing(state: GhostState) -> Bool:
    """A request that is not live has an empty table."""
    u = state.universe
    return forall(
        (u.requests, u.groups),
        lambda request, group: implies(
            neg(state.live[request]), state.num_entries[request, group] == 0
        ),
    )


def running_is_complete(state: GhostState) -> Bool:
    """Of a running request, all below its first token to compute is there, or promised."""
    u = state.universe
    return forall(
        (u.requests, u.groups),
        lambda request, group: implies(
            state.running[request],
            state.num_computed[request] <= state.num_scheduled[request, group],
        ),
    )


def null_is_unkeyed(state: GhostState) -> Bool:
    """The null block has no key."""
    return state.block_key[state.universe.null] == state.universe.no_key


def keys_are_full(state: GhostState) -> Bool:
    """A block's key ends on a block boundary."""
    u = state.universe
    return forall(
        u.blocks,
        lambda block: implies(
            state.block_key[block] != u.no_key, is_full(state, state.block_key[block])
        ),
    )


def keys_are_promised(state: GhostState) -> Bool:
    """Every slot of a keyed block is promised what its key says."""
    u = state.universe
    return forall(
        (u.blocks, u.numbers),
        lambda block, offset: implies(
            (state.block_key[block] != u.no_key)
            & (offset < u.block_size(u.group(state.block_key[block]))),
            state.promise[block, offset] == u.content_at(state.block_key[block], offset),
        ),
    )


def entries_are_promised(state: GhostState) -> Bool:
    """Every slot below a request's scheduled tokens is promised the request's own prefix."""
    u = state.universe

    def promised(request: RequestId, group: GroupId, index: int, offset: int) -> Bool:
        block = state.table[request, group, index]
        return implies(
            has_entry(state, request, group, index)
            & (offset < u.block_size(group))
            & (u.start(group, index) + offset < state.num_scheduled[request, group])
            & (block != u.null),
            state.promise[block, offset]
            == u.content_at(own_key(state, request, group, index), offset),
        )

    return forall((u.requests, u.groups, u.numbers, u.numbers), promised)


def unwritten_is_real(state: GhostState) -> Bool:
    """What is scheduled and unwritten has a real block."""
    u = state.universe
    return forall(
        (u.requests, u.groups, u.numbers),
        lambda request, group, position: implies(
            (state.num_written[request, group] <= position)
            & (position < state.num_scheduled[request, group]),
            place_of(state, request, group, position)[0] != u.null,
        ),
    )


def held_keys_are_own(state: GhostState) -> Bool:
    """A key on a block that a request holds is the request's own, and of known tokens."""
    u = state.universe
    return for_every_entry(
        state,
        lambda request, group, index: implies(
            state.block_key[state.table[request, group, index]] != u.no_key,
            (
                state.block_key[state.table[request, group, index]]
                == own_key(state, request, group, index)
            )
            & (end_of(state, group, index) <= state.num_known[request]),
        ),
    )


def holders_agree(state: GhostState) -> Bool:
    """Two entries that name one block are of one group and index, and of the same prefix, which
    both requests know.
    """
    u = state.universe

    def agree(
        one: RequestId, group: GroupId, index: int, two: RequestId, its_group: GroupId, its: int
    ) -> Bool:
        block = state.table[one, group, index]
        same = (one == two) & (group == its_group) & (index == its)
        return implies(
            has_entry(state, one, group, index)
            & has_entry(state, two, its_group, its)
            & (block == state.table[two, its_group, its])
            & (block != u.null)
            & neg(same),
            (group == its_group)
            & (index == its)
            & (own_key(state, one, group, index) == own_key(state, two, group, index))
            & (end_of(state, group, index) <= state.num_known[one])
            & (end_of(state, group, index) <= state.num_known[two]),
        )

    return forall(
        (u.requests, u.groups, u.numbers, u.requests, u.groups, u.numbers),
        agree,
    )


def differences_are_pending(state: GhostState) -> Bool:
    """A slot holds what it is promised, unless its write is still to come."""
    u = state.universe
    return forall(
        (u.blocks, u.numbers),
        lambda block, offset: implies(
            state.content[block, offset] != state.promise[block, offset],
            is_pending(state, block, offset),
        ),
    )


def nulls_are_unread(state: GhostState) -> Bool:
    """A null entry lies below the first token to compute, and no token from there on reads it."""
    u = state.universe

    def unread(request: RequestId, group: GroupId, position: int) -> Bool:
        index = u.index(group, position)
        return implies(
            (index < state.num_entries[request, group])
            & (state.table[request, group, index] == u.null),
            (position < state.num_computed[request])
            & neg(u.reads(request, group, state.num_computed[request], position)),
        )

    return forall((u.requests, u.groups, u.numbers), unread)


CONTENTS_INVARIANT: dict[str, Callable[[GhostState], Bool]] = {
    "counts-in-order": counts_in_order,
    "running-is-live": running_is_live,
    "ended-holds-nothing": ended_holds_nothing,
    "running-is-complete": running_is_complete,
    "null-is-unkeyed": null_is_unkeyed,
    "keys-are-full": keys_are_full,
    "keys-are-promised": keys_are_promised,
    "entries-are-promised": entries_are_promised,
    "unwritten-is-real": unwritten_is_real,
    "held-keys-are-own": held_keys_are_own,
    "holders-agree": holders_agree,
    "differences-are-pending": differences_are_pending,
    "nulls-are-unread": nulls_are_unread,
}
"""The invariant, by parts."""
