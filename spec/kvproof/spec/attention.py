"""Which earlier positions a token reads, and all that follows from it.

A type of attention says which positions a token reads; all the rest follows, for all types alike.

    type       the token at p reads             first_read(p)
    full       {q < p}                          0
    sliding w  {q < p : p - q < w}              max(p - w + 1, 0)        w >= 1
    chunked c  {q < p : q // c == p // c}       p // c * c               whole blocks

    skipped_tokens(c)  the leading tokens that no token at p >= c reads
    needed_blocks(h)   the blocks that hold a position which the token at h reads
    entries(h)         of h // block_size entries, those are cached blocks; the others are null

A token also reads itself; no cache is needed for that. The same text runs on numbers and on the
solvers' terms: that `first_read` is what `reads` asks for is proved for any sizes and positions.

Source: vLLM 0.25.1, single_type_kv_cache_manager.py, `get_num_skipped_tokens`,
`find_longest_cache_hit`, `reachable_block_mask`; kv_cache_interface.py,
`max_admission_blocks_per_request`; flash_attn.py, `sliding_window`; seed 2, section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kvproof.spec.concrete import ConcreteDomain
from kvproof.spec.logic import Bool, Domain, exists, forall, implies, ite
from kvproof.spec.manager_properties import MANAGER_PROPERTIES
from kvproof.spec.properties import Class, Consequence, Kind, Property
from kvproof.spec.quantities import NumTokens


class Attention(Protocol):
    """What a token reads. `forgets`: some positions are read by no later token."""

    @property
    def forgets(self) -> bool:
        """Some position below a token is read by no token from it on."""
        ...

    def reads(self, reader: int, position: int) -> Bool:
        """The token at `reader` reads what is cached for the earlier `position`."""
        ...

    def first_read(self, position: int) -> int:
        """The first position that the token at `position` reads; it reads all from there to
        itself. Its own when it reads none before it.
        """
        ...

    def most_tokens_held(self, step: int, block_size: int) -> int | None:
        """The most tokens whose blocks one request holds when a step gives it slots for `step`
        tokens, from the first token of the first of these blocks on; None: all of them.
        """
        ...


@dataclass(frozen=True)
class Full:
    """Every token before it."""

    forgets = False

    def reads(self, reader: int, position: int) -> Bool:
        """See `Attention`."""
        return position < reader

    def first_read(self, position: int) -> int:
        """See `Attention`."""
        return 0

    def most_tokens_held(self, step: int, block_size: int) -> int | None:
        """See `Attention`."""
        return None


@dataclass(frozen=True)
class SlidingWindow:
    """The last `window` tokens, itself included."""

    window: int
    forgets = True

    def reads(self, reader: int, position: int) -> Bool:
        """See `Attention`."""
        return (position < reader) & (reader - position < self.window)

    def first_read(self, position: int) -> int:
        """See `Attention`."""
        return ite(position < self.window, 0, position - self.window + 1)

    def most_tokens_held(self, step: int, block_size: int) -> int | None:
        """See `Attention`. The window may begin with the last token of a block."""
        return self.window - 1 + step + block_size - 1


@dataclass(frozen=True)
class ChunkedLocal:
    """The tokens of its own chunk of `chunk` tokens."""

    chunk: int
    forgets = True

    def reads(self, reader: int, position: int) -> Bool:
        """See `Attention`."""
        return (position < reader) & (position // self.chunk == reader // self.chunk)

    def first_read(self, position: int) -> int:
        """See `Attention`."""
        return position // self.chunk * self.chunk

    def most_tokens_held(self, step: int, block_size: int) -> int | None:
        """See `Attention`. A complete chunk is forgotten."""
        return self.chunk - 1 + step


def skipped_tokens(attention: Attention, num_computed_tokens: NumTokens) -> NumTokens:
    """Return how many leading tokens no token from `num_computed_tokens` on reads. The next
    token reads the most of them: a type never reads further back later on.
    """
    return NumTokens(attention.first_read(num_computed_tokens))


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Return how many blocks that many tokens fill, the last one perhaps in part."""
    return (num_tokens + block_size - 1) // block_size


