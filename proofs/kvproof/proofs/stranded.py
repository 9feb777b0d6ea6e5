"""No stranded suffix, and that each rule of its protocol is needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.proofs.calls import CALLS, Call
from kvproof.proofs.counterexamples import candidates
from kvproof.proofs.exploration import Run
from kvproof.proofs.induction import Candidate, Corollary, Induction, Laboratory
from kvproof.proofs.protocol import PROTOCOL_INVARIANT
from kvproof.proofs.solvers import Bundle
from kvproof.proofs.specification import Specification


def protocol_holds(state: Any) -> Any:
    """Say the whole invariant of the protocol."""
    holds: Any = True
    for statement in PROTOCOL_INVARIANT.values():
        holds = statement(state) & holds
    return holds


@dataclass(frozen=True)
class NoStrandedSuffix:
    """The protocol's invariant is inductive, and the property follows from it."""

    specification: Specification

    @property
    def inductive(self) -> Induction:
        """The invariant of the protocol."""
        return Induction(_protocol_after, protocol_holds, obligations=True, tables=True)

    @property
    def corollary(self) -> Corollary:
        """The property itself."""
        return Corollary(self.specification.full_attention.no_stranded_suffix, tables=True)

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `Proof`."""
        yield from self.inductive.bundles(laboratory)
        yield from self.corollary.bundles(laboratory)

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`."""
        return self.corollary.complaints(laboratory)

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`: first what breaks the property at once, then what breaks the invariant."""
        at_once = Induction(self._after, obligations=True, tables=True)
        yield from at_once.candidates(laboratory, failing)
        yield from self.inductive.candidates(laboratory, failing)
        yield from self.corollary.candidates(laboratory, failing)

    def holds(self, run: Run) -> bool:
        """See `Proof`."""
        if not run.call.name:
            return self.corollary.holds(run)
        return self.inductive.holds(run) and bool(self._after(run))

    def holds_of(self, run: Run) -> bool:
        """See `Proof`."""
        return self.corollary.holds(run)

    def _after(self, run: Run) -> Any:
        return self.specification.full_attention.no_stranded_suffix(run.after)


def _protocol_after(run: Run) -> Any:
    return protocol_holds(run.after)


@dataclass(frozen=True)
class Break:
    """A way to strand a suffix: calls of the pool that the protocol does not allow."""

    says: str
    calls: tuple[Call, ...]


BREAKS = (
    Break("evict_blocks takes away a parent", (CALLS["retract"],)),
    Break(
        "a table is freed from the front, and the parent is evicted",
        (CALLS["release"], CALLS["append"]),
    ),
    Break(
        "an entry in the middle is freed, and the parent is evicted",
        (CALLS["skip"], CALLS["append"]),
    ),
    Break("a mask leaves the parent out", (CALLS["publish"],)),
)


@dataclass(frozen=True)
class ProtocolNeeded:
    """From states of the protocol's invariant, each of the breaks strands a suffix."""

    specification: Specification

    def shown(self, laboratory: Laboratory) -> Iterator[tuple[str, Iterator[Candidate]]]:
        """For each break, its sentence and the counterexamples found."""
        for one in BREAKS:
            yield one.says, self._found(laboratory, one)

    def _found(self, laboratory: Laboratory, one: Break) -> Iterator[Candidate]:
        for world in laboratory.small_worlds(True):
            yield from candidates(world, one.calls, self._claim, [], False)

    def holds(self, run: Run) -> bool:
        """Judge a concrete run."""
        return not run.raised and not run.rule and bool(self._claim(run))

    def _claim(self, run: Run) -> Any:
        if run.answer.refused:
            return True
        return self.specification.full_attention.no_stranded_suffix(run.after)
