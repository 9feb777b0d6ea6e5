"""What is under test at manager level: the protocol between the fuzzer and a KV-cache manager.

Values are ints, strings and lists, as at pool level (`kvproof.fuzz.target`). A request is known
by its name. The target keeps its tokens; how far it is computed is told with each
`allocate_slots`, as a scheduler counts it. All counts are in tokens, a table is a list of block
ids, and what has one entry for each group of layers is in the order of `ManagerConfig.groups`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from kvproof.fuzz.target import Event, Observation

LARGEST = 1_000_000
"""The largest number that a configuration may have."""

KINDS = ("full", "mla", "sliding-window", "chunked-local")
"""The kinds of groups."""


class BadConfig(ValueError):
    """A value is no configuration. The message is one line and names the part that is wrong."""


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

    def as_json(self) -> dict[str, Any]:
        """Return the configuration as a file holds it."""
        return {**asdict(self), "groups": [asdict(group) for group in self.groups]}


def config_from_json(value: Any) -> ManagerConfig:
    """Read what `as_json` wrote. Raises BadConfig."""
    _need_fields("manager", value, ManagerConfig)
    _need(isinstance(value["groups"], list), "manager.groups must be a list")
    groups = tuple(map(_group_from_json, value["groups"]))
    for name in ("num_blocks", "max_model_len", "max_num_batched_tokens"):
        _need(_is_count(value[name]), f"manager.{name} must be 1 .. {LARGEST}")
    caching = value["enable_caching"]
    _need(isinstance(caching, bool), "manager.enable_caching must be true or false")
    _need(not caching or len(groups) == 1, "manager.groups: with caching there is one group")
    watermark, interval = value["watermark"], value["retention_interval"]
    share = type(watermark) in (int, float) and 0 <= watermark < 1
    _need(share, "manager.watermark must be a share of the pool: 0 <= watermark < 1")
    fits = interval is None or interval == 0 or _is_count(interval)
    _need(
        fits and not isinstance(interval, bool), "manager.retention_interval is null or 0 or more"
    )
    return ManagerConfig(**{**value, "groups": groups})


def _group_from_json(value: Any) -> GroupConfig:
    _need_fields("manager.groups", value, GroupConfig)
    _need(value["kind"] in KINDS, f"manager.groups: kind must be one of {', '.join(KINDS)}")
    _need(_is_count(value["block_size"]), "manager.groups: block_size must be positive")
    forgets = value["kind"] in ("sliding-window", "chunked-local")
    fits = _is_count(value["reach"]) if forgets else value["reach"] == 0
    _need(fits, "manager.groups: reach is positive for a window or a chunk, 0 for the others")
    return GroupConfig(**value)


def _need_fields(name: str, value: Any, kind: type[Any]) -> None:
    _need(isinstance(value, dict), f"{name} must be an object")
    wanted = [field.name for field in fields(kind)]
    _need(sorted(value) == sorted(wanted), f"{name} must have exactly {', '.join(wanted)}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value <= LARGEST


def _need(condition: bool, says: str) -> None:
    if not condition:
        raise BadConfig(says)


@dataclass
class ManagerObservation:
    """What a manager shows: its pool, and the tables of each request that has blocks, one table
    for each group. Entry i of a table is the block of the tokens from i * block_size on; 0 is
    the null block.
    """

    pool: Observation
    tables: dict[str, list[list[int]]] = field(default_factory=dict)


class ManagerTarget(Protocol):
    """A KV-cache manager under test. Raising any exception but NotExpressible refuses a call.

    Needed are `new_request`, `append_tokens`, `get_computed_blocks`, `allocate_slots`, `free` and
    `observe`; the others may be missing, and are then not called. A manager may also have
    `block_hashes` and `fresh_block_hashes`: the hashes of a request's full hash units, as they
    came about, and computed at once; each a text, bytes or an integer.

    It may have `unschedule(request, num_computed_tokens)`: the tokens from there on, for which
    slots were given, are not computed: the request was taken out of its step, or a load has
    failed. What was published for them must be taken back. vLLM 0.25.1 has no such call.
    """

    def new_request(self, request: str, tokens: list[int], extra: dict[str, Any] | None) -> None:
        """A request arrives with its prompt. `extra` is what else is hashed: LoRA, cache salt,
        multimodal items, embeddings (`kvproof.fuzz.elements`); a manager that knows none of
        them raises NotExpressible when it is not None.
        """
        ...

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """Tokens that were sampled become known."""
        ...

    def get_computed_blocks(self, request: str) -> tuple[list[list[int]], int]:
        """Return a hit: its blocks in each group, and how many tokens it covers. The target
        keeps it for the `allocate_slots` that follows.
        """
        ...

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
        """Return the new blocks of each group, or None when there are not enough.

        The request is computed up to `num_computed_tokens`, which counts
        `num_unsettled_tokens` drafts in steps in flight that may be rejected. `use_hit` says
        that the hit of the call before is to be used. `num_draft_tokens` of the new tokens are
        drafts. The other arguments are vLLM's.
        """
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


ManagerFactory = Callable[[ManagerConfig], ManagerTarget]
"""Builds a fresh manager for a configuration."""