def last_boundary(limit: int, alignment: int) -> int:
    """Return the greatest multiple of the alignment that is at most `limit`."""
    return limit // alignment * alignment


def is_needed(attention: Attention, hit: int, block: int, block_size: int) -> Bool:
    """The block holds a position that the token at `hit` reads, where `hit` is a boundary."""
    first = attention.first_read(hit) // block_size
    return (first <= block) & (block < blocks_for(hit, block_size))


def needed_blocks(attention: Attention, hit: int, block_size: int) -> range:
    """Return the blocks that hold a position which the token at `hit` reads (`is_needed`)."""
    return range(attention.first_read(hit) // block_size, blocks_for(hit, block_size))


def entries(attention: Attention, hit: int, block_size: int) -> list[bool]:
    """Say of each entry that a hit gives whether it is a cached block; the others are null."""
    return [is_needed(attention, hit, block, block_size) for block in range(hit // block_size)]


def is_backed(
    attention: Attention, hit: int, block_size: int, is_keyed: Callable[[int], Bool], among: Domain
) -> Bool:
    """Every block that the next token needs is keyed. `among` are all that may be needed."""
    return forall(
        among, lambda block: implies(is_needed(attention, hit, block, block_size), is_keyed(block))
    )


def longest_hit(
    attention: Attention,
    limit: NumTokens,
    block_size: int,
    alignment: int,
    is_keyed: Callable[[int], bool],
) -> NumTokens:
    """Return the greatest multiple of `alignment` up to `limit` that is backed. 0 always is."""

    def backed(hit: int) -> bool:
        needed = ConcreteDomain(needed_blocks(attention, hit, block_size))
        return is_backed(attention, hit, block_size, is_keyed, needed)

    return NumTokens(next(filter(backed, range(last_boundary(limit, alignment), -1, -alignment))))


def is_promised(
    boundary: int, alignment: int, retention_interval: int | None, num_prompt_tokens: int
) -> Bool:
    """Promised are: without an interval every aligned boundary; with one its multiples (0 has
    none), and the last boundary where a replay of the prompt can hit.
    """
    aligned = (boundary > 0) & (boundary % alignment == 0)
    if retention_interval is None:
        return aligned
    replay = boundary == last_boundary(num_prompt_tokens - 1, alignment)
    if retention_interval == 0:
        return aligned & replay
    return aligned & (replay | (boundary % retention_interval == 0))


def is_wanted(
    attention: Attention,
    block: int,
    block_size: int,
    promised: Callable[[int], Bool],
    among: Domain,
) -> Bool:
    """A hit at some promised boundary needs the block. `among` are all that may need it."""
    return exists(among, lambda hit: promised(hit) & is_needed(attention, hit, block, block_size))


def wanted_blocks(
    attention: Attention,
    first: int,
    last: int,
    block_size: int,
    alignment: int,
    retention_interval: int | None,
    num_prompt_tokens: int,
) -> list[bool]:
    """Say of each block from `first` to `last` whether it is published.

    A sliding window publishes what is wanted; the other types publish all, though the last
    block of a chunk is never wanted.
    """
    if not isinstance(attention, SlidingWindow):
        return [True for _ in range(first, last)]

    def promised(boundary: int) -> bool:
        return is_promised(boundary, alignment, retention_interval, num_prompt_tokens)

    among = ConcreteDomain(range(0, last * block_size + attention.window, alignment))
    return [is_wanted(attention, i, block_size, promised, among) for i in range(first, last)]


def held_blocks(attention: Attention, computed: int, slots: int, block_size: int) -> int:
    """Return how many blocks a request holds when a step starts with `computed` tokens, gives
    back what nobody reads any more, and then gives it room for `slots` tokens.
    """
    return blocks_for(slots, block_size) - attention.first_read(computed) // block_size


def peak_blocks(
    attention: Attention,
    max_num_batched_tokens: int,
    max_model_len: int,
    block_size: int,
    num_lookahead_tokens: int = 0,
) -> int:
    """Return the most blocks that one request ever holds, at whatever token its steps begin."""
    step = max_num_batched_tokens + num_lookahead_tokens
    return max(
        held_blocks(attention, computed, min(computed + step, max_model_len), block_size)
        for computed in range(max_model_len)
    )


def startup_bound(
    attention: Attention,
    max_num_batched_tokens: int,
    max_model_len: int,
    block_size: int,
    num_lookahead_tokens: int = 0,
) -> int:
    """Return how many blocks, beside the null block, a pool needs for one request: `peak_blocks`,
    for any sizes. Drafts in flight that may be rejected count as look-ahead.

    vLLM 0.25.1 leaves out look-ahead and counts the null block as one that can be used; for a
    window it always counts one block more than the tokens fill, for a chunk one token more.
    """
    step = max_num_batched_tokens + num_lookahead_tokens
    held = attention.most_tokens_held(step, block_size)
    if held is None:
        return blocks_for(max_model_len, block_size)
    return blocks_for(ite(held < max_model_len, held, max_model_len), block_size)


def admission_blocks(
    attention: Attention,
    computed: int,
    slots: int,
    step: int,
    block_size: int,
    is_shared: Callable[[int], bool],
) -> int:
    """Return the most blocks that one request holds alone while it goes on from `computed` tokens
    to `slots` slots, where a step gives it at most `step` slots more than are computed.
    `is_shared` says of an entry of its table that somebody else holds the block, too.

    vLLM 0.25.1 takes its startup bound for it, and from that takes all entries of a hit: those
    that are null or are forgotten before the peak, too. It leaves out look-ahead.
    """

    def alone(start: int) -> int:
        first = attention.first_read(start) // block_size
        last = blocks_for(min(start + step, slots), block_size)
        return sum(not is_shared(entry) for entry in range(first, last))

    return max(map(alone, range(computed, max(slots, computed + 1))))


WINDOW_KEPT = MANAGER_PROPERTIES["window-kept"]
HIT_ALIGNED = MANAGER_PROPERTIES["hit-aligned"]
HIT_BELOW_PROMPT = MANAGER_PROPERTIES["hit-below-prompt"]
BOUND_COVERS_PEAK = MANAGER_PROPERTIES["bound-covers-peak"]


def _quality(name: str, says: str, consequence: Consequence, because: str, source: str) -> Property:
    return Property(name, Class.QUALITY, Kind.STEP, says, consequence, because, source)


HIT_LONGEST = _quality(
    "hit-longest",
    "no longer hit satisfies the safety properties",
    Consequence.LOST_HIT,
    "tokens are computed again whose blocks are cached",
    "vLLM 0.25.1, single_type_kv_cache_manager.py: find_longest_cache_hit",
)
MASK_COVERS_LOOKUP = _quality(
    "mask-covers-lookup",
    "no block is left out of the cache that a lookup needs at a boundary the retention mode"
    " promises: None: every aligned one; r: multiples of r and the replay boundary; 0: the"
    " replay boundary",
    Consequence.LOST_HIT,
    "a hit that the retention mode promises is not found",
    "vLLM 0.25.1, single_type_kv_cache_manager.py: reachable_block_mask",
)
BOUND_TIGHT = _quality(
    "bound-tight",
    "by how much the startup bound and the admission gate exceed what the request holds",
    Consequence.DEADLOCK,
    "memory that would do is refused at startup, and a request that would fit is kept waiting",
    "vLLM 0.25.1, kv_cache_interface.py: max_admission_blocks_per_request",
)
