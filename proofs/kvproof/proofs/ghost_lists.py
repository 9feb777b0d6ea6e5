"""Calls of the manager are transitions in a row: lists of any length, by induction.

For each a statement J(k) about the state in which k of m elements are done. From any state of
the invariant with J(k), k < m, no rule refuses the transition for the k-th element, and J(k + 1)
holds afterwards. What J says at k = 0 is what the call requires of its caller.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.proofs.counterexamples import Counterexample
from kvproof.proofs.ghost_induction import GhostProof
from kvproof.proofs.ghost_readings import GROUP, REQUEST
from kvproof.proofs.ghost_world import GhostWorld, any_contents, small_contents
from kvproof.proofs.induction import Candidate, Laboratory
from kvproof.proofs.paths import explore
from kvproof.proofs.readings import BLOCK, INT
from kvproof.proofs.solvers import Bundle, model_of
from kvproof.proofs.terms import FALSE, Term, conjuncts, lift, negation
from kvproof.spec.logic import forall, implies, neg


@dataclass(frozen=True)
class Many:
    """A list of `many` elements for one group of one request: `done` of them are done. `first`
    is the position of the first one, where positions are listed; `blocks` what is hit.
    """

    world: GhostWorld
    request: Any
    group: Any
    done: Any
    many: Any
    first: Any
    blocks: Callable[[Any], Any]

    def admitted(self, state: Any, done: Any) -> Any:
        """The request is being admitted, and this many entries are there and written."""
        row = (self.request, self.group)
        return (
            state.live[self.request]
            & neg(state.running[self.request])
            & (state.num_entries[row] == done)
            & (state.num_scheduled[row] == self.world.universe.start(self.group, done))
            & (state.num_written[row] == state.num_scheduled[row])
        )

    def every(self, start: Any, body: Callable[[Any], Any]) -> Any:
        """Say something of every index from `start` below `many`."""
        return forall(
            self.world.universe.numbers,
            lambda index: implies((start <= index) & (index < self.many), body(index)),
        )

    def unread(self, state: Any, start: Any) -> Any:
        """No token that may be computed reads of the blocks from `start` below `many`; all of
        them end before it.
        """
        u, text = self.world.universe, self.world.specification.ghost_state
        computed = state.num_computed[self.request]

        def is_unread(index: Any, position: Any) -> Any:
            end = text.end_of(state, self.group, index)
            inside = (u.start(self.group, index) <= position) & (position < end)
            unread = neg(u.reads(self.request, self.group, computed, position))
            return implies((start <= index) & (index < self.many) & inside, unread)

        ended = self.every(start, lambda index: text.end_of(state, self.group, index) <= computed)
        return ended & forall((u.numbers, u.numbers), is_unread)


def hits(of: Many, state: Any, done: Any) -> Any:
    """The blocks that are still to be hit carry the request's own keys, of known tokens."""
    u, text = of.world.universe, of.world.specification.ghost_state
    return of.admitted(state, done) & of.every(
        done,
        lambda index: (
            (state.block_key[of.blocks(index)] == text.own_key(state, of.request, of.group, index))
            & (of.blocks(index) != u.null)
            & (text.end_of(state, of.group, index) <= state.num_known[of.request])
        ),
    )


def pads(of: Many, state: Any, done: Any) -> Any:
    """What is padded is read by no token that may be computed."""
    return of.admitted(state, done) & of.unread(state, 0)


def scheduled(of: Many, state: Any, done: Any) -> Any:
    """The positions that are still to be scheduled have real blocks."""
    u, row = of.world.universe, (of.request, of.group)

    def has_block(position: Any) -> Any:
        index = u.index(of.group, position)
        return implies(
            (of.first + done <= position) & (position < of.first + of.many),
            (index < state.num_entries[row]) & (state.table[*row, index] != u.null),
        )

    return (
        state.live[of.request]
        & (of.first >= 0)
        & (state.num_scheduled[row] == of.first + done)
        & forall(u.numbers, has_block)
    )


def published(of: Many, state: Any, done: Any) -> Any:
    """The blocks that are still to be published are real, scheduled and known."""
    u, text, row = of.world.universe, of.world.specification.ghost_state, (of.request, of.group)
    return (of.many <= state.num_entries[row]) & of.every(
        done,
        lambda index: (
            (state.table[*row, index] != u.null)
            & (text.end_of(state, of.group, index) <= state.num_scheduled[row])
            & (text.end_of(state, of.group, index) <= state.num_known[of.request])
        ),
    )


