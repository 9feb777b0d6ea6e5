"""Proofs by induction over the steps of a pool, and corollaries in one state.

A state property holds initially and is kept by every path of every transition. A property
of steps holds of every path. Both are claims about a `Run`; the same claim is put to the
solvers, searched for counterexamples, and judged on the concrete specification.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from kvproof.proofs.calls import POOL_CALLS, TABLE_CALLS, Answer, Call
from kvproof.proofs.counterexamples import (
    INITIAL,
    Claim,
    candidates,
    falsifying_state,
)
from kvproof.proofs.exploration import Run, Statement, World
from kvproof.proofs.lemmas import LEMMAS
from kvproof.proofs.protocol import PROTOCOL_INVARIANT, PROTOCOL_LEMMAS
from kvproof.proofs.readings import SCOPES, TABLE_SCOPES, BoundedReading, Reading, Scope
from kvproof.proofs.snapshots import Snapshot
from kvproof.proofs.solvers import Bundle, Cvc5, model_of
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import FALSE, TRUE, conjuncts, lift, negation

Candidate = tuple[list[dict[str, Any]], Snapshot]


class Laboratory:
    """A specification with its worlds, which are explored once and used by every theorem."""

    def __init__(self, specification: Specification | None = None) -> None:
        self.specification = specification or Specification()
        self._bounded: dict[tuple[Scope, bool], World] = {}
        self._sessions: list[Cvc5] = []

    @cached_property
    def pool(self) -> World:
        """Any pool."""
        return World(self.specification, Reading())

    @cached_property
    def tables(self) -> World:
        """Any pool that a full-attention manager uses."""
        lemmas = LEMMAS | PROTOCOL_LEMMAS
        return World(self.specification, Reading(), True, PROTOCOL_INVARIANT, lemmas)

    def world(self, tables: bool) -> World:
        """Return one of the two."""
        return self.tables if tables else self.pool

    def bounded(self, scope: Scope, tables: bool = False) -> World:
        """Return the small pools of a scope."""
        if (scope, tables) not in self._bounded:
            more = PROTOCOL_INVARIANT if tables else None
            self._bounded[scope, tables] = World(
                self.specification, BoundedReading(scope), tables, more
            )
        return self._bounded[scope, tables]

    def cvc5(self, known: list[Any], timeout_s: float) -> Cvc5:
        """Return a cvc5 that knows this; the last few are kept."""
        for session in self._sessions:
            if session.known is known and session.timeout_s == timeout_s:
                return session
        self._sessions = [Cvc5(known, timeout_s), *self._sessions[:3]]
        return self._sessions[0]

    def small_worlds(self, tables: bool) -> Iterator[World]:
        """Go through the scopes, the smallest first."""
        for scope in TABLE_SCOPES if tables else SCOPES:
            yield self.bounded(scope, tables)


class Proof(Protocol):
    """How one theorem is proved, searched for counterexamples, and judged."""

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """What the solvers have to prove."""
        ...

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """Say why a proof would mean nothing."""
        ...

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """Look for counterexamples; `failing` is the label of a bundle that is not proved."""
        ...

    def holds(self, run: Run) -> bool:
        """Judge a counterexample that was run: a call, and all that may be wrong with it."""
        ...

    def holds_of(self, run: Run) -> bool:
        """Judge an example: the statement alone."""
        ...


@dataclass(frozen=True)
class Induction:
    """A claim about every run, and a statement about every state when there is one."""

    claim: Claim
    statement: Statement | None = None
    obligations: bool = False
    tables: bool = False
    trivial: Callable[[str, bool], bool] = lambda call, refused: False
    """Which steps the claim says nothing about, by design."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """The transitions that are covered."""
        return TABLE_CALLS if self.tables else POOL_CALLS

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        world = laboratory.world(self.tables)
        if self.statement is not None:
            yield base_case(world, self.statement)
        for call in self.calls:
            for run in world.runs(call):
                yield from self._of_run(world, run)

    def _of_run(self, world: World, run: Run) -> Iterator[Bundle]:
        if run.raised:
            yield Bundle(run.label, world.known, list(run.assumptions), [(run.raised, FALSE)])
            return
        if self.obligations:
            for one in run.obligations:
                goals = [(one.says, one.goal)]
                yield Bundle(run.label, world.known, list(one.assumptions), goals)
        bundle = Bundle(run.label, world.known, list(run.assumptions))
        claim = lift(self.claim(run))
        bundle.kept += claim.eq(TRUE)
        for goal in conjuncts(claim):
            if goal.get_id() in world.known_ids:
                bundle.kept += 1
            else:
                bundle.goals.append((run.label, goal))
        yield bundle

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`: a claim that cannot be false is none."""
        statement = self.statement
        if statement is not None:
            return _unless_false(laboratory, self.tables, "", lambda w: statement(w.state()))
        found = []
        for call in self.calls:
            for refused in (False, True):
                if not self.trivial(call.name, refused):
                    label = f" for {call.name}" + (" when it is refused" if refused else "")
                    found += _unless_false(
                        laboratory,
                        self.tables,
                        label,
                        lambda w, c=call, r=refused: self.claim(unrelated(w, c, r)),  # type: ignore[misc]
                    )
        return found

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`."""
        name = failing.partition("/")[0]
        for world in laboratory.small_worlds(self.tables):
            if name == INITIAL and self.statement is not None:
                state = world.state()
                initial = lift(world.specification.state.is_initial(state))
                found = falsifying_state(world, [initial], lift(self.statement(state)))
                if found:
                    yield [{"call": INITIAL, "arguments": {}}], found
            for call in self.calls:
                if call.name == name:
                    others = _other_claims(world, self)
                    yield from candidates(world, (call,), self.claim, others, self.obligations)

    def holds(self, run: Run) -> bool:
        """See `Proof`."""
        if run.call.name == INITIAL:
            assert self.statement is not None
            initial = run.specification.state.is_initial(run.before)
            return not initial or bool(self.statement(run.before))
        return not run.raised and bool(self.claim(run))

    def holds_of(self, run: Run) -> bool:
        """See `Proof`."""
        return bool(self.claim(run))


@dataclass(frozen=True)
class Corollary:
    """A statement that follows from the invariant in one state."""

    statement: Statement
    tables: bool = False
    is_lemma: bool = False

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        world = laboratory.world(self.tables)
        hypotheses = world.premises if self.is_lemma else world.known
        goals = conjuncts(lift(self.statement(world.state())))
        yield Bundle(ANY_STATE, hypotheses, goals=[(ANY_STATE, goal) for goal in goals])

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`."""
        return _unless_false(laboratory, self.tables, "", lambda w: self.statement(w.state()))

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`."""
        for world in laboratory.small_worlds(self.tables):
            goal = lift(self.statement(world.state()))
            found = falsifying_state(world, world.known, goal)
            if found:
                yield [], found

    def holds(self, run: Run) -> bool:
        """See `Proof`."""
        return bool(self.statement(run.before))

    def holds_of(self, run: Run) -> bool:
        """See `Proof`."""
        return self.holds(run)


