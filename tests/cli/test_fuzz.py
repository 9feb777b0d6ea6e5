"""`kvproof fuzz`: verdicts, reports, files, and that the same seed gives the same report."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kvproof.fuzz.properties import PROPERTIES

Run = Callable[..., Result]
Written = Callable[[str], dict[str, Any]]

BROKEN = ("fuzz", "defect:removed-untold", "--seed", "5", "--examples", "25", "--layout", "partial")
"""A target that fails quickly."""

OWN = """
import random
from kvproof.fuzz.impl_target import ImplPool, factory
from kvproof.fuzz.target import Observation

class Wild(ImplPool):
    def touch(self, blocks):
        if random.random() < 0.5:
            raise RuntimeError("sometimes")
        super().touch(blocks)

class Full(ImplPool):
    built = 0
    def __init__(self, config):
        Full.built += 1
        if Full.built > 6:
            raise MemoryError("no more pools")
        super().__init__(config)

class Small(ImplPool):
    operations = ("get_new_blocks", "free_blocks", "get_num_free_blocks")

class Shy(ImplPool):
    def observe(self):
        return Observation(num_free_blocks=self.get_num_free_blocks())

no_factory = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A module of the user's, in the current folder."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    return name


def signatures(value: dict[str, Any]) -> list[str]:
    return [one["signature"] for one in value["records"] if one["status"] == "violated"]


def test_what_holds(run: Run, written: Written, tmp_path: Path) -> None:
    result = run("fuzz", "impl", "--seed", 1, "--examples", 8, "--policy", "--json", "out.json")
    assert result.exit_code == 0
    assert "HOLDS" in result.stdout.splitlines()[-1]
    assert "seed 1: repeat with --seed 1" in result.stdout
    value = written("out.json")
    assert (value["verdict"], value["target"], value["seed"]) == ("holds", "impl", 1)
    assert {one["name"] for one in value["records"]} == set(PROPERTIES)
    statuses = {one["name"]: one["status"] for one in value["records"]}
    assert statuses["refs-exact"] == "holds"
    assert statuses["misuse-refused"] == "skipped"
    assert not (tmp_path / ".kvproof").exists()
    assert not (tmp_path / ".hypothesis").exists()


def test_what_fails(run: Run, written: Written, tmp_path: Path) -> None:
    result = run(*BROKEN, "--json", "out.json")
    assert result.exit_code == 1
    assert "events-mirror-cache is violated: safety, lost hit" in result.stdout
    assert "It says: folding the event stream" in result.stdout
    assert "a router that follows the stream" in result.stdout
    assert "pool.get_new_blocks(num_blocks=1)  # returns [1]" in result.stdout
    assert "expected   resident: {}" in result.stdout
    assert "5: kvproof fuzz defect:removed-untold --layout partial --seed 5" in result.stdout
    value = written("out.json")
    assert value["verdict"] == "fails"
    found = [one for one in value["records"] if one["status"] == "violated"]
    assert found
    for one in found:
        assert (tmp_path / one["file"]).is_file()
        assert one["seed"] == 5
        assert one["operations"][0]["op"] == "get_new_blocks"


def test_the_printed_program_runs(run: Run, tmp_path: Path) -> None:
    text = run(*BROKEN).stdout
    program = text[text.index("from kvproof") : text.index("\nexpected ")]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Observation(" in done.stdout


def test_the_report_counts_and_says_what_is_weak(run: Run) -> None:
    result = run("fuzz", "impl", "--seed", 1, "--examples", 2, "--misuse")
    assert "branches that legal calls took" in result.stdout
    assert "never taken: " in result.stdout
    assert "This run is weak" in result.stdout
    assert "misuse tried: " in result.stdout
    assert "sequences, 0 of them ended early" in result.stdout
    assert "operations a second" in result.stderr
    assert "add --policy" in result.stderr


def test_seconds_give_the_rate_on_stdout(run: Run) -> None:
    result = run("fuzz", "impl", "--seconds", "0.01", "--policy", "--quality")
    assert result.exit_code == 0
    assert "operations a second" in result.stdout
    assert "repeat with --seed" in result.stdout
    assert "no property of the block pool" not in result.stderr


@pytest.mark.parametrize("target", ["impl", "defect:touch-not-counted"])
def test_two_runs_are_identical_whatever_the_string_hashes(tmp_path: Path, target: str) -> None:
    command = [sys.executable, "-c", "from kvproof.cli import main; main()", "fuzz", target]
    command += ["--examples", "8", "--seed", "3", "--policy", "--misuse"]
    outputs = [
        subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=False,
        ).stdout
        for seed in ("1", "77")
    ]
    assert b"verdict" in outputs[0]
    assert outputs[0] == outputs[1]


def test_known_signatures_are_not_reported(run: Run, written: Written, tmp_path: Path) -> None:
    run(*BROKEN, "--json", "first.json")
    found = signatures(written("first.json"))
    (tmp_path / "known.txt").write_text("# ours\n\n" + "".join(f"{one}  # why\n" for one in found))
    result = run(*BROKEN, "--known", "known.txt", "--json", "second.json")
    assert result.exit_code == 0
    assert "is violated" not in result.stdout
    assert f"time: {found[0]}" in result.stdout.replace("times", "time")
    assert "holds but for known failures" in result.stdout
    assert written("second.json")["verdict"] == "holds"


