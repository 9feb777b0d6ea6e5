"""The groups of a model over one shared pool.

All groups take their blocks from one pool; a key names the group that it is of. Without prefix
caching any number of groups is served, also none. With it, this release of the specification
serves one group.

Source: vLLM 0.25.1, kv_cache_coordinator.py; seed 1, 'Why split the coordinator'.
"""

from collections.abc import Sequence

from kvproof.spec import manager_rules
from kvproof.spec.attention import (
    Attention,
    ChunkedLocal,
    Full,
    SlidingWindow,
)
from kvproof.spec.block_pool import BlockPool, MetricsCollector
from kvproof.spec.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    SlidingWindowSpec,
)
from kvproof.spec.logic import requires
from kvproof.spec.quantities import BlockHash, BlockId, GroupId, NumTokens
from kvproof.spec.request import Request, RequestId
from kvproof.spec.single_type_manager import SingleTypeKVCacheManager

Blocks = tuple[list[BlockId], ...]
"""For each group a list of blocks (vLLM: `KVCacheBlocks`)."""


class KVCacheCoordinator:
    """What is common to all coordinators: each action is passed on to every group's manager.

    Raises ConfigError when sizes do not fit together.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        enable_caching: bool,
        enable_kv_cache_events: bool,
        scheduler_block_size: NumTokens,
        hash_block_size: NumTokens,
        metrics_collector: MetricsCollector | None = None,
        retention_interval: int | None = None,
    ) -> None:
        groups = kv_cache_config.kv_cache_groups
        sizes = [spec.block_size for spec in groups]
        fits = hash_block_size > 0 and scheduler_block_size % hash_block_size == 0
        fits = fits and all(size > 0 and scheduler_block_size % size == 0 for size in sizes)
        requires(fits, manager_rules.CONFIG_FITS, sizes)
        _require_retention(retention_interval, scheduler_block_size, groups)
        self.block_pool = BlockPool(
            kv_cache_config.num_blocks,
            enable_caching,
            hash_block_size if enable_caching else NumTokens(1),
            {GroupId(group): size for group, size in enumerate(sizes)},
            enable_kv_cache_events,
            metrics_collector,
        )
        self.retention_interval = retention_interval
        self.scheduler_block_size = scheduler_block_size
        self.single_type_managers = tuple(
            get_manager_for_kv_cache_spec(
                spec,
                self.block_pool,
                GroupId(group),
                scheduler_block_size,
            )
            for group, spec in enumerate(groups)
        )

    def find_longest_cache_hit(
        self, tokens: BlockHash, max_cache_hit_length: NumTokens
    ) -> tuple[Blocks, NumTokens]:
        """Return the longest hit: for each group its entries, and how many tokens they cover."""
        raise NotImplementedError

    def get_num_common_prefix_blocks(self, running_request_id: RequestId) -> list[int]:
        """Return, for each group, how many leading blocks every request has in common."""
        return [
            manager.get_num_common_prefix_blocks(running_request_id)
            for manager in self.single_type_managers
        ]

    def get_num_blocks_to_allocate(
        self,
        request_id: RequestId,
        num_tokens: NumTokens,
        new_computed_blocks: Blocks,
        next_token: NumTokens,
    ) -> int:
        """Return how many blocks leave the free queue, over all groups."""
        return sum(
            manager.get_num_blocks_to_allocate(request_id, num_tokens, hit, next_token)
            for manager, hit in zip(self.single_type_managers, new_computed_blocks, strict=True)
        )

    def get_num_blocks_to_admit(
        self,
        request_id: RequestId,
        num_tokens: NumTokens,
        new_computed_blocks: Blocks,
        next_token: NumTokens,
        step: NumTokens,
    ) -> int:
        """Return how many blocks more are out of the free queue when every group holds the most;
        no fewer than there ever are, since the groups need not do so at once.
        """
        return sum(
            manager.get_num_blocks_to_admit(request_id, num_tokens, hit, next_token, step)
            for manager, hit in zip(self.single_type_managers, new_computed_blocks, strict=True)
        )

    def allocate_new_computed_blocks(
        self,
        request_id: RequestId,
        new_computed_blocks: Blocks,
        next_token: NumTokens,
        num_local_computed_tokens: NumTokens,
        num_external_computed_tokens: NumTokens,
    ) -> None:
        """Begin the tables with a hit, then take blocks for external tokens, as far as some token
        from `next_token` on may read them.

        In two phases: a block of one group's hit may be queued until it is held, and must not
        be taken for another group's external tokens.
        """
        total = NumTokens(num_local_computed_tokens + num_external_computed_tokens)
        for manager, hit in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.add_local_computed_blocks(request_id, hit, next_token)
        if num_external_computed_tokens > 0:
            for manager in self.single_type_managers:
                manager.allocate_external_computed_blocks(request_id, next_token, total)

    def allocate_new_blocks(self, request_id: RequestId, num_tokens: NumTokens) -> Blocks:
        """Give the request room for `num_tokens` tokens in every group; return the new blocks."""
        return tuple(
            manager.allocate_new_blocks(request_id, num_tokens)
            for manager in self.single_type_managers
        )

    def cache_blocks(self, request: Request, num_computed_tokens: NumTokens) -> None:
        """Publish what is full with `num_computed_tokens` tokens, in every group."""
        for manager in self.single_type_managers:
            manager.cache_blocks(request, num_computed_tokens, self.retention_interval)

    def unschedule(self, request_id: RequestId, num_computed_tokens: NumTokens) -> None:
        """Take back what was published for tokens that will not be written, in every group."""
        for manager in self.single_type_managers:
            manager.unschedule(request_id, num_computed_tokens)

    def remove_skipped_blocks(
        self, request_id: RequestId, total_computed_tokens: NumTokens
    ) -> None:
        """Release what no token from `total_computed_tokens` on may read, in every group."""
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def free(self, request_id: RequestId) -> None:
        """Release the request's blocks in one call: group by group, in each the last one first.

        vLLM 0.25.1 makes a call for each group, so that with several groups blocks that were
        popped and freed later stand in another order.
        """
        self.block_pool.free_blocks(reversed(self.pop_blocks_for_free(request_id)))

    def pop_blocks_for_free(self, request_id: RequestId) -> list[BlockId]:
        """Forget the request's tables and return their entries, in the reverse of the order in
        which `free` releases them.
        """
        return [
            block
            for manager in reversed(self.single_type_managers)
            for block in manager.pop_blocks_for_free(request_id)
        ]

    def get_blocks(self, request_id: RequestId) -> Blocks:
        """Return the request's tables."""
        return tuple(
            list(manager.req_to_blocks.get(request_id, ())) for manager in self.single_type_managers
        )


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Without prefix caching: nothing is published, nothing is hit, nothing is common."""

    def find_longest_cache_hit(
        self, tokens: BlockHash, max_cache_hit_length: NumTokens
    ) -> tuple[Blocks, NumTokens]:
        """Return no hit."""
        return tuple([] for _ in self.single_type_managers), NumTokens(0)

    def get_num_common_prefix_blocks(self, running_request_id: RequestId) -> list[int]:
        """Return 0 for each group."""
        return [0 for _ in self.single_type_managers]

    def cache_blocks(self, request: Request, num_computed_tokens: NumTokens) -> None:
        """Publish nothing."""


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """Prefix caching over one group."""

    def find_longest_cache_hit(
        self, tokens: BlockHash, max_cache_hit_length: NumTokens
    ) -> tuple[Blocks, NumTokens]:
        """Return the one group's hit."""
        manager = self.single_type_managers[0]
        hit = manager.find_longest_cache_hit(tokens, max_cache_hit_length)
        return (hit,), NumTokens(len(hit) * manager.block_size)


