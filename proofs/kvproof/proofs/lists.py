"""Lists of any length: freeing a list is a fold of single releases, by induction.

`free_blocks` first releases the surplus references (those that leave another behind), then
the last references of blocks with a key from the front of the list to its end, then those of
blocks without one from the end to the front. For each of the three there is a statement
J(k) that holds before the first release, is kept by the k-th, and says after the last one
what is wanted. The list is an arbitrary function from positions to blocks; nothing bounds
its length.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.proofs.containers import SymbolicMap, arbitrary
from kvproof.proofs.effects import effects_exact
from kvproof.proofs.exploration import Run, World
from kvproof.proofs.induction import Candidate, Induction, Laboratory
from kvproof.proofs.paths import Outcome, explore
from kvproof.proofs.readings import BLOCK, INT
from kvproof.proofs.solvers import Bundle
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import FALSE, Term, conjuncts, lift
from kvproof.spec.logic import forall, iff, implies


class Listed:
    """An arbitrary list of `length` blocks, released one by one from the state `start`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.u = world.universe
        self.start = world.state("start.")
        self.now = world.state()
        self.length = Term(z3.Int("length"))
        self.at = SymbolicMap(arbitrary(world.reading, "listed", (INT,), world.reading.sort(BLOCK)))
        self.left = SymbolicMap(arbitrary(world.reading, "left", (BLOCK, INT), z3.IntSort()))
        """How often a block is listed from a position on."""
        self.place_of = SymbolicMap(arbitrary(world.reading, "place_of", (BLOCK,), z3.IntSort()))
        """Where a block is listed, if it is."""

    @property
    def places(self) -> Any:
        """The positions of the list."""
        return self.u.below(self.length)

    def kept_apart(self, now: Any) -> Any:
        """The keys are as before; what was queued is queued, in the same order."""
        start = self.start
        return forall(
            (self.u.blocks, self.u.blocks),
            lambda one, other: implies(
                start.free_queue.has(one) & start.free_queue.has(other),
                now.free_queue.has(one)
                & iff(now.free_queue.before(one, other), start.free_queue.before(one, other)),
            ),
        ) & forall(self.u.blocks, lambda block: now.block_hash[block] == start.block_hash[block])

    def distinct(self) -> Any:
        """No block is listed twice, and none is the null block."""
        return forall(
            self.places,
            lambda i: (self.at[i] != self.u.null) & (self.place_of[self.at[i]] == i),
        )


Statement = Callable[[Listed, Any, Any], Any]


@dataclass(frozen=True)
class Phase:
    """One of the three loops. `step` is +1 when it goes from the front to the end, -1 when
    it goes from the end to the front; k is where it stands.
    """

    name: str
    step: int
    given: Callable[[Listed], Any]
    invariant: Statement
    wanted: Callable[[Listed, Any], Any]


def _surplus_given(it: Listed) -> Any:
    return forall(
        it.places,
        lambda i: (it.at[i] != it.u.null) & (it.start.ref_cnt[it.at[i]] > it.left[it.at[i], 0]),
    )


def _surplus(it: Listed, now: Any, k: Any) -> Any:
    return it.kept_apart(now) & forall(
        it.u.blocks,
        lambda block: (
            iff(now.free_queue.has(block), it.start.free_queue.has(block))
            & (
                now.ref_cnt[block]
                == it.start.ref_cnt[block] - it.left[block, 0] + it.left[block, k]
            )
        ),
    )


def _surplus_wanted(it: Listed, now: Any) -> Any:
    start = it.start
    return forall(
        it.u.blocks,
        lambda block: now.ref_cnt[block] == start.ref_cnt[block] - it.left[block, 0],
    ) & forall(
        (it.u.blocks, it.u.blocks),
        lambda one, other: iff(
            now.free_queue.before(one, other), start.free_queue.before(one, other)
        ),
    )


def _last_given(keyed: bool) -> Callable[[Listed], Any]:
    def given(it: Listed) -> Any:
        no_key = it.u.no_key
        return it.distinct() & forall(
            it.places,
            lambda i: (
                (it.start.ref_cnt[it.at[i]] == 1)
                & iff(it.start.block_hash[it.at[i]] == no_key, not keyed)
            ),
        )

    return given


def _last(keyed: bool) -> Statement:
    """Return J: the blocks passed stand behind (keyed) or before (not) all that was queued."""

    def invariant(it: Listed, now: Any, k: Any) -> Any:
        u, start = it.u, it.start

        def passed(i: Any) -> Any:
            return (i < k) if keyed else (i >= k)

        def joined(block: Any, i: Any) -> Any:
            first, second = (block, it.at[i]) if keyed else (it.at[i], block)
            return implies(
                passed(i) & start.free_queue.has(block), now.free_queue.before(first, second)
            )

        def same(block: Any) -> Any:
            return (now.ref_cnt[block] == start.ref_cnt[block]) & iff(
                now.free_queue.has(block), start.free_queue.has(block)
            )

        return (
            it.kept_apart(now)
            & forall(
                it.places,
                lambda i: (
                    implies(passed(i), now.free_queue.has(it.at[i]))
                    & (passed(i) | (now.ref_cnt[it.at[i]] == 1))
                ),
            )
            & forall(
                (it.places, it.places),
                lambda i, j: implies(
                    passed(i) & passed(j) & (i < j),
                    now.free_queue.before(it.at[i], it.at[j]),
                ),
            )
            & forall((u.blocks, it.places), joined)
            & forall(
                u.blocks,
                lambda block: (
                    same(block)
                    | (it.place_of[block] >= 0)
                    & (it.place_of[block] < it.length)
                    & (it.at[it.place_of[block]] == block)
                ),
            )
        )

    return invariant


