"""What follows from the invariant, and names what a solver would not think of.

Each is proved from the invariant alone, and then known to every other proof.
"""

from typing import Any

from kvproof.spec.logic import Bool, forall, implies


def used_has_holder(state: Any) -> Bool:
    """A block in use has a first holder."""
    u = state.universe

    def holds(block: Any) -> Any:
        slot = state.holder[block, 0]
        return implies(
            (block != u.null) & (state.ref_cnt[block] > 0),
            state.held[slot] & (state.table[slot] == block),
        )

    return forall(u.blocks, holds)


def only_holder_is_first(state: Any) -> Bool:
    """The only holder of a block is its first."""
    u = state.universe

    def holds(slot: Any) -> Any:
        block = state.table[slot]
        return implies(
            state.held[slot] & (block != u.null) & (state.ref_cnt[block] == 1),
            state.holder[block, 0] == slot,
        )

    return forall(u.slots, holds)


def own_key_lists(state: Any) -> Bool:
    """A block that has a key is listed under it."""
    u = state.universe
    return forall(
        u.blocks,
        lambda block: implies(
            state.block_hash[block] != u.no_key,
            state.cached.contain(state.block_hash[block], block),
        ),
    )


def listed_has_key(state: Any) -> Bool:
    """A block that is listed has a key of its own."""
    u = state.universe
    return forall(
        (u.keys, u.blocks),
        lambda key, block: implies(
            state.cached.contain(key, block), state.block_hash[block] != u.no_key
        ),
    )


def used_if_not_all_free(state: Any) -> Bool:
    """Unless all blocks but the null block are free, the first one above the free ones in the
    numbering is in use.
    """
    u = state.universe
    block = state.block_at[state.num_free_blocks]
    return implies(
        state.num_free_blocks != u.num_blocks - 1,
        (block != u.null) & (state.ref_cnt[block] > 0),
    )


LEMMAS = {
    "used-has-holder": used_has_holder,
    "only-holder-is-first": only_holder_is_first,
    "own-key-lists": own_key_lists,
    "listed-has-key": listed_has_key,
    "used-if-not-all-free": used_if_not_all_free,
}
