"""Each seeded defect is caught by the property that it names; what has none is left alone."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kvproof.fuzz import impl_target
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defects import DEFECTS, load_defect
from kvproof.fuzz.impl_manager import ImplManager
from kvproof.fuzz.manager_defects import MANAGER_DEFECTS, load_manager_defect
from kvproof.fuzz.replay import replay
from kvproof.fuzz.run import Flags

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "defects.md"


def _tool() -> Any:
    path = ROOT / "tools" / "defects_table.py"
    spec = importlib.util.spec_from_file_location("defects_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


@pytest.mark.parametrize("name", DEFECTS)
def test_it_is_caught(name: str) -> None:
    failure = tool.catch("pool", name)
    assert failure is not None
    assert failure.property == DEFECTS[name].breaks
    assert len(failure.calls) <= tool.MOST_CALLS["pool"]
    verdict = replay(failure, load_defect(name))[1]
    assert verdict is not None
    assert verdict.finding is not None
    assert verdict.finding.property == failure.property
    assert replay(failure, impl_target.factory)[1] is None


@pytest.mark.parametrize("name", MANAGER_DEFECTS)
def test_it_is_caught_in_a_manager(name: str) -> None:
    failure = tool.catch("manager", name)
    assert failure is not None
    assert failure.property == MANAGER_DEFECTS[name].breaks
    verdict = replay(failure, load_manager_defect(name))[1]
    assert verdict is not None
    assert verdict.finding is not None
    assert verdict.finding.property == failure.property
    assert replay(failure, ImplManager)[1] is None


@pytest.mark.parametrize("seed", range(3))
def test_the_implementation_has_none(seed: int) -> None:
    flags = Flags(policy=True, misuse=True)
    session = run_campaign(impl_target.factory, "impl", flags, Limits(examples=40), seed=seed)
    assert not session.failures
    assert session.runs == 40


def test_the_table_has_a_line_for_each() -> None:
    rows = [line.split(" | ") for line in TABLE.read_text().splitlines() if " | " in line]
    found = {row[0].removeprefix("| "): (row[1], row[3]) for row in rows if "---" not in row[0]}
    del found["defect"]
    known = {**DEFECTS, **MANAGER_DEFECTS}
    assert found == {name: (defect.says, defect.breaks) for name, defect in known.items()}


@pytest.mark.slow
def test_the_table_is_fresh() -> None:
    assert TABLE.read_text() == tool.table(), "python tools/defects_table.py writes it anew"
