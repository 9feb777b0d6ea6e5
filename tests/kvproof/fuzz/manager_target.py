"""What is under test at manager level: the protocol between the fuzzer and a KV-cache manager.

Values are ints, strings and lists, as at pool level (`kvproof.fuzz.target`). A request is
known by its name; the target keeps its tokens, counts and status, as a scheduler keeps them.
"""

from dataclasses import dataclass, field
from typing import Protocol

from kvproof.fuzz.target import Event, Observation


@dataclass(frozen=True)
class GroupConfig:
    """One group of layers. `kind` is full, mla, sliding-window or chunked-local; `reach` is the
    window or the chunk, in tokens, and 0 for the others.
    """

    kind: str
    block_size: int
    reach: int = 0


@dataclass(frozen=True)
class ManagerConfig:
    """How a manager is to be built. Sizes are in tokens; `watermark` is a share of the pool."""

    num_blocks: int
    groups: tuple[GroupConfig, ...]
    max_model_len: int = 64
    max_num_batched_tokens: int = 16
    enable_caching: bool = True
    watermark: float = 0.0
    retention_interval: int | None = None

    @property
    def hash_block_size(self) -> int:
        """The tokens of a hash unit: with one group, its block size."""
        return self.groups[0].block_size if self.groups else 1


@dataclass
class ManagerObservation:
    """What a manager shows: its pool, and each request's tables, group by group."""

    pool: Observation
    tables: dict[str, list[list[int]]] = field(default_factory=dict)


class ManagerTarget(Protocol):
    """A KV-cache manager under test. Raising any exception but NotExpressible refuses a call."""

    def new_request(self, request: str, tokens: list[int]) -> None:
        """A request arrives with its prompt."""
        ...

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """Tokens were sampled."""
        ...

    def set_progress(
        self, request: str, num_computed_tokens: int, is_running: bool, num_preemptions: int
    ) -> None:
        """The scheduler counts on."""
        ...

    def get_computed_blocks(self, request: str) -> tuple[list[list[int]], int]:
        """Return a hit: its blocks in each group, and how many tokens it covers. The target
        keeps it for the `allocate_slots` that follows.
        """
        ...

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
        """Return the new blocks of each group, or None."""
        ...

    def cache_blocks(self, request: str, num_computed_tokens: int) -> None:
        """Publish what has arrived."""
        ...

    def free(self, request: str) -> None:
        """A request ends, or is preempted."""
        ...

    def pop_blocks_for_free(self, request: str) -> list[int]:
        """A request ends while a step is in flight; return its blocks."""
        ...

    def free_blocks(self, blocks: list[int]) -> None:
        """Free blocks that were popped."""
        ...

    def remove_skipped_blocks(self, request: str, total_computed_tokens: int) -> None:
        """Release what no token may read any more."""
        ...

    def evict_blocks(self, blocks: list[int]) -> None:
        """Take all keys from these blocks."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Take all keys from all blocks, or return False."""
        ...

    def get_num_common_prefix_blocks(self, request: str) -> list[int]:
        """Return how many leading blocks all requests have in common, in each group."""
        ...

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        ...

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks to be zeroed that were taken since the last call."""
        ...

    def observe(self) -> ManagerObservation:
        """Return what can be seen of the state."""
        ...
