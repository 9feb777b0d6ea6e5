"""The operations of the block pool, under the names of vLLM 0.25.1.

Each operation validates everything first, then runs primitive transitions. So one that
raises has changed nothing, also when it is about a list. Blocks are named by their ids.

Source: vLLM 0.25.1, block_pool.py, `BlockPool`.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kvproof.spec import rules
from kvproof.spec.concrete import ConcreteEvents, ConcreteUniverse
from kvproof.spec.logic import requires
from kvproof.spec.quantities import NO_KEY, BlockHash, BlockId, GroupId, Key, NumTokens, Slot
from kvproof.spec.state import PoolState
from kvproof.spec.transitions import (
    acquire,
    is_readable,
    lookup,
    publish,
    publish_partial,
    release,
    requires_publishable,
    reset,
    retract,
    share,
)

logger = logging.getLogger(__name__)


class KVCacheBlock(NamedTuple):
    """What can be read of a block (vLLM: kv_cache_utils.py, `KVCacheBlock`)."""

    block_id: BlockId
    ref_cnt: int
    block_hash: Key | None
    block_hash_num_tokens: NumTokens | None
    is_null: bool


class BlockStored(NamedTuple):
    """A key has become resident, or resident in one block more.

    `token_ids` follow the prefix `parent_block_hash`, and end the prefix `block_hash`.
    """

    block_hash: BlockHash
    parent_block_hash: BlockHash | None
    token_ids: BlockHash
    group_idx: GroupId


class BlockRemoved(NamedTuple):
    """A key is resident in no block any more."""

    block_hash: BlockHash
    group_idx: GroupId


class AllBlocksCleared(NamedTuple):
    """No key is resident any more."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared


class MetricsCollector(Protocol):
    """Who wants to know how long blocks live (vLLM: `KVCacheMetricsCollector`)."""

    def on_block_allocated(self, block: BlockId) -> None:
        """Note that the block was handed out."""
        ...

    def on_block_accessed(self, block: BlockId) -> None:
        """Note that the block was hit."""
        ...

    def on_block_evicted(self, block: BlockId) -> None:
        """Note that what the block held until now is gone."""
        ...

    def reset(self) -> None:
        """Note that everything is gone."""
        ...


