"""The programs that a manager's errata print run on the real vLLM, and show what is on record."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import pytest

from kvproof.cli.replay import script_of
from kvproof.fuzz.replay import load

ERRATA = Path(__file__).parents[2] / "docs" / "errata" / "vllm-0.25.1"
FILES = [
    path
    for path in sorted(ERRATA.glob("*.json"))
    if json.loads(path.read_text(encoding="utf-8"))["kvproof"] == "manager-failure"
]

found = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)

SHOWS = {
    "promise-kept-after-preemption": "get_computed_blocks(a) -> [[[1]], 4]",
    "promise-kept-after-failed-load": "get_computed_blocks(b) -> [[[1]], 4]",
    "window-lost-to-drafts": "tables:         {'a': [[0, 2, 3]]}",
    "window-lost-to-whole-load": "tables:         {'a': [[0, 1]]}",
    "common-by-references": "get_num_common_prefix_blocks(b) -> [1]",
}
"""What the output of some must have: the wrong answer itself."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_runs_and_shows_the_erratum(path: Path) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script_of(load(path)), str(path), "exec"), {"__name__": "__main__"})
    assert "vLLM 0.25.1" in printed.getvalue()
    assert "Error" not in printed.getvalue()
    assert SHOWS.get(path.stem, "") in printed.getvalue()
