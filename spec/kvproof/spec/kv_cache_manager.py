"""The only door between the scheduler and the cache. It routes and records; what is allocated,
hit or released is decided by the managers below.

Four paths lead through it: prefill, decode (with a new block or without), a prefix hit, and
the end of a request. `allocate_slots` serves the first three, `free` the last.

Source: vLLM 0.25.1, kv_cache_manager.py, `KVCacheManager`; seed 2, sections 2 and 6.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvproof.spec import manager_rules
from kvproof.spec.block_pool import BlockStored, KVCacheEvent, MetricsCollector
from kvproof.spec.kv_cache_coordinator import Blocks, get_kv_cache_coordinator
from kvproof.spec.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from kvproof.spec.logic import requires
from kvproof.spec.quantities import BlockId, NumTokens
from kvproof.spec.request import Request, RequestId

NO_TOKENS = NumTokens(0)


class GroupEvent(NamedTuple):
    """An event, and of what kind the group is that it is about (None: of no group's keys)."""

    event: KVCacheEvent
    kv_cache_spec_kind: str | None
    kv_cache_spec_sliding_window: int | None


@dataclass
class PrefixCacheStats:
    """How many tokens were looked up and found since the last time that somebody asked.

    Requests that were preempted before are counted apart. `reset` says that the cache was
    reset in between.
    """

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """Count one lookup."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class KVCacheManager:
    """The cache of one model. Sizes are in tokens; `watermark` is a share of the pool.

    `max_num_batched_tokens` is the most tokens of one step (None: `max_model_len`).
    `retention_interval` says at which boundaries a group that forgets keeps what a hit needs:
    None: at every one, 0: at the last one of a prompt, r: at multiples of r and there.

    Raises ConfigError when the settings do not fit together.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: NumTokens,
        scheduler_block_size: NumTokens,
        hash_block_size: NumTokens,
        max_num_batched_tokens: NumTokens | None = None,
        enable_caching: bool = True,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        metrics_collector: MetricsCollector | None = None,
        watermark: float = 0.0,
        retention_interval: int | None = None,
    ) -> None:
        requires(watermark >= 0.0, manager_rules.TOKENS_NONNEGATIVE, watermark)
        self.coordinator = get_kv_cache_coordinator(
            kv_cache_config,
            enable_caching,
            enable_kv_cache_events,
            scheduler_block_size,
            hash_block_size,
            metrics_collector,
            retention_interval,
        )
        self.block_pool = self.coordinator.block_pool
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.max_num_batched_tokens = (
            max_model_len if max_num_batched_tokens is None else max_num_batched_tokens
        )
        self.enable_caching = enable_caching
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None

    @property
    def usage(self) -> float:
        """The share of the blocks in use, 0.0 to 1.0."""
        return self.block_pool.get_usage()

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """Return the statistics since the last call; None when they are not kept."""
        stats = self.prefix_cache_stats
        if stats is not None:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats

    def get_computed_blocks(self, request: Request) -> tuple[Blocks, NumTokens]:
        """Return the longest prefix hit of a request: its entries in each group, and how many
        tokens they cover. At least one token is left to compute, since its logits are wanted.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self._no_blocks(), NO_TOKENS

        limit = NumTokens(request.num_tokens - 1)
        blocks, num_hits = self.coordinator.find_longest_cache_hit(request.tokens, limit)

        if self.prefix_cache_stats is not None:
            preempted = request.num_preemptions > 0
            self.prefix_cache_stats.record(request.num_tokens, num_hits, preempted)
        return blocks, num_hits

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: NumTokens,
        num_new_computed_tokens: NumTokens = NO_TOKENS,
        new_computed_blocks: Blocks | None = None,
        num_lookahead_tokens: NumTokens = NO_TOKENS,
        num_external_computed_tokens: NumTokens = NO_TOKENS,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
    ) -> Blocks | None:
        """Give a request slots for its next tokens. Return the new blocks of each group, or
        None when there are not enough: then nothing has changed, but that blocks which no
        token may read any more were released.

        The tokens of the request, from the left: computed before (`num_computed_tokens`); just
        hit (`num_new_computed_tokens`, in `new_computed_blocks`); computed elsewhere, to be
        loaded (external); new, drafts among them; and room for more drafts (lookahead).

        `delay_cache_blocks`: nothing is published yet, since it arrives in a later step.
        `full_sequence_must_fit`: not this step only must fit, but each step until all that is
        known is computed.
        `reserved_blocks` are left for others. `has_scheduled_reqs`: somebody runs already, so a
        request that is not running leaves the watermark free.

        Raises NothingToAllocateError, LateHitError, ForeignHitError.
        """
        hit = self._no_blocks() if new_computed_blocks is None else new_computed_blocks
        self._require_sound(request, num_new_tokens, num_lookahead_tokens, reserved_blocks)
        self._require_hit(request, num_new_computed_tokens, hit, num_external_computed_tokens)
        something = num_new_tokens > 0 or num_external_computed_tokens > 0
        requires(something, manager_rules.SOMETHING_NEW, num_new_tokens)

        local = NumTokens(request.num_computed_tokens + num_new_computed_tokens)
        computed = self._capped(local + num_external_computed_tokens)
        next_token = self._next_token(request, computed, num_new_tokens)
        with_new = NumTokens(computed + num_new_tokens)
        slots = self._capped(with_new + num_lookahead_tokens)
        waits = has_scheduled_reqs and not request.is_running
        watermark = self.watermark_blocks if waits else 0

        if full_sequence_must_fit:
            whole = self._capped(request.num_tokens + num_lookahead_tokens)
            step = NumTokens(self.max_num_batched_tokens + num_lookahead_tokens)
            announced = self.coordinator.get_num_blocks_to_admit(
                request.request_id, whole, hit, next_token, step
            )
            if announced + watermark > self.block_pool.get_num_free_blocks():
                return None

        self.coordinator.remove_skipped_blocks(request.request_id, next_token)
        announced = self.coordinator.get_num_blocks_to_allocate(
            request.request_id, slots, hit, next_token
        )
        if announced + watermark > self.block_pool.get_num_free_blocks() - reserved_blocks:
            return None

        if any(hit) or num_external_computed_tokens > 0:
            self.coordinator.allocate_new_computed_blocks(
                request.request_id, hit, next_token, local, NumTokens(computed - local)
            )
        new_blocks = self.coordinator.allocate_new_blocks(request.request_id, slots)
        if self.enable_caching and not delay_cache_blocks:
            # Drafts may be rejected: only known tokens are published.
            known = NumTokens(min(with_new, request.num_tokens))
            self.coordinator.cache_blocks(request, known)
        return new_blocks

    def unschedule(self, request: Request, num_computed_tokens: NumTokens) -> None:
        """The tokens of a request from `num_computed_tokens` on, for which slots were given, are
        not computed: it was taken out of the step that scheduled it before that step ran, or a
        load has failed. What was published for them is taken back; its blocks stay its own.

        vLLM 0.25.1 has no such call, and keeps the keys: see `free-no-promise`.
        """
        self.coordinator.unschedule(request.request_id, num_computed_tokens)

    def cache_blocks(self, request: Request, num_computed_tokens: NumTokens) -> None:
        """Publish what is full with `num_computed_tokens` tokens: after a delay, when they have
        arrived.

        Raises NothingToAllocateError when they are not all known, or have no slots.
        """
        known = num_computed_tokens <= request.num_tokens
        requires(known, manager_rules.CACHED_ARE_KNOWN, num_computed_tokens)
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def free(self, request: Request) -> None:
        """Release all blocks of a request; those at the end of its tables are evicted first.

        Released blocks keep their keys until they are handed out.
        """
        self.coordinator.free(request.request_id)

    def pop_blocks_for_free(self, request: Request) -> list[BlockId]:
        """Forget a request, and return its blocks, which stay held: a step in flight may still
        write to them. Later they go to `block_pool.free_blocks`, the last one first.
        """
        return self.coordinator.pop_blocks_for_free(request.request_id)

    def remove_skipped_blocks(
        self, request_id: RequestId, total_computed_tokens: NumTokens
    ) -> None:
        """Release the blocks that no token from `total_computed_tokens` on may read."""
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[BlockId]) -> None:
        """Take all keys from these blocks. Raises BlockIdError."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Take all keys from all blocks; False, and nothing changed, while some are in use."""
        done = self.block_pool.reset_prefix_cache()
        if done and self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return done

    def get_num_common_prefix_blocks(self, running_request_id: RequestId) -> list[int]:
        """Return, for each group, how many leading blocks are in the table of every request."""
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def take_events(self) -> list[GroupEvent]:
        """Return the events since the last call, each with the kind of its group."""
        return [self._described(event) for event in self.block_pool.take_events()]

    def take_new_block_ids(self) -> list[BlockId]:
        """Return the blocks to be zeroed that were taken since the last call."""
        return [
            block
            for manager in self.coordinator.single_type_managers
            for block in manager.take_new_block_ids()
        ]

    def get_block_ids(self, request_id: RequestId) -> Blocks:
        """Return the request's tables."""
        return self.coordinator.get_blocks(request_id)

    def _next_token(
        self, request: Request, computed: NumTokens, num_new_tokens: NumTokens
    ) -> NumTokens:
        """Return the first token that may still be computed: drafts in flight may be rejected,
        and of a prompt that was loaded as a whole the last token is computed again.
        """
        last = NumTokens(request.num_tokens - 1)
        first = computed if num_new_tokens > 0 else min(computed, last)
        return NumTokens(first - request.num_unsettled_tokens)

    def _no_blocks(self) -> Blocks:
        return tuple([] for _ in self.kv_cache_config.kv_cache_groups)

    def _capped(self, num_tokens: int) -> NumTokens:
        return NumTokens(min(num_tokens, self.max_model_len))

    def _require_sound(
        self, request: Request, num_new: int, num_lookahead: int, reserved_blocks: int
    ) -> None:
        for number in (request.num_computed_tokens, num_new, num_lookahead, reserved_blocks):
            requires(number >= 0, manager_rules.TOKENS_NONNEGATIVE, number)

    def _require_hit(self, request: Request, num_hits: int, hit: Blocks, num_external: int) -> None:
        for number in (num_hits, num_external):
            requires(number >= 0, manager_rules.TOKENS_NONNEGATIVE, number)
        managers = self.coordinator.single_type_managers
        requires(len(hit) == len(managers), manager_rules.HIT_IS_WHOLE, len(hit))
        for manager, blocks in zip(managers, hit, strict=True):
            whole = len(blocks) * manager.block_size == num_hits
            requires(whole, manager_rules.HIT_IS_WHOLE, num_hits)
            new = not manager.req_to_blocks.get(request.request_id)
            first = new or (num_hits == 0 and num_external == 0)
            requires(first, manager_rules.HITS_COME_FIRST, request.request_id)

    def _described(self, event: KVCacheEvent) -> GroupEvent:
        if not isinstance(event, BlockStored):
            return GroupEvent(event, None, None)
        spec = self.kv_cache_config.kv_cache_groups[event.group_idx]
        window = spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None
        return GroupEvent(event, kind_of(spec), window)


def kind_of(spec: KVCacheSpec) -> str:
    """Return the name by which consumers of events know a group's kind."""
    if isinstance(spec, MLAAttentionSpec):
        return "mla_attention"
    if isinstance(spec, SlidingWindowSpec):
        return "sliding_window"
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return "chunked_local_attention"
    return "full_attention"
