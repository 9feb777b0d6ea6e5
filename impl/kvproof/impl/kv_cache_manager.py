"""The manager of one group over one pool, under the names of vLLM 0.25.1.

It does what `kvproof.spec.kv_cache_manager` says. A request's table is one list of block ids;
a step that needs no new block touches nothing but two lengths. `allocate_step` serves the
running requests of a whole scheduler step with one call.

Source: vLLM 0.25.1, kv_cache_manager.py, `KVCacheManager`; single_type_kv_cache_manager.py.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import takewhile
from typing import Protocol

from kvproof.impl.block_pool import BlockPool
from kvproof.impl.events import KVCacheEvent
from kvproof.impl.interface import MetricsCollector
from kvproof.impl.reach import GroupSpec, Reach, Window, reach_of, refuse
from kvproof.spec import manager_rules


class ManagedRequest(Protocol):
    """What a manager must know of a request: see `kvproof.spec.request.Request`."""

    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    is_running: bool
    skip_reading_prefix_cache: bool

    @property
    def block_hashes(self) -> Sequence[Hashable]:
        """One hash for each whole block of known tokens, each chained over the whole prefix."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """The known tokens, in order."""
        ...


class KVCacheManager:
    """The cache of a model with one group. Sizes are in tokens; `watermark` is a share of the
    pool. Raises ConfigError when the settings do not fit together.
    """

    def __init__(
        self,
        num_blocks: int,
        group: GroupSpec,
        max_model_len: int,
        max_num_batched_tokens: int | None = None,
        enable_caching: bool = True,
        enable_kv_cache_events: bool = False,
        metrics_collector: MetricsCollector | None = None,
        watermark: float = 0.0,
        retention_interval: int | None = None,
    ) -> None:
        if watermark < 0:
            refuse(manager_rules.TOKENS_NONNEGATIVE, watermark)
        self.reach: Reach = reach_of(group)
        size = self.block_size = group.block_size
        if retention_interval is not None:
            fits = retention_interval >= 0 and retention_interval % size == 0
            if not fits or not isinstance(self.reach, Window):
                refuse(manager_rules.RETENTION_FITS, retention_interval)
        self.block_pool = BlockPool(
            num_blocks, enable_caching, size, {0: size}, enable_kv_cache_events, metrics_collector
        )
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.retention_interval = retention_interval
        self.watermark_blocks = int(watermark * num_blocks)
        batch = max_model_len if max_num_batched_tokens is None else max_num_batched_tokens
        self.admission_cap = self.reach.admission_blocks(batch, max_model_len)
        self.zeroes_new_blocks = type(self.reach) is Reach
        self.req_to_blocks: dict[str, list[int]] = {}
        self.num_cached_block: dict[str, int] = {}
        self.new_block_ids: list[int] = []

    def get_computed_blocks(self, request: ManagedRequest) -> tuple[list[int], int]:
        """Return the entries of the longest prefix hit, and how many tokens they cover: at
        least one token is left to compute.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        hashes, find = request.block_hashes, self.block_pool.cached.get_one_block
        limit = min((len(request.tokens) - 1) // self.block_size, len(hashes))
        hit = self.reach.hit(
            limit, lambda index: find(hashes[index], 0), self.block_pool.null_block
        )
        return hit, len(hit) * self.block_size

    def allocate_slots(
        self,
        request: ManagedRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Sequence[int] = (),
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
    ) -> list[int] | None:
        """Give a request slots for its next tokens. Return the new blocks, or None when there
        are not enough: then nothing has changed, but that blocks which no token may read any
        more were released.

        The arguments are those of `kvproof.spec.kv_cache_manager`. Raises
        NothingToAllocateError, LateHitError, ForeignHitError.
        """
        name, hit, external = request.request_id, new_computed_blocks, num_external_computed_tokens
        table = self.req_to_blocks.get(name)
        given = (num_new_tokens, num_new_computed_tokens, num_lookahead_tokens, external)
        if min(*given, reserved_blocks) < 0:
            refuse(manager_rules.TOKENS_NONNEGATIVE, min(*given, reserved_blocks))
        if len(hit) * self.block_size != num_new_computed_tokens:
            refuse(manager_rules.HIT_IS_WHOLE, num_new_computed_tokens)
        if table and (hit or external):
            refuse(manager_rules.HITS_COME_FIRST, name)
        if num_new_tokens == 0 and external == 0:
            refuse(manager_rules.SOMETHING_NEW, num_new_tokens)

        most, free = self.max_model_len, self.block_pool.free_queue
        computed = request.num_computed_tokens + num_new_computed_tokens + external
        computed = min(computed, most)
        with_new = computed + num_new_tokens
        slots = min(with_new + num_lookahead_tokens, most)
        waits = has_scheduled_reqs and not request.is_running
        watermark = self.watermark_blocks if waits else 0

        if full_sequence_must_fit:
            wanted = self._blocks_for(min(len(request.tokens), most))
            if self.admission_cap is not None:
                wanted = min(wanted, self.admission_cap)
            if self._leaving(table, wanted, hit, computed) + watermark > free.num_free_blocks:
                return None

        self.remove_skipped_blocks(name, computed)
        leaving = self._leaving(table, self._blocks_for(slots), hit, computed)
        if leaving + watermark > free.num_free_blocks - reserved_blocks:
            return None

        if hit or external:
            table = self._begin(name, hit, computed)
            if external and self.reach.skipped_blocks(computed) * self.block_size < computed:
                self._grow(name, table, self._blocks_for(computed))
        new = self._grow(name, table, self._blocks_for(slots))
        if self.enable_caching and not delay_cache_blocks:
            self._cache(request, min(with_new, len(request.tokens)))
        return new

    def allocate_step(
        self, requests: Sequence[ManagedRequest], num_new_tokens: Sequence[int]
    ) -> list[list[int]]:
        """Give each running request its next tokens, in this order, until one gets none. Return
        the new blocks of those that got them: fewer lists than requests when one did not.
        """
        served: list[list[int]] = []
        for request, count in zip(requests, num_new_tokens, strict=True):
            new = self.allocate_slots(request, count)
            if new is None:
                break
            served.append(new)
        return served

    def cache_blocks(self, request: ManagedRequest, num_computed_tokens: int) -> None:
        """Publish what is full with `num_computed_tokens` tokens: after a delay.

        Raises NothingToAllocateError when they are not all known.
        """
        if num_computed_tokens > len(request.tokens):
            refuse(manager_rules.CACHED_ARE_KNOWN, num_computed_tokens)
        if self.enable_caching:
            self._cache(request, num_computed_tokens)

    def free(self, request: ManagedRequest) -> None:
        """Release the blocks of a request, those at the end of its table first."""
        self.block_pool.free_blocks(reversed(self.pop_blocks_for_free(request)))

    def pop_blocks_for_free(self, request: ManagedRequest) -> list[int]:
        """Forget a request, and return its blocks, which stay held."""
        self.num_cached_block.pop(request.request_id, None)
        return self.req_to_blocks.pop(request.request_id, [])

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Release the blocks that no token from `total_computed_tokens` on may read."""
        table = self.req_to_blocks.get(request_id)
        skipped = self.reach.skipped_blocks(total_computed_tokens) if table else 0
        if not table or not skipped:
            return
        null_block = self.block_pool.null_block
        gone = [block for block in reversed(table[:skipped]) if block != null_block]
        if gone:
            table[:skipped] = [null_block] * min(skipped, len(table))
            self.block_pool.free_blocks(gone)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Return how many leading blocks are in the table of every request, at one place."""
        own = self.req_to_blocks.get(running_request_id, [])
        if not self.enable_caching or type(self.reach) is not Reach:
            return 0
        tables = self.req_to_blocks.values()

        def is_common(index: int) -> bool:
            return all(table[index : index + 1] == [own[index]] for table in tables)

        return len(list(takewhile(is_common, range(len(own)))))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Take all keys from these blocks. Raises BlockIdError."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Take all keys from all blocks; False while some are in use."""
        return self.block_pool.reset_prefix_cache()

    def take_events(self) -> list[KVCacheEvent]:
        """Return the events since the last call."""
        return self.block_pool.take_events()

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks to be zeroed that were taken since the last call."""
        ids, self.new_block_ids = self.new_block_ids, []
        return ids

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _leaving(
        self, table: list[int] | None, wanted: int, hit: Sequence[int], computed: int
    ) -> int:
        """Return how many blocks leave the free queue for a table of `wanted` entries."""
        if table:
            return max(wanted - len(table), 0)
        skipped, ref_cnt = self.reach.skipped_blocks(computed), self.block_pool.ref_cnt
        null_block = self.block_pool.null_block
        queued = sum(b != null_block and ref_cnt[b] == 0 for b in set(hit[skipped:]))
        return max(wanted - max(len(hit), skipped), 0) + queued

    def _begin(self, name: str, hit: Sequence[int], computed: int) -> list[int]:
        """Begin a table with a hit. Hold the whole hit before anything else is taken."""
        skipped = self.reach.skipped_blocks(computed)
        kept = list(hit[skipped:])
        self.block_pool.touch(kept)
        table = self.req_to_blocks[name] = [self.block_pool.null_block] * skipped + kept
        self.num_cached_block[name] = len(table)
        return table

    def _grow(self, name: str, table: list[int] | None, wanted: int) -> list[int]:
        if table is None:
            table = self.req_to_blocks[name] = []
        missing = wanted - len(table)
        if missing <= 0:
            return []
        new = self.block_pool.get_new_blocks(missing)
        table += new
        if self.zeroes_new_blocks:
            self.new_block_ids += new
        return new

    def _cache(self, request: ManagedRequest, num_tokens: int) -> None:
        name, last = request.request_id, num_tokens // self.block_size
        first = self.num_cached_block.get(name, 0)
        if first >= last:
            return
        mask = self.reach.mask(first, last, self.retention_interval, request.num_prompt_tokens)
        table = self.req_to_blocks.get(name, [])
        self.block_pool.cache_full_blocks(request, table, first, last, self.block_size, 0, mask)
        self.num_cached_block[name] = last
