"""How many calls a second the oracle judges: `python tests/bench/rate.py`.

A legal sequence is recorded once on a pool of 16 blocks. Then it is made again, several
times over: the specification, the target, the observation and every property, after every
call; at manager level with the ghost contents of every step. Reported are the median and the
spread of the repetitions.
"""

import gc
import logging
import statistics
from time import perf_counter
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.impl_manager import ImplManager
from kvproof.fuzz.impl_target import factory
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.manager_layouts import LONGEST, MANAGER_LAYOUTS
from kvproof.fuzz.manager_run import ManagerRun
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.moves import Moves
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.run import Flags, Run, Verdict
from kvproof.fuzz.scheduler import Scheduler
from kvproof.fuzz.session import Session

BLOCKS = 16
CALLS = 20_000
FLAGS = Flags(policy=True)
MANAGER_FLAGS = Flags(policy=True, quality=True)


def record(layout_name: str, calls: int = CALLS, seed: bytes = b"rate") -> list[Call]:
    """Return a legal sequence of so many calls."""
    session = Session(factory, "impl", FLAGS)
    layout, made = LAYOUTS[layout_name], []
    run = session.start(layout.config(BLOCKS), layout, drain=True)
    moves, pick = Moves(session, run, layout, careful=False), RandomPick(seed)
    step = run.step

    def recording(call: Call, took: frozenset[str]) -> Verdict:
        made.append(call)
        return step(call, took)

    run.step = recording  # type: ignore[method-assign, assignment]
    while len(made) < calls:
        moves.make(pick.one(moves.possible()), pick)
    return made[:calls]


def rate(layout_name: str, calls: list[Call]) -> float:
    """Judge the sequence on a fresh pool; return calls a second."""
    run = Run(factory, LAYOUTS[layout_name].config(BLOCKS), FLAGS, True)
    step = run.step
    began = perf_counter()
    for call in calls:
        verdict = step(call)
        assert verdict.finding is None, verdict
    return len(calls) / (perf_counter() - began)


def record_lives(config: ManagerConfig, calls: int) -> list[list[Call]]:
    """Return lives of requests on fresh managers, of so many calls in all."""
    lives: list[list[Call]] = []
    while sum(map(len, lives)) < calls:
        made: list[Call] = []
        pick = RandomPick(f"rate {len(lives)}".encode())
        run = ManagerRun(ImplManager, config, MANAGER_FLAGS)

        def make(call: Call, run: ManagerRun = run, made: list[Call] = made) -> Any:
            made.append(call)
            return run.step(call).answer.value

        scheduler = Scheduler(config, make, run.world, pick, None)
        for _ in range(200):
            scheduler.act()
        lives.append(made)
    return lives


def rate_of_lives(config: ManagerConfig, lives: list[list[Call]]) -> float:
    """Judge the lives on fresh managers; return calls a second."""
    began = perf_counter()
    for calls in lives:
        step = ManagerRun(ImplManager, config, MANAGER_FLAGS).step
        for call in calls:
            verdict = step(call)
            assert verdict.finding is None, verdict
    return sum(map(len, lives)) / (perf_counter() - began)


def main() -> None:
    """Print the rates."""
    logging.getLogger("kvproof").setLevel(logging.ERROR)
    gc.disable()  # as timeit does
    for layout_name in ("one-size", "partial", "two-sizes"):
        calls = record(layout_name)
        _print(f"pool {layout_name}", [rate(layout_name, calls) for _ in range(5)], len(calls))
        gc.collect()
    for layout_name in ("full", "swa", "chunked"):
        group = MANAGER_LAYOUTS[layout_name].choices[0]
        config = ManagerConfig(BLOCKS, group, max_model_len=LONGEST)
        lives = record_lives(config, CALLS // 2)
        rates = [rate_of_lives(config, lives) for _ in range(5)]
        _print(f"manager {layout_name}", rates, sum(map(len, lives)))
        gc.collect()


def _print(name: str, rates: list[float], calls: int) -> None:
    print(
        f"{name:16s} {statistics.median(rates):8.0f} calls/s"
        f"  ({min(rates):.0f} to {max(rates):.0f}, {calls} calls, {BLOCKS} blocks)"
    )


if __name__ == "__main__":
    main()
