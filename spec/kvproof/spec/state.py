"""The state of the block pool, and how it starts.

Fields carry the names of vLLM 0.25.1 where it has them (block_pool.py, `BlockPool` and
`KVCacheBlock`). The last four are ghosts: no engine stores them. They witness the two
facts that need counting, and are written by `kvproof.spec.ghosts` only.
"""

from kvproof.spec.logic import Bool, forall, iff, neg
from kvproof.spec.quantities import BlockId, Key, Slot
from kvproof.spec.universe import Events, Index, KeySet, Map, Queue, Universe


class PoolState:
    """One block pool. `PoolState(universe)` is the initial state on the concrete reading,
    an arbitrary one on the symbolic reading (where `is_initial` pins it down).
    """

    __slots__ = (
        "block_at",
        "block_hash",
        "cached",
        "events",
        "free_queue",
        "held",
        "holder",
        "num_free_blocks",
        "partial_keys",
        "place",
        "rank",
        "ref_cnt",
        "retired",
        "table",
        "universe",
    )

    def __init__(self, universe: Universe) -> None:
        self.universe = universe

        self.ref_cnt: Map[BlockId, int] = universe.counts("ref_cnt")
        """How many slots hold the block. The null block's own count stays 0."""
        self.free_queue: Queue = universe.free_queue("free_queue")
        """The blocks that may be handed out, in the order of eviction."""
        self.num_free_blocks: int = universe.number("num_free_blocks", universe.num_blocks - 1)
        """The length of the queue."""
        self.block_hash: Map[BlockId, Key] = universe.block_keys("block_hash")
        """The block's key: its full key, or the longest of its partial keys."""
        self.partial_keys: Map[BlockId, KeySet] = universe.block_key_sets("partial_keys")
        """The block's other keys; each names a shorter prefix of the same chain."""
        self.retired: Map[BlockId, KeySet] = universe.block_key_sets("retired")
        """The keys that a longer key replaced since the block was handed out."""
        self.cached: Index = universe.index("cached")
        """For each key the blocks that carry it (vLLM: `cached_block_hash_to_block`)."""
        self.events: Events = universe.events("events")
        """The event stream."""

        self.held: Map[Slot, Bool] = universe.flags("held")
        """The slot is filled: it names a block, the null block perhaps."""
        self.table: Map[Slot, BlockId] = universe.slot_blocks("table")
        """The block that a filled slot names."""

        self.rank: Map[Slot, int] = universe.ranks("rank")
        """Ghost: the slot's number among the holders of its block."""
        self.holder: Map[tuple[BlockId, int], Slot] = universe.block_slots("holder")
        """Ghost: the inverse of `rank`, for each block."""
        self.place: Map[BlockId, int] = universe.places("place")
        """Ghost: a numbering of the blocks in which the free ones come first."""
        self.block_at: Map[int, BlockId] = universe.placed("block_at")
        """Ghost: the inverse of `place`."""


def keys_of(state: PoolState, block: BlockId) -> KeySet:
    """Return every key that the block carries."""
    return state.partial_keys[block].add(state.block_hash[block])


def is_initial(state: PoolState) -> Bool:
    """Nothing is held, nothing is keyed, nothing was retired or told, and every block but
    the null block is free.

    Source: vLLM 0.25.1 block_pool.py, `BlockPool.__init__`.
    """
    u = state.universe
    return (
        forall(u.blocks, lambda block: state.ref_cnt[block] == 0)
        & forall(u.blocks, lambda block: iff(state.free_queue.has(block), block != u.null))
        & (state.num_free_blocks == u.num_blocks - 1)
        & (u.num_blocks >= 1)
        & forall(u.blocks, lambda block: state.block_hash[block] == u.no_key)
        & forall(
            (u.blocks, u.keys),
            lambda block, key: (
                neg(state.partial_keys[block].has(key))
                & neg(state.retired[block].has(key))
                & neg(state.cached.contain(key, block))
            ),
        )
        & forall(u.keys, lambda key: neg(state.events.believed(key)))
        & forall(u.slots, lambda slot: neg(state.held[slot]))
        & forall(
            u.blocks,
            lambda block: (
                (state.place[block] >= 0)
                & (state.place[block] < u.num_blocks)
                & (state.block_at[state.place[block]] == block)
            ),
        )
        & forall(u.below(u.num_blocks), lambda place: state.place[state.block_at[place]] == place)
        & (state.place[u.null] == u.num_blocks - 1)
        & state.free_queue.well_formed()
        & state.cached.well_formed()
    )
