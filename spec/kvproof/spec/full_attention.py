"""How a full-attention manager uses the pool, and what that buys: no stranded suffix.

A full-attention hit reads from left to right and stops at the first miss. A cached block
whose parent is not cached can therefore never be hit: it is stranded, and takes the room of
one that could be. The pool alone does not prevent that. It follows from the order in which
the manager fills, publishes and frees a table, which the four transitions here require.

Three things break it, each on its own: `evict_blocks` (a connector takes away a parent),
freeing from the front (the parent is evicted first), and a gap (a mask leaves the parent
out, or a table entry is freed in the middle). `kvproof prove` shows each with a replayed
counterexample.

Source: vLLM 0.25.1, single_type_kv_cache_manager.py, `FullAttentionManager` and
`SingleTypeKVCacheManager.free`; seed 1, 'LRU + tail-block-first eviction'.
"""

from typing import Protocol

from kvproof.spec import rules
from kvproof.spec.logic import Bool, forall, implies, neg, requires
from kvproof.spec.properties import Class, Consequence, Kind, Property
from kvproof.spec.quantities import BlockId, Key, Slot
from kvproof.spec.state import PoolState
from kvproof.spec.transitions import acquire, publish, release, share
from kvproof.spec.universe import Map, Universe


class TableUniverse(Universe, Protocol):
    """A universe whose slots are entries of block tables, and know their neighbours."""

    def is_first(self, slot: Slot) -> Bool:
        """The slot is the first entry of its table."""
        ...

    def previous(self, slot: Slot) -> Slot:
        """The entry before this one (for the first entry, itself)."""
        ...

    def key_of(self, slot: Slot) -> Key:
        """The full key of the prefix that ends with this entry's block."""
        ...


class FullAttentionState(PoolState):
    """A pool whose holders are the block tables of one full-attention group."""

    __slots__ = ("published", "tables")

    def __init__(self, universe: TableUniverse) -> None:
        super().__init__(universe)
        self.tables = universe
        self.published: Map[Slot, Bool] = universe.flags("published")
        """The entry's block carries the entry's key since it was published or hit."""


def append(state: FullAttentionState, slot: Slot) -> BlockId:
    """Take a new block for the next entry of a table."""
    requires(_previous_held(state, slot), rules.TABLE_IN_ORDER, slot)

    block = acquire(state, slot)
    state.published[slot] = False
    return block


def hit(state: FullAttentionState, slot: Slot) -> None:
    """Let the next entry of a table name the block that is cached for it."""
    key = state.tables.key_of(slot)
    requires(_previous_published(state, slot), rules.TABLE_IN_ORDER, slot)
    requires(state.cached.lists(key), rules.SHARE_READABLE, slot)

    share(state, slot, state.cached.get_one_block(key))
    state.published[slot] = True


def cache(state: FullAttentionState, slot: Slot) -> None:
    """Publish an entry's block; the entries before it are published already."""
    requires(state.held[slot] & neg(state.published[slot]), rules.PUBLISH_HELD, slot)
    requires(_previous_published(state, slot), rules.TABLE_IN_ORDER, slot)

    publish(state, state.table[slot], state.tables.key_of(slot))
    state.published[slot] = True


def free_last(state: FullAttentionState, slot: Slot) -> None:
    """Free the last entry of a table: a request is freed from its last block to its first."""
    requires(
        forall(
            state.universe.slots,
            lambda other: implies(
                state.held[other] & (other != slot), state.tables.previous(other) != slot
            ),
        ),
        rules.TABLE_IN_ORDER,
        slot,
    )

    release(state, slot)


def no_stranded_suffix(state: PoolState) -> Bool:
    """A cached block's parent is cached."""
    u = state.universe
    return forall(
        u.keys,
        lambda key: implies(
            state.cached.lists(key) & (u.parent(key) != u.no_key),
            state.cached.lists(u.parent(key)),
        ),
    )


def _previous_held(state: FullAttentionState, slot: Slot) -> Bool:
    return state.tables.is_first(slot) | state.held[state.tables.previous(slot)]


def _previous_published(state: FullAttentionState, slot: Slot) -> Bool:
    previous = state.tables.previous(slot)
    return state.tables.is_first(slot) | (state.held[previous] & state.published[previous])


NO_STRANDED_SUFFIX = Property(
    "no-stranded-suffix",
    Class.POLICY,
    Kind.STATE,
    "a cached block's parent is cached (full attention, under the protocol that is stated)",
    Consequence.LOST_HIT,
    "the suffix can never be hit, and takes the room of a block that could be",
    "seed 1, 'LRU + tail-block-first eviction'; kvproof.spec.full_attention",
)
