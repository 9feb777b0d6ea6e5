"""The two counts that the proofs need, kept as one-to-one maps.

That a count equals the number of holders cannot be said to a solver as a sum over an
unbounded pool. It can be said as a one-to-one map: the holders of a block are numbered
0 .. ref_cnt - 1, and the free blocks are numbered 0 .. num_free_blocks - 1. These four
functions are the only ones that write the counters, together with their witnesses.
"""

from kvproof.spec.quantities import BlockId, Slot
from kvproof.spec.state import PoolState


def add_holder(state: PoolState, slot: Slot, block: BlockId) -> None:
    """Let an empty slot name the block, as its last holder."""
    count = state.ref_cnt[block]
    state.rank[slot] = count
    state.holder[block, count] = slot
    state.ref_cnt[block] = count + 1
    state.held[slot] = True
    state.table[slot] = block


def drop_holder(state: PoolState, slot: Slot) -> None:
    """Empty a slot. The block's last holder takes over its number."""
    block = state.table[slot]
    count = state.ref_cnt[block]
    last = state.holder[block, count - 1]
    state.rank[last] = state.rank[slot]
    state.holder[block, state.rank[slot]] = last
    state.ref_cnt[block] = count - 1
    state.held[slot] = False


def count_free(state: PoolState, block: BlockId) -> None:
    """Count one free block more: it takes the first number above the free ones."""
    _swap_places(state, block, state.num_free_blocks)
    state.num_free_blocks = state.num_free_blocks + 1


def count_used(state: PoolState, block: BlockId) -> None:
    """Count one free block less: it takes the last number of the free ones."""
    state.num_free_blocks = state.num_free_blocks - 1
    _swap_places(state, block, state.num_free_blocks)


def _swap_places(state: PoolState, block: BlockId, place: int) -> None:
    other = state.block_at[place]
    state.block_at[state.place[block]] = other
    state.place[other] = state.place[block]
    state.block_at[place] = block
    state.place[block] = place