ANY_STATE = "any state"


def base_case(world: World, statement: Statement) -> Bundle:
    """Return: the initial state satisfies the statement."""
    state = world.state()
    initial = conjuncts(lift(world.specification.state.is_initial(state)))
    goals = conjuncts(lift(statement(state)))
    return Bundle(INITIAL, world.axioms, initial, [(INITIAL, goal) for goal in goals])


def unrelated(world: World, call: Call, refused: bool) -> Run:
    """Return a step between two states that have nothing to do with each other."""
    result = None
    if call.result and not refused:
        result = world.universe.constant("result", call.result)
    answer = Answer(world.arguments(call), result, refused)
    return Run(world.specification, call, world.state(), world.state("after."), answer)


def _unless_false(
    laboratory: Laboratory, tables: bool, label: str, statement: Callable[[World], Any]
) -> list[str]:
    """Complain unless the statement is false somewhere, the invariant left aside."""
    for world in laboratory.small_worlds(tables):
        if model_of([*world.axioms, negation(lift(statement(world)))], 20) is not None:
            return []
    return [f"the statement{label} cannot be false"]


def _other_claims(world: World, proof: Induction) -> list[Claim]:
    if proof.statement is None:
        return []
    return [
        lambda run, statement=statement: statement(run.after)  # type: ignore[misc]
        for statement in world.invariant.values()
        if statement is not proof.statement
    ]


def broken_by(run: Run) -> list[str]:
    """Return the names of the specification's properties that a concrete run breaks."""
    found = []
    for name, statement in run.specification.pool_properties.INVARIANT.items():
        if not statement(run.after):
            found.append(name)
    if run.call.name in {call.name for call in POOL_CALLS} and not run.raised:
        for name, holds in run.specification.steps.STEP_STATEMENTS.items():
            if not holds(run.step):
                found.append(name)
    return found
