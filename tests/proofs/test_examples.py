"""The examples judge the statements, and would notice a statement that says less."""

import pytest

from kvproof.proofs import prove
from kvproof.proofs.examples import examples, misjudged
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.specification import Edit, Specification
from kvproof.proofs.theorems import theorem_named
from kvproof.spec.pool_properties import INVARIANT
from kvproof.spec.steps import STEP_STATEMENTS


def test_every_statement_has_examples() -> None:
    assert set(INVARIANT) | set(STEP_STATEMENTS) <= {one.property for one in examples()}


@pytest.mark.parametrize("name", sorted({one.property for one in examples()}))
def test_the_statement_judges_its_examples(name: str) -> None:
    proof = theorem_named(name).proof
    assert misjudged(name, proof.holds_of, Specification()) == []  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        (
            "one-chain-per-block",
            Edit("pool_properties", "            & u.same_block(key, other)\n", ""),
        ),
        (
            "blocks-conserved",
            Edit(
                "pool_properties",
                "state.free_queue.has(block) | (state.ref_cnt[block] > 0) | (block == u.null)\n",
                "state.free_queue.has(block) | (state.ref_cnt[block] >= 0) | (block == u.null)\n",
            ),
        ),
        (
            "prediction-exact",
            Edit("steps", "return (other == block) & (before.ref_cnt", "return (before.ref_cnt"),
        ),
        (
            "failed-is-noop",
            Edit("steps", "                & (before.place[block] == after.place[block])\n", ""),
        ),
    ],
)
def test_a_weaker_statement_fails(name: str, edit: Edit) -> None:
    """Even where it is still true of every step."""
    laboratory = Laboratory(Specification((edit,)))
    verdict = prove(name, laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=5)
    assert verdict.status in ("error", "refuted")
