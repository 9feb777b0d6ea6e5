"""What a manager announces leaves the queue: proved, and a slip in it is refuted and replayed."""

import pytest

from kvproof.proofs import prove
from kvproof.proofs.arithmetic import CHUNK, EVERY, FULL, WINDOW
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.prediction import (
    CASES,
    HIT,
    PREDICTION_THEOREMS,
    Predictions,
    Row,
    holds_of_numbers,
    manager_text,
)
from kvproof.proofs.specification import Edit, EditError, Specification
from kvproof.proofs.terms import lift

(THEOREM,) = PREDICTION_THEOREMS

DEFECTS = {
    "what is null behind a hit is announced, too": (
        "            there = max(there, skipped)\n",
        "            there = max(there, 0)\n",
    ),
    "entries of a hit that are forgotten at once are announced": (
        "self._num_queued(new_computed_blocks[skipped:])",
        "self._num_queued(new_computed_blocks)",
    ),
    "queued blocks of a hit are not announced": (
        " + self._num_queued(new_computed_blocks[skipped:])",
        "",
    ),
    "after rejected drafts less than nothing is announced": (
        "return max(wanted - there, 0) + self",
        "return wanted - there + self",
    ),
    "the blocks of a hit are announced as new": (
        "there = max(len(table), len(new_computed_blocks))",
        "there = len(table)",
    ),
    "the last block is not announced": (
        "        wanted = blocks_for(num_tokens, self.block_size)\n",
        "        wanted = num_tokens // self.block_size\n",
    ),
    "forgotten entries of a hit are held": (
        "kept = list(new_computed_blocks[skipped:])",
        "kept = list(new_computed_blocks)",
    ),
    "a table grows by what it should grow to": (
        "missing = max(blocks_for(num_tokens, self.block_size) - len(table), 0)",
        "missing = max(blocks_for(num_tokens, self.block_size), 0)",
    ),
}


def edited(old: str, new: str) -> Laboratory:
    return Laboratory(Specification((Edit("single_type_manager", old, new),)))


def test_it_is_proved() -> None:
    """By z3 under three seeds and by cvc5."""
    verdict = prove(THEOREM, timeout_s=30)
    assert (verdict.status, verdict.detail) == ("proved", [])
    assert verdict.conditions > len(EVERY) * len(CASES)
    assert list(Predictions().refutations(Laboratory())) == []


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_refuted_by_numbers(defect: str) -> None:
    laboratory = edited(*DEFECTS[defect])
    verdict = prove(THEOREM, laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=5)
    assert verdict.status == "unknown"
    assert "z3 with seed 0 says" in verdict.detail[0]
    one = next(Predictions().refutations(laboratory))
    assert one.replayed
    assert holds_of_numbers(manager_text(Laboratory()), one.kind, one.claim, one.numbers)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("case", CASES)
def test_it_holds_of_small_numbers(kind: str, case: str) -> None:
    text = manager_text(Laboratory())
    sizes = {"window": 3, "chunk": 4, "block_size": 2, "entries": 2}
    for hits in range(3) if case == HIT else [0]:
        for external in range(4) if case == HIT else [0]:
            computed = 2 * hits + external
            for slots in range(max(computed, 1), computed + 4):
                numbers = {**sizes, "hits": hits, "next_token": computed, "computed": computed}
                assert holds_of_numbers(text, kind, case, {**numbers, "slots": slots})


def test_the_paths_are_those_of_each_type_and_case() -> None:
    labels = {bundle.label for bundle in Predictions().bundles(Laboratory())}
    for kind in (FULL, WINDOW, CHUNK):
        assert {f"{kind}/{case}" for case in CASES} == {
            label.rsplit("/", 1)[0] for label in labels if label.startswith(kind)
        }


def test_an_edit_that_is_not_there_is_refused() -> None:
    with pytest.raises(EditError, match="not there exactly once"):
        list(Predictions().bundles(edited("no such text", "")))


def test_rows_are_as_long_as_lists() -> None:
    for length in range(4):
        for skipped in range(6):
            row, blocks = Row(length)[skipped:], list(range(length))[skipped:]
            assert row.length == len(blocks)
            nulls = [0, 0]
            assert (nulls + row).length == (row + nulls).length == len(blocks) + 2
            assert bool(row) is bool(blocks)
    assert lift(Row(0).num_queued) is not None