def get_kv_cache_coordinator(
    kv_cache_config: KVCacheConfig,
    enable_caching: bool,
    enable_kv_cache_events: bool,
    scheduler_block_size: NumTokens,
    hash_block_size: NumTokens,
    metrics_collector: MetricsCollector | None = None,
    retention_interval: int | None = None,
) -> KVCacheCoordinator:
    """Build the coordinator that fits. Raises ConfigError."""
    groups = kv_cache_config.kv_cache_groups
    if enable_caching:
        requires(len(groups) == 1, manager_rules.GROUP_COUNT, len(groups))
        same = hash_block_size == groups[0].block_size
        requires(same, manager_rules.CONFIG_FITS, hash_block_size)
    kind = UnitaryKVCacheCoordinator if enable_caching else KVCacheCoordinatorNoPrefixCache
    return kind(
        kv_cache_config,
        enable_caching,
        enable_kv_cache_events,
        scheduler_block_size,
        hash_block_size,
        metrics_collector,
        retention_interval,
    )


def attention_of(spec: KVCacheSpec) -> Attention:
    """Return what a token of this group reads. Raises ConfigError for a kind not known here."""
    if isinstance(spec, SlidingWindowSpec):
        return SlidingWindow(spec.sliding_window)
    if isinstance(spec, ChunkedLocalAttentionSpec):
        whole = spec.attention_chunk_size % spec.block_size == 0
        requires(whole, manager_rules.CONFIG_FITS, spec.attention_chunk_size)
        return ChunkedLocal(spec.attention_chunk_size)
    requires(isinstance(spec, FullAttentionSpec), manager_rules.CONFIG_FITS, type(spec).__name__)
    return Full()


def get_manager_for_kv_cache_spec(
    spec: KVCacheSpec,
    block_pool: BlockPool,
    group: GroupId,
    scheduler_block_size: NumTokens,
) -> SingleTypeKVCacheManager:
    """Build the manager of one group."""
    return SingleTypeKVCacheManager(
        block_pool,
        group,
        spec.block_size,
        attention_of(spec),
        scheduler_block_size,
        zeroes_new_blocks=isinstance(spec, FullAttentionSpec),
    )


def _require_retention(
    interval: int | None, scheduler_block_size: int, groups: Sequence[KVCacheSpec]
) -> None:
    if interval is None:
        return
    forgets = any(isinstance(spec, SlidingWindowSpec) for spec in groups)
    fits = interval >= 0 and interval % scheduler_block_size == 0
    requires(forgets and fits, manager_rules.RETENTION_FITS, interval)
