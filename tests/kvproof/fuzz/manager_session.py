"""One fuzzing session at manager level: its target, its counts, and the failures found so far."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.failure import Failure, Signature
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.manager_handle import OPTIONAL
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS, ManagerLayout
from kvproof.fuzz.manager_marks import circumstances, covers, features_of, manager_signature
from kvproof.fuzz.manager_run import ManagerRun, ManagerVerdict
from kvproof.fuzz.manager_shrink import shrink
from kvproof.fuzz.manager_target import ManagerConfig, ManagerFactory
from kvproof.fuzz.repair import repaired
from kvproof.fuzz.run import Flags
from kvproof.fuzz.scheduler import BRANCHES
from kvproof.fuzz.session import Irreproducible, Stopped
from kvproof.fuzz.tally import Tally

PATIENCE = 3
"""How many failures that may be known ones are shrunk, and are, before they are only counted."""


NEEDS = {
    "deferred-free": "pop_blocks_for_free",
    "evicted": "evict_blocks",
    "reset-done": "reset_prefix_cache",
    "reset-refused": "reset_prefix_cache",
}
"""Situations that do not come about when the target lacks an operation."""


class RunOver(Exception):
    """A broken property leaves nothing to judge in this run."""


class ManagerSession(Tally):
    """Runs calls, counts them, and turns findings into distinct, shrunk failures."""

    def __init__(
        self,
        factory: ManagerFactory,
        target: str,
        flags: Flags,
        layouts: Sequence[ManagerLayout] = tuple(MANAGER_LAYOUTS.values()),
        known: Sequence[str] = (),
        seed: int = 0,
        deadline: float | None = None,
        on_failure: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        super().__init__(target, flags, known, seed, deadline, on_failure)
        self.factory, self.layouts = factory, list(layouts)
        self._layout = self.layouts[0]
        self._calls: list[Call] = []
        self._lacks: set[str] = set()
        self._in_vain: Counter[tuple[tuple[str, str], frozenset[str]]] = Counter()

    def start(self, config: ManagerConfig, layout: ManagerLayout) -> ManagerRun:
        """Begin a life of requests on a fresh manager. Raises Stopped when no more are wanted."""
        if self.stopped:
            raise Stopped
        self._layout, self._calls = layout, []
        self.runs += 1
        run = ManagerRun(self.factory, config, self.flags)
        self._lacks = {name for name in OPTIONAL if not run.handle.has(name)}
        return run

    def call(self, run: ManagerRun, call: Call) -> Any:
        """Make a call and judge it. Return the target's answer; None when it cannot be given such
        a call. Raises RunOver when nothing is left to judge.
        """
        verdict = run.step(call)
        if verdict.rule is not None:
            raise AssertionError(f"the scheduler breaks {verdict.rule.name}: {call}")
        if not verdict.made:
            return None
        self._calls.append(call)
        self.operations[call.name] += 1
        if verdict.finding is not None:
            self.runs_over += run.over
            self._found(run, verdict, verdict.finding)
        if run.over:
            raise RunOver
        return verdict.answer.value

    def end(self, run: ManagerRun, branches: Counter[str]) -> None:
        """A run has ended; count the situations that its scheduler came to."""
        self.branches.update({("scheduler", name): n for name, n in branches.items()})

    def never_taken(self) -> list[str]:
        """Return the situations that no run came to."""
        missed = [name for name in BRANCHES if not self.branches["scheduler", name]]
        return [name for name in missed if NEEDS.get(name, "free") not in self._lacks]

    def _found(self, run: ManagerRun, verdict: ManagerVerdict, finding: Finding) -> None:
        coarse = finding.property, verdict.call.name
        features = features_of(finding.property, run.config)
        broad = Signature(*coarse, circumstances(self._calls), features)
        known = self._covering(broad)
        if known is not None and self._in_vain[coarse, features] >= PATIENCE:
            self.count(known)
            return
        began = monotonic()
        calls, config, last = self._shrunk(run.config, coarse)
        self.seconds_shrinking += monotonic() - began
        short = manager_signature(finding.property, calls, config)
        known = self._covering(short)
        if known is not None:
            self._in_vain[coarse, features] += 1
            self.count(known)
            return
        name, layout = str(short), self._layout.name
        self.report(Failure(name, last, layout, config, self.flags, calls, self.target, self.seed))

    def _covering(self, wanted: Signature) -> str | None:
        """Return a signature that was found or is known, and explains this one."""
        names = (*self.failures, *sorted(self.known))
        return next((name for name in names if covers(name, wanted)), None)

    def _shrunk(
        self, config: ManagerConfig, coarse: tuple[str, str]
    ) -> tuple[list[Call], ManagerConfig, Finding]:
        def remade(calls: Sequence[Call], other: ManagerConfig) -> list[Call] | None:
            found = self._fails(calls, other, coarse)
            return None if found is None else found[0]

        first = remade(self._calls, config)
        if first is None:
            mark = Signature(*coarse, circumstances(self._calls))
            raise Irreproducible(mark, self._calls)
        calls, config = shrink(first, config, remade)
        failed = self._fails(calls, config, coarse)
        assert failed is not None
        return failed[0], config, failed[1]

    def _fails(
        self, calls: Sequence[Call], config: ManagerConfig, coarse: tuple[str, str]
    ) -> tuple[list[Call], Finding] | None:
        """Make the calls on a fresh manager, as far as they make sense there; return those up
        to the failure of this kind, and what it is.
        """
        made: list[Call] = []
        for verdict in lived(ManagerRun(self.factory, config, self.flags), calls):
            made.append(verdict.call)
            finding = verdict.finding
            if finding is not None and (finding.property, verdict.call.name) == coarse:
                return made, finding
        return None


def lived(run: ManagerRun, calls: Sequence[Call]) -> Iterator[ManagerVerdict]:
    """Make recorded calls, as far as they make sense in this run, until it is over."""
    for recorded in calls:
        call = repaired(run, recorded)
        verdict = None if call is None or run.over else run.step(call)
        if verdict is not None and verdict.made:
            yield verdict
