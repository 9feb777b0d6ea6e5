"""Every transition of the ghost contents, from an arbitrary state of their invariant."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from kvproof.proofs.ghost_axioms import GHOST_AXIOMS
from kvproof.proofs.ghost_readings import (
    GROUP,
    REQUEST,
    TOKENS,
    BoundedGhostReading,
    BoundedGhostUniverse,
    GhostReading,
    GhostScope,
    SymbolicGhostUniverse,
)
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.paths import Obligation, Outcome, explore
from kvproof.proofs.readings import BLOCK, INT
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import conjuncts, lift
from kvproof.spec.attention import Full, SlidingWindow
from kvproof.spec.ghost_concrete import Shape

_SORT_OF = {"request": REQUEST, "group": GROUP, "block": BLOCK, "tokens": TOKENS}


@dataclass(frozen=True)
class GhostCall:
    """One transition and its parameters."""

    name: str
    parameters: tuple[str, ...]

    def sort(self, parameter: str) -> str:
        """Return the sort of a parameter."""
        return _SORT_OF.get(parameter, INT)

    def run(self, specification: Specification, state: Any, arguments: dict[str, Any]) -> None:
        """Run the specification's own function."""
        getattr(specification.ghost_transitions, self.name)(state, *arguments.values())


_IN_GROUP = ("request", "group")
_ADMITTED = ("request", "tokens", "num_computed", "num_known")

GHOST_CALLS = {
    call.name: call
    for call in (
        GhostCall("admit", _ADMITTED),
        GhostCall("hit", (*_IN_GROUP, "block")),
        GhostCall("pad", _IN_GROUP),
        GhostCall("start", ("request",)),
        GhostCall("append", (*_IN_GROUP, "block")),
        GhostCall("schedule", _IN_GROUP),
        GhostCall("publish", (*_IN_GROUP, "index")),
        GhostCall("write", _IN_GROUP),
        GhostCall("read", (*_IN_GROUP, "reader", "position")),
        GhostCall("settle", ()),
        GhostCall("accept", _ADMITTED),
        GhostCall("skip", (*_IN_GROUP, "index")),
        GhostCall("unschedule", _IN_GROUP),
        GhostCall("fail_load", _IN_GROUP),
        GhostCall("load", _IN_GROUP),
        GhostCall("fall_back", ("request", "num_computed")),
        GhostCall("stop", ("request",)),
        GhostCall("free_last", _IN_GROUP),
        GhostCall("close", ("request",)),
        GhostCall("retract", ("block",)),
        GhostCall("reset", ()),
    )
}
"""All transitions, by name."""

GHOST_SCOPES = (
    GhostScope(3, 2, (Shape(2, Full()),), ((0, 0, 0, 0), (0, 0, 1, 0))),
    GhostScope(3, 2, (Shape(2, SlidingWindow(2)),), ((0, 0, 0, 0), (0, 1, 0, 0))),
    GhostScope(3, 1, (Shape(2, Full()), Shape(1, SlidingWindow(2))), ((0, 0), (0, 1))),
)
"""Where counterexamples are looked for: two requests, two sequences that part in the second
block or in the first, one group that forgets or does not; then two groups of one request.
"""


@dataclass(frozen=True)
class GhostRun:
    """One path of one transition: the states before and after, and what must hold on the way."""

    call: GhostCall
    before: Any
    after: Any
    assumptions: tuple[Any, ...]
    obligations: tuple[Obligation, ...]
    raised: str

    @property
    def label(self) -> str:
        """The transition."""
        return f"{self.call.name}/-"


class GhostWorld:
    """A specification under a reading: the arbitrary state, what is known of it, the runs."""

    def __init__(self, specification: Specification, reading: GhostReading) -> None:
        self.specification = specification
        self.reading = reading
        bounded = isinstance(reading, BoundedGhostReading)
        self.universe: Any = (BoundedGhostUniverse if bounded else SymbolicGhostUniverse)(reading)
        self._runs: dict[tuple[str, str], list[GhostRun]] = {}

    def state(self) -> Any:
        """Return the arbitrary state."""
        return self.specification.ghost_state.GhostState(self.universe)

    def parts(self, state: Any, only: str = "") -> dict[str, Any]:
        """Return the invariant, said of a state, by name; or one part of it."""
        invariant = self.specification.ghost_properties.CONTENTS_INVARIANT
        names = [only] if only else invariant
        return {name: lift(invariant[name](state)) for name in names}

    @cached_property
    def axioms(self) -> list[Any]:
        """What is known of blocks, prefixes and attention; in a scope, all about them."""
        if isinstance(self.universe, BoundedGhostUniverse):
            return self.universe.facts()
        return [
            part
            for axiom in GHOST_AXIOMS
            for part in conjuncts(lift(axiom.statement(self.universe)))
        ]

    @cached_property
    def known(self) -> list[Any]:
        """The axioms, and the invariant of the state before."""
        return self.axioms + [
            part for expr in self.parts(self.state()).values() for part in conjuncts(expr)
        ]

    @cached_property
    def known_ids(self) -> frozenset[int]:
        """The identities of what is known: a goal among these needs no proof."""
        return frozenset(part.get_id() for part in self.known)

    def arguments(self, call: GhostCall) -> dict[str, Any]:
        """Return arbitrary arguments."""
        return {name: self.universe.constant(name, call.sort(name)) for name in call.parameters}

    def runs(self, call: GhostCall, dropped: str = "") -> list[GhostRun]:
        """Return the paths on which no rule is broken, but for one that is dropped. They are
        computed once.
        """
        if (call.name, dropped) not in self._runs:
            self._runs[call.name, dropped] = list(self._explore(call, dropped))
        return self._runs[call.name, dropped]

    def _explore(self, call: GhostCall, dropped: str) -> Iterator[GhostRun]:
        def run() -> Any:
            state = self.state()
            call.run(self.specification, state, self.arguments(call))
            return state

        for outcome in explore(run, fork_refusals=False, dropped=dropped):
            yield self._run(call, outcome)

    def _run(self, call: GhostCall, outcome: Outcome[Any]) -> GhostRun:
        error, path = outcome.raised, outcome.path
        raised = "" if error is None else f"{type(error).__name__}: {error}"
        assumptions, obligations = tuple(path.assumptions), tuple(path.obligations)
        return GhostRun(call, self.state(), outcome.result, assumptions, obligations, raised)


@lru_cache(maxsize=4)
def any_contents(laboratory: Laboratory) -> GhostWorld:
    """Return the ghost contents of any size."""
    return GhostWorld(laboratory.specification, GhostReading())


@lru_cache(maxsize=4)
def small_contents(laboratory: Laboratory) -> tuple[GhostWorld, ...]:
    """Return the ghost contents of each scope."""
    specification = laboratory.specification
    return tuple(
        GhostWorld(specification, BoundedGhostReading(scope, specification.ghost_concrete))
        for scope in GHOST_SCOPES
    )
