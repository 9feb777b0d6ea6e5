"""Theorems of the types of attention, for any block size, window, chunk and positions.

The functions of `kvproof.spec.attention` are run on unknown numbers (`arithmetic`). A claim says
what is given of some numbers and what follows; it is proved for each type of attention that it
speaks of. The same claim, run on the numbers of a counterexample, judges them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.proofs.arithmetic import (
    CHUNK,
    EVERY,
    FORGETS,
    FULL,
    QUOTIENT,
    WINDOW,
    Played,
    Setting,
    Statement,
    products_grow,
)
from kvproof.proofs.exploration import Run
from kvproof.proofs.induction import Candidate, Laboratory
from kvproof.proofs.solvers import Bundle, model_of
from kvproof.proofs.terms import TRUE, conjunction, lift, negation
from kvproof.proofs.theorem import Theorem, place_of
from kvproof.spec import attention as own_text
from kvproof.spec.logic import iff, implies, ite, neg


def reads_from_first(it: Setting) -> tuple[Any, Any]:
    """A token reads all from `first_read` to itself, and nothing else."""
    attention, (reader, position) = it.attention(), it.numbers("reader", "position")
    first = attention.first_read(reader)
    inside = (first <= position) & (position < reader)
    return True, iff(attention.reads(reader, position), inside) & (first <= reader)


def skipped_is_unread(it: Setting) -> tuple[Any, Any]:
    """What is skipped at `computed` is read by no token from there on."""
    attention = it.attention()
    computed, later, position = it.numbers("computed", "later", "position")
    skipped = it.text.skipped_tokens(attention, computed)
    given = (computed <= later) & (position < skipped)
    return given, neg(attention.reads(later, position))


def no_more_is_unread(it: Setting) -> tuple[Any, Any]:
    """The first token that is not skipped is read by the next one, or is it."""
    attention, (computed,) = it.attention(), it.numbers("computed")
    skipped = it.text.skipped_tokens(attention, computed)
    return skipped != computed, attention.reads(computed, skipped)


def skipped_grows(it: Setting) -> tuple[Any, Any]:
    """What is skipped stays skipped."""
    attention, (computed, later) = it.attention(), it.numbers("computed", "later")
    skipped = it.text.skipped_tokens(attention, computed)
    return computed <= later, skipped <= it.text.skipped_tokens(attention, later)


def skipped_block_is_unread(it: Setting) -> tuple[Any, Any]:
    """A block below `skipped_tokens // block_size` holds only what nobody reads any more."""
    attention, size = it.attention(), it.block_size()
    computed, later, position = it.numbers("computed", "later", "position")
    skipped = it.text.skipped_tokens(attention, computed) // size
    given = (computed <= later) & (position // size < skipped)
    return given, neg(attention.reads(later, position))


def skipped_block_is_not_needed(it: Setting) -> tuple[Any, Any]:
    """A block that is skipped at `computed` is needed by no hit from there on."""
    attention, size = it.attention(), it.block_size()
    computed, hit, block = it.numbers("computed", "hit", "block")
    skipped = it.text.skipped_tokens(attention, computed) // size
    given = (computed <= hit) & (block < skipped)
    return given, neg(it.text.is_needed(attention, hit, block, size))


def needed_is_read(it: Setting) -> tuple[Any, Any]:
    """A needed block holds a position that the token after the hit reads."""
    attention, size = it.attention(), it.block_size()
    hit, block = it.numbers("hit", "block")
    given = (hit % size == 0) & it.text.is_needed(attention, hit, block, size)
    first, start = attention.first_read(hit), block * size
    position = ite(start < first, first, start)
    return given, (position // size == block) & attention.reads(hit, position)


def read_is_needed(it: Setting) -> tuple[Any, Any]:
    """The block of a position that the token after the hit reads is needed."""
    attention, size = it.attention(), it.block_size()
    hit, position = it.numbers("hit", "position")
    needed = it.text.is_needed(attention, hit, position // size, size)
    return attention.reads(hit, position), needed


def first_tried_is_greatest(it: Setting) -> tuple[Any, Any]:
    """The first length that is tried is aligned, and the greatest such up to the limit."""
    alignment, (limit, other) = it.size("alignment"), it.numbers("limit", "other")
    boundary = it.text.last_boundary(limit, alignment)
    is_one = (boundary >= 0) & (boundary <= limit) & (boundary % alignment == 0)
    is_other = (other <= limit) & (other % alignment == 0)
    return True, is_one & implies(is_other, other <= boundary)


def nothing_is_backed(it: Setting) -> tuple[Any, Any]:
    """A hit of no tokens needs no block."""
    attention, size = it.attention(), it.block_size()
    hit, block = it.numbers("hit", "block")
    return hit == 0, neg(it.text.is_needed(attention, hit, block, size))


def needed_is_entry(it: Setting) -> tuple[Any, Any]:
    """A needed block is an entry of the hit: it lies before its end."""
    attention, size = it.attention(), it.block_size()
    hit, block = it.numbers("hit", "block")
    given = (hit % size == 0) & it.text.is_needed(attention, hit, block, size)
    return given, block < hit // size


def backed_is_keyed(it: Setting) -> tuple[Any, Any]:
    """Of a hit that is backed, all that the next token reads lies in entries that are keyed."""
    attention, size = it.attention(), it.block_size()
    hit, position, keyed = it.numbers("hit", "position", "is_keyed")
    block = position // size
    backed = it.text.is_backed(attention, hit, size, lambda index: keyed == 1, it.only(block))
    given = (hit % size == 0) & backed & attention.reads(hit, position)
    return given, (block < hit // size) & (keyed == 1)


def null_is_unread(it: Setting) -> tuple[Any, Any]:
    """An entry of a hit is null only where no token from the hit on reads."""
    attention, size = it.attention(), it.block_size()
    hit, later, position = it.numbers("hit", "later", "position")
    block = position // size
    is_entry = (hit % size == 0) & (block < hit // size)
    null = neg(it.text.is_needed(attention, hit, block, size))
    return is_entry & null & (hit <= later), neg(attention.reads(later, position))


def shorter_needs_less(it: Setting) -> tuple[Any, Any]:
    """What a hit needs a longer one needs, too: a scan from the left may stop at a miss."""
    attention, size = it.attention(), it.block_size()
    hit, longer, block = it.numbers("hit", "longer", "block")
    given = (hit <= longer) & it.text.is_needed(attention, hit, block, size)
    return given, it.text.is_needed(attention, longer, block, size)


def window_is_a_run(it: Setting) -> tuple[Any, Any]:
    """A hit needs a run of as many blocks as `window - 1` tokens fill, or all there are."""
    attention, size = it.attention(), it.block_size()
    hit, block = it.numbers("hit", "block")
    run = it.text.blocks_for(attention.window - 1, size)
    is_last = (block * size < hit) & (hit <= (block + run) * size)
    return hit % size == 0, iff(it.text.is_needed(attention, hit, block, size), is_last)


def chunk_of_the_limit(it: Setting) -> tuple[Any, Any]:
    """From where the limit's chunk starts, every hit needs the blocks from there on; a hit
    there needs none.
    """
    attention, size = it.attention(), it.block_size()
    hit, limit, block = it.numbers("hit", "limit", "block")
    start = attention.first_read(limit)
    given = (start <= hit) & (hit <= limit) & (start % size == 0)
    none = implies(hit == start, neg(it.text.is_needed(attention, hit, block, size)))
    return given, (attention.first_read(hit) == start) & none


def chunk_starts_a_block(it: Setting) -> tuple[Any, Any]:
    """A chunk starts with a block: that many chunks are that many blocks."""
    attention, size, (position,) = it.attention(), it.block_size(), it.numbers("position")
    start = attention.first_read(position)
    blocks = position // attention.chunk * (it.value("chunk") // size)
    return True, (start == blocks * size) & (start % size == 0)


def bound_covers_held(it: Setting) -> tuple[Any, Any]:
    """No step, with any look-ahead, holds more blocks than the startup bound: behind what is
    skipped, so many blocks have room for every slot. Slots that an earlier step has given, for
    drafts that were rejected, are no further from what is computed.
    """
    attention, size = it.attention(), it.block_size()
    computed, slots, ahead, longest = it.numbers("computed", "slots", "ahead", "longest")
    step = it.size("step")
    given = (computed < slots) & (slots <= computed + step + ahead) & (slots <= longest)
    first = attention.first_read(computed)
    if it.kind == CHUNK:
        given = given & (first % size == 0)
    held = it.text.held_blocks(attention, computed, slots, size)
    bound = it.text.startup_bound(attention, step, longest, size, ahead)
    room = slots <= (first // size + bound) * size
    return given, (held <= bound) & room


def bound_is_held(it: Setting) -> tuple[Any, Any]:
    """Some step holds as many blocks as the startup bound says."""
    attention, size = it.attention(), it.block_size()
    ahead, longest = it.numbers("ahead", "longest")
    step = it.size("step")
    bound = it.text.startup_bound(attention, step, longest, size, ahead)
    reach = step + ahead
    if it.kind == WINDOW:
        spare = longest - (attention.window - 1 + reach)
        most = ite(spare < size - 1, ite(spare < 0, 0, spare), size - 1)
        early = ite(longest < reach, 0, longest - reach)
        computed = ite(spare < 0, early, most + attention.window - 1)
    elif it.kind == CHUNK:
        computed = ite(longest < attention.chunk, longest, attention.chunk) - 1
    else:
        computed = ite(longest < reach, 0, longest - reach)
    slots = ite(computed + reach < longest, computed + reach, longest)
    held = it.text.held_blocks(attention, computed, slots, size)
    return longest >= 1, (computed >= 0) & (computed < longest) & (held == bound)


@dataclass(frozen=True)
class Claim:
    """A statement, and the types of attention of which it is not plain."""

    statement: Statement
    kinds: tuple[str, ...] = EVERY

    @property
    def name(self) -> str:
        """The statement's name."""
        return self.statement.__name__.replace("_", "-")


