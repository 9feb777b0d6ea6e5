"""What is under test: the protocol between the fuzzer and a block pool.

Values are ints, strings and lists, so that they fit a JSON-lines pipe (`exec_target`).
A block is its id. A block hash is a short text, the tokens of its prefix joined by dots:
`"0.1.1"`. A pool may take it as an opaque name; equal texts are equal prefixes.

A target answers what it can. `operations` names the calls that it has, and `observe`
returns what it can show of its state. Only what is there is called and judged.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class TargetBroken(Exception):
    """The target does not keep this protocol, so nothing can be judged. One line."""


class NotExpressible(Exception):
    """The engine's own interface cannot be given this call; it is skipped, not judged."""


Hash = str
"""A block hash on the wire: the tokens of the prefix, joined by dots."""

Event = list[Any]
"""An event on the wire, one of

`["stored", [hash, ...], parent hash or None, [token, ...], group, block size]`: these hashes
became resident; the first follows the parent, each next one the one before, each with the
next so many tokens (tokens may be None: not told; the block size may be left out: the tokens
are shared out evenly);
`["removed", [hash, ...], group]`; `["cleared"]`.
"""

OPERATIONS = (
    "get_new_blocks",
    "touch",
    "free_blocks",
    "get_cached_block",
    "cache_full_blocks",
    "cache_partial_block",
    "evict_blocks",
    "reset_prefix_cache",
    "take_events",
    "get_num_free_blocks",
    "get_usage",
)
"""The operations of a block pool, by vLLM's names."""


@dataclass(frozen=True)
class PoolConfig:
    """How a pool is to be built. Sizes are in tokens; `block_sizes` has one for each group,
    a multiple of `hash_block_size`.
    """

    num_gpu_blocks: int
    enable_caching: bool = True
    hash_block_size: int = 2
    block_sizes: dict[int, int] = field(default_factory=lambda: {0: 2})
    enable_kv_cache_events: bool = True


@dataclass(frozen=True)
class RequestView:
    """As much of a request as a pool may see: its tokens, and the hash of the prefix that
    ends with each whole hash unit.
    """

    tokens: list[int]
    block_hashes: list[Hash]


class PoolTarget(Protocol):
    """A block pool under test. Raising any exception but NotExpressible refuses a call.

    All operations but those in `operations` may be missing. Block 0 is the null block.
    """

    operations: tuple[str, ...]

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """Hand out blocks; return their ids."""
        ...

    def touch(self, blocks: list[int]) -> None:
        """Hold each block once more."""
        ...

    def free_blocks(self, blocks: list[int]) -> None:
        """Release each block once for each time that it is listed."""
        ...

    def get_cached_block(self, block_hash: Hash, groups: list[int]) -> list[int] | None:
        """Return a block for each group, or None."""
        ...

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
        """Publish `blocks[num_cached_blocks:num_full_blocks]`."""
        ...

    def cache_partial_block(
        self, request: RequestView, block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        """Publish a block for a prefix that ends inside it; return whether it is listed."""
        ...

    def evict_blocks(self, blocks: list[int]) -> None:
        """Take all keys from these blocks."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Take all keys from all blocks, or return False while blocks are in use."""
        ...

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        ...

    def get_num_free_blocks(self) -> int:
        """Return the number of free blocks."""
        ...

    def get_usage(self) -> float:
        """Return the share of the blocks in use."""
        ...

    def observe(self) -> "Observation":
        """Return what can be seen of the state."""
        ...


@dataclass(slots=True)
class Observation:
    """What a target shows of its state; None where it shows nothing.

    `free`: the queued blocks, the front first. `ref_cnt`: one count for each block.
    `keys`: for each block the keys that it carries, each `(hash, group)`. `index`: for each
    key the blocks that are listed under it, in the order of insertion. `hooks`: the calls of
    the metrics collector since the last observation, each `(name, block)`.
    """

    free: list[int] | None = None
    ref_cnt: list[int] | None = None
    keys: list[list[tuple[Hash, int]]] | None = None
    index: dict[tuple[Hash, int], list[int]] | None = None
    num_free_blocks: int | None = None
    hooks: list[tuple[str, int]] | None = None


PoolFactory = Callable[[PoolConfig], PoolTarget]
"""Builds a fresh pool. `module:factory` on the command line names one."""
