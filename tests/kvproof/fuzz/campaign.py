"""Running the state machine: so many sequences, or for so long.

Hypothesis draws the sequences; nothing raises inside it, so that one campaign finds many
defects. Shrinking works on the recorded calls (`kvproof.fuzz.shrink`): that costs a
fraction of a second for each failure, and leaves exactly what is reported, saved and
replayed.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from kvproof.fuzz.failure import Failure
from kvproof.fuzz.levels import LEVELS, Level
from kvproof.fuzz.run import Flags
from kvproof.fuzz.session import Stopped
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.target import TargetBroken

BATCH = 25
"""Sequences that Hypothesis draws from one seed."""


@dataclass(frozen=True)
class Limits:
    """When a campaign ends: after so many seconds, or after so many sequences."""

    seconds: float | None = None
    examples: int | None = None


def run_campaign(
    factory: Callable[[Any], Any],
    target: str,
    flags: Flags,
    limits: Limits,
    layouts: Sequence[Any] = (),
    known: Sequence[str] = (),
    seed: int = 0,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    on_progress: Callable[[Tally], None] = lambda session: None,
    level: str = "pool",
) -> Tally:
    """Fuzz a target and return the session, with its failures and counts. Without `layouts` all
    of the level are drawn from; `factory` builds what the level is about.

    The same seed gives the same sequences; `limits.seconds` only cuts them off.
    """
    deadline = None if limits.seconds is None else monotonic() + limits.seconds
    fuzzed = LEVELS[level]
    shapes = layouts or tuple(fuzzed.layouts.values())
    session: Tally = fuzzed.session(
        factory, target, flags, shapes, known, seed, deadline, on_failure
    )
    session.most_runs = limits.examples
    batch = 0
    with _quiet():
        while not session.stopped:
            with contextlib.suppress(Stopped):
                _run_batch(session, fuzzed, f"{seed}:{batch}")
            batch += 1
            on_progress(session)
    return session


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Refused resets are routine here; afterwards they are logged again."""
    logger = logging.getLogger("kvproof")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _run_batch(session: Tally, fuzzed: Level, seed: str) -> None:
    session.begin_batch()
    machine = hypothesis_seed(seed)(type("Fuzzed", (fuzzed.rules,), {"session": session}))
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=BATCH,
                stateful_step_count=fuzzed.length,
                phases=[Phase.generate],
                database=None,
                deadline=None,
                verbosity=Verbosity.quiet,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Flaky as error:
        raise TargetBroken(
            "the target answers the same calls in different ways; a target must be deterministic"
            " and keep nothing between pools"
        ) from error
