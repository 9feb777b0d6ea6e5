"""The manager above the pool, under the names of vLLM 0.25.1.

It does what `kvproof.spec.kv_cache_manager` says: one group with prefix caching, any number of
them without. A request's tables are lists of block ids, one for each group; a step that needs
no new block touches nothing but two lengths. `allocate_step` serves the running requests of a
whole scheduler step with one call.

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
    num_unsettled_tokens: int
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


Tables = list[list[int]]
"""One block table for each group."""


class KVCacheManager:
    """The cache of a model. Sizes are in tokens; `watermark` is a share of the pool. Raises
    ConfigError when the settings do not fit together.
    """

    def __init__(
        self,
        num_blocks: int,
        groups: Sequence[GroupSpec],
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
        if enable_caching and len(groups) != 1:
            refuse(manager_rules.GROUP_COUNT, len(groups))
        self.reaches: list[Reach] = [reach_of(group) for group in groups]
        sizes = {number: group.block_size for number, group in enumerate(groups)}
        unit = sizes[0] if enable_caching else 1
        if retention_interval is not None:
            fits = all(retention_interval % size == 0 for size in sizes.values())
            window = any(isinstance(reach, Window) for reach in self.reaches)
            if retention_interval < 0 or not fits or not window:
                refuse(manager_rules.RETENTION_FITS, retention_interval)
        self.block_pool = BlockPool(
            num_blocks, enable_caching, unit, sizes, enable_kv_cache_events, metrics_collector
        )
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.retention_interval = retention_interval
        self.watermark_blocks = int(watermark * num_blocks)
        self.max_num_batched_tokens = (
            max_model_len if max_num_batched_tokens is None else max_num_batched_tokens
        )
        self.req_to_blocks: dict[str, Tables] = {}
        self.num_cached_block: dict[str, int] = {}
        self.new_block_ids: list[list[int]] = [[] for _ in groups]

    def get_computed_blocks(self, request: ManagedRequest) -> tuple[Tables, int]:
        """Return the entries of the longest prefix hit, and how many tokens they cover: at
        least one token is left to compute.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [[] for _ in self.reaches], 0
        hashes, find = request.block_hashes, self.block_pool.cached.get_one_block
        (reach,) = self.reaches
        limit = min((len(request.tokens) - 1) // reach.block_size, len(hashes))
        hit = reach.hit(limit, lambda index: find(hashes[index], 0), self.block_pool.null_block)
        return [hit], len(hit) * reach.block_size

    def allocate_slots(
        self,
        request: ManagedRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Sequence[Sequence[int]] = (),
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
    ) -> Tables | None:
        """Give a request slots for its next tokens. Return the new blocks of each group, or None
        when there are not enough: then nothing has changed, but that blocks which no token may
        read any more were released.

        The arguments are those of `kvproof.spec.kv_cache_manager`. Raises
        NothingToAllocateError, LateHitError, ForeignHitError.
        """
        name, external = request.request_id, num_external_computed_tokens
        hit = new_computed_blocks or [()] * len(self.reaches)
        tables = self.req_to_blocks.get(name)
        given = (num_new_tokens, num_new_computed_tokens, num_lookahead_tokens, external)
        if min(*given, reserved_blocks) < 0:
            refuse(manager_rules.TOKENS_NONNEGATIVE, min(*given, reserved_blocks))
        self._require_hit(name, tables, hit, num_new_computed_tokens, external)
        if num_new_tokens == 0 and external == 0:
            refuse(manager_rules.SOMETHING_NEW, num_new_tokens)

        most, free = self.max_model_len, self.block_pool.free_queue
        computed = request.num_computed_tokens + num_new_computed_tokens + external
        computed = min(computed, most)
        next_token = computed if num_new_tokens else min(computed, len(request.tokens) - 1)
        next_token -= request.num_unsettled_tokens
        with_new = computed + num_new_tokens
        slots = min(with_new + num_lookahead_tokens, most)
        waits = has_scheduled_reqs and not request.is_running
        watermark = self.watermark_blocks if waits else 0

        if full_sequence_must_fit:
            whole = min(len(request.tokens) + num_lookahead_tokens, most)
            step = self.max_num_batched_tokens + num_lookahead_tokens
            leaving = self._leaving_at_peak(tables, whole, hit, next_token, step)
            if leaving + watermark > free.num_free_blocks:
                return None

        self.remove_skipped_blocks(name, next_token)
        leaving = self._leaving(tables, slots, hit, next_token)
        if leaving + watermark > free.num_free_blocks - reserved_blocks:
            return None

        if tables is None:
            tables = self.req_to_blocks[name] = [[] for _ in self.reaches]
        if num_new_computed_tokens or external:
            self._begin(name, tables, hit, next_token)
            if external:
                for number, reach in enumerate(self.reaches):
                    if reach.skipped_blocks(next_token) * reach.block_size < computed:
                        self._grow(number, tables[number], computed)
        new = [self._grow(number, table, slots) for number, table in enumerate(tables)]
        if self.enable_caching and not delay_cache_blocks:
            self._cache(request, min(with_new, len(request.tokens)))
        return new

    def allocate_step(
        self, requests: Sequence[ManagedRequest], num_new_tokens: Sequence[int]
    ) -> list[Tables]:
        """Give each running request its next tokens, in this order, until one gets none. Return
        the new blocks of those that got them: fewer than there are requests when one did not.
        """
        served: list[Tables] = []
        for request, count in zip(requests, num_new_tokens, strict=True):
            new = self.allocate_slots(request, count)
            if new is None:
                break
            served.append(new)
        return served

    def unschedule(self, request: ManagedRequest, num_computed_tokens: int) -> None:
        """Take back what was published for tokens from `num_computed_tokens` on: they are not
        computed.
        """
        name = request.request_id
        cached = self.num_cached_block.get(name, 0)
        for table, reach in zip(self.req_to_blocks.get(name, []), self.reaches, strict=False):
            whole = num_computed_tokens // reach.block_size
            if whole < cached:
                null_block = self.block_pool.null_block
                self.evict_blocks([b for b in table[whole:cached] if b != null_block])
                self.num_cached_block[name] = whole

    def cache_blocks(self, request: ManagedRequest, num_computed_tokens: int) -> None:
        """Publish what is full with `num_computed_tokens` tokens: after a delay.

        Raises NothingToAllocateError when they are not all known.
        """
        if num_computed_tokens > len(request.tokens):
            refuse(manager_rules.CACHED_ARE_KNOWN, num_computed_tokens)
        if self.enable_caching:
            self._cache(request, num_computed_tokens)

    def free(self, request: ManagedRequest) -> None:
        """Release the blocks of a request: group by group, those at the end of a table first."""
        self.block_pool.free_blocks(reversed(self.pop_blocks_for_free(request)))

    def pop_blocks_for_free(self, request: ManagedRequest) -> list[int]:
        """Forget a request, and return its blocks, which stay held."""
        self.num_cached_block.pop(request.request_id, None)
        tables = self.req_to_blocks.pop(request.request_id, [])
        return [block for table in reversed(tables) for block in table]

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Release the blocks that no token from `total_computed_tokens` on may read."""
        for table, reach in zip(self.req_to_blocks.get(request_id, ()), self.reaches, strict=False):
            skipped = reach.skipped_blocks(total_computed_tokens)
            if not skipped or not table:
                continue
            null_block = self.block_pool.null_block
            gone = [block for block in reversed(table[:skipped]) if block != null_block]
            if gone:
                table[:skipped] = [null_block] * min(skipped, len(table))
                self.block_pool.free_blocks(gone)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Return, for each group, how many leading blocks are in the table of every request."""
        own = self.req_to_blocks.get(running_request_id)
        if own is None or not self.enable_caching or type(self.reaches[0]) is not Reach:
            return [0 for _ in self.reaches]
        tables = [rows[0] for rows in self.req_to_blocks.values() if rows[0]]

        def is_common(index: int) -> bool:
            return all(table[index : index + 1] == [own[0][index]] for table in tables)

        return [len(list(takewhile(is_common, range(len(own[0])))))]

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
        ids = [block for blocks in self.new_block_ids for block in blocks]
        self.new_block_ids = [[] for _ in self.reaches]
        return ids

    def _require_hit(
        self,
        name: str,
        tables: Tables | None,
        hit: Sequence[Sequence[int]],
        num_hits: int,
        external: int,
    ) -> None:
        if len(hit) != len(self.reaches):
            refuse(manager_rules.HIT_IS_WHOLE, len(hit))
        for row, reach in zip(hit, self.reaches, strict=True):
            if len(row) * reach.block_size != num_hits:
                refuse(manager_rules.HIT_IS_WHOLE, num_hits)
        if (num_hits or external) and tables and any(tables):
            refuse(manager_rules.HITS_COME_FIRST, name)

    def _leaving(
        self,
        tables: Tables | None,
        num_tokens: int,
        hit: Sequence[Sequence[int]],
        next_token: int,
    ) -> int:
        """Return how many blocks leave the free queue when the tables are to have room for
        `num_tokens` tokens.
        """
        leaving = 0
        for number, reach in enumerate(self.reaches):
            wanted = -(-num_tokens // reach.block_size)
            table = tables[number] if tables else None
            if table:
                leaving += max(wanted - len(table), 0)
            else:
                leaving += self._starting(reach, wanted, hit[number], next_token)
        return leaving

    def _starting(self, reach: Reach, wanted: int, hit: Sequence[int], next_token: int) -> int:
        skipped, ref_cnt = reach.skipped_blocks(next_token), self.block_pool.ref_cnt
        null_block = self.block_pool.null_block
        queued = sum(b != null_block and ref_cnt[b] == 0 for b in set(hit[skipped:]))
        return max(wanted - max(len(hit), skipped), 0) + queued

    def _leaving_at_peak(
        self,
        tables: Tables | None,
        num_tokens: int,
        hit: Sequence[Sequence[int]],
        next_token: int,
        step: int,
    ) -> int:
        """Return how many blocks more are out of the free queue at the peak of what lies between
        `next_token` and slots for `num_tokens` tokens, given in steps of at most `step`.
        """
        null_block, ref_cnt = self.block_pool.null_block, self.block_pool.ref_cnt
        leaving = 0
        for number, reach in enumerate(self.reaches):
            table = tables[number] if tables else []
            entries, own = table or hit[number], 1 if table else 0
            alone = [block != null_block and ref_cnt[block] == own for block in entries]
            peak = reach.peak(alone, next_token, num_tokens, step)
            leaving += max(peak - sum(alone) * own, 0)
        return leaving

    def _begin(
        self, name: str, tables: Tables, hit: Sequence[Sequence[int]], next_token: int
    ) -> None:
        """Begin the tables with a hit. Hold the whole hit before anything else is taken."""
        for number, reach in enumerate(self.reaches):
            skipped = reach.skipped_blocks(next_token)
            kept = list(hit[number][skipped:])
            self.block_pool.touch(kept)
            tables[number] = [self.block_pool.null_block] * skipped + kept
        if self.enable_caching:
            self.num_cached_block[name] = len(tables[0])

    def _grow(self, number: int, table: list[int], num_tokens: int) -> list[int]:
        missing = -(-num_tokens // self.reaches[number].block_size) - len(table)
        if missing <= 0:
            return []
        new = self.block_pool.get_new_blocks(missing)
        table += new
        if type(self.reaches[number]) is Reach:
            self.new_block_ids[number] += new
        return new

    def _cache(self, request: ManagedRequest, num_tokens: int) -> None:
        (reach,), name = self.reaches, request.request_id
        first, last = self.num_cached_block.get(name, 0), num_tokens // reach.block_size
        if first >= last:
            return
        mask = reach.mask(first, last, self.retention_interval, request.num_prompt_tokens)
        (table,) = self.req_to_blocks.get(name, [[]])
        self.block_pool.cache_full_blocks(request, table, first, last, reach.block_size, 0, mask)
        self.num_cached_block[name] = last
