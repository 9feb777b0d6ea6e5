"""Which earlier positions a token reads, and all that follows from it.

A type of attention is three small functions of positions: what the token at `p` reads, how many
leading tokens nobody from `c` on reads, and which blocks the next token after a hit needs.
Lookup, skipping, masks and the admission bound are stated from these, once for all types.

    reads(p)           full       every position before p
                       sliding w  the w - 1 positions before p
                       chunked c  the positions of p's chunk before p
    skipped_tokens(c)  the positions below c that no p >= c reads (c itself reads the most)
    needed_blocks(h)   the blocks that hold a position which the token at h reads

Source: vLLM 0.25.1, single_type_kv_cache_manager.py, `get_num_skipped_tokens` and
`find_longest_cache_hit` of each manager; kv_cache_interface.py,
`max_admission_blocks_per_request`; seed 2, section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kvproof.spec.quantities import NumTokens


class Attention(Protocol):
    """What a token reads. `forgets`: some positions are read by no later token."""

    @property
    def forgets(self) -> bool:
        """Some position below a token is read by no token from it on."""
        ...

    def first_read(self, position: int) -> int:
        """The first position that the token at `position` reads; all between it and the token
        are read. The token itself when it reads none before it.
        """
        ...

    def most_tokens_held(self, max_num_batched_tokens: int) -> int | None:
        """The most tokens of one request whose blocks are held while it is prefilled in steps of
        so many tokens; None: all of them.
        """
        ...


@dataclass(frozen=True)
class Full:
    """Every token before it."""

    forgets = False

    def first_read(self, position: int) -> int:
        """See `Attention`."""
        return 0

    def most_tokens_held(self, max_num_batched_tokens: int) -> int | None:
        """See `Attention`."""
        return None


@dataclass(frozen=True)
class SlidingWindow:
    """The last `window` tokens, itself included."""

    window: int
    forgets = True

    def first_read(self, position: int) -> int:
        """See `Attention`."""
        return max(position - self.window + 1, 0)

    def most_tokens_held(self, max_num_batched_tokens: int) -> int | None:
        """See `Attention`."""
        return self.window - 1 + max_num_batched_tokens


@dataclass(frozen=True)
class ChunkedLocal:
    """The tokens of its own chunk of `chunk` tokens."""

    chunk: int
    forgets = True

    def first_read(self, position: int) -> int:
        """See `Attention`."""
        return position // self.chunk * self.chunk

    def most_tokens_held(self, max_num_batched_tokens: int) -> int | None:
        """See `Attention`."""
        return self.chunk + max_num_batched_tokens


def reads(attention: Attention, reader: int, position: int) -> bool:
    """The token at `reader` reads the position."""
    return attention.first_read(reader) <= position < reader


def skipped_tokens(attention: Attention, num_computed_tokens: NumTokens) -> NumTokens:
    """Return how many leading tokens no token from `num_computed_tokens` on reads.

    The next token reads the most of them, since a type never reads further back later on.
    """
    return NumTokens(attention.first_read(num_computed_tokens))


def needed_blocks(attention: Attention, hit: int, block_size: int) -> range:
    """Return the blocks that hold a position which the token at `hit` reads."""
    return range(attention.first_read(hit) // block_size, -(-hit // block_size))


def longest_hit(
    attention: Attention,
    limit: NumTokens,
    block_size: int,
    alignment: int,
    is_keyed: Callable[[int], bool],
) -> NumTokens:
    """Return the greatest multiple of `alignment` up to `limit` such that every block that the
    next token needs is keyed. 0 needs none.
    """
    longest = limit // alignment * alignment
    return NumTokens(
        next(
            hit
            for hit in range(longest, -1, -alignment)
            if all(map(is_keyed, needed_blocks(attention, hit, block_size)))
        )
    )


def wanted_blocks(
    attention: Attention,
    first: int,
    last: int,
    block_size: int,
    alignment: int,
    retention_interval: int | None,
    num_prompt_tokens: int,
) -> list[bool]:
    """Say of each block from `first` to `last` whether a hit at a boundary that is kept needs it.

    Kept are: without an interval every aligned boundary; with one its multiples (0 has none),
    and the last aligned boundary where a replay of the prompt can hit. Only a sliding window
    leaves blocks out: of full attention every block is needed at every later boundary, and of
    a chunk all but the last.
    """
    if not isinstance(attention, SlidingWindow):
        return [True for _ in range(first, last)]
    step, kept = alignment, set[int]()
    if retention_interval is not None:
        step = retention_interval
        kept = {(num_prompt_tokens - 1) // alignment * alignment}
    if step > 0:
        kept |= set(range(0, last * block_size + attention.window + step, step))
    needed = {i for hit in kept for i in needed_blocks(attention, hit, block_size)}
    return [index in needed for index in range(first, last)]


def admission_blocks(
    attention: Attention, max_num_batched_tokens: int, max_model_len: int, block_size: int
) -> int | None:
    """Return the most blocks that one request is counted with when it is admitted; None: as
    many as its tokens fill.

    What it holds need not begin with a block, so a window may touch one block more.
    """
    held = attention.most_tokens_held(max_num_batched_tokens)
    if held is None:
        return None
    blocks = -(-min(held, max_model_len) // block_size)
    return blocks + isinstance(attention, SlidingWindow)
