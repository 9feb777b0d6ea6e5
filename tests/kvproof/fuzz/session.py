"""What one fuzzing session knows: its target, its counts, and the failures found so far."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.calls import Call
from kvproof.fuzz.failure import Failure, Signature, signature
from kvproof.fuzz.layouts import LAYOUTS, Layout
from kvproof.fuzz.run import Flags, Run, Verdict
from kvproof.fuzz.shrink import Handed, Step, absolute, fewer_blocks, relative, shrink
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.target import PoolConfig, PoolFactory


class Session(Tally):
    """Runs calls, counts them, and turns findings into distinct, shrunk failures."""

    def __init__(
        self,
        factory: PoolFactory,
        target: str,
        flags: Flags,
        layouts: Sequence[Layout] = tuple(LAYOUTS.values()),
        known: Sequence[str] = (),
        seed: int = 0,
        deadline: float | None = None,
        on_failure: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        super().__init__(target, flags, known, seed, deadline, on_failure)
        self.factory, self.layouts = factory, list(layouts)
        self._explained: dict[Signature, str] = {}
        self._paths: list[Signature] = []
        self._misuse_failed: set[str] = set()
        self._avoided: tuple[Signature, ...] = ()
        self._misuse_avoided: frozenset[str] = frozenset()
        self._calls: list[Call] = []
        self._answers: list[Any] = []
        self._layout = self.layouts[0]

    def begin_batch(self) -> None:
        """Let careful runs keep off the failures found so far.

        Within a batch they are fixed: what Hypothesis draws must depend on its choices only.
        """
        self._avoided = tuple(self._paths)
        self._misuse_avoided = frozenset(self._misuse_failed)

    def start(self, config: PoolConfig, layout: Layout, drain: bool) -> Run:
        """Begin a sequence on a fresh pool. Raises Stopped when no more are wanted."""
        if self.stopped:
            raise Stopped
        self._layout, self._calls, self._answers = layout, [], []
        self.runs += 1
        run = self._fresh(config, drain)
        if run.start is not None:
            self._found_at_start(run)
        return run

    def call(self, run: Run, call: Call, careful: bool, kind: str | None = None) -> Any:
        """Make a call and judge it. A careful run keeps off paths that are known to fail.

        Return the target's answer, or None when nothing was called or the call was refused.
        """
        if run.over or call.name not in run.target.operations:
            return None
        took = run.branches(call)
        if careful and self._leads_to_failure(call, took):
            return None
        verdict = run.step(call, took)
        if not verdict.legal and not self.flags.misuse:
            run.over = True  # the model took it for legal before an answer that came meanwhile
            self.runs_over += 1
            return None
        self._calls.append(call)
        self._answers.append(verdict.answer.value)
        self.operations[call.name] += 1
        if kind is not None and verdict.rule is not None:
            self.misuses[kind] += 1
        elif verdict.legal:
            self.branches.update((call.name, branch) for branch in verdict.branches)
        if verdict.finding is not None:
            self.runs_over += run.over
            self._found(run, verdict)
            if kind is not None:
                self._misuse_failed.add(kind)
        return verdict.answer.value

    def may_misuse(self, kind: str, careful: bool) -> bool:
        """A kind of misuse that has failed is not tried again in careful runs."""
        return not (careful and kind in self._misuse_avoided)

    def never_taken(self) -> list[str]:
        """Return the operations and branches that no legal call has taken."""
        return [
            f"{operation}:{branch}"
            for operation, names in BRANCHES.items()
            for branch in names
            if not self.branches[operation, branch] and self._possible(operation, branch)
        ]

    def _possible(self, operation: str, branch: str) -> bool:
        caching = any(layout.enable_caching for layout in self.layouts)
        partial = any(
            size > layout.hash_block_size and layout.enable_caching
            for layout in self.layouts
            for size in layout.block_sizes.values()
        )
        groups = any(len(layout.block_sizes) > 1 for layout in self.layouts)
        free_use = any(not layout.protocol for layout in self.layouts)
        if operation in ("cache_full_blocks", "cache_partial_block") and not caching:
            return False
        if operation == "cache_partial_block" or branch == "promotes":
            return partial and free_use
        if branch == "several-groups":
            return groups
        return free_use and (caching or operation in ("get_new_blocks", "touch", "free_blocks"))

    def _fresh(self, config: PoolConfig, drain: bool) -> Run:
        return Run(self.factory, config, self.flags, drain, self._layout.protocol)

    def _leads_to_failure(self, call: Call, took: frozenset[str]) -> bool:
        return any(path.operation == call.name and path.path <= took for path in self._avoided)

    def _found_at_start(self, run: Run) -> None:
        assert run.start is not None
        mark = Signature(run.start.property, "new", frozenset(), frozenset())
        self._explain(mark, mark, run.start, run.config, [])

    def _found(self, run: Run, verdict: Verdict) -> None:
        mark = signature(verdict, run.config)
        if mark in self._explained:
            self.count(self._explained[mark])
            return
        began = monotonic()
        calls, last, config = self._shrink(run, mark)
        self.seconds_shrinking += monotonic() - began
        assert last.finding is not None
        self._explain(mark, signature(last, config), last.finding, config, calls)

    def _explain(
        self, mark: Signature, short: Signature, finding: Any, config: PoolConfig, calls: list[Call]
    ) -> None:
        name = str(short)
        if mark not in self._explained and short not in self._explained and name not in self.known:
            failure = Failure(
                name,
                finding,
                self._layout.name,
                config,
                self.flags,
                calls,
                self.target,
                self.seed,
                self._layout.protocol,
            )
            self.report(failure)
        else:
            self.count(name)
        if short not in self._paths and calls:
            self._paths.append(short)
        self._explained[mark] = self._explained[short] = name

    def _shrink(self, run: Run, mark: Signature) -> tuple[list[Call], Verdict, PoolConfig]:
        steps = relative(self._calls, self._answers)
        drain, config = run.drain, run.config
        if not drain and self._fails(steps, config, True, mark) is not None:
            drain = True

        def fails(candidate: list[Step]) -> bool:
            return self._fails(candidate, config, drain, mark) is not None

        if not fails(steps):
            raise Irreproducible(mark, self._calls)
        steps = shrink(steps, fails)
        smaller = self._smaller_pool(steps, config, drain, mark)
        while smaller is not None:
            steps, config = smaller
            steps = shrink(steps, fails)
            smaller = self._smaller_pool(steps, config, drain, mark)
        failed = self._fails(steps, config, drain, mark)
        if failed is None:
            raise Irreproducible(mark, self._calls)
        return (*failed, config)

    def _smaller_pool(
        self, steps: list[Step], config: PoolConfig, drain: bool, mark: Signature
    ) -> tuple[list[Step], PoolConfig] | None:
        for num_blocks in range(1, config.num_gpu_blocks):
            smaller = replace(config, num_gpu_blocks=num_blocks)
            for candidate in fewer_blocks(steps, config.num_gpu_blocks - num_blocks):
                if self._fails(candidate, smaller, drain, mark) is not None:
                    return candidate, smaller
        return None

    def _fails(
        self, steps: list[Step], config: PoolConfig, drain: bool, mark: Signature
    ) -> tuple[list[Call], Verdict] | None:
        """Make the calls on a fresh pool; return those up to the failure of this kind."""
        run, calls = self._fresh(config, drain), []
        handed: dict[Handed, int] = {}
        for step in steps:
            call = absolute(step, handed)
            if call is None:
                continue
            verdict = run.step(call, run.branches(call))
            calls.append(call)
            if not verdict.legal and not self.flags.misuse:
                return None
            if verdict.finding is not None and run.over | self._is(verdict, mark, config):
                return (calls, verdict) if self._is(verdict, mark, config) else None
            if step.allocation is not None and isinstance(verdict.answer.value, list):
                handed.update(
                    (Handed(step.allocation, position), block)
                    for position, block in enumerate(verdict.answer.value)
                )
        return None

    def _is(self, verdict: Verdict, mark: Signature, config: PoolConfig) -> bool:
        found = signature(verdict, config)
        by_event = found.property == "events-mirror-cache" == mark.property
        return found.property == mark.property and (
            (found.operation == mark.operation and found.path <= mark.path)
            or (by_event and mark.operation == "take_events")
        )


class Stopped(KeyboardInterrupt):
    """No more sequences are wanted. Hypothesis takes it for the user's wish, and stops."""


class Irreproducible(Exception):
    """A failure did not come back on a fresh target: the target keeps state between pools, or
    behaves at random.
    """

    def __init__(self, mark: Signature, calls: list[Call]) -> None:
        super().__init__(
            f"the failure {mark} did not come back when the same {len(calls)} calls were made on a"
            " fresh target; a target must be deterministic and keep nothing between pools"
        )
