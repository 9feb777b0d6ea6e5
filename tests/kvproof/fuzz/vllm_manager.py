"""The KV-cache manager of whatever vLLM is installed, as a target.

The real `KVCacheManager`, with real `Request` objects that vLLM hashes itself.
"""

import importlib
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from kvproof.fuzz.elements import elements
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig, ManagerObservation
from kvproof.fuzz.target import Event, NotExpressible
from kvproof.fuzz.vllm_release import installed
from kvproof.fuzz.vllm_target import HashNames, hashing, pool_events, pool_observation

HOMES = {
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "KVCacheConfig": "vllm.v1.kv_cache_interface",
    "KVCacheGroupSpec": "vllm.v1.kv_cache_interface",
    "FullAttentionSpec": "vllm.v1.kv_cache_interface",
    "MLAAttentionSpec": "vllm.v1.kv_cache_interface",
    "SlidingWindowSpec": "vllm.v1.kv_cache_interface",
    "ChunkedLocalAttentionSpec": "vllm.v1.kv_cache_interface",
    "LoRARequest": "vllm.lora.request",
    "MultiModalFeatureSpec": "vllm.multimodal.inputs",
    "PlaceholderRange": "vllm.multimodal.inputs",
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
    parts.torch = importlib.import_module("torch")
    parts.envs = importlib.import_module("vllm.envs")
    parts.register_all_kvcache_specs(None)
    return parts


class VllmManager:
    """See `ManagerTarget`. Raises VllmUnavailable, and what vLLM raises."""

    def __init__(self, config: ManagerConfig) -> None:
        parts = self._parts = manager_parts()
        self._plain = hashing(installed(), config.hash_block_size)
        self._names = HashNames(installed(), config.hash_block_size)
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
        self._caching = config.enable_caching
        self._requests: dict[str, Any] = {}
        self._extras: dict[str, dict[str, Any] | None] = {}
        self._hits: dict[str, tuple[Any, int]] = {}

    def new_request(self, request: str, tokens: list[int], extra: dict[str, Any] | None) -> None:
        """See `ManagerTarget`."""
        self._extras[request] = extra
        self._requests[request] = self._built(request, tokens, extra)
        self._learn(request)

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """See `ManagerTarget`."""
        self._requests[request].append_output_token_ids(list(tokens))
        self._learn(request)

    def block_hashes(self, request: str) -> list[str]:
        """See `ManagerTarget`."""
        return [bytes(one).hex() for one in self._requests[request].block_hashes]

    def fresh_block_hashes(self, request: str) -> list[str]:
        """See `ManagerTarget`."""
        known, extra = self._requests[request], self._extras[request]
        prompt = known.num_prompt_tokens
        made = self._built(request, known.all_token_ids[:prompt], extra, hashed=False)
        made.append_output_token_ids(list(known.all_token_ids[prompt:]))
        hasher = self._plain.options["block_hasher"]
        return [bytes(one).hex() for one in hasher(made)]

    def _built(
        self,
        name: str,
        tokens: Sequence[int],
        extra: dict[str, Any] | None,
        hashed: bool = True,
    ) -> Any:
        """Build a request. Without prefix caching the engine hashes none."""
        parts, plain, given = self._parts, self._plain, extra or {}
        options = dict(plain.options)
        if not (hashed and self._caching):
            options["block_hasher"] = None
        if "lora" in given:
            adapter, number = given["lora"]
            options["lora_request"] = parts.LoRARequest(adapter, number, "/adapter")
        if "salt" in given:
            options["cache_salt"] = given["salt"]
        if "mm" in given:
            options["mm_features"] = [
                parts.MultiModalFeatureSpec(
                    data=None,
                    modality="image",
                    identifier=identifier,
                    mm_position=parts.PlaceholderRange(offset=offset, length=length),
                )
                for identifier, offset, length in given["mm"]
            ]
        if "embeds" in given:
            rows = [[row or 0] for row in given["embeds"]]
            options["prompt_embeds"] = parts.torch.tensor(rows, dtype=parts.torch.uint8)
            options["prompt_is_token_ids"] = [row is None for row in given["embeds"]]
        return plain.parts.Request(name, list(tokens), plain.sampling, None, **options)

    def _learn(self, request: str) -> None:
        known = self._requests[request]
        real = list(known.all_token_ids)
        named = elements(real, self._extras[request], self._names.unit)
        self._names.learn(known.block_hashes, named, real)

    def get_computed_blocks(self, request: str) -> tuple[list[list[int]], int]:
        """See `ManagerTarget`."""
        self._hits[request] = self._manager.get_computed_blocks(self._requests[request])
        blocks, num_tokens = self._hits[request]
        return [[block.block_id for block in group] for group in blocks.blocks], num_tokens

    def allocate_slots(
        self,
        request: str,
        num_computed_tokens: int,
        num_unsettled_tokens: int,
        is_running: bool,
        num_preemptions: int,
        num_new_tokens: int,
        num_draft_tokens: int,
        use_hit: bool,
        num_lookahead_tokens: int,
        num_external_computed_tokens: int,
        delay_cache_blocks: bool,
        full_sequence_must_fit: bool,
        reserved_blocks: int,
        has_scheduled_reqs: bool,
    ) -> list[list[int]] | None:
        """See `ManagerTarget`. The release is told nothing of drafts in flight."""
        known, status = self._requests[request], self._parts.RequestStatus
        known.num_computed_tokens = num_computed_tokens
        known.num_preemptions = num_preemptions
        waiting = status.PREEMPTED if num_preemptions else status.WAITING
        known.status = status.RUNNING if is_running else waiting
        blocks, num_hits = self._hits[request] if use_hit else (None, 0)
        new = self._manager.allocate_slots(
            known,
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
        return pool_events(self._manager.take_events(), self._names, None)

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
        pool = pool_observation(self._manager.block_pool, self._names)
        return ManagerObservation(pool, tables)


def _spec(parts: SimpleNamespace, group: GroupConfig) -> Any:
    common = {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": parts.torch.float16,
    }
    if group.kind == "sliding-window":
        return parts.SlidingWindowSpec(**common, sliding_window=group.reach)
    if group.kind == "chunked-local":
        return parts.ChunkedLocalAttentionSpec(**common, attention_chunk_size=group.reach)
    if group.kind == "mla":
        return parts.MLAAttentionSpec(**common)
    return parts.FullAttentionSpec(**common)
