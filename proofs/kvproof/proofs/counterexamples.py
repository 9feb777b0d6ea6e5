"""Counterexamples: found in the bounded reading, judged on the concrete specification.

A model of the bounded reading is decoded into a small concrete state. The specification
itself is then run from it, and its own statements say what is broken. A counterexample that
does not replay is a bug of the prover, and is reported as one.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kvproof.proofs.calls import Answer, Call
from kvproof.proofs.exploration import Run, World
from kvproof.proofs.snapshots import (
    Decoder,
    Snapshot,
    concrete_state,
    describe,
    key_of_text,
    key_text,
)
from kvproof.proofs.solvers import model_of
from kvproof.proofs.specification import Specification
from kvproof.proofs.strict import make_strict
from kvproof.proofs.terms import FALSE, Term, conjunction, lift, negation
from kvproof.spec.quantities import Key

Claim = Callable[[Run], Any]

INITIAL = "initial state"
"""Stands for a call where no call is needed: the state satisfies `is_initial`."""


@dataclass(frozen=True)
class Counterexample:
    """A state, one or more calls, and what they break. `where` is the statement's source."""

    theorem: str
    says: str
    where: str
    operations: list[dict[str, Any]]
    before: Snapshot
    after: Snapshot | None = None
    outcome: str = ""
    broken: list[str] = field(default_factory=list)
    replayed: bool = False

    def to_json(self) -> str:
        """Write the counterexample."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Counterexample":
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def candidates(
    world: World, calls: tuple[Call, ...], claim: Claim, others: list[Claim], obligations: bool
) -> Iterator[tuple[list[dict[str, Any]], Snapshot]]:
    """Find states of a bounded world from which the calls break the claim: first those that
    keep the other claims.
    """
    shape = world.known + in_range(world, world.state())
    for run in world.runs(*calls):
        goals = [FALSE] if run.raised else [lift(claim(run))]
        queries = [[*run.assumptions, negation(goal)] for goal in goals]
        if obligations:
            queries += [[*one.assumptions, negation(one.goal)] for one in run.obligations]
        for query in queries:
            if any(part.eq(FALSE) for part in query):
                continue
            model = model_of([*shape, *query], 20)
            if model is None:
                continue
            if others and not run.raised:
                kept = [lift(other(run)) for other in others]
                model = model_of([*shape, *query, conjunction(kept)], 20) or model
            decoder = Decoder(model, world.universe)
            yield _operations(world, decoder, calls), decoder.state(world.state())


def falsifying_state(world: World, hypotheses: list[Any], goal: Any) -> Snapshot | None:
    """Return a state of a bounded world in which the hypotheses hold and the goal does not."""
    query = [*world.axioms, *in_range(world, world.state()), *hypotheses, negation(goal)]
    if any(part.eq(FALSE) for part in query):
        return None
    model = model_of(query, 20)
    return Decoder(model, world.universe).state(world.state()) if model else None


def observe(
    specification: Specification,
    operations: list[dict[str, Any]],
    before: Snapshot,
    calls: dict[str, Call],
) -> Run:
    """Run the calls on the concrete specification."""
    state = make_strict(specification, concrete_state(specification, before))
    untouched = concrete_state(specification, before)
    result, raised, rule = None, "", ""
    arguments: dict[str, Any] = {}
    call = Call("", ())
    for operation in operations:
        call = calls[operation["call"]]
        arguments = {
            name: _concrete(specification, value) for name, value in operation["arguments"].items()
        }
        try:
            result = call.function(specification)(state, *arguments.values())
        except specification.rules.KVCacheError as error:
            rule = error.rule.name
            break
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
            break
    answer = Answer(arguments, result, bool(rule))
    return Run(specification, call, untouched, state, answer, rule, raised)


def completed(found: Counterexample, run: Run, broken: list[str], holds: bool) -> Counterexample:
    """Return the counterexample with what happened when it was replayed."""
    if run.raised:
        outcome = f"raised {run.raised}"
    elif run.rule:
        outcome = f"refused: {run.rule}"
    elif run.answer.result is None:
        outcome = "done"
    else:
        result = run.answer.result
        outcome = f"returned {key_text(result) if isinstance(result, tuple) else result}"
    return replace(
        found,
        after=describe(run.after) if found.operations else None,
        outcome=outcome,
        broken=broken,
        replayed=not holds,
    )


def in_range(world: World, state: Any) -> list[Any]:
    """Keep the numbers of a state of a bounded world within what a snapshot can hold."""
    scope = world.reading.scope
    assert scope is not None
    found = [state.num_free_blocks >= -1, state.num_free_blocks <= scope.num_blocks]
    for element in world.reading.elements["Block"]:
        block = Term(element)
        found += [state.ref_cnt[block] >= -1, state.ref_cnt[block] <= scope.num_slots]
    return [lift(part) for part in found]


def _operations(world: World, decoder: Decoder, calls: tuple[Call, ...]) -> list[dict[str, Any]]:
    return [
        {
            "call": call.name,
            "arguments": {
                name: decoder.value(world.arguments(call, number)[name]) for name in call.parameters
            },
        }
        for number, call in enumerate(calls)
    ]


def _concrete(specification: Specification, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    key: Key = key_of_text(value)
    return specification.quantities.Key(*key)