def test_expected_signatures(run: Run, written: Written, tmp_path: Path) -> None:
    run(*BROKEN, "--json", "first.json")
    found = signatures(written("first.json"))
    expect = tmp_path / "expect.json"

    expect.write_text(json.dumps({"signatures": found}))
    result = run(*BROKEN, "--expect", expect, "--json", "out.json")
    assert result.exit_code == 0
    assert "exactly what was expected" in result.stdout
    assert written("out.json")["verdict"] == "holds"

    expect.write_text(json.dumps([*found, "refs-exact:touch:held"]))
    result = run(*BROKEN, "--expect", expect, "--json", "out.json")
    assert result.exit_code == 1
    assert "expected, and not seen: refs-exact:touch:held" in result.stdout
    assert written("out.json")["verdict"] == "fails"

    expect.write_text("")
    result = run(*BROKEN, "--expect", expect)
    assert result.exit_code == 1
    assert f"new, and not expected: {found[0]}" in result.stdout


@pytest.mark.parametrize(
    "text", ["[1]", "{}", '{"signatures": 3}', "[", "no signature", "[" * 100_000, "\x00:\x00"]
)
def test_a_file_of_signatures_that_is_none(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "known.txt").write_text(text)
    assert run("fuzz", "impl", "--known", "known.txt").exit_code == 2
    (tmp_path / "known.txt").write_bytes(b"\xff\xfe:" + text.encode())
    assert run("fuzz", "impl", "--known", "known.txt").exit_code == 2


def test_only_the_chosen_properties_are_reported(run: Run, written: Written) -> None:
    result = run(*BROKEN, "--property", "Refs_Exact", "--json", "out.json")
    assert result.exit_code == 0
    assert "not reported, as --property asks: failures of events-mirror-cache" in result.stdout
    assert [one["name"] for one in written("out.json")["records"]] == ["refs-exact"]
    assert run(*BROKEN, "--property", "events-mirror-cache").exit_code == 1


def test_a_property_of_another_class_is_judged(run: Run, written: Written) -> None:
    result = run("fuzz", "impl", "--examples", 2, "--property", "order-rule", "--json", "out.json")
    assert "judged as with --policy" in result.stderr
    assert [one["status"] for one in written("out.json")["records"]] == ["holds"]


def test_layouts(run: Run) -> None:
    result = run("fuzz", "impl", "--examples", 2, "--layout", "caching-off", "--layout", "FULL")
    assert "layouts caching-off, full" in result.stdout


def test_a_module_and_what_it_lacks(run: Run, written: Written, own: str) -> None:
    result = run("fuzz", f"{own}:factory", "--examples", 3, "--seed", 1)
    assert result.exit_code == 0
    result = run("fuzz", f"{own}:Small", "--examples", 3, "--seed", 1, "--json", "out.json")
    assert result.exit_code == 0
    assert "the target does not have touch" in result.stdout
    reasons = {one["name"]: one.get("reason") for one in written("out.json")["records"]}
    assert reasons["events-mirror-cache"] == "the target has no take_events"


def test_what_a_target_does_not_show_is_not_judged(run: Run, written: Written, own: str) -> None:
    result = run("fuzz", f"{own}:Shy", "--examples", 3, "--seed", 1, "--json", "out.json")
    assert result.exit_code == 0
    assert "the target does not show free, ref_cnt, keys, index, hooks" in result.stdout
    reasons = {one["name"]: one.get("reason") for one in written("out.json")["records"]}
    assert reasons["refs-exact"] == "the target does not show ref_cnt"
    assert reasons["hit-backed"] is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_factory", "cannot be called"),
        ("missing", "has no 'missing'"),
        ("Wild", "deterministic"),
        ("Full", "no more pools"),
    ],
)
def test_a_target_that_cannot_be_judged(
    run: Run, written: Written, own: str, name: str, says: str
) -> None:
    options = ("--examples", 30, "--seed", 1, "--json", "out.json")
    result = run("fuzz", f"{own}:{name}", *options)
    assert result.exit_code == 2
    assert says in result.stderr
    value = written("out.json")
    assert value["verdict"] == "error"
    assert says in value["message"]


def test_errors_go_to_the_json_file_too(run: Run, written: Written) -> None:
    run("fuzz", "exec:cat", "--level", "manager", "--json", "out.json")
    value = written("out.json")
    assert value["verdict"] == "error"
    assert "use --level pool" in value["message"]


def test_jobs(run: Run, written: Written) -> None:
    result = run(*BROKEN, "--jobs", 2, "--json", "out.json")
    assert result.exit_code == 1
    value = written("out.json")
    assert len(set(signatures(value))) == len(signatures(value)) >= 1
    assert value["seed"] == 5


def test_a_job_that_cannot_be_done(run: Run, own: str) -> None:
    result = run("fuzz", f"{own}:Full", "--jobs", 2, "--examples", 60)
    assert result.exit_code == 2
    assert "no more pools" in result.stderr
