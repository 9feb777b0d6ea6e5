"""The same seed and number of sequences give the same report."""

import os
import subprocess
import sys

import pytest

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defects import load_defect
from kvproof.fuzz.run import Flags
from kvproof.fuzz.tally import Tally

PROGRAM = """
import json
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defects import load_defect
from kvproof.fuzz.run import Flags
name = "removed-too-early"
session = run_campaign(
    load_defect(name), name, Flags(policy=True, misuse=True), Limits(examples=25), seed=9
)
print(json.dumps([
    {name: failure.as_json() for name, failure in session.failures.items()},
    {name: failure.seen for name, failure in session.failures.items()},
    session.operations, session.misuses, session.runs, session.runs_over,
    sorted([*branch, count] for branch, count in session.branches.items()),
    session.never_taken(),
], indent=0))
"""


def counts(session: Tally) -> list[object]:
    return [
        {name: (failure.as_json(), failure.seen) for name, failure in session.failures.items()},
        session.operations,
        session.branches,
        session.misuses,
        session.known_seen,
        session.runs,
        session.runs_over,
        session.never_taken(),
    ]


@pytest.mark.parametrize("name", ["stored-orphan", "double-free"])
def test_twice_in_one_process(name: str) -> None:
    flags, limits = Flags(policy=True, misuse=True), Limits(examples=15)
    first, second = (
        counts(run_campaign(load_defect(name), name, flags, limits, seed=8)) for _ in range(2)
    )
    assert first == second
    assert first[0]


def test_in_two_processes_with_other_string_hashes() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "4711")
    ]
    assert outputs[0] == outputs[1]
    assert '"events-mirror-cache' in outputs[0]


def test_another_seed_gives_other_sequences() -> None:
    limits = Limits(examples=10)
    first, second = (
        run_campaign(load_defect("double-free"), "", Flags(), limits, seed=seed).operations
        for seed in (1, 2)
    )
    assert first != second
