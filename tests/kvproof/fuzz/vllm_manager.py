"""The KV-cache manager of whatever vLLM is installed, as a target.

The real `KVCacheManager`, with real `Request` objects that vLLM hashes itself.
"""

import importlib
from functools import cache
from types import SimpleNamespace
from typing import Any

from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig, ManagerObservation
from kvproof.fuzz.target import Event, NotExpressible
from kvproof.fuzz.vllm_release import installed
from kvproof.fuzz.vllm_target import Hashing, hashing, pool_events, pool_observation

HOMES = {
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "KVCacheConfig": "vllm.v1.kv_cache_interface",
    "KVCacheGroupSpec": "vllm.v1.kv_cache_interface",
    "FullAttentionSpec": "vllm.v1.kv_cache_interface",
    "MLAAttentionSpec": "vllm.v1.kv_cache_interface",
    "SlidingWindowSpec": "vllm.v1.kv_cache_interface",
    "ChunkedLocalAttentionSpec": "vllm.v1.kv_cache_interface",
    "RequestStatus": "vllm.v1.request",
    "register_all_kvcache_specs": "vllm.v1.core.single_type_kv_cache_manager",
}


@cache
def manager_parts() -> SimpleNamespace:
    """Import what the manager level needs. Raises VllmUnavailable when there is no vLLM."""
    installed()
    parts = SimpleNamespace(
        **{name: getattr(importlib.import_module(home), name) for name, home in HOMES.items()}
    )
    parts.dtype = importlib.import_module("torch").float16
    parts.envs = importlib.import_module("vllm.envs")
    parts.register_all_kvcache_specs(None)
    return parts


