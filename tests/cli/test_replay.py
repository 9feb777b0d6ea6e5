"""`kvproof replay`: failures come back, scripts run, and hostile files give one line."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kvproof.fuzz.calls import Call, call_from_json
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.replay import save
from kvproof.fuzz.report import program, render
from kvproof.fuzz.run import Flags
from kvproof.fuzz.target import PoolConfig

Run = Callable[..., Result]

REQUEST = {"tokens": [0, 0, 1, 1]}
KEYED = Call(
    "cache_full_blocks",
    {
        "request": REQUEST,
        "blocks": [1, 2],
        "num_cached_blocks": 0,
        "num_full_blocks": 2,
        "block_size": 2,
        "group": 0,
        "block_mask": [True, True],
    },
)
CALLS = [
    Call("get_new_blocks", {"num_blocks": 2}),
    KEYED,
    Call("get_cached_block", {"block_hash": "0.0", "groups": [0]}),
    Call("touch", {"blocks": [1]}),
]


def failure(target: str) -> Failure:
    finding = Finding("refs-exact", "a count is wrong", "ref_cnt [0, 2]", "ref_cnt [0, 1]")
    return Failure(
        "refs-exact:touch:held", finding, "one-size", PoolConfig(4), Flags(), CALLS, target, 7
    )


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], Path]:
    return lambda target: save(failure(target), tmp_path)


def test_a_failure_comes_back(run: Run, saved: Callable[[str], Path]) -> None:
    result = run("replay", saved("defect:touch-not-counted"))
    assert result.exit_code == 1
    assert "refs-exact is violated" in result.stdout
    assert "expected   ref_cnt [0, 2, 1, 0]" in result.stdout


def test_a_failure_is_gone(run: Run, saved: Callable[[str], Path]) -> None:
    result = run("replay", saved("defect:touch-not-counted"), "--target", "impl")
    assert result.exit_code == 0
    assert "HOLDS" in result.stdout


def test_another_property_may_break(run: Run, saved: Callable[[str], Path]) -> None:
    result = run("replay", saved("defect:hit-loses-hash"), "--target", "defect:last-unit-refused")
    assert result.exit_code == 1
    assert "now it is legal-accepted that breaks" in result.stdout


def test_the_target_must_be_there(run: Run, saved: Callable[[str], Path]) -> None:
    assert run("replay", saved("no_such_module:Pool")).exit_code == 2


@pytest.mark.parametrize("target", ["impl", "defect:touch-not-counted", "no_such:Pool", "exec:x"])
def test_a_script_without_an_engine_is_of_the_protocol(
    run: Run, saved: Callable[[str], Path], target: str
) -> None:
    result = run("replay", saved(target), "--script")
    assert result.exit_code == 0
    ast.parse(result.stdout)
    assert "PoolConfig(num_gpu_blocks=4)" in result.stdout


def test_the_script_runs(run: Run, saved: Callable[[str], Path]) -> None:
    script = run("replay", saved("defect:touch-not-counted"), "--script").stdout
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ref_cnt=[0, 1, 1, 0]" in done.stdout


def test_the_script_for_vllm_needs_no_vllm_here(run: Run, saved: Callable[[str], Path]) -> None:
    result = run("replay", saved("vllm"), "--script")
    assert result.exit_code == 0
    ast.parse(result.stdout)
    assert "kvproof.fuzz" not in result.stdout
    assert "BlockPool" in result.stdout


def test_programs_of_every_kind_of_target() -> None:
    for target in ("impl", "vllm", "a.b:make", "a:Cls.make", "exec:./x 'y'", "odd name", "a:b c"):
        ast.parse(program(failure(target)))
    assert "from a.b import make as factory" in program(failure("a.b:make"))
    assert "factory = Cls.make" in program(failure("a:Cls.make"))
    assert "resolve(" in program(failure("exec:./x 'y'"))


def test_a_report_without_answers() -> None:
    text = render(failure("impl"))
    assert "pool.touch(blocks=[1])\n" in text
    assert "seed       7\n" in text


def _changed(**changes: Any) -> str:
    return json.dumps({**failure("impl").as_json(), **changes})


HOSTILE = {
    "empty": "",
    "no json": "hello",
    "a list": "[]",
    "a number": "3",
    "deep": "[" * 200_000,
    "deep object": '{"a":' * 100_000,
    "another object": '{"kvproof": "other"}',
    "huge number": "1" * 10_000,
    "property": _changed(property="nonsense"),
    "property of a wrong kind": _changed(property=[]),
    "format": _changed(format=9),
    "no operations": _changed(operations=None),
    "unknown operation": _changed(operations=[{"op": "explode"}]),
    "operation of a wrong kind": _changed(operations=[{"op": []}]),
    "wrong argument": _changed(operations=[{"op": "get_new_blocks", "num_blocks": "1"}]),
    "missing argument": _changed(operations=[{"op": "touch"}]),
    "extra argument": _changed(operations=[{"op": "take_events", "x": 1}]),
    "flags": _changed(flags=[]),
    "pool": _changed(pool=[]),
    "target": _changed(target=3),
    "target that is none": _changed(target="\x00"),
    "proof without anything": '{"kvproof": "proof-counterexample"}',
    "proof of nothing": '{"kvproof": "proof-counterexample", "format": 1, "theorem": "x",'
    ' "says": "", "where": "", "operations": [], "before": {"num_blocks": 2}}',
    "proof with a wrong call": '{"kvproof": "proof-counterexample", "format": 1, "theorem":'
    ' "refs-exact", "says": "", "where": "", "operations": [{"call": "x", "arguments": {}}],'
    ' "before": {"num_blocks": 2}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gives_one_line(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "hostile.json"
    file.write_text(HOSTILE[name])
    result = run("replay", file)
    assert result.exit_code == 2
    assert len(result.stderr) < 1000


def test_a_binary_file_gives_one_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "binary.json"
    file.write_bytes(bytes(range(256)) * 100)
    assert run("replay", file).exit_code == 2


def test_a_file_that_is_too_large(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as stream:
        stream.truncate(17 * 1024 * 1024)
    assert run("replay", file).exit_code == 2


def test_a_device_is_no_file(run: Run) -> None:
    assert run("replay", "/dev/zero").exit_code == 2


def test_the_documented_operations_can_be_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "replay-format.md").read_text()
    start = text.index('    {"op"')
    shown = text[start : text.index("`reset_prefix_cache`")]
    decoder, found = json.JSONDecoder(), []
    while shown.strip():
        value, end = decoder.raw_decode(shown.lstrip())
        shown = shown.lstrip()[end:]
        found.append(call_from_json(value).name)
    assert len(found) == 7
