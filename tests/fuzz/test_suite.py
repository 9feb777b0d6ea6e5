"""`PoolMachine` in somebody's test suite, run as they run it."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kvproof.fuzz
from kvproof.fuzz import Observation, PoolConfig, PoolMachine, PoolTarget, RequestView
from kvproof.fuzz.defects import load_defect
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.targets import TargetError

SUITE = """
from kvproof.fuzz import PoolMachine
from kvproof.fuzz.impl_target import ImplPool


class Forgetful(ImplPool):
    def evict_blocks(self, blocks):
        pass


class TestRight(PoolMachine):
    target = ImplPool
    examples = 10


class TestNamed(PoolMachine):
    target = "impl"
    policy = misuse = True
    layouts = ["partial"]
    examples = 10


class TestWrong(PoolMachine):
    target = Forgetful
    layouts = ["one-size"]
    examples = 25


class TestKnown(TestWrong):
    known = ["index-agrees:evict_blocks:keyed", "index-agrees:evict_blocks:keyed+queued",
             "index-agrees:evict_blocks:keyed+unkeyed", "index-agrees:evict_blocks:duplicate"]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_engine.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_engine.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return folder, done.stdout


def test_what_holds_passes_and_what_does_not_fails(ran: tuple[Path, str]) -> None:
    output = ran[1]
    assert "FAILED test_engine.py::TestWrong::test_pool" in output
    for name in ("TestRight", "TestNamed", "TestKnown"):
        assert f"{name}::test_pool" not in output
    assert "1 failed, 3 passed" in output


def test_the_message_has_a_program_that_shows_it(ran: tuple[Path, str]) -> None:
    folder, output = ran
    lines = [line[1:].strip() for line in output.splitlines() if line.startswith("E ")]
    assert "index-agrees is violated: safety, wrong data" in "\n".join(lines)
    begin = next(n for n, line in enumerate(lines) if line.startswith("from "))
    end = next(n for n, line in enumerate(lines) if line.startswith("expected "))
    program = "\n".join(lines[begin:end])
    assert "from test_engine import Forgetful as factory" in program
    assert "pool.evict_blocks(" in program
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "index={('" in done.stdout  # the key is there still


def machine(**settings: Any) -> PoolMachine:
    made: PoolMachine = type("Some", (PoolMachine,), {"examples": 5, **settings})()
    return made


def build(config: PoolConfig) -> ImplPool:
    return ImplPool(config)


@pytest.mark.parametrize(
    "target",
    [
        ImplPool,
        build,
        staticmethod(build),
        lambda config: ImplPool(config),
        partial(build),
        load_defect("lookup-last"),
        "impl",
    ],
    ids=["class", "function", "staticmethod", "lambda", "partial", "defect", "name"],
)
def test_anything_that_builds_a_pool_is_a_target(target: Any) -> None:
    machine(target=target).test_pool()
    inherited = type("Other", (type(machine(target=target)),), {})
    inherited().test_pool()


def test_what_is_judged_is_chosen() -> None:
    machine(target="defect:lookup-last", examples=40).test_pool()
    with pytest.raises(AssertionError, match="first-inserted is violated"):
        machine(target="defect:lookup-last", examples=40, policy=True).test_pool()


def test_a_machine_needs_a_target() -> None:
    with pytest.raises(TargetError, match="Some needs a target"):
        machine().test_pool()
    with pytest.raises(TargetError, match="unknown target"):
        machine(target="none").test_pool()


def test_the_package_gives_what_a_suite_needs() -> None:
    names = {"Observation", "PoolConfig", "PoolMachine", "PoolTarget", "RequestView"}
    names |= {"GroupConfig", "ManagerConfig", "ManagerMachine", "ManagerObservation"}
    names |= {"ManagerTarget"}
    assert set(kvproof.fuzz.__all__) == names <= set(dir(kvproof.fuzz))
    assert {one.__name__ for one in (Observation, PoolConfig, PoolMachine, PoolTarget)} < names
    assert RequestView([0, 1], ["0.1"]).tokens == [0, 1]
    with pytest.raises(AttributeError, match="no attribute 'none'"):
        kvproof.fuzz.none  # noqa: B018


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, kvproof.fuzz; from kvproof.fuzz import PoolConfig; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "hypothesis" not in done.stdout.split()