class BlockPool:
    """A pool of `num_gpu_blocks` blocks, of which block 0 is the null block.

    `hash_block_size` is the number of tokens of one hash unit, and `block_sizes` gives the
    number of tokens in a block of each group, a multiple of it. Raises NegativeCountError
    when there is no block, BlockSizeError when a size is not positive or no multiple.
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool,
        hash_block_size: int,
        block_sizes: Mapping[GroupId, int],
        enable_kv_cache_events: bool = False,
        metrics_collector: MetricsCollector | None = None,
    ) -> None:
        requires(num_gpu_blocks > 0, rules.POOL_HAS_NULL, num_gpu_blocks)
        requires(hash_block_size > 0, rules.ONE_BLOCK_SIZE, hash_block_size)
        for block_size in block_sizes.values():
            fits = block_size > 0 and block_size % hash_block_size == 0
            requires(fits, rules.ONE_BLOCK_SIZE, block_size)
        self.universe = ConcreteUniverse(num_gpu_blocks, enable_caching, dict(block_sizes))
        self.state = PoolState(self.universe)
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.enable_kv_cache_events = enable_kv_cache_events
        self.metrics_collector = metrics_collector
        self.null_block = self.universe.null
        self._next_slot = 0

    def get_new_blocks(self, num_blocks: int) -> list[BlockId]:
        """Hand out blocks from the front of the free queue. They lose their keys.

        Raises NegativeCountError, OutOfBlocksError.
        """
        requires(num_blocks >= 0, rules.COUNT_NONNEGATIVE, num_blocks)
        requires(num_blocks <= self.state.num_free_blocks, rules.ENOUGH_FREE, num_blocks)

        blocks = [acquire(self.state, self._new_slot()) for _ in range(num_blocks)]

        if self.metrics_collector is not None:
            for block in blocks:
                if self.enable_caching:
                    self.metrics_collector.on_block_evicted(block)
                self.metrics_collector.on_block_allocated(block)
        return blocks

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Hold each block once more: a prefix hit. Null blocks are left alone.

        Raises BlockIdError, UnreadableBlockError.
        """
        self._require_ids(blocks)
        for block in blocks:
            requires(
                block == self.null_block or is_readable(self.state, block),
                rules.SHARE_READABLE,
                block,
            )

        for block in blocks:
            if block != self.null_block:
                share(self.state, self._new_slot(), block)
                if self.metrics_collector is not None:
                    self.metrics_collector.on_block_accessed(block)

    def free_blocks(self, ordered_blocks: Iterable[BlockId]) -> None:
        """Release each block once for each time that it is listed. Null blocks are left alone.

        Blocks that nobody holds any more are queued: those without a key at the front and
        those with one at the back, each kind in the order given. The first one given is the
        first to be evicted of its kind.

        Raises BlockIdError, UnheldBlockError.
        """
        blocks = list(ordered_blocks)
        self._require_ids(blocks)
        blocks = [block for block in blocks if block != self.null_block]
        releases = Counter(blocks)
        for block, count in releases.items():
            requires(count <= self.state.ref_cnt[block], rules.RELEASE_HELD, block)

        freed = [block for block in releases if releases[block] == self.state.ref_cnt[block]]
        freed.sort(key=lambda block: _last_index(blocks, block))
        for block, count in releases.items():
            for _ in range(count - (block in freed)):
                self._release(block)
        for block in freed:
            if self.state.block_hash[block] != NO_KEY:
                self._release(block)
        for block in reversed(freed):
            if self.state.ref_cnt[block] > 0:
                self._release(block)

    def get_cached_block(
        self, block_hash: BlockHash, kv_cache_group_ids: Sequence[GroupId]
    ) -> list[BlockId] | None:
        """Return, for each group, the block that was listed first under this hash, or None
        when some group has none.
        """
        found = [lookup(self.state, Key(block_hash, group)) for group in kv_cache_group_ids]
        return None if self.null_block in found else found

    def cache_full_blocks(
        self,
        tokens: BlockHash,
        blocks: Sequence[BlockId],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: GroupId,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """Publish `blocks[num_cached_blocks:num_full_blocks]`, each under the hash of the
        request's prefix that ends with it. Null blocks and blocks whose mask is false are
        left out; partial keys that a block has are retired.

        `tokens` are the tokens of the request that have a hash: whole hash units.

        Raises BlockSizeError, TokenCountError, MaskLengthError, BlockIdError, and what
        `publish` raises.
        """
        self._require_block_size(kv_cache_group_id, block_size)
        if num_cached_blocks >= num_full_blocks:
            return
        given = num_cached_blocks >= 0 and num_full_blocks <= len(blocks)
        requires(given, rules.BLOCKS_GIVEN, num_full_blocks)
        hashed = len(tokens) - len(tokens) % self.hash_block_size
        requires(num_full_blocks * block_size <= hashed, rules.TOKENS_KNOWN, num_full_blocks)
        new = range(num_cached_blocks, num_full_blocks)
        if block_mask is not None:
            requires(len(block_mask) == len(new), rules.MASK_FITS, len(block_mask))
        self._require_ids(blocks[num_cached_blocks:num_full_blocks])

        keyed = {
            index: Key(tokens[: (index + 1) * block_size], kv_cache_group_id)
            for index in new
            if blocks[index] != self.null_block
            and (block_mask is None or block_mask[index - num_cached_blocks])
        }
        for index, key in keyed.items():
            requires_publishable(self.state, blocks[index], key)
        named = Counter(blocks[index] for index in keyed)
        for block, times in named.items():
            requires(times == 1, rules.PUBLISH_ONCE, block)

        for index, key in keyed.items():
            self.universe.known_keys[key] = None
            publish(self.state, blocks[index], key)

    def cache_partial_block(
        self,
        tokens: BlockHash,
        block: BlockId,
        num_tokens: int,
        kv_cache_group_id: GroupId,
        block_size: int,
    ) -> Key | None:
        """Publish a block under the hash of a prefix that ends inside it. Return the key, or
        None for the null block and for a key that was retired.

        `tokens` are the tokens of the request that have a hash.

        Raises BlockIdError, BlockSizeError, TokenCountError, and what `publish_partial`
        raises.
        """
        self._require_ids([block])
        if block == self.null_block:
            return None
        self._require_block_size(kv_cache_group_id, block_size)
        whole_units = num_tokens > 0 and num_tokens % self.hash_block_size == 0
        requires(whole_units and num_tokens <= len(tokens), rules.TOKENS_KNOWN, num_tokens)

        key = Key(tokens[:num_tokens], kv_cache_group_id)
        listed = publish_partial(self.state, block, key)
        self.universe.known_keys[key] = None
        return key if listed else None

    def evict_blocks(self, block_ids: Iterable[BlockId]) -> None:
        """Take all keys from these blocks; each stays where it is.

        Raises BlockIdError.
        """
        blocks = list(block_ids)
        self._require_ids(blocks)

        for block in blocks:
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_evicted(block)
            retract(self.state, block)

    def reset_prefix_cache(self) -> bool:
        """Take all keys from all blocks, and return True. When a block other than the null
        block is in use, warn, change nothing, and return False.
        """
        used = self.num_gpu_blocks - 1 - self.state.num_free_blocks
        if used:
            logger.warning("prefix cache not reset: %d blocks are in use", used)
            return False

        reset(self.state)
        if self.metrics_collector is not None:
            self.metrics_collector.reset()
        return True

    def get_num_free_blocks(self) -> int:
        """Return the number of blocks that may be handed out."""
        return self.state.num_free_blocks

    def get_usage(self) -> float:
        """Return the share of the blocks in use, 0.0 to 1.0; the null block does not count."""
        usable = self.num_gpu_blocks - 1
        return 1.0 - self.state.num_free_blocks / usable if usable else 0.0

    def take_events(self) -> list[KVCacheEvent]:
        """Return the events since the last call, oldest first. Without
        `enable_kv_cache_events` there are none.
        """
        events = self.state.events
        assert isinstance(events, ConcreteEvents)
        log, events.log = events.log, []
        return [self._event(*entry) for entry in log] if self.enable_kv_cache_events else []

    def block(self, block_id: BlockId) -> KVCacheBlock:
        """Return what can be read of a block. Raises BlockIdError."""
        self._require_ids([block_id])
        key = self.state.block_hash[block_id]
        return KVCacheBlock(
            block_id,
            self.state.ref_cnt[block_id],
            None if key == NO_KEY else key,
            None if key == NO_KEY else NumTokens(len(key.block_hash)),
            block_id == self.null_block,
        )

    def _event(self, kind: str, key: Key | None) -> KVCacheEvent:
        if key is None:
            return AllBlocksCleared()
        if kind == "removed":
            return BlockRemoved(key.block_hash, key.group)
        size = self.universe.block_sizes[key.group]
        new = size if len(key.block_hash) % size == 0 else self.hash_block_size
        parent = key.block_hash[:-new] or None
        return BlockStored(key.block_hash, parent, key.block_hash[-new:], key.group)

    def _new_slot(self) -> Slot:
        slot = Slot(self._next_slot)
        self._next_slot += 1
        self.universe.known_slots[slot] = None
        return slot

    def _release(self, block: BlockId) -> None:
        slot = self.state.holder[block, self.state.ref_cnt[block] - 1]
        release(self.state, slot)
        del self.universe.known_slots[slot]

    def _require_ids(self, blocks: Sequence[BlockId]) -> None:
        for block in blocks:
            requires(0 <= block < self.num_gpu_blocks, rules.ID_IN_RANGE, block)

    def _require_block_size(self, group: GroupId, block_size: int) -> None:
        same = self.universe.block_sizes.get(group) == block_size
        requires(same, rules.ONE_BLOCK_SIZE, block_size)


def _last_index(blocks: list[BlockId], block: BlockId) -> int:
    return len(blocks) - 1 - blocks[::-1].index(block)
