"""The free blocks in the order of eviction.

Source: vLLM 0.25.1, kv_cache_utils.py, `FreeKVCacheBlockQueue`.
"""

from collections.abc import Sequence


class FreeQueue:
    """A circular, doubly linked list of block ids, in two flat lists.

    `next[b]` and `prev[b]` are the neighbours of a queued block. The null block is never
    free, so it stands for both ends: `next[null]` is the front, `prev[null]` the back. The
    links of blocks that are not queued mean nothing. Nothing is checked here: the caller
    knows what is queued.
    """

    __slots__ = ("next", "null_block", "num_free_blocks", "prev")

    def __init__(self, num_blocks: int, null_block: int) -> None:
        self.null_block = null_block
        self.next = [*range(1, num_blocks), 0]
        self.prev = [num_blocks - 1, *range(num_blocks - 1)]
        self.num_free_blocks = num_blocks - 1

    def popleft_n(self, num_blocks: int) -> list[int]:
        """Take so many blocks from the front; there must be as many."""
        following = self.next
        block = following[self.null_block]
        taken = []
        for _ in range(num_blocks):
            taken.append(block)
            block = following[block]
        following[self.null_block] = block
        self.prev[block] = self.null_block
        self.num_free_blocks -= num_blocks
        return taken

    def remove(self, block: int) -> None:
        """Take a queued block out of the middle."""
        before, after = self.prev[block], self.next[block]
        self.next[before] = after
        self.prev[after] = before
        self.num_free_blocks -= 1

    def prepend_n(self, blocks: Sequence[int]) -> None:
        """Put blocks that are not queued at the front, the first of them foremost."""
        self._link(self.null_block, blocks, self.next[self.null_block])

    def append_n(self, blocks: Sequence[int]) -> None:
        """Put blocks that are not queued at the back, the last of them hindmost."""
        self._link(self.prev[self.null_block], blocks, self.null_block)

    def _link(self, before: int, blocks: Sequence[int], after: int) -> None:
        for block in blocks:
            self.next[before] = block
            self.prev[block] = before
            before = block
        self.next[before] = after
        self.prev[after] = before
        self.num_free_blocks += len(blocks)