@dataclass(frozen=True)
class Refutation:
    """Numbers for which a claim is false, and whether running it on them says the same."""

    claim: str
    kind: str
    numbers: dict[str, int]
    replayed: bool


@dataclass(frozen=True)
class AttentionArithmetic:
    """Claims, proved for any numbers (see `kvproof.proofs.induction.Proof`)."""

    claims: tuple[Claim, ...]

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        fewer, more, size = z3.Ints("fewer more size")
        goals = [("products-grow", products_grow(fewer, more, size))]
        yield Bundle("products-grow", NOTHING, goals=goals)
        for claim in self.claims:
            for kind in claim.kinds:
                bundle, given, goal = _read(claim, laboratory, kind)
                bundle.assumed.append(given)
                bundle.goals.append((claim.name, goal))
                yield bundle

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`: what is given can be, and without it what follows can be false. Where
        nothing is given, it is false of some numbers that are not what they stand for.
        """
        found = []
        for claim in self.claims:
            for kind in claim.kinds:
                bundle, given, goal = _read(claim, laboratory, kind)
                if model_of([*bundle.assumed, given], 20) is None:
                    found.append(f"{bundle.label}: what is given cannot be")
                known = [] if given.eq(TRUE) else bundle.assumed
                if model_of([*known, negation(goal)], 20) is None:
                    found.append(f"{bundle.label}: what follows cannot be false")
        return found

    def refutations(self, laboratory: Laboratory) -> Iterator[Refutation]:
        """Look for numbers for which a claim is false, and run it on them."""
        for claim in self.claims:
            for kind in claim.kinds:
                bundle, given, goal = _read(claim, laboratory, kind)
                model = model_of([*bundle.assumed, given, negation(goal)], 20)
                if model is not None:
                    numbers = numbers_of(model)
                    played = holds_of_numbers(claim, laboratory, kind, numbers)
                    yield Refutation(claim.name, kind, numbers, not played)

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`: no state of a pool breaks arithmetic; see `refutations`."""
        return iter(())

    def holds(self, run: Run) -> bool:
        """See `Proof`: it says nothing about pools. Raises ValueError."""
        raise ValueError("arithmetic is not judged by what a pool does")

    holds_of = holds


NOTHING: list[Any] = []
"""What is known to all claims, kept by identity: one cvc5 reads them all."""


def holds_of_numbers(
    claim: Claim, laboratory: Laboratory, kind: str, numbers: dict[str, int]
) -> bool:
    """Run a claim on numbers."""
    it = Played(_text(laboratory), kind, numbers)
    given, goal = claim.statement(it)
    return not (all(it.known) and given) or bool(goal)


def _read(claim: Claim, laboratory: Laboratory, kind: str) -> tuple[Bundle, Any, Any]:
    """Read a claim: a bundle in which the numbers are known, what is given, what follows."""
    it = Setting(_text(laboratory), kind)
    given, goal = claim.statement(it)
    known = [conjunction(map(lift, it.known)), *it.arithmetic.facts]
    return Bundle(f"{claim.name}/{kind}", NOTHING, known), lift(given), lift(goal)


def _text(laboratory: Laboratory) -> Any:
    """Return the specification's own text, or the laboratory's edited one."""
    return laboratory.specification.modules.get("attention", own_text)


def numbers_of(model: Any) -> dict[str, int]:
    """Return what a model says of each number that is not a quotient."""
    found = {str(one): model[one].as_long() for one in model.decls() if not one.arity()}
    return {name: value for name, value in found.items() if not name.startswith(QUOTIENT)}


WINDOW_ARITHMETIC = AttentionArithmetic(
    (
        Claim(reads_from_first),
        Claim(skipped_is_unread, FORGETS),
        Claim(no_more_is_unread),
        Claim(skipped_grows, FORGETS),
        Claim(skipped_block_is_unread, FORGETS),
        Claim(skipped_block_is_not_needed, FORGETS),
        Claim(needed_is_read),
        Claim(read_is_needed),
    )
)
HIT_ARITHMETIC = AttentionArithmetic(
    (
        Claim(first_tried_is_greatest, (FULL,)),
        Claim(nothing_is_backed),
        Claim(needed_is_entry),
        Claim(backed_is_keyed),
        Claim(null_is_unread, FORGETS),
        Claim(shorter_needs_less, (FULL,)),
        Claim(window_is_a_run, (WINDOW,)),
        Claim(chunk_starts_a_block, (CHUNK,)),
        Claim(chunk_of_the_limit, (CHUNK,)),
    )
)
BOUND_ARITHMETIC = AttentionArithmetic(
    (Claim(chunk_starts_a_block, (CHUNK,)), Claim(bound_covers_held), Claim(bound_is_held))
)

ATTENTION_THEOREMS: tuple[Theorem, ...] = (
    Theorem(
        "window-arithmetic",
        "what is skipped at c tokens is read by no token from c on, nothing more is, and it only"
        " grows; a block below it is needed by no later hit; the blocks that a hit needs are"
        " those that hold a position which the next token reads",
        "window-kept",
        True,
        place_of(own_text.skipped_tokens),
        WINDOW_ARITHMETIC,
    ),
    Theorem(
        "hit-arithmetic",
        "a hit is tried from the greatest aligned length up to the limit on, and none needs"
        " nothing; all that the next token reads lies in keyed entries of it, and an entry is"
        " null only where no token from the hit on reads; vLLM's scans look at those entries",
        "hit-longest",
        True,
        place_of(own_text.longest_hit),
        HIT_ARITHMETIC,
    ),
    Theorem(
        "bound-arithmetic",
        "no step of at most `max_num_batched_tokens` tokens, with any look-ahead, holds more"
        " blocks than the startup bound, and some step holds as many",
        "bound-covers-peak",
        True,
        place_of(own_text.held_blocks),
        BOUND_ARITHMETIC,
    ),
)
