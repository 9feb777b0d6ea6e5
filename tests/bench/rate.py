"""How many calls a second the oracle judges: `python tests/bench/rate.py`.

A legal sequence is recorded once on a pool of 16 blocks. Then it is made again, several
times over: the specification, the target, the observation and every property, after every
call. Reported are the median and the spread of the repetitions.
"""

import gc
import logging
import statistics
from time import perf_counter

from kvproof.fuzz.calls import Call
from kvproof.fuzz.impl_target import factory
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.moves import Moves
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.run import Flags, Run, Verdict
from kvproof.fuzz.session import Session

BLOCKS = 16
CALLS = 20_000
FLAGS = Flags(policy=True)


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


def main() -> None:
    """Print the rates."""
    logging.getLogger("kvproof").setLevel(logging.ERROR)
    gc.disable()  # as timeit does
    for layout_name in ("one-size", "partial", "two-sizes"):
        calls = record(layout_name)
        rates = sorted(rate(layout_name, calls) for _ in range(5))
        print(
            f"{layout_name:10s} {statistics.median(rates):8.0f} calls/s"
            f"  ({rates[0]:.0f} to {rates[-1]:.0f}, {len(calls)} calls, {BLOCKS} blocks)"
        )


if __name__ == "__main__":
    main()
