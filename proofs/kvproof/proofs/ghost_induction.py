"""Proofs about the ghost contents: their invariant is kept, and what follows from it.

They are proved like those of the pool, and refuted like those: a model of the bounded reading
becomes a concrete state, the transition is run from it, and the specification's own statements
say what is broken.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvproof.proofs.counterexamples import INITIAL, Counterexample
from kvproof.proofs.exploration import Run
from kvproof.proofs.ghost_readings import GROUP, REQUEST, BoundedGhostReading
from kvproof.proofs.ghost_snapshots import GhostDecoder, argument_of, described, ghost_state
from kvproof.proofs.ghost_world import (
    GHOST_CALLS,
    GhostCall,
    GhostRun,
    GhostWorld,
    any_contents,
    small_contents,
)
from kvproof.proofs.induction import Candidate, Laboratory
from kvproof.proofs.paths import Obligation
from kvproof.proofs.readings import BLOCK, INT
from kvproof.proofs.solvers import Bundle, model_of
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import FALSE, Term, conjunction, conjuncts, lift, negation

ACCESSES = {"reads-own-prefix": "read", "writes-exclusive": "write"}
"""The statements about an access, and the transition that makes it."""


class GhostProof:
    """What the proofs have in common (see `kvproof.proofs.induction.Proof`)."""

    calls: Iterable[GhostCall]

    def broken_queries(self, world: GhostWorld, run: GhostRun) -> Iterator[list[Any]]:
        """Yield what is assumed of each way in which a run breaks the claim."""
        raise NotImplementedError

    def is_broken(self, broken: list[str]) -> bool:
        """Say whether these broken statements are the claim's."""
        raise NotImplementedError

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`."""
        name = failing.partition("/")[0]
        for world in small_contents(laboratory):
            for call in self.calls:
                if call.name == name:
                    yield from self.candidates_of(world, call)

    def candidates_of(
        self, world: GhostWorld, call: GhostCall, dropped: str = ""
    ) -> Iterator[Candidate]:
        """Find small states from which one transition breaks the claim, perhaps one of which a
        rule was dropped.
        """
        for run in world.runs(call, dropped):
            known = world.known + in_range(world, run)
            for query in self.broken_queries(world, run):
                if any(part.eq(FALSE) for part in query):
                    continue
                model = model_of(known + query, 20)
                if model is not None:
                    decoder = GhostDecoder(model, world)
                    yield (
                        [{"call": call.name, "arguments": decoder.arguments(call)}],
                        decoder.state(),
                    )

    def replay(self, found: Counterexample, specification: Specification) -> Counterexample:
        """Run a counterexample on the concrete specification, and judge what happens."""
        before, state = (ghost_state(specification, found.before) for _ in range(2))
        properties = specification.ghost_properties.CONTENTS_INVARIANT
        held = all(statement(before) for statement in properties.values())
        outcome, broken = "done", []
        if not found.operations:
            held, outcome = specification.ghost_state.is_initial(before), INITIAL
        for operation in found.operations:
            outcome, failed = _played(specification, state, operation)
            broken += failed
        broken += [name for name, statement in properties.items() if not statement(state)]
        return replace(
            found,
            after=described(state),
            outcome=outcome,
            broken=broken,
            replayed=held and self.is_broken(broken),
        )

    def holds(self, run: Run) -> bool:
        """See `Proof`: it says nothing about pools. Raises ValueError."""
        raise ValueError("ghost contents are not judged by what a pool does")

    holds_of = holds


@dataclass(frozen=True)
class ContentsKept(GhostProof):
    """The invariant holds initially, and every transition keeps it; or one part of it."""

    only: str = ""
    calls = tuple(GHOST_CALLS.values())

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        world = any_contents(laboratory)
        yield self._base_case(world)
        for call in self.calls:
            for run in world.runs(call):
                yield from _of_obligations(world, run, self._own(run))
                yield self._of_run(world, run)

    def _base_case(self, world: GhostWorld) -> Bundle:
        state = world.state()
        initial = conjuncts(lift(world.specification.ghost_state.is_initial(state)))
        goals = [
            (f"{INITIAL}: {name}", goal)
            for name, expr in world.parts(state).items()
            for goal in conjuncts(expr)
        ]
        return Bundle(INITIAL, world.axioms, initial, goals)

    def _of_run(self, world: GhostWorld, run: GhostRun) -> Bundle:
        bundle = Bundle(run.label, world.known, list(run.assumptions))
        if run.raised:
            bundle.goals.append((run.raised, FALSE))
            return bundle
        for name, expr in world.parts(run.after).items():
            for goal in conjuncts(expr):
                if goal.get_id() in world.known_ids:
                    bundle.kept += 1
                else:
                    bundle.goals.append((f"{run.call.name} keeps {name}", goal))
        return bundle

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`: a part that cannot be false is none."""
        world = small_contents(laboratory)[0]
        return [
            f"{name} cannot be false"
            for name, expr in world.parts(world.state()).items()
            if model_of([*world.axioms, negation(expr)], 20) is None
        ]

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`."""
        yield from super().candidates(laboratory, failing)
        if failing == INITIAL:
            for world in small_contents(laboratory):
                state = world.state()
                initial = lift(world.specification.ghost_state.is_initial(state))
                kept = conjunction(world.parts(state).values())
                query = [*world.axioms, *in_scope(world, state), initial, negation(kept)]
                model = model_of(query, 20)
                if model is not None:
                    yield [], GhostDecoder(model, world).state()

    def broken_queries(self, world: GhostWorld, run: GhostRun) -> Iterator[list[Any]]:
        """See `GhostProof`."""
        for one in self._own(run):
            yield [*one.assumptions, negation(one.goal)]
        if run.raised:
            yield [*run.assumptions]
        else:
            kept = conjunction(world.parts(run.after, self.only).values())
            yield [*run.assumptions, negation(kept)]

    def is_broken(self, broken: list[str]) -> bool:
        """See `GhostProof`."""
        return self.only in broken if self.only else bool(set(broken) - set(ACCESSES))

    def _own(self, run: GhostRun) -> list[Obligation]:
        return [one for one in run.obligations if one.says not in ACCESSES]


