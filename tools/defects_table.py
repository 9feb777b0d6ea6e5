"""Write docs/defects.md: which property catches each seeded defect, and in how many calls.

python tools/defects_table.py
"""

from collections.abc import Mapping
from pathlib import Path

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defect import Defect
from kvproof.fuzz.defects import DEFECTS, load_defect
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.manager_defects import MANAGER_DEFECTS, load_manager_defect
from kvproof.fuzz.run import Flags

TABLE = Path(__file__).parents[1] / "docs" / "defects.md"
MOST_CALLS = {"pool": 8, "manager": 25}
LEVELS: dict[str, Mapping[str, Defect]] = {"pool": DEFECTS, "manager": MANAGER_DEFECTS}
HEAD = """# Seeded defects

Who tests the tests? Each line is a copy of our implementation with one thing wrong
(`kvproof.fuzz.defects`, `kvproof.fuzz.manager_defects`). `kvproof fuzz defect:NAME`, with the
switches named, reports it; the last columns say which property catches it, and in how many calls
after shrinking. Written by `python tools/defects_table.py`; the tests hold each line.
"""
TOP = """
| defect | what is wrong | switches | property | calls |
| --- | --- | --- | --- | --- |
"""


class Caught(KeyboardInterrupt):
    """The failure that was looked for. Hypothesis lets it through."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.signature)
        self.failure = failure


def catch(level: str, name: str, seed: int = 1, examples: int = 600) -> Failure | None:
    """Fuzz a defect until the property that it names is reported, in few enough calls."""
    defect = LEVELS[level][name]
    factory = load_defect(name) if level == "pool" else load_manager_defect(name)

    def judge(failure: Failure) -> None:
        if failure.property == defect.breaks and len(failure.calls) <= MOST_CALLS[level]:
            raise Caught(failure)

    try:
        run_campaign(
            factory,
            f"defect:{name}",
            flags_of(defect),
            Limits(examples=examples),
            seed=seed,
            on_failure=judge,
            level=level,
        )
    except Caught as caught:
        return caught.failure
    return None


def flags_of(defect: Defect) -> Flags:
    """Return the switches without which the defect is not judged."""
    return Flags(*(name in defect.flags for name in ("policy", "misuse", "quality")))


def table() -> str:
    """Return the text of docs/defects.md."""
    return HEAD + "".join(f"\n## Of the {level}\n{TOP}{_lines(level)}" for level in LEVELS)


def _lines(level: str) -> str:
    lines = []
    for name, defect in LEVELS[level].items():
        failure = catch(level, name)
        calls = "not caught" if failure is None else str(len(failure.calls))
        switches = " ".join(f"`--{flag}`" for flag in defect.flags)
        lines.append(f"| {name} | {defect.says} | {switches} | {defect.breaks} | {calls} |\n")
    return "".join(lines)


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
