"""What the pool is given, and what it shows."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol


class Request(Protocol):
    """What a pool must know of a request.

    `block_hashes[i]` names the prefix of `i + 1` hash units, and is never None. `tokens` are
    read for the metadata of events only.
    """

    @property
    def block_hashes(self) -> Sequence[Hashable]:
        """One hash for each whole hash unit, each chained over the whole prefix."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens, in order."""
        ...


class Key(NamedTuple):
    """A block hash qualified by its group (vLLM: `BlockHashWithGroupId`)."""

    block_hash: Hashable
    group_id: int


class KVCacheBlock(NamedTuple):
    """What can be read of a block (vLLM: kv_cache_utils.py, `KVCacheBlock`).

    `block_hash` is its full key, or the longest of its partial ones.
    """

    block_id: int
    ref_cnt: int
    block_hash: Key | None
    block_hash_num_tokens: int | None
    is_null: bool


class MetricsCollector(Protocol):
    """Who wants to know how long blocks live (vLLM: `KVCacheMetricsCollector`)."""

    def on_block_allocated(self, block: int) -> None:
        """Note that the block was handed out."""
        ...

    def on_block_accessed(self, block: int) -> None:
        """Note that the block was hit."""
        ...

    def on_block_evicted(self, block: int) -> None:
        """Note that what the block held until now is gone."""
        ...

    def reset(self) -> None:
        """Note that everything is gone."""
        ...
