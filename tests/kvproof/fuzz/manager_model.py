"""The specification's manager behind the target protocol: the oracle at manager level."""

from typing import Any

from kvproof.fuzz.elements import RequestContent, content_of, elements
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig, ManagerObservation
from kvproof.fuzz.model import wire_event
from kvproof.fuzz.target import Event
from kvproof.fuzz.view import View
from kvproof.spec.kv_cache_coordinator import Blocks
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from kvproof.spec.quantities import BlockHash, BlockId, NumTokens, TokenId, hash_text
from kvproof.spec.request import Request, RequestId


class SpecManager:
    """See `ManagerTarget`. Raises what `kvproof.spec.kv_cache_manager` raises. `contents` has what
    each request consists of; what stands for its tokens is in `requests`.
    """

    def __init__(self, config: ManagerConfig) -> None:
        unit = NumTokens(config.hash_block_size)
        self.manager = KVCacheManager(
            KVCacheConfig(config.num_blocks, tuple(map(spec_of, config.groups))),
            NumTokens(config.max_model_len),
            scheduler_block_size=unit,
            hash_block_size=unit,
            max_num_batched_tokens=NumTokens(config.max_num_batched_tokens),
            enable_caching=config.enable_caching,
            log_stats=True,
            enable_kv_cache_events=True,
            watermark=config.watermark,
            retention_interval=config.retention_interval,
        )
        self.requests: dict[str, Request] = {}
        self.contents: dict[str, RequestContent] = {}
        self._unit = config.hash_block_size
        self._hits: dict[str, tuple[Blocks, NumTokens]] = {}
        self._view = View(config.num_blocks)

    def call(self, name: str, args: dict[str, Any]) -> Any:
        """Make a recorded call."""
        return getattr(self, name)(**args)

    def new_request(self, request: str, tokens: list[int], extra: dict[str, Any] | None) -> None:
        """See `ManagerTarget`."""
        self.contents[request] = content_of(tokens, extra)
        known = self._elements(request)
        self.requests[request] = Request(RequestId(request), known, NumTokens(len(tokens)))

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """See `ManagerTarget`."""
        before = self.contents[request]
        self.contents[request] = content_of([*before.tokens, *tokens], before.extra)
        self.requests[request].tokens = self._elements(request)

    def block_hashes(self, request: str) -> list[str]:
        """See `ManagerTarget`."""
        tokens = self.requests[request].tokens
        ends = range(self._unit, len(tokens) + 1, self._unit)
        return [hash_text(tokens[:end]) for end in ends]

    def get_computed_blocks(self, request: str) -> tuple[list[list[int]], int]:
        """See `ManagerTarget`."""
        self._hits[request] = self.manager.get_computed_blocks(self.requests[request])
        blocks, num_tokens = self._hits[request]
        return _plain(blocks), num_tokens

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
        """See `ManagerTarget`."""
        known = self.requests[request]
        known.num_computed_tokens = NumTokens(num_computed_tokens)
        known.num_unsettled_tokens = NumTokens(num_unsettled_tokens)
        known.is_running, known.num_preemptions = is_running, num_preemptions
        blocks, num_hits = self._hits[request] if use_hit else (None, NumTokens(0))
        new = self.manager.allocate_slots(
            known,
            NumTokens(num_new_tokens),
            num_hits,
            blocks,
            NumTokens(num_lookahead_tokens),
            NumTokens(num_external_computed_tokens),
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks,
            has_scheduled_reqs,
        )
        return None if new is None else _plain(new)

    def unschedule(self, request: str, num_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self.manager.unschedule(self.requests[request], NumTokens(num_computed_tokens))

    def cache_blocks(self, request: str, num_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self.manager.cache_blocks(self.requests[request], NumTokens(num_computed_tokens))

    def free(self, request: str) -> None:
        """See `ManagerTarget`."""
        self.manager.free(self.requests[request])

    def pop_blocks_for_free(self, request: str) -> list[int]:
        """See `ManagerTarget`."""
        return [*self.manager.pop_blocks_for_free(self.requests[request])]

    def free_blocks(self, blocks: list[int]) -> None:
        """See `ManagerTarget`."""
        self.manager.block_pool.free_blocks(map(BlockId, blocks))

    def remove_skipped_blocks(self, request: str, total_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self.manager.remove_skipped_blocks(RequestId(request), NumTokens(total_computed_tokens))

    def evict_blocks(self, blocks: list[int]) -> None:
        """See `ManagerTarget`."""
        self.manager.evict_blocks(map(BlockId, blocks))

    def reset_prefix_cache(self) -> bool:
        """See `ManagerTarget`."""
        return self.manager.reset_prefix_cache()

    def get_num_common_prefix_blocks(self, request: str) -> list[int]:
        """See `ManagerTarget`."""
        return self.manager.get_num_common_prefix_blocks(RequestId(request))

    def take_events(self) -> list[Event]:
        """See `ManagerTarget`."""
        return [wire_event(told.event) for told in self.manager.take_events()]

    def take_new_block_ids(self) -> list[int]:
        """See `ManagerTarget`."""
        return [*self.manager.take_new_block_ids()]

    def observe(self) -> ManagerObservation:
        """See `ManagerTarget`."""
        names = sorted(self.requests)
        tables = {name: _plain(self.manager.get_block_ids(RequestId(name))) for name in names}
        return ManagerObservation(
            self._view.look(self.manager.block_pool.state, []),
            {name: rows for name, rows in tables.items() if any(rows)},
        )

    def _elements(self, request: str) -> BlockHash:
        content = self.contents[request]
        return tuple(map(TokenId, elements(content.tokens, content.extra, self._unit)))


def spec_of(group: GroupConfig) -> KVCacheSpec:
    """Return the specification's spec of a group. Raises ValueError for a kind not known."""
    size, reach = NumTokens(group.block_size), NumTokens(group.reach)
    if group.kind == "full":
        return FullAttentionSpec(size)
    if group.kind == "mla":
        return MLAAttentionSpec(size)
    if group.kind == "sliding-window":
        return SlidingWindowSpec(size, reach)
    if group.kind == "chunked-local":
        return ChunkedLocalAttentionSpec(size, reach)
    raise ValueError(f"no kind of group: {group.kind!r}")


def _plain(blocks: Blocks) -> list[list[int]]:
    return [[*group] for group in blocks]