@dataclass(frozen=True)
class AccessRight(GhostProof):
    """What a transition asserts of the slot that it reads or writes follows from the invariant."""

    says: str

    @property
    def calls(self) -> tuple[GhostCall, ...]:  # type: ignore[override]
        """The transition."""
        return (GHOST_CALLS[ACCESSES[self.says]],)

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        world = any_contents(laboratory)
        for call in self.calls:
            for run in world.runs(call):
                yield from _of_obligations(world, run, self._own(run))

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`: without the invariant it can be false."""
        world = small_contents(laboratory)[0]
        for call in self.calls:
            for run in world.runs(call):
                for query in self.broken_queries(world, run):
                    if model_of([*world.axioms, *query], 20) is not None:
                        return []
        return [f"{self.says} cannot be false"]

    def broken_queries(self, world: GhostWorld, run: GhostRun) -> Iterator[list[Any]]:
        """See `GhostProof`."""
        for one in self._own(run):
            yield [*one.assumptions, negation(one.goal)]

    def is_broken(self, broken: list[str]) -> bool:
        """See `GhostProof`."""
        return self.says in broken

    def _own(self, run: GhostRun) -> list[Obligation]:
        return [one for one in run.obligations if one.says == self.says]


def _of_obligations(
    world: GhostWorld, run: GhostRun, obligations: list[Obligation]
) -> Iterator[Bundle]:
    for one in obligations:
        goals = [(one.says, goal) for goal in conjuncts(one.goal)]
        yield Bundle(run.label, world.known, list(one.assumptions), goals)


def _played(
    specification: Specification, state: Any, operation: dict[str, Any]
) -> tuple[str, list[str]]:
    """Run one transition. Return what became of it, and the checks that failed."""
    call = GHOST_CALLS[operation["call"]]
    arguments = {name: argument_of(name, operation["arguments"][name]) for name in call.parameters}
    try:
        call.run(specification, state, arguments)
    except specification.logic.CheckFailed as error:
        return f"check failed: {error}", [str(error)]
    except specification.rules.KVCacheError as error:
        return f"refused: {error.rule.name}", []
    return "done", []


def in_range(world: GhostWorld, run: GhostRun) -> list[Any]:
    """Keep the numbers of a small step within sequences and tables."""
    reading = world.reading
    assert isinstance(reading, BoundedGhostReading)
    found = in_scope(world, run.before) + ([] if run.raised else in_scope(world, run.after))
    for parameter, term in world.arguments(run.call).items():
        if run.call.sort(parameter) == INT:
            end = reading.concrete.length + int(parameter.startswith("num_"))
            found.append(lift((term >= 0) & (term < end)))
    return found


def in_scope(world: GhostWorld, state: Any) -> list[Any]:
    """Keep the numbers of a small state within sequences and tables."""
    universe, reading = world.universe, world.reading
    assert isinstance(reading, BoundedGhostReading)
    length, found = reading.concrete.length, []
    for request in map(Term, reading.elements[REQUEST]):
        found += [state.num_known[request] <= length, state.num_computed[request] <= length]
        for group in map(Term, reading.elements[GROUP]):
            entries = state.num_entries[request, group]
            found.append(universe.start(group, entries) <= length)
    for block in map(Term, reading.elements[BLOCK]):
        for offset in reading.concrete.numbers:
            witness = state.promised_for[block, offset]
            found.append((witness >= 0) & (witness < length))
    return [lift(part) for part in found]
