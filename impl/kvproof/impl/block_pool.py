"""The block pool, under the names of vLLM 0.25.1.

It does what `kvproof.spec.block_pool` says, on flat lists with one entry for each block.
Each operation validates everything first, so one that raises has changed nothing. The pool
never looks inside a block hash: it only needs that equal hashes mean equal prefixes, as
they do when each hash is chained over the whole prefix.

Source: vLLM 0.25.1, block_pool.py, `BlockPool`.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NoReturn

from kvproof.impl.events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from kvproof.impl.free_queue import FreeQueue
from kvproof.impl.hash_map import BlockHashMap
from kvproof.impl.interface import Key, KVCacheBlock, MetricsCollector, Request
from kvproof.spec import rules

logger = logging.getLogger(__name__)


class BlockPool:
    """A pool of `num_gpu_blocks` blocks, of which block 0 is the null block.

    `hash_block_size` is the number of tokens of one hash unit, and `block_sizes` gives the
    number of tokens in a block of each group, a multiple of it. Raises NegativeCountError
    when there is no block, BlockSizeError when a size is no multiple.

    Each list has an entry for every block: `ref_cnt`; `block_hash`, its full key or the
    longest of its partial ones (None: no key); and, while there is one, `group`, the
    key's group; `num_tokens`, the length of the prefix that it names; `chain`, the hashes
    of the units of that prefix that lie in the block (empty where a block is one unit).
    What few blocks have is kept in dicts: `partial_hashes`, the block's other keys, all
    shorter; `retired`, the keys that a longer one replaced since it was handed out.
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool,
        hash_block_size: int,
        block_sizes: Mapping[int, int],
        enable_kv_cache_events: bool = False,
        metrics_collector: MetricsCollector | None = None,
    ) -> None:
        if num_gpu_blocks <= 0:
            _refuse(rules.POOL_HAS_NULL, num_gpu_blocks)
        for block_size in block_sizes.values():
            if hash_block_size <= 0 or block_size <= 0 or block_size % hash_block_size:
                _refuse(rules.ONE_BLOCK_SIZE, block_size)
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.block_sizes = dict(block_sizes)
        self.enable_kv_cache_events = enable_kv_cache_events
        self.metrics_collector = metrics_collector
        self.null_block = 0

        self.free_queue = FreeQueue(num_gpu_blocks, self.null_block)
        self.cached = BlockHashMap()
        self.ref_cnt = [0] * num_gpu_blocks
        self.block_hash: list[Hashable | None] = [None] * num_gpu_blocks
        self.group = [-1] * num_gpu_blocks
        self.num_tokens = [0] * num_gpu_blocks
        self.chain: list[Sequence[Hashable]] = [()] * num_gpu_blocks
        self.partial_hashes: dict[int, dict[Hashable, None]] = {}
        self.retired: dict[int, set[Key]] = {}
        self._events: list[KVCacheEvent] = []

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """Hand out blocks from the front of the free queue. They lose their keys.

        Raises NegativeCountError, OutOfBlocksError.
        """
        if num_blocks < 0:
            _refuse(rules.COUNT_NONNEGATIVE, num_blocks)
        if num_blocks > self.free_queue.num_free_blocks:
            _refuse(rules.ENOUGH_FREE, num_blocks)

        blocks = self.free_queue.popleft_n(num_blocks)
        ref_cnt, block_hash = self.ref_cnt, self.block_hash
        for block in blocks:
            ref_cnt[block] = 1
            if block_hash[block] is not None:
                self._drop_keys(block)
        if self.retired:
            for block in blocks:
                self.retired.pop(block, None)

        if self.metrics_collector is not None:
            for block in blocks:
                if self.enable_caching:
                    self.metrics_collector.on_block_evicted(block)
                self.metrics_collector.on_block_allocated(block)
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        """Hold each block once more: a prefix hit. Null blocks are left alone.

        Raises BlockIdError, UnreadableBlockError.
        """
        self._require_ids(blocks)
        ref_cnt, null_block = self.ref_cnt, self.null_block
        for block in blocks:
            if ref_cnt[block] == 0 and self.block_hash[block] is None and block != null_block:
                _refuse(rules.SHARE_READABLE, block)

        for block in blocks:
            if block == null_block:
                continue
            if ref_cnt[block] == 0:
                self.free_queue.remove(block)
            ref_cnt[block] += 1
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_accessed(block)

    def free_blocks(self, ordered_blocks: Iterable[int]) -> None:
        """Release each block once for each time that it is listed. Null blocks are left alone.

        Blocks that nobody holds any more are queued: those without a key at the front and
        those with one at the back, each kind in the order given. The first one given is the
        first to be evicted of its kind.

        Raises BlockIdError, UnheldBlockError.
        """
        blocks = list(ordered_blocks)
        self._require_ids(blocks)
        ref_cnt, null_block = self.ref_cnt, self.null_block
        unhashed: list[int] = []
        hashed: list[int] = []
        # Counts are taken down in one pass, which also finds a block that is listed too
        # often. Then they are put back: two passes would cost all correct calls more.
        for position, block in enumerate(blocks):
            if block == null_block:
                continue
            count = ref_cnt[block] - 1
            if count < 0:
                for earlier in blocks[:position]:
                    if earlier != null_block:
                        ref_cnt[earlier] += 1
                _refuse(rules.RELEASE_HELD, block)
            ref_cnt[block] = count
            if count == 0:
                (unhashed if self.block_hash[block] is None else hashed).append(block)

        self.free_queue.prepend_n(unhashed)
        self.free_queue.append_n(hashed)

    def get_cached_block(
        self, block_hash: Hashable, kv_cache_group_ids: Sequence[int]
    ) -> list[int] | None:
        """Return, for each group, the block that was listed first under this hash, or None
        when some group has none.
        """
        found = []
        for group in kv_cache_group_ids:
            block = self.cached.get_one_block(block_hash, group)
            if block is None:
                return None
            found.append(block)
        return found

    def cache_full_blocks(
        self,
        request: Request,
        blocks: Sequence[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """Publish `blocks[num_cached_blocks:num_full_blocks]`, each under the hash of the
        request's prefix that ends with it. Null blocks and blocks whose mask is false are
        left out; partial keys that a block has are retired.

        Raises BlockSizeError, TokenCountError, MaskLengthError, BlockIdError,
        CachingDisabledError, UnheldKeyError when nobody holds a block,
        BlockAlreadyHashedError when a block has a full key or is listed twice,
        ForeignKeyError when its partial keys are of another chain.
        """
        self._require_block_size(kv_cache_group_id, block_size)
        if num_cached_blocks >= num_full_blocks:
            return
        if num_cached_blocks < 0 or num_full_blocks > len(blocks):
            _refuse(rules.BLOCKS_GIVEN, num_full_blocks)
        hashes, units = request.block_hashes, block_size // self.hash_block_size
        if num_full_blocks * units > len(hashes):
            _refuse(rules.TOKENS_KNOWN, num_full_blocks)
        new_blocks = blocks[num_cached_blocks:num_full_blocks]
        if block_mask is not None and len(block_mask) != len(new_blocks):
            _refuse(rules.MASK_FITS, len(block_mask))
        self._require_ids(new_blocks)
        null_block = self.null_block
        chosen = {
            index: block
            for index, block in enumerate(new_blocks, num_cached_blocks)
            if block != null_block and (block_mask is None or block_mask[index - num_cached_blocks])
        }
        self._require_publishable(chosen, hashes, block_size, kv_cache_group_id)

        for index, block in chosen.items():
            if self.block_hash[block] is not None:
                self._retire_keys(block)
            self._set_key(block, hashes, (index + 1) * block_size, kv_cache_group_id)
        if self.enable_kv_cache_events:
            for first, last in _runs(chosen):
                self._tell_stored(
                    request, first * block_size, last * block_size, block_size, kv_cache_group_id
                )

    def cache_partial_block(
        self,
        request: Request,
        block: int,
        num_tokens: int,
        kv_cache_group_id: int,
        block_size: int,
    ) -> Key | None:
        """Publish a block under the hash of a prefix that ends inside it. Return the key, or
        None for the null block and for a key that was retired.

        A key longer than those that the block has retires them; a shorter one is added. A key
        that was retired is not given again before the block is handed out anew.

        Raises BlockIdError, BlockSizeError, TokenCountError, CachingDisabledError,
        UnheldKeyError when nobody holds the block, ForeignKeyError when the block's keys are
        of another chain.
        """
        self._require_ids((block,))
        if block == self.null_block:
            return None
        self._require_block_size(kv_cache_group_id, block_size)
        hashes, unit = request.block_hashes, self.hash_block_size
        if num_tokens <= 0 or num_tokens % unit or num_tokens > len(hashes) * unit:
            _refuse(rules.TOKENS_KNOWN, num_tokens)
        if not self.enable_caching:
            _refuse(rules.CACHING_ON, block)
        if self.ref_cnt[block] <= 0:
            _refuse(rules.PUBLISH_HELD, block)
        if num_tokens % block_size == 0:
            _refuse(rules.PARTIAL_INSIDE, num_tokens)
        own = self.block_hash[block]
        if own is not None and not self._is_own_chain(block, hashes, num_tokens, kv_cache_group_id):
            _refuse(rules.ONE_CHAIN, block)

        block_hash = hashes[num_tokens // unit - 1]
        key = Key(block_hash, kv_cache_group_id)
        if block_hash == own or block_hash in self.partial_hashes.get(block, ()):
            return key
        if key in self.retired.get(block, ()):
            return None
        if own is not None and num_tokens < self.num_tokens[block]:
            self.partial_hashes.setdefault(block, {})[block_hash] = None
            self.cached.insert(block_hash, kv_cache_group_id, block)
        else:
            if own is not None:
                self._retire_keys(block)
            self._set_key(block, hashes, num_tokens, kv_cache_group_id)
        if self.enable_kv_cache_events:
            self._tell_stored(request, num_tokens - unit, num_tokens, unit, kv_cache_group_id)
        return key

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Take all keys from these blocks; each stays where it is.

        Raises BlockIdError.
        """
        blocks = list(block_ids)
        self._require_ids(blocks)

        for block in blocks:
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_evicted(block)
            self._drop_keys(block)

    def reset_prefix_cache(self) -> bool:
        """Take all keys from all blocks, and return True. When a block other than the null
        block is in use, warn, change nothing, and return False.
        """
        used = self.num_gpu_blocks - 1 - self.free_queue.num_free_blocks
        if used:
            logger.warning("prefix cache not reset: %d blocks are in use", used)
            return False

        self.cached.clear()
        self.block_hash[:] = [None] * self.num_gpu_blocks
        self.chain[:] = [()] * self.num_gpu_blocks
        self.partial_hashes.clear()
        if self.enable_kv_cache_events:
            self._events.append(AllBlocksCleared())
        if self.metrics_collector is not None:
            self.metrics_collector.reset()
        return True

    def get_num_free_blocks(self) -> int:
        """Return the number of blocks that may be handed out."""
        return self.free_queue.num_free_blocks

    def get_usage(self) -> float:
        """Return the share of the blocks in use, 0.0 to 1.0; the null block does not count."""
        usable = self.num_gpu_blocks - 1
        return 1.0 - self.free_queue.num_free_blocks / usable if usable else 0.0

    def take_events(self) -> list[KVCacheEvent]:
        """Return the events since the last call, oldest first. Without
        `enable_kv_cache_events` there are none.
        """
        events, self._events = self._events, []
        return events

    def block(self, block_id: int) -> KVCacheBlock:
        """Return what can be read of a block. Raises BlockIdError."""
        self._require_ids((block_id,))
        own = self.block_hash[block_id]
        return KVCacheBlock(
            block_id,
            self.ref_cnt[block_id],
            None if own is None else Key(own, self.group[block_id]),
            None if own is None else self.num_tokens[block_id],
            block_id == self.null_block,
        )

    def _require_ids(self, blocks: Sequence[int]) -> None:
        if blocks and (min(blocks) < 0 or max(blocks) >= self.num_gpu_blocks):
            for block in blocks:
                if not 0 <= block < self.num_gpu_blocks:
                    _refuse(rules.ID_IN_RANGE, block)

    def _require_block_size(self, group: int, block_size: int) -> None:
        if self.block_sizes.get(group) != block_size:
            _refuse(rules.ONE_BLOCK_SIZE, block_size)

    def _require_publishable(
        self, chosen: Mapping[int, int], hashes: Sequence[Hashable], block_size: int, group: int
    ) -> None:
        for index, block in chosen.items():
            if not self.enable_caching:
                _refuse(rules.CACHING_ON, block)
            if self.ref_cnt[block] <= 0:
                _refuse(rules.PUBLISH_HELD, block)
            if self.block_hash[block] is not None:
                if self.num_tokens[block] % self.block_sizes[self.group[block]] == 0:
                    _refuse(rules.PUBLISH_ONCE, block)
                if not self._is_own_chain(block, hashes, (index + 1) * block_size, group):
                    _refuse(rules.ONE_CHAIN, block)
        if len(set(chosen.values())) < len(chosen):
            blocks = list(chosen.values())
            _refuse(rules.PUBLISH_ONCE, next(b for b in blocks if blocks.count(b) > 1))

    def _is_own_chain(
        self, block: int, hashes: Sequence[Hashable], num_tokens: int, group: int
    ) -> bool:
        """Say whether the block's keys and the request's prefix of `num_tokens` are of one
        chain and end in the same block of it. The block must have a key.

        Each unit's hash names the whole prefix, so it is enough to compare the last unit
        that both have.
        """
        own, size = self.num_tokens[block], self.block_sizes[group]
        index = (num_tokens - 1) // size
        if self.group[block] != group or (own - 1) // size != index:
            return False
        last = min(own, num_tokens) // self.hash_block_size - 1
        return self.chain[block][last - index * size // self.hash_block_size] == hashes[last]

    def _set_key(self, block: int, hashes: Sequence[Hashable], num_tokens: int, group: int) -> None:
        """Give a block without a key its first one, the hash of this prefix."""
        unit, size = self.hash_block_size, self.block_sizes[group]
        end = num_tokens // unit
        block_hash = hashes[end - 1]
        self.block_hash[block] = block_hash
        self.group[block] = group
        self.num_tokens[block] = num_tokens
        if size > unit:
            self.chain[block] = hashes[(num_tokens - 1) // size * size // unit : end]
        self.cached.insert(block_hash, group, block)

    def _retire_keys(self, block: int) -> None:
        """Take all keys from a block that has some, and let none of them come back."""
        group, retired = self.group[block], self.retired.setdefault(block, set())
        retired.add(Key(self.block_hash[block], group))
        for block_hash in self.partial_hashes.get(block, ()):
            retired.add(Key(block_hash, group))
        self._drop_keys(block)

    def _drop_keys(self, block: int) -> None:
        """Take all keys from a block, and tell which of them no other block has."""
        own, group = self.block_hash[block], self.group[block]
        if own is None:
            return
        self.block_hash[block] = None
        self.chain[block] = ()
        hashes = [own, *self.partial_hashes.pop(block, ())]
        gone = [block_hash for block_hash in hashes if self.cached.pop(block_hash, group, block)]
        if gone and self.enable_kv_cache_events:
            self._events.append(BlockRemoved(gone, group))

    def _tell_stored(self, request: Request, start: int, end: int, size: int, group: int) -> None:
        """Tell that the prefixes of the request that end in `(start, end]`, one every `size`
        tokens, are resident.
        """
        hashes, unit = request.block_hashes, self.hash_block_size
        self._events.append(
            BlockStored(
                [hashes[last // unit - 1] for last in range(start + size, end + 1, size)],
                hashes[start // unit - 1] if start else None,
                list(request.tokens[start:end]),
                size,
                group,
            )
        )


def _refuse(rule: rules.Rule, subject: object) -> NoReturn:
    raise rule.error(rule, subject)


def _runs(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers, each as its first and the end behind its last.

    >>> _runs([2, 3, 5])
    [(2, 4), (5, 6)]
    """
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = runs[-1][0], index + 1
        else:
            runs.append((index, index + 1))
    return runs
