"""`kvproof prove`: proofs, failures with a counterexample that replays, and the list."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kvproof.cli import counterexample, prove
from kvproof.proofs import runner
from kvproof.proofs.specification import Edit, Specification
from kvproof.proofs.theorems import theorems

Run = Callable[..., Result]
Written = Callable[[str], dict[str, Any]]

DEFECT = Edit(
    "transitions",
    "    drop_holder(state, slot)\n    if state.ref_cnt[block] == 0:\n        count_free",
    "    drop_holder(state, slot)\n    if state.ref_cnt[block] <= 1:\n        count_free",
)
"""A block is queued while one holder is left."""


def test_proved(run: Run, written: Written) -> None:
    result = run("prove", "null_inert", "--jobs", 1, "--json", "out.json")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].startswith("proved")
    assert "HOLDS: 1 of 1 theorems proved" in result.stdout
    value = written("out.json")
    assert value["verdict"] == "holds"
    assert [(one["name"], one["status"]) for one in value["records"]] == [("null-inert", "proved")]


@pytest.mark.parametrize("status", ["unknown", "error"])
def test_anything_but_proved_fails(
    run: Run, written: Written, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    verdict = runner.Verdict("null-inert", status, 0.5, 3, detail=["a solver gave up"])

    def prove_all(names: list[str], **options: Any) -> list[runner.Verdict]:
        (theorem,) = (one for one in theorems() if one.name in names)
        options["on_result"](theorem, verdict)
        return [verdict]

    monkeypatch.setattr(prove, "prove_all", prove_all)
    result = run("prove", "null-inert", "--json", "out.json")
    assert result.exit_code == 1
    assert "FAILS: 0 of 1 theorems proved" in result.stdout
    assert "a solver gave up" in result.stdout
    value = written("out.json")
    assert value["verdict"] == "fails"
    assert value["records"][0]["status"] == status


def test_one_solver(run: Run) -> None:
    assert "with z3\n" in run("prove", "null-inert", "--solver", "z3").stdout


def test_refuted(
    run: Run, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "free-iff-unreferenced"
    monkeypatch.setattr(prove, "prove_all", partial(runner.prove_all, edits=(DEFECT,)))
    result = run("prove", name, "--jobs", 1, "--timeout", 2, "--json", "out.json")
    assert result.exit_code == 1
    for part in ("refuted", "state before", "transition", "release(slot=", "state after"):
        assert part in result.stdout
    assert "kvproof/spec/pool_properties.py:" in result.stdout
    (record,) = written("out.json")["records"]
    assert (record["name"], record["status"]) == (name, "refuted")
    file = tmp_path / record["file"]

    result = run("replay", file)
    assert result.exit_code == 0, "the specification itself has no such defect"
    assert "HOLDS" in result.stdout

    edited = partial(runner.replay, specification=Specification((DEFECT,)))
    monkeypatch.setattr(runner, "replay", edited)
    result = run("replay", file)
    assert result.exit_code == 1
    assert f"FAILS: {name} is refuted by this" in result.stdout
    assert run("replay", file, "--script").exit_code == 2

    value = json.loads(file.read_text())
    assert value["kvproof"] == counterexample.MARK
    for part in ("ref_cnt", "held", "table", "free_queue", "cached", "keys"):
        wrongs: list[Any] = [None, 3, "x", [[]], {"a": {}}]
        for wrong in wrongs:
            broken = {**value, "before": {**value["before"], part: wrong}}
            file.write_text(json.dumps(broken))
            assert run("replay", file).exit_code in (0, 1, 2)


def test_the_list(run: Run) -> None:
    text = run("prove", "--list").stdout
    names = [theorem.name for theorem in theorems()]
    assert f"{len(names)} theorems" in text
    for name in names:
        assert name in text
    core = run("prove", "--list", "--core").stdout
    assert len(core) < len(text)