class VllmManager:
    """See `ManagerTarget`. Raises VllmUnavailable, and what vLLM raises."""

    def __init__(self, config: ManagerConfig) -> None:
        parts = self._parts = manager_parts()
        self._hashing: Hashing = hashing(installed(), config.hash_block_size)
        groups = [
            parts.KVCacheGroupSpec([f"layer{number}"], _spec(parts, group))
            for number, group in enumerate(config.groups)
        ]
        # The release reads the interval from the environment when a coordinator is built.
        before = parts.envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL
        parts.envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = config.retention_interval
        try:
            self._manager: Any = parts.KVCacheManager(
                parts.KVCacheConfig(config.num_blocks, [], groups),
                max_model_len=config.max_model_len,
                scheduler_block_size=config.hash_block_size,
                hash_block_size=config.hash_block_size,
                max_num_batched_tokens=config.max_num_batched_tokens,
                enable_caching=config.enable_caching,
                log_stats=True,
                enable_kv_cache_events=True,
                watermark=config.watermark,
            )
        finally:
            parts.envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = before
        self._requests: dict[str, Any] = {}
        self._hits: dict[str, tuple[Any, int]] = {}

    def new_request(self, request: str, tokens: list[int]) -> None:
        """See `ManagerTarget`."""
        self._hashing.request(tokens)  # names the hashes of its prefixes
        base = installed().parts
        options = self._hashing.options
        made = base.Request(request, list(tokens), self._hashing.sampling, None, **options)
        self._requests[request] = made

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """See `ManagerTarget`."""
        known = self._requests[request]
        known.append_output_token_ids(list(tokens))
        self._hashing.request(list(known.all_token_ids))

    def set_progress(
        self, request: str, num_computed_tokens: int, is_running: bool, num_preemptions: int
    ) -> None:
        """See `ManagerTarget`."""
        status = self._parts.RequestStatus
        known = self._requests[request]
        known.num_computed_tokens = num_computed_tokens
        known.num_preemptions = num_preemptions
        waiting = status.PREEMPTED if num_preemptions else status.WAITING
        known.status = status.RUNNING if is_running else waiting

    def get_computed_blocks(self, request: str) -> tuple[list[list[int]], int]:
        """See `ManagerTarget`."""
        self._hits[request] = self._manager.get_computed_blocks(self._requests[request])
        blocks, num_tokens = self._hits[request]
        return [[block.block_id for block in group] for group in blocks.blocks], num_tokens

    def allocate_slots(
        self,
        request: str,
        num_new_tokens: int,
        use_hit: bool,
        num_lookahead_tokens: int,
        num_external_computed_tokens: int,
        delay_cache_blocks: bool,
        full_sequence_must_fit: bool,
        reserved_blocks: int,
        has_scheduled_reqs: bool,
    ) -> list[list[int]] | None:
        """See `ManagerTarget`."""
        blocks, num_hits = self._hits[request] if use_hit else (None, 0)
        new = self._manager.allocate_slots(
            self._requests[request],
            num_new_tokens,
            num_new_computed_tokens=num_hits,
            new_computed_blocks=blocks,
            num_lookahead_tokens=num_lookahead_tokens,
            num_external_computed_tokens=num_external_computed_tokens,
            delay_cache_blocks=delay_cache_blocks,
            full_sequence_must_fit=full_sequence_must_fit,
            reserved_blocks=reserved_blocks,
            has_scheduled_reqs=has_scheduled_reqs,
        )
        return None if new is None else [[b.block_id for b in group] for group in new.blocks]

    def cache_blocks(self, request: str, num_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self._manager.cache_blocks(self._requests[request], num_computed_tokens)

    def free(self, request: str) -> None:
        """See `ManagerTarget`."""
        self._manager.free(self._requests[request])

    def pop_blocks_for_free(self, request: str) -> list[int]:
        """See `ManagerTarget`."""
        popped = self._manager.pop_blocks_for_free(self._requests[request])
        return [block.block_id for block in popped]

    def free_blocks(self, blocks: list[int]) -> None:
        """See `ManagerTarget`."""
        pool = self._manager.block_pool
        if not all(0 <= block < len(pool.blocks) for block in blocks):
            raise NotExpressible("vLLM takes block objects, and there is none for such an id")
        pool.free_blocks([pool.blocks[block] for block in blocks])

    def remove_skipped_blocks(self, request: str, total_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self._manager.remove_skipped_blocks(request, total_computed_tokens)

    def evict_blocks(self, blocks: list[int]) -> None:
        """See `ManagerTarget`."""
        self._manager.evict_blocks(set(blocks))

    def reset_prefix_cache(self) -> bool:
        """See `ManagerTarget`."""
        return bool(self._manager.reset_prefix_cache())

    def get_num_common_prefix_blocks(self, request: str) -> list[int]:
        """See `ManagerTarget`."""
        common: list[int] = self._manager.get_num_common_prefix_blocks(request)
        return common

    def take_events(self) -> list[Event]:
        """See `ManagerTarget`."""
        return pool_events(self._manager.take_events(), self._hashing, None)

    def take_new_block_ids(self) -> list[int]:
        """See `ManagerTarget`."""
        ids: list[int] = self._manager.take_new_block_ids()
        return ids

    def observe(self) -> ManagerObservation:
        """See `ManagerTarget`."""
        tables = {}
        for request in sorted(self._requests):
            rows = [
                [block.block_id for block in manager.req_to_blocks.get(request, ())]
                for manager in self._manager.coordinator.single_type_managers
            ]
            if any(rows):
                tables[request] = rows
        pool = pool_observation(self._manager.block_pool, self._hashing)
        return ManagerObservation(pool, tables)


def _spec(parts: SimpleNamespace, group: GroupConfig) -> Any:
    common = {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": parts.dtype,
    }
    if group.kind == "sliding-window":
        return parts.SlidingWindowSpec(**common, sliding_window=group.reach)
    if group.kind == "chunked-local":
        return parts.ChunkedLocalAttentionSpec(**common, attention_chunk_size=group.reach)
    if group.kind == "mla":
        return parts.MLAAttentionSpec(**common)
    return parts.FullAttentionSpec(**common)