def _last_wanted(keyed: bool) -> Callable[[Listed, Any], Any]:
    """Return the order rule for lists, as one equation for the order of the whole queue."""

    def wanted(it: Listed, now: Any) -> Any:
        u, start = it.u, it.start

        def old(block: Any) -> Any:
            return start.free_queue.has(block)

        return (
            forall(
                (u.blocks, u.blocks),
                lambda one, other: implies(
                    old(one) & old(other),
                    iff(now.free_queue.before(one, other), start.free_queue.before(one, other)),
                ),
            )
            & forall(
                (it.places, it.places),
                lambda i, j: iff(now.free_queue.before(it.at[i], it.at[j]), i < j),
            )
            & forall(
                (u.blocks, it.places),
                lambda block, i: implies(
                    old(block),
                    now.free_queue.before(block, it.at[i])
                    if keyed
                    else now.free_queue.before(it.at[i], block),
                ),
            )
        )

    return wanted


PHASES = (
    Phase("surplus references", 1, _surplus_given, _surplus, _surplus_wanted),
    Phase("last references, keyed", 1, _last_given(True), _last(True), _last_wanted(True)),
    Phase("last references, no key", -1, _last_given(False), _last(False), _last_wanted(False)),
)


@dataclass(frozen=True)
class FoldOfReleases:
    """The theorem about `free_blocks` (see `kvproof.proofs.induction.Proof`).

    A list of any length has no small counterexample; what breaks the fold is shown by one
    release that breaks the order rule or has another effect.
    """

    specification: Specification

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """For each phase: J holds at the start, is kept, and is enough at the end."""
        for phase in PHASES:
            yield from self._phase(phase, laboratory)

    def _phase(self, phase: Phase, laboratory: Laboratory) -> Iterator[Bundle]:
        world = laboratory.pool
        it = Listed(world)
        zero = Term(z3.IntVal(0))
        first, last = (zero, it.length) if phase.step > 0 else (it.length, zero)
        given = world.axioms + conjuncts(lift(phase.given(it))) + [lift(it.length >= 0)]
        starts = world.invariant_of(it.start)
        label = f"free_blocks, {phase.name}"

        goals = _named("start", phase.invariant(it, it.start, first))
        yield Bundle(f"{label}: start", given, starts, goals)

        k = Term(z3.Int("k"))
        position = k if phase.step > 0 else k - 1
        block = it.at[position]
        kept = [
            *given,
            *conjuncts(lift(phase.invariant(it, it.now, k))),
            *_counted(it, position, block),
            lift((position >= 0) & (position < it.length)),
        ]
        for outcome in _release(world, block):
            path = f"{label}: step/{outcome.path.label}"
            assumptions = kept + outcome.path.assumptions
            if outcome.result is None:
                goals = [("the release is accepted", FALSE)]
                yield Bundle(path, world.known, assumptions, goals)
                continue
            after = phase.invariant(it, outcome.result, k + phase.step)
            goals = _named("step", after)
            yield Bundle(path, world.known, assumptions, goals)

        ended = [
            *given,
            *conjuncts(lift(phase.invariant(it, it.now, last))),
            lift(forall(it.u.blocks, lambda block: it.left[block, it.length] == 0)),
        ]
        goals = _named("end", phase.wanted(it, it.now))
        yield Bundle(f"{label}: end", world.known, ended, goals)

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`. The statements are this module's own; the tests seed defects."""
        return []

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`."""
        yield from Induction(self._one).candidates(laboratory, "release")

    def holds(self, run: Run) -> bool:
        """See `Proof`."""
        return not run.raised and bool(self._one(run))

    def holds_of(self, run: Run) -> bool:
        """See `Proof`."""
        return self.holds(run)

    def _one(self, run: Run) -> Any:
        return self.specification.steps.order_rule(run.step) & effects_exact(run)


def _named(says: str, statement: Any) -> list[tuple[str, Any]]:
    return [(says, goal) for goal in conjuncts(lift(statement))]


def _counted(it: Listed, position: Any, block: Any) -> list[Any]:
    """Return what `left` means, at one position: this block once more than after it."""
    after = position + 1
    return [
        lift(
            forall(
                it.u.blocks,
                lambda other: (
                    (it.left[other, after] >= 0)
                    & (
                        it.left[other, position]
                        == it.left[other, after] + (other == block).ite(1, 0)
                    )
                ),
            )
        )
    ]


def _release(world: World, block: Any) -> Iterator[Outcome[Any]]:
    """Release the last holder of a block, as `BlockPool.free_blocks` does."""
    release = world.specification.transitions.release

    def run() -> Any:
        state = world.state()
        release(state, state.holder[block, state.ref_cnt[block] - 1])
        return state

    return explore(run)
