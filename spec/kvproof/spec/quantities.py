"""The quantities of the layer, each with a type of its own.

A block hash is taken to be injective: it is represented by what it hashes, the whole
prefix. Two equal hashes are then two equal prefixes, by construction.
"""

from typing import NamedTuple, NewType

BlockId = NewType("BlockId", int)
"""A physical block, 0 .. num_gpu_blocks - 1. Block 0 is the null block."""

GroupId = NewType("GroupId", int)
"""A KV-cache group: the layers that share one block table."""

Slot = NewType("Slot", int)
"""A place that holds one reference to a block: an entry of a block table, a pending
free, or a permanent holder."""

TokenId = NewType("TokenId", int)
"""A token of the vocabulary."""

NumTokens = NewType("NumTokens", int)
"""A length in tokens."""

BlockHash = tuple[TokenId, ...]
"""What identifies the contents of a block: the tokens of its whole prefix."""


class Key(NamedTuple):
    """A block hash qualified by its group (vLLM: `BlockHashWithGroupId`)."""

    block_hash: BlockHash
    group: GroupId


NO_KEY = Key((), GroupId(-1))
"""Stands for 'no key'. It is no prefix, and nothing is listed under it."""


def hash_text(block_hash: BlockHash) -> str:
    """Write a block hash the way reports and pipes carry it: tokens joined by dots.

    >>> hash_text((TokenId(0), TokenId(1), TokenId(1)))
    '0.1.1'
    """
    return ".".join(map(str, block_hash))


def hash_from_text(text: str) -> BlockHash:
    """Read what `hash_text` wrote. Raises ValueError when it is not such a text.

    >>> hash_from_text('0.1.1')
    (0, 1, 1)
    """
    return tuple(TokenId(int(token)) for token in text.split("."))
