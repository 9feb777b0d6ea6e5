"""The properties of every reachable state of the block pool.

Each is a function of the state, and an entry of `STATE_PROPERTIES`. Together with
`SUPPORT` they are kept by every transition: that is the invariant that `kvproof prove`
proves, and the fuzzer evaluates the same functions on the states of real engines.
"""

from kvproof.spec.logic import Bool, forall, iff, implies, neg
from kvproof.spec.properties import Class, Consequence, Kind, Property
from kvproof.spec.quantities import BlockId, Slot
from kvproof.spec.state import PoolState, keys_of

_POOL = "vLLM 0.25.1, block_pool.py: "


def refs_nonnegative(state: PoolState) -> Bool:
    """No reference count is below zero."""
    return forall(state.universe.blocks, lambda block: state.ref_cnt[block] >= 0)


def refs_exact(state: PoolState) -> Bool:
    """A block's count is the number of slots that name it.

    Said as a one-to-one map: each holder has a number below the count, and each number
    below the count has a holder.
    """
    u = state.universe

    def is_counted(slot: Slot) -> Bool:
        block, rank = state.table[slot], state.rank[slot]
        return implies(
            state.held[slot] & (block != u.null),
            (rank >= 0) & (rank < state.ref_cnt[block]) & (state.holder[block, rank] == slot),
        )

    return forall(u.slots, is_counted) & forall(
        u.blocks,
        lambda block: implies(
            block != u.null,
            forall(u.below(state.ref_cnt[block]), lambda rank: _holds(state, block, rank)),
        ),
    )


def _holds(state: PoolState, block: int, rank: int) -> Bool:
    slot = state.holder[block, rank]  # type: ignore[index]
    return state.held[slot] & (state.table[slot] == block) & (state.rank[slot] == rank)


def free_iff_unreferenced(state: PoolState) -> Bool:
    """A block is queued exactly when it is not null and nobody holds it."""
    u = state.universe
    return forall(
        u.blocks,
        lambda block: iff(
            state.free_queue.has(block), (state.ref_cnt[block] == 0) & (block != u.null)
        ),
    )


def queue_is_a_set(state: PoolState) -> Bool:
    """No block is queued twice, and the counter is the length of the queue.

    The length is said through the numbering: the queued blocks are those numbered below it.
    """
    return state.free_queue.well_formed() & forall(
        state.universe.blocks,
        lambda block: iff(state.free_queue.has(block), state.place[block] < state.num_free_blocks),
    )


def blocks_conserved(state: PoolState) -> Bool:
    """Every block is exactly one of free, held and null, and none is lost or doubled.

    The numbering is one-to-one onto 0 .. N - 1, so free + held + null = N.
    """
    u = state.universe

    def is_kept(block: BlockId) -> Bool:
        place = state.place[block]
        return ((place >= 0) & (place < u.num_blocks) & (state.block_at[place] == block)) & (
            state.free_queue.has(block) | (state.ref_cnt[block] > 0) | (block == u.null)
        )

    return (
        forall(u.blocks, is_kept)
        & forall(u.below(u.num_blocks), lambda place: state.place[state.block_at[place]] == place)
        & (state.place[u.null] == u.num_blocks - 1)
        & (state.num_free_blocks >= 0)
        & (state.num_free_blocks < u.num_blocks)
    )


def index_agrees(state: PoolState) -> Bool:
    """A block is listed under a key exactly when it carries that key; no list is empty."""
    u = state.universe

    def agrees(block: BlockId) -> Bool:
        carried = keys_of(state, block)
        return forall(u.keys, lambda key: iff(state.cached.contain(key, block), carried.has(key)))

    return state.cached.well_formed() & forall(u.blocks, agrees)


def one_chain_per_block(state: PoolState) -> Bool:
    """All keys of a block are prefixes of one chain in one group that end in the same block
    of it, and at most one of them is full. One key may list several blocks.
    """
    u = state.universe

    def is_one_chain(block: BlockId) -> Bool:
        carried = keys_of(state, block)
        return forall(
            (u.keys, u.keys),
            lambda key, other: implies(
                carried.has(key) & carried.has(other),
                (u.is_prefix(key, other) | u.is_prefix(other, key))
                & u.same_block(key, other)
                & implies(u.is_full(key) & u.is_full(other), key == other),
            ),
        )

    return forall(u.blocks, is_one_chain)


def null_inert(state: PoolState) -> Bool:
    """The null block is never queued, keyed or handed out."""
    u = state.universe
    carried = keys_of(state, u.null)
    return (
        neg(state.free_queue.has(u.null))
        & (state.ref_cnt[u.null] == 0)
        & forall(u.keys, lambda key: neg(state.cached.contain(key, u.null) | carried.has(key)))
    )


def events_mirror_cache(state: PoolState) -> Bool:
    """A consumer that folds the event stream believes exactly the resident keys."""
    return forall(
        state.universe.keys,
        lambda key: iff(state.events.believed(key), state.cached.lists(key)),
    )


def retired_stays_retired(state: PoolState) -> Bool:
    """A key that a longer one replaced is not listed on that block again."""
    u = state.universe
    return forall(
        (u.blocks, u.keys),
        lambda block, key: neg(state.retired[block].has(key) & state.cached.contain(key, block)),
    )


def all_returned(state: PoolState) -> Bool:
    """When nobody holds a block, every block but the null block is free."""
    u = state.universe
    return implies(
        forall(u.slots, lambda slot: neg(state.held[slot]) | (state.table[slot] == u.null)),
        forall(u.blocks, lambda block: state.free_queue.has(block) | (block == u.null))
        & (state.num_free_blocks == u.num_blocks - 1),
    )