def written(of: Many, state: Any, done: Any) -> Any:
    """All that is scheduled is being written."""
    row = (of.request, of.group)
    return (state.num_written[row] == of.first + done) & (
        state.num_scheduled[row] == of.first + of.many
    )


def skipped(of: Many, state: Any, done: Any) -> Any:
    """The blocks that are still to be skipped are real, written and unread."""
    u, text, row = of.world.universe, of.world.specification.ghost_state, (of.request, of.group)
    return (
        (of.many <= state.num_entries[row])
        & of.unread(state, done)
        & of.every(
            done,
            lambda index: (
                (state.table[*row, index] != u.null)
                & (text.end_of(state, of.group, index) <= state.num_written[row])
            ),
        )
    )


def freed(of: Many, state: Any, done: Any) -> Any:
    """The request is stopped, all that it promised is written, and it is freed from the end."""
    row = (of.request, of.group)
    return (
        state.live[of.request]
        & neg(state.running[of.request])
        & (state.num_written[row] == state.num_scheduled[row])
        & (state.num_entries[row] == of.many - done)
    )


_LISTS: tuple[tuple[str, Callable[[Many, Any, Any], Any]], ...] = (
    ("hit", hits),
    ("pad", pads),
    ("schedule", scheduled),
    ("publish", published),
    ("write", written),
    ("skip", skipped),
    ("free_last", freed),
)
"""The transitions that are done in a row, and J for each."""


@dataclass(frozen=True)
class ListsDone(GhostProof):
    """No rule refuses an element of a list whose caller did as J(0) says."""

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        world = any_contents(laboratory)
        for name, statement in _LISTS:
            yield from self._of_list(world, name, statement)

    def _of_list(self, world: GhostWorld, name: str, statement: Any) -> Iterator[Bundle]:
        of = _many(world)
        arguments = _arguments(of, name)

        def run() -> Any:
            state = world.state()
            getattr(world.specification.ghost_transitions, name)(state, *arguments)
            return state

        given = [lift(part) for part in (of.done >= 0, of.done < of.many)]
        given += conjuncts(lift(statement(of, world.state(), of.done)))
        for outcome in explore(run):
            assumed = given + outcome.path.assumptions
            if outcome.refused is not None or outcome.raised is not None:
                why = outcome.refused.name if outcome.refused else str(outcome.raised)
                goals = [(f"{name} is not refused by {why}", FALSE)]
            else:
                after = statement(of, outcome.result, of.done + 1)
                goals = [("J(k + 1)", goal) for goal in conjuncts(lift(after))]
            yield Bundle(f"{name}/{outcome.path.label}", world.known, assumed, goals)

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`: J(k) and k < m can be, and J(k) can be false."""
        found = []
        for name, statement in _LISTS:
            possible, refutable = (
                any(
                    model_of(_started(world, statement, holds), 20) is not None
                    for world in small_contents(laboratory)
                )
                for holds in (True, False)
            )
            if not possible:
                found.append(f"{name}: J cannot be")
            if not refutable:
                found.append(f"{name}: J cannot be false")
        return found

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`: a step of an induction over a list is decoded into no state."""
        return iter(())

    def replay(self, found: Counterexample, specification: Any) -> Counterexample:
        """See `GhostProof`. Raises ValueError: there are none."""
        raise ValueError("an induction over a list has no counterexamples to replay")


def _started(world: GhostWorld, statement: Any, holds: bool) -> list[Any]:
    """Return what says that a list is begun, and that J(k) holds, or that it does not."""
    of = _many(world)
    begun = [lift(of.done >= 0), lift(of.done < of.many)]
    said = lift(statement(of, world.state(), of.done))
    return [*world.known, *begun, said] if holds else [*world.axioms, *begun, negation(said)]


def _many(world: GhostWorld) -> Many:
    reading = world.reading
    number = reading.sort(INT)
    request, group = z3.Const("one", reading.sort(REQUEST)), z3.Const("its", reading.sort(GROUP))
    done, many, first = (Term(z3.Const(name, number)) for name in ("done", "many", "first"))
    listed = z3.Function("listed", number, reading.sort(BLOCK))
    return Many(
        world,
        Term(request),
        Term(group),
        done,
        many,
        first,
        lambda index: Term(listed(lift(index))),
    )


def _arguments(of: Many, name: str) -> list[Any]:
    element = {"hit": of.blocks(of.done), "publish": of.done, "skip": of.done}
    return [of.request, of.group, *([element[name]] if name in element else [])]
