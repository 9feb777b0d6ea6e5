"""The arithmetic of attention is proved, and a slip of one in it is refuted by numbers."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import z3

from kvproof.proofs import prove
from kvproof.proofs.arithmetic import (
    CHUNK,
    EVERY,
    FULL,
    WINDOW,
    Arithmetic,
    Divisor,
    Setting,
    products_grow,
)
from kvproof.proofs.attention import (
    ATTENTION_THEOREMS,
    AttentionArithmetic,
    Claim,
    holds_of_numbers,
    needed_is_read,
    reads_from_first,
    skipped_is_unread,
)
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.terms import Term, lift
from kvproof.proofs.theorem import Theorem
from kvproof.spec import attention as text

THEOREMS = {theorem.name: theorem for theorem in ATTENTION_THEOREMS}

DEFECTS = {
    "the window reaches one position less far": (
        "window-arithmetic",
        "position - self.window + 1)",
        "position - self.window + 2)",
    ),
    "the window's own token is not counted": (
        "window-arithmetic",
        "(reader - position < self.window)",
        "(reader - position <= self.window)",
    ),
    "the chunk starts one position late": (
        "window-arithmetic",
        "return position // self.chunk * self.chunk",
        "return position // self.chunk * self.chunk + 1",
    ),
    "the first needed block is rounded up": (
        "window-arithmetic",
        "first = attention.first_read(hit) // block_size",
        "first = blocks_for(attention.first_read(hit), block_size)",
    ),
    "the block that is cut by the window's start is null": (
        "hit-arithmetic",
        "first = attention.first_read(hit) // block_size",
        "first = blocks_for(attention.first_read(hit), block_size)",
    ),
    "the last entry is null": (
        "hit-arithmetic",
        "(block < blocks_for(hit, block_size))",
        "(block + 1 < blocks_for(hit, block_size))",
    ),
    "the limit is rounded up": (
        "hit-arithmetic",
        "return limit // alignment * alignment",
        "return blocks_for(limit, alignment) * alignment",
    ),
    "one token too few is counted for a window": (
        "bound-arithmetic",
        "return self.window - 1 + step + block_size - 1",
        "return self.window - 2 + step + block_size - 1",
    ),
    "the block that a window begins in is not counted": (
        "bound-arithmetic",
        "return self.window - 1 + step + block_size - 1",
        "return self.window - 1 + step",
    ),
    "a complete chunk is counted": (
        "bound-arithmetic",
        "return self.chunk - 1 + step",
        "return self.chunk + step",
    ),
    "look-ahead is left out of the bound": (
        "bound-arithmetic",
        "held = attention.most_tokens_held(step, block_size)",
        "held = attention.most_tokens_held(max_num_batched_tokens, block_size)",
    ),
    "blocks are rounded down": (
        "bound-arithmetic",
        "return (num_tokens + block_size - 1) // block_size",
        "return num_tokens // block_size",
    ),
}


def proof_of(theorem: Theorem) -> AttentionArithmetic:
    proof = theorem.proof
    assert isinstance(proof, AttentionArithmetic)
    return proof


def edited(old: str, new: str) -> Laboratory:
    """Return a laboratory with another text of `kvproof.spec.attention`."""
    assert text.__file__ is not None
    source = Path(text.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    module = ModuleType("kvproof.spec.attention")
    exec(source.replace(old, new), module.__dict__)
    laboratory = Laboratory()
    laboratory.specification.modules["attention"] = module
    return laboratory


@pytest.mark.parametrize("name", THEOREMS)
def test_it_is_proved(name: str) -> None:
    """By z3 under three seeds and by cvc5."""
    verdict = prove(THEOREMS[name], timeout_s=30)
    assert (verdict.status, verdict.detail) == ("proved", [])
    claims = proof_of(THEOREMS[name]).claims
    assert verdict.conditions == 1 + sum(len(claim.kinds) for claim in claims)
    assert list(proof_of(THEOREMS[name]).refutations(Laboratory())) == []


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_refuted_by_numbers(defect: str) -> None:
    name, old, new = DEFECTS[defect]
    laboratory, theorem = edited(old, new), THEOREMS[name]
    verdict = prove(theorem, laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=5)
    assert verdict.status == "unknown"
    assert "z3 with seed 0 says" in verdict.detail[0]
    one = next(proof_of(theorem).refutations(laboratory))
    (claim,) = (claim for claim in proof_of(theorem).claims if claim.name == one.claim)
    assert one.replayed
    assert not holds_of_numbers(claim, laboratory, one.kind, one.numbers)
    assert holds_of_numbers(claim, Laboratory(), one.kind, one.numbers)


def test_what_is_proved_is_what_runs() -> None:
    """The prover has no arithmetic of its own: it runs the functions of the specification."""
    for kind, made in ((FULL, text.Full), (WINDOW, text.SlidingWindow), (CHUNK, text.ChunkedLocal)):
        assert type(Setting(text, kind).attention()) is made


def test_each_theorem_is_named_after_what_it_is_about() -> None:
    for theorem in ATTENTION_THEOREMS:
        assert theorem.where.startswith("kvproof/spec/attention.py:")
        assert theorem.says[0].islower()


def test_a_claim_of_numbers_that_cannot_be_is_vacuous() -> None:
    def none(it: Setting) -> tuple[Any, Any]:
        given, goal = skipped_is_unread(it)
        return given & (it.value("position") < 0), goal

    complaints = AttentionArithmetic((Claim(none, (WINDOW,)),)).complaints(Laboratory())
    assert complaints == ["none/sliding-window: what is given cannot be"]


def test_a_claim_that_cannot_be_false_is_vacuous() -> None:
    def plain(it: Setting) -> tuple[Any, Any]:
        (number,) = it.numbers("number")
        return True, number == number

    complaints = AttentionArithmetic((Claim(plain, (FULL,)),)).complaints(Laboratory())
    assert complaints == ["plain/full: what follows cannot be false"]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("claim", [reads_from_first, needed_is_read])
def test_a_claim_holds_of_small_numbers(claim: Any, kind: str) -> None:
    sizes = {"window": 3, "chunk": 4, "block_size": 2}
    for one in range(9):
        for other in range(9):
            numbers = {**sizes, "reader": one, "position": other, "hit": one, "block": other}
            assert holds_of_numbers(Claim(claim), Laboratory(), kind, numbers)


def test_quotients_and_remainders_are_those_of_python() -> None:
    arithmetic = Arithmetic()
    size = Divisor(z3.Int("size"), arithmetic)
    number = Term(z3.Int("number"))
    whole, rest, product = number // size, number % size, number * size
    for value in range(-9, 10):
        for divisor in (1, 2, 3, 4):
            solver = z3.Solver()
            solver.add(*arithmetic.facts, z3.Int("size") == divisor, z3.Int("number") == value)
            assert str(solver.check()) == "sat"
            right = (value // divisor, value % divisor, value * divisor)
            for term, expected in zip((whole, rest, product), right, strict=True):
                assert str(solver.check(lift(term) != expected)) == "unsat"


def test_that_products_grow_is_not_taken_for_granted() -> None:
    """It is the first condition of each theorem, of any numbers."""
    fewer, more, size = z3.Ints("fewer more size")
    for theorem in ATTENTION_THEOREMS:
        first = next(iter(proof_of(theorem).bundles(Laboratory())))
        assert first.goals[0][1].eq(products_grow(fewer, more, size))
        assert (first.known, first.assumed) == ([], [])
