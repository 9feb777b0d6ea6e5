"""A campaign in several processes, each with seeds of its own, merged by signature.

A target is found again by its name in each process. What comes back is one `Session` that
holds the counts and the distinct failures of all of them.
"""

import hashlib
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from queue import Empty
from typing import Any

from hypothesis.errors import Flaky

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.levels import LEVELS
from kvproof.fuzz.run import Flags
from kvproof.fuzz.session import Irreproducible
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.target import TargetBroken
from kvproof.fuzz.targets import TargetError, resolve_for

COUNTERS = ("known_seen", "operations", "branches", "misuses")
NUMBERS = ("runs", "runs_over", "seconds_shrinking")


class JobFailed(Exception):
    """A process could not do its part. The message is one line."""


class JobCrashed(Exception):
    """A process met a bug of kvproof. The message is its traceback."""


@dataclass(frozen=True)
class Job:
    """What one process is to do."""

    number: int
    target: str
    flags: Flags
    limits: Limits
    layouts: tuple[Any, ...]
    known: tuple[str, ...]
    seed: int
    level: str


def job_seed(seed: int, job: int) -> int:
    """Return the seed of one process; `--seed` with it repeats its part alone.

    >>> job_seed(7, 0) == job_seed(7, 0) != job_seed(7, 1)
    True
    """
    digest = hashlib.sha256(f"{seed}:{job}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def run_jobs(
    target: str,
    flags: Flags,
    limits: Limits,
    layouts: Sequence[Any],
    known: Sequence[str],
    seed: int,
    jobs: int,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    on_progress: Callable[[Tally], None] = lambda session: None,
    level: str = "pool",
) -> Tally:
    """Fuzz a target in `jobs` processes. Sequences are divided among them, seconds are not.

    Raises JobFailed when a process cannot work with the target, JobCrashed when one met a bug.
    """
    context = get_context("spawn")
    messages = context.Queue()
    merged: Tally = LEVELS[level].session(_never_built, target, flags, layouts, known, seed)
    latest: dict[int, dict[str, Any]] = {}
    processes: dict[int, BaseProcess] = {}
    for number in range(jobs):
        job = Job(
            number,
            target,
            flags,
            _share(limits, number, jobs),
            tuple(layouts),
            tuple(known),
            job_seed(seed, number),
            level,
        )
        processes[number] = context.Process(target=_work, args=(job, messages), daemon=True)
    try:
        for process in processes.values():
            process.start()
        running = set(processes)
        while running:
            try:
                number, kind, value = messages.get(timeout=0.5)
            except Empty:
                _fail_if_gone(processes, running, messages)
                continue
            if kind == "failure":
                _merge_failure(merged, value, on_failure)
            elif kind == "refused":
                raise JobFailed(value)
            elif kind == "crashed":
                raise JobCrashed(value)
            else:
                latest[number] = value
                _merge_counts(merged, list(latest.values()))
                on_progress(merged)
                if kind == "done":
                    running.discard(number)
    finally:
        for process in processes.values():
            if process.pid is not None:
                process.terminate()
                process.join()
    return merged


def blame_target(error: BaseException) -> str | None:
    """Return one line that blames the target for an error, or None when kvproof is to blame.

    A target may refuse a call by raising; but it must be built, keep the protocol, and answer
    the same calls in the same way.
    """
    if isinstance(error, TargetError | TargetBroken | Irreproducible):
        return " ".join(str(error).split())
    if isinstance(error, Flaky):
        return "the same calls did not come to the same twice: a target must be deterministic"
    return None


def _share(limits: Limits, number: int, jobs: int) -> Limits:
    if limits.examples is None:
        return limits
    whole, rest = divmod(limits.examples, jobs)
    return replace(limits, examples=whole + (number < rest))


def _merge_failure(merged: Tally, failure: Failure, on_failure: Callable[[Failure], None]) -> None:
    if failure.signature not in merged.failures:
        merged.failures[failure.signature] = failure
        on_failure(failure)


def _merge_counts(merged: Tally, counts: list[dict[str, Any]]) -> None:
    for name in COUNTERS:
        total: Counter[Any] = Counter()
        for one in counts:
            total.update(one[name])
        setattr(merged, name, total)
    for name in NUMBERS:
        setattr(merged, name, sum(one[name] for one in counts))
    for signature, failure in merged.failures.items():
        failure.seen = max(sum(one["seen"].get(signature, 0) for one in counts), 1)


def _fail_if_gone(processes: dict[int, BaseProcess], running: set[int], messages: Any) -> None:
    for number in sorted(running):
        process = processes[number]
        if process.exitcode is not None and messages.empty():
            raise JobFailed(f"job {number} ended with exit code {process.exitcode}")


def _work(job: Job, messages: Any) -> None:
    def counts(session: Tally) -> dict[str, Any]:
        found = {name: dict(getattr(session, name)) for name in COUNTERS}
        found.update({name: getattr(session, name) for name in NUMBERS})
        return {**found, "seen": {name: one.seen for name, one in session.failures.items()}}

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the others
    try:
        target = resolve_for(job.level, job.target)
    except (TargetError, TargetBroken, ValueError) as error:
        messages.put((job.number, "refused", " ".join(str(error).split())))
        return
    try:
        session = run_campaign(
            target.factory,
            job.target,
            job.flags,
            job.limits,
            job.layouts,
            job.known,
            job.seed,
            lambda failure: messages.put((job.number, "failure", failure)),
            lambda session: messages.put((job.number, "progress", counts(session))),
            job.level,
        )
        messages.put((job.number, "done", counts(session)))
    except Exception as error:
        blamed = blame_target(error)
        kind, text = ("crashed", traceback.format_exc()) if blamed is None else ("refused", blamed)
        messages.put((job.number, kind, text))
    finally:
        target.close()


def _never_built(config: object) -> Any:
    raise AssertionError("a merged session has no target of its own")
