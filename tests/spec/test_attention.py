"""What the types of attention come to, on numbers; every derived function meets its definition."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.spec import attention as text
from kvproof.spec.attention import ChunkedLocal, Full, SlidingWindow
from kvproof.spec.concrete import ConcreteDomain
from kvproof.spec.quantities import NumTokens

Type = Full | SlidingWindow | ChunkedLocal

LENGTH = 14
"""Positions that are tried; the windows and chunks are well below it."""

SIZES = (1, 2, 3, 4)
TYPES: list[Type] = [
    Full(),
    *(SlidingWindow(window) for window in range(1, 8)),
    *(ChunkedLocal(chunk) for chunk in range(1, 9)),
]


def fits(attention: Type, block_size: int) -> bool:
    """A chunk is a whole number of blocks."""
    return not isinstance(attention, ChunkedLocal) or attention.chunk % block_size == 0


CASES = [(one, size) for one, size in product(TYPES, SIZES) if fits(one, size)]


@cache
def read_by(attention: Type, reader: int) -> frozenset[int]:
    return frozenset(position for position in range(reader) if attention.reads(reader, position))


@cache
def needed_by(attention: Type, hit: int, size: int) -> frozenset[int]:
    return frozenset(position // size for position in read_by(attention, hit))


def longest(attention: Type, limit: int, size: int, alignment: int, keyed: set[int]) -> int:
    """Return the greatest hit, found by trying all."""
    return max(
        hit for hit in range(0, limit + 1, alignment) if needed_by(attention, hit, size) <= keyed
    )


def promised(limit: int, alignment: int, interval: int | None, num_prompt_tokens: int) -> list[int]:
    """Return the boundaries up to the limit where a lookup is to hit."""
    aligned = range(alignment, limit + 1, alignment)
    if interval is None:
        return list(aligned)
    replay = max((hit for hit in aligned if hit < num_prompt_tokens), default=0)
    return [hit for hit in aligned if hit == replay or (interval and hit % interval == 0)]


class TestRightValues:
    @pytest.mark.parametrize(
        ("attention", "positions"),
        [
            (Full(), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            (SlidingWindow(1), set()),
            (SlidingWindow(2), {9}),
            (SlidingWindow(4), {7, 8, 9}),
            (SlidingWindow(99), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            (ChunkedLocal(4), {8, 9}),
            (ChunkedLocal(5), set()),
            (ChunkedLocal(8), {8, 9}),
        ],
        ids=repr,
    )
    def test_what_the_token_at_10_reads(self, attention: Type, positions: set[int]) -> None:
        assert read_by(attention, 10) == positions

    @pytest.mark.parametrize(
        ("attention", "computed", "skipped"),
        [
            (Full(), 100, 0),
            (SlidingWindow(4), 3, 0),
            (SlidingWindow(4), 4, 1),
            (SlidingWindow(4), 7, 4),
            (ChunkedLocal(8), 13, 8),
            (ChunkedLocal(8), 8, 8),
            (ChunkedLocal(8), 7, 0),
        ],
        ids=repr,
    )
    def test_skipped_tokens(self, attention: Type, computed: int, skipped: int) -> None:
        assert text.skipped_tokens(attention, NumTokens(computed)) == skipped

    @pytest.mark.parametrize(
        ("attention", "hit", "entries"),
        [
            (Full(), 12, [True, True, True]),
            (SlidingWindow(5), 12, [False, False, True]),
            (SlidingWindow(6), 12, [False, True, True]),
            (SlidingWindow(1), 12, [False, False, False]),
            (ChunkedLocal(8), 12, [False, False, True]),
            (ChunkedLocal(8), 16, [False, False, False, False]),
            (Full(), 0, []),
        ],
        ids=repr,
    )
    def test_entries_of_blocks_of_4(self, attention: Type, hit: int, entries: list[bool]) -> None:
        assert text.entries(attention, hit, 4) == entries

    @pytest.mark.parametrize(
        ("attention", "keyed", "hit"),
        [
            (Full(), {0, 2, 3}, 4),
            (Full(), {1, 2, 3}, 0),
            (SlidingWindow(6), {0, 2, 3}, 16),
            (SlidingWindow(6), {0, 2}, 4),
            (SlidingWindow(99), {0, 1, 3}, 8),
            (ChunkedLocal(8), {3}, 16),
            (ChunkedLocal(8), set(), 16),
            (ChunkedLocal(12), {0, 1, 2}, 12),
            (ChunkedLocal(12), {3}, 16),
        ],
        ids=repr,
    )
    def test_the_longest_hit_below_20_tokens(
        self, attention: Type, keyed: set[int], hit: int
    ) -> None:
        limit = NumTokens(19)
        assert text.longest_hit(attention, limit, 4, 4, keyed.__contains__) == hit

    @pytest.mark.parametrize(
        ("interval", "mask"),
        [
            (None, [True] * 8),
            (0, [False, False, False, False, False, True, True, False]),
            (16, [False, False, True, True, False, True, True, True]),
        ],
    )
    def test_what_a_window_publishes_of_a_prompt_of_30(
        self, interval: int | None, mask: list[bool]
    ) -> None:
        """A window of 6 needs two blocks of 4; the replay of 30 tokens hits at 28."""
        assert text.wanted_blocks(SlidingWindow(6), 0, 8, 4, 4, interval, 30) == mask

    def test_bounds(self) -> None:
        """Steps of 8 tokens, at most 100 tokens, blocks of 4."""
        bounds = {
            one: (text.peak_blocks(one, 8, 100, 4), text.startup_bound(one, 8, 100, 4))
            for one in (Full(), SlidingWindow(6), SlidingWindow(8), ChunkedLocal(8))
        }
        assert bounds == {
            Full(): (25, 25),
            SlidingWindow(6): (4, 4),
            SlidingWindow(8): (5, 5),
            ChunkedLocal(8): (4, 4),
        }


@pytest.mark.parametrize("attention", TYPES, ids=repr)
class TestDefinitions:
    def test_what_is_read_is_an_interval(self, attention: Type) -> None:
        for reader in range(LENGTH):
            first = attention.first_read(reader)
            assert read_by(attention, reader) == set(range(first, reader))

    def test_skipped_is_what_nobody_reads_any_more(self, attention: Type) -> None:
        for computed in range(LENGTH):
            read = frozenset[int]().union(
                *(read_by(attention, p) for p in range(computed, 2 * LENGTH))
            )
            skipped = text.skipped_tokens(attention, NumTokens(computed))
            assert skipped == min((q for q in read if q < computed), default=computed)

    def test_a_type_forgets_when_something_is_skipped(self, attention: Type) -> None:
        skipped = [text.skipped_tokens(attention, NumTokens(c)) for c in range(LENGTH)]
        assert attention.forgets == any(skipped)
        assert skipped == sorted(skipped)


@pytest.mark.parametrize(("attention", "size"), CASES, ids=repr)
class TestBlocks:
    def test_needed_blocks_hold_a_position_that_is_read(self, attention: Type, size: int) -> None:
        for hit in range(0, LENGTH, size):
            needed = text.needed_blocks(attention, hit, size)
            assert set(needed) == needed_by(attention, hit, size)
            assert text.entries(attention, hit, size) == [i in needed for i in range(hit // size)]

    def test_the_longest_hit_for_every_cached_set(self, attention: Type, size: int) -> None:
        blocks = min(LENGTH // size, 6)
        for flags in product((False, True), repeat=blocks):
            keyed = {index for index, flag in enumerate(flags) if flag}
            for limit, factor in product(range(blocks * size + 1), (1, 2)):
                hit = text.longest_hit(
                    attention, NumTokens(limit), size, factor * size, keyed.__contains__
                )
                assert hit == longest(attention, limit, size, factor * size, keyed)

    def test_backed_as_it_is_stated(self, attention: Type, size: int) -> None:
        for hit, flags in product(range(0, 6 * size, size), product((False, True), repeat=5)):
            among = ConcreteDomain(range(hit // size))
            backed = text.is_backed(attention, hit, size, flags.__getitem__, among)
            keyed = {index for index, flag in enumerate(flags) if flag}
            assert backed == (needed_by(attention, hit, size) <= keyed)

    def test_nothing_that_a_promised_lookup_needs_is_left_out(
        self, attention: Type, size: int
    ) -> None:
        last = LENGTH // size
        for factor, interval, prompt in product((1, 2), (None, 0, 2, 4), (1, 5, LENGTH - 1)):
            alignment = factor * size
            span = None if interval is None else interval * size
            mask = text.wanted_blocks(attention, 0, last, size, alignment, span, prompt)
            # A block is needed no later than one window, chunk or interval after it.
            hits = promised(4 * LENGTH, alignment, span, prompt)
            wanted = frozenset[int]().union(*(needed_by(attention, hit, size) for hit in hits))
            kept = {index for index, flag in enumerate(mask) if flag}
            assert wanted & set(range(last)) <= kept
            if isinstance(attention, SlidingWindow):
                assert wanted & set(range(last)) == kept

    def test_the_last_block_of_a_chunk_is_wanted_by_nobody(
        self, attention: Type, size: int
    ) -> None:
        for block in range(LENGTH // size):
            among = ConcreteDomain(range(size, 4 * LENGTH, size))
            wanted = text.is_wanted(attention, block, size, lambda hit: True, among)
            ends = isinstance(attention, ChunkedLocal) and (block + 1) * size % attention.chunk == 0
            assert wanted == (not ends and attention != SlidingWindow(1))

    def test_the_bound_is_the_peak(self, attention: Type, size: int) -> None:
        for step, ahead, longest_model in product((1, 2, 3, 6), (0, 1, 3), range(1, 20)):
            sizes = step, longest_model, size, ahead
            peak = played_peak(attention, step + ahead, longest_model, size)
            assert text.peak_blocks(attention, *sizes) == peak
            assert text.startup_bound(attention, *sizes) == peak

    def test_who_may_start_is_who_would_be_let_in(self, attention: Type, size: int) -> None:
        """Alone, and from the first token on, a request is admitted with what it holds at most."""
        for step, longest_model in product((1, 3, 6), range(1, 20)):
            admitted = text.admission_blocks(
                attention, 0, longest_model, step, size, lambda entry: False
            )
            assert admitted == text.startup_bound(attention, step, longest_model, size)


def played_peak(attention: Type, step: int, longest_model: int, size: int) -> int:
    """Return the most blocks of a table, played for every place where a step can begin."""
    most = 0
    for computed in range(longest_model):
        table = {position // size for position in range(min(computed + step, longest_model))}
        kept = {q for p in range(computed, 4 * LENGTH) for q in read_by(attention, p)}
        skipped = min((q for q in kept if q < computed), default=computed)
        most = max(most, len({block for block in table if (block + 1) * size > skipped}))
    return most


ATTENTIONS = st.one_of(
    st.just(Full()),
    st.integers(1, 40).map(SlidingWindow),
    st.integers(1, 40).map(ChunkedLocal),
)


@given(ATTENTIONS, st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_what_is_skipped_stays_unread(
    attention: Type, computed: int, more: int, position: int
) -> None:
    skipped = text.skipped_tokens(attention, NumTokens(computed))
    assert not (position < skipped and attention.reads(computed + more, position))
    assert skipped <= text.skipped_tokens(attention, NumTokens(computed + more))


@given(st.data(), st.integers(1, 6), st.integers(1, 3), st.lists(st.booleans(), max_size=30))
def test_a_hit_is_aligned_backed_and_the_longest(
    data: st.DataObject, size: int, factor: int, flags: list[bool]
) -> None:
    chunks = st.integers(1, 6).map(lambda blocks: ChunkedLocal(blocks * size))
    windows = st.integers(1, 30).map(SlidingWindow)
    attention: Type = data.draw(st.one_of(st.just(Full()), windows, chunks))
    limit = data.draw(st.integers(0, len(flags) * size))
    keyed = {index for index, flag in enumerate(flags) if flag}
    hit = text.longest_hit(attention, NumTokens(limit), size, factor * size, keyed.__contains__)
    assert hit % (factor * size) == 0
    assert hit <= limit
    assert needed_by(attention, hit, size) <= keyed
    assert hit == longest(attention, limit, size, factor * size, keyed)
