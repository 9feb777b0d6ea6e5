"""Our own manager as a target at manager level."""

from dataclasses import dataclass, field
from typing import Any

from kvproof.fuzz.elements import elements
from kvproof.fuzz.impl_target import on_the_wire, pool_observation
from kvproof.fuzz.manager_target import ManagerConfig, ManagerObservation
from kvproof.fuzz.target import Event, Hash
from kvproof.impl.kv_cache_manager import KVCacheManager
from kvproof.impl.reach import GroupSpec


@dataclass
class ImplRequest:
    """A request as `kvproof.impl` sees it; `unit` is the number of tokens of a hash. `tokens` are
    what stands for them in hashes.
    """

    request_id: str
    known: list[int]
    extra: dict[str, Any] | None
    unit: int
    num_prompt_tokens: int
    num_computed_tokens: int = 0
    num_unsettled_tokens: int = 0
    is_running: bool = False
    num_preemptions: int = 0
    skip_reading_prefix_cache: bool = False
    tokens: tuple[int, ...] = ()
    block_hashes: list[Hash] = field(default_factory=list)

    def append(self, tokens: list[int]) -> None:
        """Add tokens, and the hashes of the blocks that they fill."""
        self.known += tokens
        self.tokens = elements(self.known, self.extra, self.unit)
        for start in range(len(self.block_hashes) * self.unit, len(self.tokens), self.unit):
            end = start + self.unit
            if end <= len(self.tokens):
                self.block_hashes.append(".".join(map(str, self.tokens[:end])))


class ImplManager:
    """See `ManagerTarget`. Raises what `kvproof.impl.kv_cache_manager` raises."""

    def __init__(
        self, config: ManagerConfig, manager_type: type[KVCacheManager] = KVCacheManager
    ) -> None:
        self.manager = manager_type(
            config.num_blocks,
            [GroupSpec(group.kind, group.block_size, group.reach) for group in config.groups],
            config.max_model_len,
            config.max_num_batched_tokens,
            config.enable_caching,
            enable_kv_cache_events=True,
            watermark=config.watermark,
            retention_interval=config.retention_interval,
        )
        self.unit = config.hash_block_size
        self.requests: dict[str, ImplRequest] = {}
        self._hits: dict[str, tuple[list[list[int]], int]] = {}

    def new_request(self, request: str, tokens: list[int], extra: dict[str, Any] | None) -> None:
        """See `ManagerTarget`."""
        made = self.requests[request] = ImplRequest(request, [], extra, self.unit, len(tokens))
        made.append(tokens)

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """See `ManagerTarget`."""
        self.requests[request].append(tokens)

    def block_hashes(self, request: str) -> list[Hash]:
        """See `ManagerTarget`."""
        return self.requests[request].block_hashes

    def get_computed_blocks(self, request: str) -> tuple[list[list[int]], int]:
        """See `ManagerTarget`."""
        self._hits[request] = self.manager.get_computed_blocks(self.requests[request])
        hit, num_tokens = self._hits[request]
        return [[*row] for row in hit], num_tokens

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
        known.num_computed_tokens = num_computed_tokens
        known.num_unsettled_tokens = num_unsettled_tokens
        known.is_running, known.num_preemptions = is_running, num_preemptions
        hit, num_hits = self._hits[request] if use_hit else ((), 0)
        return self.manager.allocate_slots(
            known,
            num_new_tokens,
            num_hits,
            hit,
            num_lookahead_tokens,
            num_external_computed_tokens,
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks,
            has_scheduled_reqs,
        )

    def unschedule(self, request: str, num_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self.manager.unschedule(self.requests[request], num_computed_tokens)

    def cache_blocks(self, request: str, num_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self.manager.cache_blocks(self.requests[request], num_computed_tokens)

    def free(self, request: str) -> None:
        """See `ManagerTarget`."""
        self.manager.free(self.requests[request])

    def pop_blocks_for_free(self, request: str) -> list[int]:
        """See `ManagerTarget`."""
        return self.manager.pop_blocks_for_free(self.requests[request])

    def free_blocks(self, blocks: list[int]) -> None:
        """See `ManagerTarget`."""
        self.manager.block_pool.free_blocks(blocks)

    def remove_skipped_blocks(self, request: str, total_computed_tokens: int) -> None:
        """See `ManagerTarget`."""
        self.manager.remove_skipped_blocks(request, total_computed_tokens)

    def evict_blocks(self, blocks: list[int]) -> None:
        """See `ManagerTarget`."""
        self.manager.evict_blocks(blocks)

    def reset_prefix_cache(self) -> bool:
        """See `ManagerTarget`."""
        return self.manager.reset_prefix_cache()

    def get_num_common_prefix_blocks(self, request: str) -> list[int]:
        """See `ManagerTarget`."""
        return self.manager.get_num_common_prefix_blocks(request)

    def take_events(self) -> list[Event]:
        """See `ManagerTarget`."""
        return [on_the_wire(event) for event in self.manager.take_events()]

    def take_new_block_ids(self) -> list[int]:
        """See `ManagerTarget`."""
        return self.manager.take_new_block_ids()

    def observe(self) -> ManagerObservation:
        """See `ManagerTarget`."""
        tables = self.manager.req_to_blocks
        return ManagerObservation(
            pool_observation(self.manager.block_pool),
            {name: [[*row] for row in rows] for name, rows in sorted(tables.items()) if any(rows)},
        )
