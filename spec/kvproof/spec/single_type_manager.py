"""The block tables of one group of layers.

A table has one entry for each block of the request's tokens, from the first on. An entry that
no token still to be computed may read is the null block. What a group forgets, and what a hit
of it needs, follows from its attention alone (`kvproof.spec.attention`).

Source: vLLM 0.25.1, single_type_kv_cache_manager.py, `SingleTypeKVCacheManager`; seed 2,
section 4.
"""

from collections.abc import Sequence
from itertools import takewhile

from kvproof.spec import manager_rules
from kvproof.spec.attention import (
    Attention,
    admission_blocks,
    blocks_for,
    longest_hit,
    needed_blocks,
    skipped_tokens,
    wanted_blocks,
)
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.logic import requires
from kvproof.spec.quantities import BlockHash, BlockId, GroupId, Key, NumTokens
from kvproof.spec.request import Request, RequestId
from kvproof.spec.transitions import lookup


class SingleTypeKVCacheManager:
    """The tables of group `group`, whose blocks hold `block_size` tokens.

    `zeroes_new_blocks` says that the ids of new blocks are collected, so that they can be zeroed.
    """

    def __init__(
        self,
        block_pool: BlockPool,
        group: GroupId,
        block_size: NumTokens,
        attention: Attention,
        alignment: NumTokens,
        zeroes_new_blocks: bool = False,
    ) -> None:
        self.block_pool = block_pool
        self.group = group
        self.block_size = block_size
        self.attention = attention
        self.alignment = alignment
        self.zeroes_new_blocks = zeroes_new_blocks
        self.req_to_blocks: dict[RequestId, list[BlockId]] = {}
        self.num_cached_block: dict[RequestId, int] = {}
        self.new_block_ids: list[BlockId] = []

    def get_num_blocks_to_allocate(
        self,
        request_id: RequestId,
        num_tokens: NumTokens,
        new_computed_blocks: Sequence[BlockId],
        next_token: NumTokens,
    ) -> int:
        """Return how many blocks leave the free queue when the request is given slots for
        `num_tokens` tokens: new ones, and those of the hit that nobody holds.

        Raises LateHitError when there is a hit and the request has blocks.
        """
        table = self.req_to_blocks.get(request_id, [])
        requires(not (table and new_computed_blocks), manager_rules.HITS_COME_FIRST, request_id)

        wanted = blocks_for(num_tokens, self.block_size)
        skipped = self._skipped_blocks(next_token)
        there = max(len(table), len(new_computed_blocks))
        if not table:
            there = max(there, skipped)
        return max(wanted - there, 0) + self._num_queued(new_computed_blocks[skipped:])

    def get_num_blocks_to_admit(
        self,
        request_id: RequestId,
        num_tokens: NumTokens,
        new_computed_blocks: Sequence[BlockId],
        next_token: NumTokens,
        step: NumTokens,
    ) -> int:
        """Return how many blocks more are out of the free queue when the request holds the most,
        on its way from `next_token` to slots for `num_tokens` tokens. What it forgets on the way
        it gives back. `step` is the most slots that are given beyond the computed tokens.

        vLLM 0.25.1: `get_num_blocks_to_allocate` with `apply_admission_cap`.
        """
        table = self.req_to_blocks.get(request_id, [])
        entries, own = table or new_computed_blocks, int(bool(table))

        def is_shared(index: int) -> bool:
            if index >= len(entries):
                return False
            block = entries[index]
            return block == self.block_pool.null_block or self.block_pool.block(block).ref_cnt > own

        most = admission_blocks(
            self.attention, next_token, num_tokens, step, self.block_size, is_shared
        )
        return max(most - sum(not is_shared(index) for index in range(len(table))), 0)

    def add_local_computed_blocks(
        self,
        request_id: RequestId,
        new_computed_blocks: Sequence[BlockId],
        next_token: NumTokens,
    ) -> None:
        """Begin the table of a request with the blocks of its hit. Those that no token from
        `next_token` on may read are null; the others are held.

        Raises LateHitError when the request has blocks.
        """
        has_blocks = bool(self.req_to_blocks.get(request_id))
        requires(not has_blocks, manager_rules.HITS_COME_FIRST, request_id)

        skipped = self._skipped_blocks(next_token)
        kept = list(new_computed_blocks[skipped:])
        self.block_pool.touch(kept)
        self.req_to_blocks[request_id] = self._nulls(skipped) + kept
        self.num_cached_block[request_id] = skipped + len(kept)

    def allocate_external_computed_blocks(
        self, request_id: RequestId, next_token: NumTokens, total_computed_tokens: NumTokens
    ) -> None:
        """Take blocks for tokens up to `total_computed_tokens` that another store has computed,
        as far as some token from `next_token` on may read them.

        Raises OutOfBlocksError.
        """
        if skipped_tokens(self.attention, next_token) < total_computed_tokens:
            self.allocate_new_blocks(request_id, total_computed_tokens)

    def allocate_new_blocks(self, request_id: RequestId, num_tokens: NumTokens) -> list[BlockId]:
        """Take blocks until the table has room for `num_tokens` tokens; return the new ones.

        Raises OutOfBlocksError.
        """
        table = self.req_to_blocks.get(request_id, [])
        missing = max(blocks_for(num_tokens, self.block_size) - len(table), 0)
        new = self.block_pool.get_new_blocks(missing)
        self.req_to_blocks[request_id] = table + new
        if self.zeroes_new_blocks:
            self.new_block_ids += new
        return new

    def take_new_block_ids(self) -> list[BlockId]:
        """Return the blocks taken since the last call, for those that zero them."""
        ids, self.new_block_ids = self.new_block_ids, []
        return ids

    def cache_blocks(
        self, request: Request, num_tokens: NumTokens, retention_interval: int | None = None
    ) -> None:
        """Publish the blocks that are full with `num_tokens` tokens and are not published yet,
        except those that no lookup at a boundary that is kept can need.

        Raises what `BlockPool.cache_full_blocks` raises.
        """
        first = self.num_cached_block.get(request.request_id, 0)
        last = num_tokens // self.block_size
        if first >= last:
            return
        mask = wanted_blocks(
            self.attention,
            first,
            last,
            self.block_size,
            self.alignment,
            retention_interval,
            request.num_prompt_tokens,
        )
        self.block_pool.cache_full_blocks(
            request.tokens,
            self.req_to_blocks.get(request.request_id, []),
            first,
            last,
            self.block_size,
            self.group,
            mask,
        )
        self.num_cached_block[request.request_id] = last

    def unschedule(self, request_id: RequestId, num_computed_tokens: NumTokens) -> None:
        """Take back what was published for tokens from `num_computed_tokens` on: they will not
        be written. What was promised must not be found by anybody.
        """
        whole = num_computed_tokens // self.block_size
        cached = self.num_cached_block.get(request_id, 0)
        promised = self.req_to_blocks.get(request_id, [])[whole:cached]
        self.block_pool.evict_blocks([b for b in promised if b != self.block_pool.null_block])
        self.num_cached_block[request_id] = min(whole, cached)

    def remove_skipped_blocks(
        self, request_id: RequestId, total_computed_tokens: NumTokens
    ) -> None:
        """Release the blocks that no token from `total_computed_tokens` on may read, the last
        first, and put the null block in their place.
        """
        table = self.req_to_blocks.get(request_id, [])
        null, skipped = self.block_pool.null_block, self._skipped_blocks(total_computed_tokens)
        gone = [block for block in reversed(table[:skipped]) if block != null]
        table[:skipped] = [null] * min(skipped, len(table))
        self.block_pool.free_blocks(gone)

    def pop_blocks_for_free(self, request_id: RequestId) -> list[BlockId]:
        """Forget the request's table and return its entries, the first one first. They stay
        held until they are given to `BlockPool.free_blocks`, the last one first.
        """
        self.num_cached_block.pop(request_id, None)
        return self.req_to_blocks.pop(request_id, [])

    def find_longest_cache_hit(self, tokens: BlockHash, max_length: NumTokens) -> list[BlockId]:
        """Return the entries of the longest hit of at most `max_length` tokens: the block that
        was listed first under each prefix that the next token may read, null elsewhere.
        """

        def block_of(index: int) -> BlockId:
            prefix = tokens[: (index + 1) * self.block_size]
            return lookup(self.block_pool.state, Key(prefix, self.group))

        null = self.block_pool.null_block
        limit = NumTokens(min(max_length, len(tokens)))
        hit = longest_hit(
            self.attention,
            limit,
            self.block_size,
            self.alignment,
            lambda index: block_of(index) != null,
        )
        needed = needed_blocks(self.attention, hit, self.block_size)
        return [block_of(i) if i in needed else null for i in range(hit // self.block_size)]

    def get_num_common_prefix_blocks(self, running_request_id: RequestId) -> int:
        """Return how many leading entries of the request's table are in the table of every
        request that has one, at the same place. 0 for attention that forgets.
        """
        if self.attention.forgets:
            return 0
        tables = list(self.req_to_blocks.values())

        def is_common(entry: tuple[int, BlockId]) -> bool:
            index, block = entry
            return all(table[index : index + 1] == [block] for table in tables)

        own = self.req_to_blocks.get(running_request_id, [])
        return len(list(takewhile(is_common, enumerate(own))))

    def _num_queued(self, blocks: Sequence[BlockId]) -> int:
        named = set(blocks) - {self.block_pool.null_block}
        return sum(self.block_pool.block(block).ref_cnt == 0 for block in named)

    def _nulls(self, count: int) -> list[BlockId]:
        return [self.block_pool.null_block] * count

    def _skipped_blocks(self, total_computed_tokens: NumTokens) -> int:
        return skipped_tokens(self.attention, total_computed_tokens) // self.block_size
