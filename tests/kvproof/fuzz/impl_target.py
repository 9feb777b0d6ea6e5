"""Our own implementation as a target: `kvproof fuzz impl`."""

from typing import cast

from kvproof.fuzz.target import OPERATIONS, Event, Hash, Observation, PoolConfig, RequestView
from kvproof.impl import BlockPool, BlockRemoved, BlockStored
from kvproof.impl.hash_map import Listed

_NO_KEYS: list[tuple[Hash, int]] = []


class RecordingCollector:
    """A metrics collector that writes down what it is told, until `take` is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_block_allocated(self, block: int) -> None:
        """Note that the block was handed out."""
        self.calls.append(("allocated", block))

    def on_block_accessed(self, block: int) -> None:
        """Note that the block was hit."""
        self.calls.append(("accessed", block))

    def on_block_evicted(self, block: int) -> None:
        """Note that what the block held until now is gone."""
        self.calls.append(("evicted", block))

    def reset(self) -> None:
        """Note that everything is gone."""
        self.calls.append(("reset", 0))

    def take(self) -> list[tuple[str, int]]:
        """Return what was told since the last call."""
        calls, self.calls = self.calls, []
        return calls


class ImplPool:
    """The pool of `kvproof.impl` behind the target protocol (see `PoolTarget`).

    `pool_type` is the class to build: the real one, or one with a defect. Raises what
    `kvproof.impl.BlockPool` raises.
    """

    operations: tuple[str, ...] = OPERATIONS

    def __init__(self, config: PoolConfig, pool_type: type[BlockPool] = BlockPool) -> None:
        self.collector = RecordingCollector()
        self.pool = pool_type(
            config.num_gpu_blocks,
            config.enable_caching,
            config.hash_block_size,
            config.block_sizes,
            config.enable_kv_cache_events,
            self.collector,
        )

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """See `PoolTarget`."""
        return self.pool.get_new_blocks(num_blocks)

    def touch(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self.pool.touch(blocks)

    def free_blocks(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self.pool.free_blocks(blocks)

    def get_cached_block(self, block_hash: Hash, groups: list[int]) -> list[int] | None:
        """See `PoolTarget`."""
        return self.pool.get_cached_block(block_hash, groups)

    def cache_full_blocks(
        self,
        request: RequestView,
        blocks: list[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        group: int,
        block_mask: list[bool] | None,
    ) -> None:
        """See `PoolTarget`."""
        self.pool.cache_full_blocks(
            request, blocks, num_cached_blocks, num_full_blocks, block_size, group, block_mask
        )

    def cache_partial_block(
        self, request: RequestView, block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        """See `PoolTarget`."""
        key = self.pool.cache_partial_block(request, block, num_tokens, group, block_size)
        return key is not None

    def evict_blocks(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self.pool.evict_blocks(blocks)

    def reset_prefix_cache(self) -> bool:
        """See `PoolTarget`."""
        return self.pool.reset_prefix_cache()

    def take_events(self) -> list[Event]:
        """See `PoolTarget`."""
        return [on_the_wire(event) for event in self.pool.take_events()]

    def get_num_free_blocks(self) -> int:
        """See `PoolTarget`."""
        return self.pool.get_num_free_blocks()

    def get_usage(self) -> float:
        """See `PoolTarget`."""
        return self.pool.get_usage()

    def observe(self) -> Observation:
        """See `PoolTarget`."""
        seen = pool_observation(self.pool)
        seen.hooks = self.collector.take()
        return seen


def pool_observation(pool: BlockPool) -> Observation:
    """Return what a pool shows, but for its hooks. Its own lists are read, not its operations:
    this is done after every call. The empty lists in `keys` are one and the same.
    """
    queue, following = pool.free_queue, pool.free_queue.next
    null_block = block = queue.null_block
    free: list[int] = []
    # A pool with a defect may have links that never come back to the end.
    for _ in following:
        block = following[block]
        if block == null_block:
            break
        free.append(block)

    hashes = cast("list[Hash | None]", pool.block_hash)
    keys = [
        _NO_KEYS if own is None else [(own, group)]
        for own, group in zip(hashes, pool.group, strict=True)
    ]
    partials = cast("dict[int, dict[Hash, None]]", pool.partial_hashes)
    if partials:
        for block, others in partials.items():
            group = pool.group[block]
            keys[block] = [*keys[block], *((other, group) for other in others)]

    by_group = cast("dict[int, dict[Hash, Listed]]", pool.cached.by_group)
    index = {
        (block_hash, group): [listed] if isinstance(listed, int) else [*listed]
        for group, by_hash in by_group.items()
        for block_hash, listed in by_hash.items()
    }
    return Observation(free, pool.ref_cnt.copy(), keys, index, queue.num_free_blocks)


def factory(config: PoolConfig) -> ImplPool:
    """Build the implementation's pool: a `PoolFactory`."""
    return ImplPool(config)


def on_the_wire(event: object) -> Event:
    """Return an event as the protocol has it."""
    if isinstance(event, BlockStored):
        parent, tokens, group = event.parent_block_hash, event.token_ids, event.group_idx
        return ["stored", event.block_hashes, parent, tokens, group, event.block_size]
    if isinstance(event, BlockRemoved):
        return ["removed", event.block_hashes, event.group_idx]
    return ["cleared"]
