"""The theorems of the ghost contents speak of what runs, and would notice if it were wrong."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from kvproof.proofs import prove, replay
from kvproof.proofs.axioms import Axiom
from kvproof.proofs.defects import Defect
from kvproof.proofs.ghost_axioms import GHOST_AXIOMS
from kvproof.proofs.ghost_defects import GHOST_DEFECTS
from kvproof.proofs.ghost_induction import ContentsKept, in_range
from kvproof.proofs.ghost_lists import ListsDone
from kvproof.proofs.ghost_needed import NEEDED, rule_removed, without
from kvproof.proofs.ghost_snapshots import GhostDecoder, argument_of, described, ghost_state
from kvproof.proofs.ghost_theorems import GHOST_THEOREMS
from kvproof.proofs.ghost_world import GHOST_CALLS, GHOST_SCOPES, any_contents, small_contents
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.solvers import model_of
from kvproof.proofs.specification import Edit, Specification
from kvproof.proofs.theorems import theorem_named
from kvproof.spec import ghost_transitions
from kvproof.spec.attention import ChunkedLocal, Full, SlidingWindow
from kvproof.spec.concrete import ConcreteDomain
from kvproof.spec.ghost_concrete import ConcreteGhostUniverse, Shape
from kvproof.spec.ghost_properties import CONTENTS_INVARIANT
from kvproof.spec.protocol_rules import PROTOCOL_RULES, RELEASES

QUICK = ("rejected drafts count as scheduled", "a token of another step reads")
"""The other defects are slow tests, as they are many."""

CASES = [
    pytest.param(defect, id=defect.name, marks=() if defect.name in QUICK else pytest.mark.slow)
    for defect in GHOST_DEFECTS
]


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory()


def attempt(defect: Defect, specification: Specification) -> Any:
    laboratory = Laboratory(specification)
    return prove(defect.theorem, laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=20)


@pytest.mark.parametrize("defect", CASES)
def test_the_defect_is_noticed(defect: Defect) -> None:
    specification = Specification((defect.edit,))
    verdict = attempt(defect, specification)
    assert verdict.status == "refuted", verdict.detail
    found = verdict.counterexample
    assert found.replayed
    assert replay(found.to_json(), specification) == found
    before = ghost_state(specification, found.before)
    properties = specification.ghost_properties.CONTENTS_INVARIANT
    if found.operations:
        assert [name for name, holds in properties.items() if not holds(before)] == []
    if defect.edit.module != "ghost_properties":
        assert not replay(found.to_json()).replayed, "it shows the defect and nothing else"


@pytest.mark.parametrize("axiom", GHOST_AXIOMS, ids=lambda axiom: axiom.name)
def test_axioms(axiom: Axiom) -> None:
    """What is taken for granted holds of the concrete universe."""
    rng = random.Random(0)
    for attention in (Full(), SlidingWindow(1), SlidingWindow(3), ChunkedLocal(4)):
        for size in (1, 2, 4):
            tokens = [tuple(rng.randrange(2) for _ in range(40)) for _ in range(3)]
            shapes = [Shape(size, attention), Shape(rng.randrange(1, 4), Full())]
            universe = ConcreteGhostUniverse(2, 1, shapes, tokens)
            universe.numbers = ConcreteDomain(range(8))  # the sequences go on, as real ones do
            assert axiom.statement(universe)


def test_a_false_axiom_is_noticed() -> None:
    class Blind(SlidingWindow):
        def reads(self, reader: int, position: int) -> bool:
            return position == 0 and reader % 2 == 1

    (forgets,) = (one for one in GHOST_AXIOMS if one.name == "forgets-for-ever")
    universe = ConcreteGhostUniverse(2, 1, [Shape(2, Blind(2))], [(0,) * 6])
    assert not forgets.statement(universe)


@pytest.mark.parametrize("name", GHOST_CALLS)
def test_the_readings_agree(name: str, laboratory: Laboratory) -> None:
    """What a transition does to a small state is what it does to that state symbolically."""
    call, tried = GHOST_CALLS[name], 0
    for world in small_contents(laboratory):
        for run in world.runs(call):
            model = model_of([*world.known, *in_range(world, run), *run.assumptions], 20)
            if model is None:
                continue
            decoder = GhostDecoder(model, world)
            state = ghost_state(laboratory.specification, decoder.state())
            assert described(state) == decoder.state()
            given = decoder.arguments(call)
            call.run(
                laboratory.specification,
                state,
                {parameter: argument_of(parameter, value) for parameter, value in given.items()},
            )
            assert described(state) == decoder.state(run.after)
            tried += 1
    assert tried


def test_every_rule_is_needed(laboratory: Laboratory) -> None:
    assert set(NEEDED) == set(PROTOCOL_RULES)
    name = "free-no-promise"
    found = without(name, laboratory)
    assert found is not None
    assert found.replayed
    assert found.broken == [NEEDED[name][1]]
    assert ContentsKept().replay(found, Specification()).outcome == f"refused: {name}"


def test_a_rule_that_is_not_needed_is_noticed() -> None:
    """A rule that another one implies refuses nothing of its own."""
    twice = Edit(
        "ghost_transitions",
        "    requires(neg(state.in_flight[block]), rules.LOAD_NOT_INFLIGHT, block)\n",
        "    requires(neg(state.in_flight[block]), SLOT_THERE, block)\n"
        "    requires(neg(state.in_flight[block]), rules.LOAD_NOT_INFLIGHT, block)\n",
    )
    edited = Laboratory(Specification((twice,)))
    assert without("load-not-inflight", edited) is None


def test_a_rule_is_required_in_one_place() -> None:
    for name in PROTOCOL_RULES:
        assert rule_removed(name).old.startswith("requires(")
    with pytest.raises(ValueError, match="no-such-rule is required 0 times"):
        rule_removed("no-such-rule")


def test_what_is_proved_is_what_runs(laboratory: Laboratory) -> None:
    """The prover has no transitions and no statements of its own."""
    public = {
        name
        for name, found in vars(ghost_transitions).items()
        if getattr(found, "__module__", "") == ghost_transitions.__name__ and name[0] != "_"
    }
    assert public == set(GHOST_CALLS)
    world = any_contents(laboratory)
    assert world.specification.ghost_properties.CONTENTS_INVARIANT is CONTENTS_INVARIANT
    assert set(world.parts(world.state())) == set(CONTENTS_INVARIANT)


def test_the_theorems_are_in_the_catalogue() -> None:
    for theorem in GHOST_THEOREMS:
        assert theorem_named(theorem.name) is theorem
        assert theorem.says[0].islower()


def test_a_list_whose_statement_cannot_be_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(of: Any, state: Any, done: Any) -> Any:
        return state.num_written[of.request, of.group] < 0

    monkeypatch.setattr("kvproof.proofs.ghost_lists._LISTS", (("write", impossible),))
    assert ListsDone().complaints(Laboratory()) == ["write: J cannot be"]


def test_a_list_with_a_missing_hypothesis_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_weak(of: Any, state: Any, done: Any) -> Any:
        return state.num_written[of.request, of.group] == of.first + done

    monkeypatch.setattr("kvproof.proofs.ghost_lists._LISTS", (("write", too_weak),))
    verdict = prove("protocol-lists", solvers=("z3",), seeds=1, timeout_s=2)
    assert verdict.status == "unknown"


def test_the_scopes_have_what_they_need() -> None:
    for scope in GHOST_SCOPES:
        assert len({len(tokens) for tokens in scope.sequences}) == 1
        for shape in scope.shapes:
            assert len(scope.sequences[0]) % shape.block_size == 0
    assert set(RELEASES["0.25.1"]) == set(PROTOCOL_RULES)


def test_the_table_of_the_rules_is_up_to_date() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/proofs.md").read_text(encoding="utf-8")
    for name, (transition, part) in NEEDED.items():
        kept = "yes" if RELEASES["0.25.1"][name].keeps else "no"
        row = rf"\| `{name}` \| `{transition}` breaks `{part}` \| a wrong \w+ \| {kept} \|"
        assert re.search(row, text), name
    assert f"each of the {len(GHOST_CALLS)} transitions" in text
    assert f"{len(GHOST_DEFECTS)} of the ghost contents" in text
