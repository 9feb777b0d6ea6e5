"""Which blocks are listed under a key.

Source: vLLM 0.25.1, block_pool.py, `BlockHashToBlockMap`.
"""

from collections.abc import Hashable

Listed = int | dict[int, None]
"""The one block of a key, or its blocks in the order of insertion."""


class BlockHashMap:
    """For each group and block hash, the blocks that carry this key.

    `by_group[group][block_hash]` is one block nearly always, and then needs no container
    of its own. A group whose keys are all gone keeps its empty dict.
    """

    __slots__ = ("by_group",)

    def __init__(self) -> None:
        self.by_group: dict[int, dict[Hashable, Listed]] = {}

    def get_one_block(self, block_hash: Hashable, group: int) -> int | None:
        """Return the block that was listed under the key first, or None."""
        keys = self.by_group.get(group)
        listed = None if keys is None else keys.get(block_hash)
        if isinstance(listed, dict):
            return next(iter(listed))
        return listed

    def insert(self, block_hash: Hashable, group: int, block: int) -> None:
        """List a block that is not listed under the key, behind those that are."""
        keys = self.by_group.setdefault(group, {})
        listed = keys.get(block_hash)
        if listed is None:
            keys[block_hash] = block
        elif isinstance(listed, dict):
            listed[block] = None
        else:
            keys[block_hash] = {listed: None, block: None}

    def pop(self, block_hash: Hashable, group: int, block: int) -> bool:
        """List the block under the key no more. Return whether that was the key's last one."""
        keys = self.by_group.get(group, {})
        listed = keys.get(block_hash)
        if isinstance(listed, dict):
            listed.pop(block, None)
            if listed:
                return False
        elif listed != block:
            return False
        del keys[block_hash]
        return True

    def clear(self) -> None:
        """List nothing."""
        self.by_group.clear()
