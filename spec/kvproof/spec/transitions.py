"""The primitive transitions of the block pool. Every operation is made of these.

| transition | vLLM 0.25.1 does it in |
| --- | --- |
| `acquire` | `BlockPool.get_new_blocks`, for each block |
| `share` | `BlockPool.touch`, for each block |
| `release` | `BlockPool.free_blocks`, for each reference |
| `skip`, `pad` | a manager's `remove_skipped_blocks` and null entries |
| `publish` | `BlockPool.cache_full_blocks`, for each block |
| `publish_partial` | `BlockPool.cache_partial_block` |
| `retract` | `BlockPool.evict_blocks`, for each block |
| `reset` | `BlockPool.reset_prefix_cache` |
| `lookup` | `BlockPool.get_cached_block`, for each group |

Each one first says what it requires (and then raises, leaving the state unchanged), then
what it does, then what it returns.
"""

from kvproof.spec import rules
from kvproof.spec.ghosts import add_holder, count_free, count_used, drop_holder
from kvproof.spec.logic import Bool, check, implies, neg, requires
from kvproof.spec.quantities import BlockId, Key, Slot
from kvproof.spec.state import PoolState, keys_of


def acquire(state: PoolState, slot: Slot) -> BlockId:
    """Hand out the block at the front of the free queue. It loses its keys.

    Raises HeldSlotError when the slot names a block already, OutOfBlocksError when no
    block is free.
    """
    requires(neg(state.held[slot]), rules.SLOT_EMPTY, slot)
    requires(state.free_queue.nonempty(), rules.ENOUGH_FREE, 1)

    block = state.free_queue.popleft()
    count_used(state, block)
    _drop_keys(state, block)
    state.retired[block] = state.universe.no_keys()
    check(state.ref_cnt[block] == 0, "a block that is handed out is held by nobody")
    check(block != state.universe.null, "the null block is never handed out")
    add_holder(state, slot, block)
    return block


def share(state: PoolState, slot: Slot, block: BlockId) -> None:
    """Let one slot more name the block. If nobody held it, it leaves the queue; it keeps
    its keys.

    Raises HeldSlotError when the slot names a block already, NullBlockError for the null
    block, UnreadableBlockError when the block is neither held nor keyed.
    """
    requires(neg(state.held[slot]), rules.SLOT_EMPTY, slot)
    requires(block != state.universe.null, rules.REAL_BLOCK, block)
    requires(is_readable(state, block), rules.SHARE_READABLE, block)

    if state.ref_cnt[block] == 0:
        check(state.free_queue.has(block), "a block that nobody holds is queued")
        state.free_queue.remove(block)
        count_used(state, block)
    add_holder(state, slot, block)


def release(state: PoolState, slot: Slot) -> None:
    """Empty the slot. A block that nobody holds any more is queued: at the front when it
    has no key, since nobody can hit it; at the back when it has one, since somebody may.
    Its keys stay (lazy eviction).

    Raises UnheldBlockError when the slot names no block.
    """
    requires(state.held[slot], rules.RELEASE_HELD, slot)

    block = state.table[slot]
    if block == state.universe.null:
        state.held[slot] = False
        return
    drop_holder(state, slot)
    if state.ref_cnt[block] == 0:
        count_free(state, block)
        if state.block_hash[block] == state.universe.no_key:
            state.free_queue.prepend(block)
        else:
            state.free_queue.append(block)


def skip(state: PoolState, slot: Slot) -> None:
    """Release the block that the slot names, and let the slot name the null block.

    Raises UnheldBlockError when the slot names no block, NullBlockError when it names the
    null block already.
    """
    requires(state.held[slot], rules.RELEASE_HELD, slot)
    requires(state.table[slot] != state.universe.null, rules.REAL_BLOCK, slot)

    release(state, slot)
    pad(state, slot)


def pad(state: PoolState, slot: Slot) -> None:
    """Let an empty slot name the null block.

    Raises HeldSlotError when the slot names a block already.
    """
    requires(neg(state.held[slot]), rules.SLOT_EMPTY, slot)

    state.held[slot] = True
    state.table[slot] = state.universe.null


def publish(state: PoolState, block: BlockId, key: Key) -> None:
    """List a full block under its key. Partial keys that it had are retired.

    Raises CachingDisabledError, NullBlockError, UnheldKeyError when nobody holds the
    block, TokenCountError when the key does not end on a block boundary,
    BlockAlreadyHashedError when the block has a full key, ForeignKeyError when its partial
    keys are of another chain.
    """
    requires_publishable(state, block, key)

    if state.block_hash[block] != state.universe.no_key:
        _retire_keys(state, block)
    _give_key(state, block, key)


