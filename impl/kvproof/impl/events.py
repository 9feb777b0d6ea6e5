"""What a pool tells its consumers: which keys have become resident, and which are gone.

Source: vLLM 0.25.1, distributed/kv_events.py.
"""

from collections.abc import Hashable
from typing import NamedTuple


class BlockStored(NamedTuple):
    """Keys have become resident, or resident in one block more.

    The first hash follows the parent (None: it starts a request), each next one the hash
    before it, and each covers `block_size` of the tokens. There is no gap between them.
    """

    block_hashes: list[Hashable]
    parent_block_hash: Hashable | None
    token_ids: list[int]
    block_size: int
    group_idx: int


class BlockRemoved(NamedTuple):
    """Keys are resident in no block any more."""

    block_hashes: list[Hashable]
    group_idx: int


class AllBlocksCleared(NamedTuple):
    """No key is resident any more."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared
