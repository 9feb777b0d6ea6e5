"""Programs behind a pipe: right ones, wrong ones, and those that do not keep the protocol."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproof.fuzz import exec_target
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.exec_target import ExecError, ExecPool, ExecTarget, ProgramEnded
from kvproof.fuzz.replay import replay
from kvproof.fuzz.run import Flags
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.target import PoolConfig, TargetBroken
from kvproof.fuzz.targets import Target, TargetError, resolve

JAVASCRIPT = Path(__file__).parent / "examples" / "pool.js"

SERVER = """
import json, sys, time
from dataclasses import asdict
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.target import PoolConfig, RequestView

pool = None
for number, line in enumerate(sys.stdin):
    call = json.loads(line)
    op = call.pop("op")
    try:
        if op == "start":
            call["block_sizes"] = {int(g): size for g, size in call["block_sizes"].items()}
            pool = ImplPool(PoolConfig(**call))
            value = list(pool.operations)
        elif op == "observe":
            seen = pool.observe()
            value = asdict(seen)
            value["index"] = [[h, g, blocks] for (h, g), blocks in seen.index.items()]
        else:
            if "request" in call:
                call["request"] = RequestView(**call["request"])
            value = getattr(pool, op)(**call)
        answer = {"ok": value}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    #EDIT
    print(json.dumps(answer), flush=True)
"""
"""Our own pool as a program. `#EDIT` is where a test makes it wrong."""


def command(tmp_path: Path, edit: str = "pass", text: str = SERVER) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(text.replace("#EDIT", edit))
    return [sys.executable, str(path)]


@pytest.fixture
def programs() -> Iterator[list[ExecTarget]]:
    started: list[ExecTarget] = []
    yield started
    for program in started:
        program.close()


def start(programs: list[ExecTarget], words: list[str]) -> ExecPool:
    programs.append(ExecTarget(words))
    return programs[-1].start(PoolConfig(4))


def fuzz(target: Target, flags: Flags, examples: int) -> Tally:
    try:
        return run_campaign(target.factory, target.name, flags, Limits(examples=examples), seed=1)
    finally:
        target.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_pool_in_javascript_holds() -> None:
    session = fuzz(resolve(f"exec:node {JAVASCRIPT}"), Flags(policy=True), 15)
    assert not session.failures
    assert session.operations["cache_full_blocks"] > 5
    assert session.operations["take_events"] == 0
    assert len(JAVASCRIPT.read_text().splitlines()) <= 100


def test_a_pool_in_python_holds(tmp_path: Path) -> None:
    target = resolve("exec:" + " ".join(command(tmp_path)))
    session = fuzz(target, Flags(policy=True, misuse=True), 8)
    assert not session.failures
    assert session.operations["take_events"] > 5
    assert session.misuses.total() > 5


def test_what_is_wrong_with_it_is_reported_and_replayed(tmp_path: Path) -> None:
    wrong = "if op == 'get_num_free_blocks': answer['ok'] += 1"
    target = resolve("exec:" + " ".join(command(tmp_path, wrong)))
    try:
        session = run_campaign(target.factory, target.name, Flags(), Limits(examples=15), seed=1)
        assert "blocks-conserved:get_num_free_blocks:called" in session.failures
        assert {one.property for one in session.failures.values()} == {"blocks-conserved"}
        failure = next(iter(session.failures.values()))
        assert replay(failure, target.factory)[1] is not None
    finally:
        target.close()


def test_a_crash_in_a_legal_call_is_a_failure(tmp_path: Path) -> None:
    crash = "if op == 'evict_blocks': sys.exit('out of luck')"
    session = fuzz(resolve("exec:" + " ".join(command(tmp_path, crash))), Flags(), 5)
    assert session.failures
    assert {failure.property for failure in session.failures.values()} == {"legal-accepted"}
    for failure in session.failures.values():
        assert failure.calls[-1].name == "evict_blocks"
        assert "ended (status 1)" in failure.finding.actual


def test_one_that_hangs_is_ended_and_started_again(
    tmp_path: Path, programs: list[ExecTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = start(programs, command(tmp_path, "if op == 'touch': time.sleep(60)"))
    monkeypatch.setattr(exec_target, "ANSWER_WITHIN", 1.0)
    with pytest.raises(ProgramEnded, match="did not answer 'touch' in 1 s"):
        pool.touch([1])
    with pytest.raises(ProgramEnded):
        pool.observe()
    monkeypatch.setattr(exec_target, "ANSWER_WITHIN", 20.0)
    del pool
    assert programs[-1].start(PoolConfig(4)).get_num_free_blocks() == 3


def test_one_that_says_nothing_more_is_ended(tmp_path: Path, programs: list[ExecTarget]) -> None:
    silent = "if op == 'touch': sys.stdout.flush(); import os; os.close(1); time.sleep(60)"
    pool = start(programs, command(tmp_path, silent))
    with pytest.raises(ProgramEnded, match="ended"):
        pool.touch([1])
    del pool
    assert programs[-1].start(PoolConfig(4)).get_num_free_blocks() == 3


def test_two_pools_at_once(tmp_path: Path, programs: list[ExecTarget]) -> None:
    first = start(programs, command(tmp_path))
    second = programs[-1].start(PoolConfig(4))
    first.get_new_blocks(2)
    assert (first.get_num_free_blocks(), second.get_num_free_blocks()) == (1, 3)


NO_TARGET = {
    "no such program": ["/no/such/program"],
    "a folder": ["/"],
    "it ends at once": [sys.executable, "-c", "pass"],
    "it fails at once": [sys.executable, "-c", "raise ValueError('two\\nlines')"],
    "no JSON": [
        sys.executable,
        "-c",
        "import sys; [print('hello', flush=True) for _ in sys.stdin]",
    ],
    "no object": [sys.executable, "-c", "import sys; [print('[]', flush=True) for _ in sys.stdin]"],
    "nested JSON": [
        sys.executable,
        "-c",
        "import sys; [print('[' * 100000, flush=True) for _ in sys.stdin]",
    ],
    "binary": [
        sys.executable,
        "-c",
        "import sys; [sys.stdout.buffer.write(b'\\xff\\x00\\n') for _ in sys.stdin]",
    ],
}
ANSWERS = {
    "start is refused": "answer = {'error': 'not today'}",
    "start answers nothing": "answer = {'ok': None}",
    "start answers other operations": "answer = {'ok': ['get_new_blocks', 'fly']}",
    "start answers no operation": "answer = {'ok': []}",
    "start answers no texts": "answer = {'ok': [1]}",
    "what is shown is a list": "answer = answer if op == 'start' else {'ok': []}",
    "what is shown has another form": "answer = answer if op == 'start' else {'ok': {'free': 1}}",
}


def refused(words: list[str]) -> str:
    with pytest.raises(TargetError) as raised:
        resolve(
            "exec:" + " ".join(f"'{word}'" if "'" not in word else f'"{word}"' for word in words)
        )
    text = str(raised.value)
    assert len(text.splitlines()) == 1, text
    return text


@pytest.mark.parametrize("name", NO_TARGET)
def test_it_is_no_target(name: str) -> None:
    refused(NO_TARGET[name])


@pytest.mark.parametrize("name", ANSWERS)
def test_its_answer_is_none(name: str, tmp_path: Path) -> None:
    refused(command(tmp_path, ANSWERS[name]))


@pytest.mark.parametrize("text", ["exec:", "exec:  ", "exec:'"])
def test_there_is_no_command(text: str) -> None:
    with pytest.raises(TargetError, match="exec"):
        resolve(text)


@pytest.mark.parametrize("answer", ["'hello'", "'{}'", "'[1]'", "'null'"])
def test_an_answer_that_is_none_ends_the_campaign(answer: str, tmp_path: Path) -> None:
    garbage = f"if op == 'touch': print({answer}, flush=True); continue"
    target = resolve("exec:" + " ".join(command(tmp_path, garbage)))
    with pytest.raises(TargetBroken, match="the answer to 'touch'") as raised:
        fuzz(target, Flags(), 30)
    assert isinstance(raised.value, ExecError)
    assert len(str(raised.value).splitlines()) == 1
