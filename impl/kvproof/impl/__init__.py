"""An implementation of vLLM's block pool that is held to the specification.

`block_pool` has the operations under vLLM's names, on `free_queue` (the order of eviction)
and `hash_map` (which block answers for which hash); `events` is what the pool tells. Blocks
are ints, and a block hash is any hashable value: a pool never looks inside it.
"""

from kvproof.impl.block_pool import BlockPool
from kvproof.impl.events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from kvproof.impl.interface import Key, KVCacheBlock, MetricsCollector, Request

__all__ = [
    "AllBlocksCleared",
    "BlockPool",
    "BlockRemoved",
    "BlockStored",
    "KVCacheBlock",
    "KVCacheEvent",
    "Key",
    "MetricsCollector",
    "Request",
]
