"""What the layers of a model keep in the cache: one spec for each group of layers.

Source: vLLM 0.25.1, kv_cache_interface.py.
"""

from dataclasses import dataclass

from kvproof.spec.quantities import NumTokens


@dataclass(frozen=True)
class KVCacheSpec:
    """A group's cache. `block_size` is in tokens."""

    block_size: NumTokens


@dataclass(frozen=True)
class FullAttentionSpec(KVCacheSpec):
    """Each token reads all tokens before it."""


@dataclass(frozen=True)
class MLAAttentionSpec(FullAttentionSpec):
    """Full attention whose keys and values are stored compressed; to the manager the same."""


@dataclass(frozen=True)
class SlidingWindowSpec(KVCacheSpec):
    """Each token reads the last `sliding_window` tokens, itself included."""

    sliding_window: NumTokens


@dataclass(frozen=True)
class ChunkedLocalAttentionSpec(KVCacheSpec):
    """Each token reads its own chunk of `attention_chunk_size` tokens up to itself."""

    attention_chunk_size: NumTokens


@dataclass(frozen=True)
class KVCacheConfig:
    """`num_blocks` blocks, the null block among them, for all groups together."""

    num_blocks: int
    kv_cache_groups: tuple[KVCacheSpec, ...]