def publish_partial(state: PoolState, block: BlockId, key: Key) -> Bool:
    """List a block under a prefix that ends inside it, and say whether it is listed now.

    A key longer than those that the block has retires them; a shorter one is added. A key
    that was retired is not given again before the block is handed out anew.

    Raises CachingDisabledError, NullBlockError, UnheldKeyError when nobody holds the
    block, TokenCountError when the key ends on a block boundary, ForeignKeyError when the
    block's keys are of another chain.
    """
    _requires_keyable(state, block)
    requires(is_partial_key(state, key), rules.PARTIAL_INSIDE, key)
    requires(is_own_chain(state, block, key), rules.ONE_CHAIN, block)

    if state.cached.contain(key, block):
        return True
    if state.retired[block].has(key):
        return False
    if state.universe.is_prefix(state.block_hash[block], key):
        _retire_keys(state, block)
    _give_key(state, block, key)
    return True


def retract(state: PoolState, block: BlockId) -> None:
    """Take all keys from the block. It stays where it is: held, or in its place in the queue."""
    _drop_keys(state, block)


def reset(state: PoolState) -> None:
    """Take all keys from all blocks.

    Raises BlocksInUseError unless every block but the null block is free.
    """
    u = state.universe
    requires(state.num_free_blocks == u.num_blocks - 1, rules.RESET_UNUSED, state.num_free_blocks)

    state.cached.clear()
    state.block_hash.clear(u.no_key)
    state.partial_keys.clear(u.no_keys())
    state.events.cleared()


def lookup(state: PoolState, key: Key) -> BlockId:
    """Return the block that was listed under the key first, or the null block for a miss."""
    if state.cached.lists(key):
        return state.cached.get_one_block(key)
    return state.universe.null


def is_readable(state: PoolState, block: BlockId) -> Bool:
    """Somebody holds the block, or it carries a key: its contents mean something."""
    return (state.ref_cnt[block] > 0) | (state.block_hash[block] != state.universe.no_key)


def is_full_key(state: PoolState, key: Key) -> Bool:
    """The key ends on a block boundary."""
    return (key != state.universe.no_key) & state.universe.is_full(key)


def is_partial_key(state: PoolState, key: Key) -> Bool:
    """The key ends inside a block."""
    return (key != state.universe.no_key) & neg(state.universe.is_full(key))


def has_full_key(state: PoolState, block: BlockId) -> Bool:
    """The block carries a key that ends on a block boundary."""
    return is_full_key(state, state.block_hash[block])


def is_own_chain(state: PoolState, block: BlockId, key: Key) -> Bool:
    """The block has no key, or the key and the block's longest one are prefixes of one
    chain and end in the same block of it.
    """
    u, own = state.universe, state.block_hash[block]
    return implies(
        own != u.no_key,
        (u.is_prefix(own, key) | u.is_prefix(key, own)) & u.same_block(own, key),
    )


def requires_publishable(state: PoolState, block: BlockId, key: Key) -> None:
    """State what `publish` requires, so that a list can be validated before any of it is done."""
    _requires_keyable(state, block)
    requires(is_full_key(state, key), rules.FULL_ON_BOUNDARY, key)
    requires(neg(has_full_key(state, block)), rules.PUBLISH_ONCE, block)
    requires(is_own_chain(state, block, key), rules.ONE_CHAIN, block)


def _requires_keyable(state: PoolState, block: BlockId) -> None:
    requires(state.universe.enable_caching, rules.CACHING_ON, block)
    requires(block != state.universe.null, rules.REAL_BLOCK, block)
    requires(state.ref_cnt[block] > 0, rules.PUBLISH_HELD, block)


def _give_key(state: PoolState, block: BlockId, key: Key) -> None:
    if state.block_hash[block] == state.universe.no_key:
        state.block_hash[block] = key
    else:
        state.partial_keys[block] = state.partial_keys[block].add(key)
    state.cached.insert(key, block)
    state.events.stored(key)


def _retire_keys(state: PoolState, block: BlockId) -> None:
    state.retired[block] = state.retired[block].union(keys_of(state, block))
    _drop_keys(state, block)


def _drop_keys(state: PoolState, block: BlockId) -> None:
    keys = keys_of(state, block)
    state.cached.pop(keys, block)
    state.events.removed(keys.where(lambda key: neg(state.cached.lists(key))))
    state.block_hash[block] = state.universe.no_key
    state.partial_keys[block] = state.universe.no_keys()


__all__ = [
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
]