def longest_key_first(state: PoolState) -> Bool:
    """Support: a block's other keys are shorter, partial prefixes of its `block_hash`."""
    u = state.universe
    return forall(
        (u.blocks, u.keys),
        lambda block, key: implies(
            state.partial_keys[block].has(key),
            (state.block_hash[block] != u.no_key)
            & (key != state.block_hash[block])
            & u.is_prefix(key, state.block_hash[block])
            & u.same_block(key, state.block_hash[block])
            & neg(u.is_full(key)),
        ),
    )


def keys_need_caching(state: PoolState) -> Bool:
    """Support: with prefix caching off no block carries a key."""
    u = state.universe
    return implies(
        neg(u.enable_caching), forall(u.blocks, lambda block: state.block_hash[block] == u.no_key)
    )


def retired_are_partial(state: PoolState) -> Bool:
    """Support: only keys that end inside the block were ever retired."""
    u = state.universe
    return forall(
        (u.blocks, u.keys),
        lambda block, key: implies(state.retired[block].has(key), neg(u.is_full(key))),
    )


def _state(
    name: str,
    klass: Class,
    says: str,
    consequence: Consequence,
    because: str,
    source: str,
) -> Property:
    statement = globals()[name.replace("-", "_")]
    return Property(name, klass, Kind.STATE, says, consequence, because, source, statement)


STATE_PROPERTIES: dict[str, Property] = {
    found.name: found
    for found in (
        _state(
            "refs-nonnegative",
            Class.SAFETY,
            "no reference count is below zero (the null block's own count is unspecified and"
            " never compared)",
            Consequence.CRASH,
            "an allocation that meets the block later fails, far from the cause",
            _POOL + "free_blocks, get_new_blocks",
        ),
        _state(
            "refs-exact",
            Class.SAFETY,
            "a block's count equals the table entries, pending frees and permanent holders"
            " that name it",
            Consequence.WRONG_DATA,
            "a count that is too low frees a block under its reader; one too high leaks it",
            _POOL + "touch, free_blocks",
        ),
        _state(
            "free-iff-unreferenced",
            Class.SAFETY,
            "a block is queued exactly when it is not null and its count is 0",
            Consequence.WRONG_DATA,
            "a queued block that somebody holds is handed out to a second writer",
            _POOL + "touch, free_blocks; seed 1, 'Data flow'",
        ),
        _state(
            "queue-is-a-set",
            Class.SAFETY,
            "no block is queued twice; the counter equals the length",
            Consequence.WRONG_DATA,
            "a block that is queued twice is handed out twice; a wrong counter runs past the end",
            "vLLM 0.25.1, kv_cache_utils.py: FreeKVCacheBlockQueue",
        ),
        _state(
            "blocks-conserved",
            Class.SAFETY,
            "free + held + permanent + null = N",
            Consequence.LEAK,
            "blocks that are neither free nor held are lost until the engine is restarted",
            _POOL + "get_num_free_blocks, get_usage",
        ),
        _state(
            "index-agrees",
            Class.SAFETY,
            "a block is listed under a key exactly when it carries that key; no list is empty",
            Consequence.WRONG_DATA,
            "a stale entry returns a block that holds other tokens",
            _POOL + "BlockHashToBlockMap; seed 1, 'Shared BlockPool'",
        ),
        _state(
            "one-chain-per-block",
            Class.SAFETY,
            "a block has at most one full key, and all its keys are prefixes of one chain in one"
            " group; one key may list several blocks (no deduplication)",
            Consequence.WRONG_DATA,
            "the block is hit for a prefix that it does not hold",
            _POOL + "cache_full_blocks, cache_partial_block; kv_cache_utils.py: set_block_hash",
        ),
        _state(
            "null-inert",
            Class.SAFETY,
            "the null block is never queued, keyed or handed out",
            Consequence.WRONG_DATA,
            "the placeholder of every skipped entry becomes somebody's data",
            _POOL + "BlockPool.__init__; seed 1, 'null_block placeholder'",
        ),
        _state(
            "events-mirror-cache",
            Class.SAFETY,
            "folding the event stream, as a set per (key, group), gives the resident keys",
            Consequence.LOST_HIT,
            "a router that follows the stream sends requests to the wrong engine",
            _POOL + "take_events; distributed/kv_events.py",
        ),
        _state(
            "all-returned",
            Class.SAFETY,
            "when no request is left, every block but null and the permanent ones is free, and"
            " reset succeeds",
            Consequence.LEAK,
            "the pool shrinks with every request until nothing can be admitted",
            _POOL + "reset_prefix_cache; seed 1, 'Boundaries and failure modes'",
        ),
        _state(
            "retired-stays-retired",
            Class.POLICY,
            "a key retired by promotion does not return to that block before it is acquired again",
            Consequence.DIVERGENCE,
            "the block answers for two boundaries again, and events for the shorter one repeat",
            _POOL + "cache_full_blocks (promotion), cache_partial_block",
        ),
    )
}

SUPPORT = {
    "longest-key-first": longest_key_first,
    "keys-need-caching": keys_need_caching,
    "retired-are-partial": retired_are_partial,
}
"""What the proofs need besides: facts about this specification's own representation."""

INVARIANT = {name: found.statement for name, found in STATE_PROPERTIES.items()} | SUPPORT
"""Everything that holds in every reachable state."""
