"""Each seeded defect is noticed by the theorem that it makes false.

The counterexample is judged by the defective specification itself: the invariant holds
before, the property fails after.
"""

import pytest

from kvproof.proofs import prove, replay, theorems
from kvproof.proofs.defects import DEFECTS, Defect
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.snapshots import concrete_state
from kvproof.proofs.specification import Specification
from kvproof.spec.pool_properties import INVARIANT
from kvproof.spec.steps import STEP_STATEMENTS

QUICK = {defect.theorem: defect for defect in reversed(DEFECTS)}
"""The first defect of each theorem; the others are slow tests, as they are many."""

CASES = [
    pytest.param(
        defect,
        id=defect.name,
        marks=() if QUICK[defect.theorem] is defect else pytest.mark.slow,
    )
    for defect in DEFECTS
]


@pytest.mark.parametrize("defect", CASES)
def test_the_defect_is_noticed(defect: Defect) -> None:
    specification = Specification((defect.edit,))
    laboratory = Laboratory(specification)
    verdict = prove(defect.theorem, laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=20)
    assert verdict.status == "refuted", verdict.detail
    found = verdict.counterexample
    assert found is not None
    before = concrete_state(specification, found.before)
    holds = {
        name: bool(statement(before))
        for name, statement in specification.pool_properties.INVARIANT.items()
    }
    if defect.theorem == "all-returned":
        holds.pop("all-returned")
    assert [name for name, held in holds.items() if not held] == []
    assert replay(found.to_json(), specification) == found
    if defect.theorem in INVARIANT or defect.theorem in STEP_STATEMENTS:
        assert defect.theorem in found.broken


@pytest.mark.parametrize("defect", [one for one in DEFECTS if one.edit.module == "transitions"][:6])
def test_the_counterexample_is_harmless_without_the_defect(defect: Defect) -> None:
    """It shows the defect, not something else: the specification proper passes it."""
    laboratory = Laboratory(Specification((defect.edit,)))
    verdict = prove(defect.theorem, laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=20)
    assert verdict.counterexample is not None
    assert not replay(verdict.counterexample).replayed


def test_every_property_has_a_defect() -> None:
    proved = {theorem.name for theorem in theorems()}
    own = set(INVARIANT) | set(STEP_STATEMENTS) | {"misuse-refused", "legal-accepted"}
    assert own & proved <= {defect.theorem for defect in DEFECTS}
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
