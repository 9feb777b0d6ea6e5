"""Every theorem is proved, and nothing that is not proved passes for it."""

import json
from dataclasses import replace
from typing import Any

import pytest
import z3

from kvproof.proofs import prove, prove_all, theorems
from kvproof.proofs.calls import CALLS, POOL_CALLS
from kvproof.proofs.exploration import World
from kvproof.proofs.induction import Corollary, Induction, Laboratory
from kvproof.proofs.misuse import MISUSES
from kvproof.proofs.paths import Exploded, Outcome, explore
from kvproof.proofs.protocol import PROTOCOL_INVARIANT
from kvproof.proofs.readings import Reading
from kvproof.proofs.specification import Edit, EditError, Specification
from kvproof.proofs.terms import Term
from kvproof.proofs.theorem import Theorem
from kvproof.proofs.theorems import theorem_named
from kvproof.spec import full_attention, transitions
from kvproof.spec.pool_properties import INVARIANT, STATE_PROPERTIES
from kvproof.spec.rules import RULES
from kvproof.spec.steps import STEP_STATEMENTS


def test_every_theorem_is_proved() -> None:
    """By z3 under three seeds and by cvc5, in two processes; the results come in order."""
    told: list[str] = []
    verdicts = prove_all(
        jobs=2, timeout_s=60, on_result=lambda theorem, verdict: told.append(theorem.name)
    )
    assert [(one.theorem, one.status) for one in verdicts if one.status != "proved"] == []
    assert told == [theorem.name for theorem in theorems()]


def test_every_property_has_its_theorem() -> None:
    names = {theorem.name for theorem in theorems()}
    assert set(INVARIANT) | set(STEP_STATEMENTS) | {"no-stranded-suffix"} <= names
    assert {"misuse-refused", "legal-accepted"} <= names


def test_what_is_proved_is_what_runs() -> None:
    """The prover has no transitions and no statements of its own."""
    specification = Specification()
    for call in CALLS.values():
        module: Any = full_attention if call.module == "full_attention" else transitions
        assert call.function(specification) is getattr(module, call.name)
    assert [call.name for call in POOL_CALLS if call.name not in transitions.__all__] == []
    assert {call.name for call in POOL_CALLS} == set(transitions.__all__)
    for name, entry in STATE_PROPERTIES.items():
        proof = theorem_named(name).proof
        assert isinstance(proof, Induction | Corollary)
        assert proof.statement is entry.statement


def test_every_rule_of_the_transitions_has_its_misuse() -> None:
    world = World(Specification(), Reading())
    for call in POOL_CALLS:
        refused_by = {run.rule for run in world.runs(call) if run.rule}
        assert refused_by == {one.rule for one in MISUSES if one.transition == call.name}
    assert {misuse.rule for misuse in MISUSES} <= set(RULES)


def test_unknown_is_no_proof() -> None:
    """A solver that gives up proves nothing."""
    verdict = prove("refs-exact", timeout_s=1e-3, solvers=("cvc5",))
    assert verdict.status == "unknown"
    assert "cvc5 says unknown" in verdict.detail[0]


def test_a_true_statement_is_vacuous() -> None:
    theorem = theorem_named("refs-exact")
    proof = Induction(lambda run: True, lambda state: True)
    verdict = prove(replace(theorem, proof=proof))
    assert verdict.status == "error"
    assert verdict.detail == ["vacuous: the statement cannot be false"]


def test_a_step_that_says_nothing_is_vacuous() -> None:
    edit = Edit(
        "steps",
        """    if step.transition == "acquire":
        return kept &""",
        """    if step.transition == "acquire":
        return True | kept &""",
    )
    edited = Laboratory(Specification((edit,)))
    verdict = prove("order-rule", laboratory=edited, solvers=("z3",), seeds=1)
    assert verdict.status == "error"
    assert verdict.detail == ["vacuous: the statement for acquire cannot be false"]


def edited_retract(body: str) -> Laboratory:
    old, new = "    _drop_keys(state, block)\n\n\ndef reset", f"    {body}\n\n\ndef reset"
    return Laboratory(Specification((Edit("transitions", old, new),)))


def test_a_transition_that_raises_proves_nothing() -> None:
    edited = edited_retract("state.nothing")
    verdict = prove("index-agrees", laboratory=edited, solvers=("z3",), seeds=1, timeout_s=5)
    assert verdict.status == "refuted"
    assert verdict.counterexample is not None
    assert verdict.counterexample.outcome.startswith("raised AttributeError")


def test_a_first_state_that_is_not_initial_is_noticed() -> None:
    edit = Edit("state", "& neg(state.retired[block].has(key))", "& state.retired[block].has(key)")
    edited = Laboratory(Specification((edit,)))
    verdict = prove("not-vacuous", laboratory=edited)
    assert verdict.status == "error"
    assert verdict.detail == ["vacuous: a new pool of 1 blocks is not initial"]


def test_a_loop_proves_nothing() -> None:
    loop = "while state.ref_cnt[block] != 0: block = state.block_at[state.place[block] + 1]"
    verdict = prove("refs-exact", laboratory=edited_retract(loop), solvers=("z3",), seeds=1)
    assert verdict.status == "unknown"
    assert "decisions" in verdict.detail[0]


def test_paths_are_limited() -> None:
    def run() -> int:
        return sum(bool(Term(z3.Bool(f"b{place}"))) for place in range(9))

    with pytest.raises(Exploded):
        list(explore(run))


def test_every_path_is_run_once() -> None:
    def run() -> tuple[bool, bool]:
        first, second = Term(z3.Bool("a")), Term(z3.Bool("b"))
        return bool(first), bool(second) if first else bool(first)

    outcomes: list[Outcome[tuple[bool, bool]]] = list(explore(run))
    assert [one.result for one in outcomes] == [(True, True), (True, False), (False, False)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"solvers": ("z4",)}, "solvers must be among"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"timeout_s": 0}, "timeout_s must be positive"),
        ({"jobs": 0}, "jobs must be 1 or more"),
        ({"names": ["refs"]}, "there is no theorem 'refs'"),
    ],
)
def test_wrong_use_is_told(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        prove_all(**arguments)


def test_an_edit_must_fit() -> None:
    with pytest.raises(EditError, match="occurs 0 times"):
        Specification((Edit("transitions", "no such text", ""),))


def test_an_edited_specification_leaves_the_own_one_alone() -> None:
    edited = Specification(
        (Edit("ghosts", "count - 1\n    state.held", "count - 2\n    state.held"),)
    )
    assert edited.transitions.release is not transitions.release
    assert Specification().transitions.release is transitions.release


def test_a_theorem_can_be_listed() -> None:
    for theorem in theorems():
        assert isinstance(theorem, Theorem)
        assert theorem.says[0].islower() or not theorem.says[0].isalpha()
        file, _, line = theorem.where.rpartition(":")
        assert file.startswith("kvproof/")
        assert int(line) > 0
        assert json.dumps([theorem.name, theorem.says, theorem.property])


def test_the_protocol_has_a_sentence_for_each_invariant() -> None:
    assert all(statement.__doc__ for statement in PROTOCOL_INVARIANT.values())
