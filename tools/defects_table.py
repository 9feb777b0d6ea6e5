"""Write docs/defects.md: which property catches each seeded defect, and in how many calls.

python tools/defects_table.py
"""

from pathlib import Path

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defect import Defect
from kvproof.fuzz.defects import DEFECTS, load_defect
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.run import Flags

TABLE = Path(__file__).parents[1] / "docs" / "defects.md"
MOST_CALLS = 8
HEAD = """# Seeded defects

Who tests the tests? Each line is a copy of our implementation with one thing wrong
(`kvproof.fuzz.defects`). `kvproof fuzz defect:NAME`, with the switches named, reports it; the
last columns say which property catches it, and in how many calls after shrinking. Written by
`python tools/defects_table.py`; the tests hold each line.

| defect | what is wrong | switches | property | calls |
| --- | --- | --- | --- | --- |
"""


class Caught(KeyboardInterrupt):
    """The failure that was looked for. Hypothesis lets it through."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.signature)
        self.failure = failure


def catch(name: str, seed: int = 1, examples: int = 600) -> Failure | None:
    """Fuzz a defect until the property that it names is reported, in few enough calls."""
    defect = DEFECTS[name]

    def judge(failure: Failure) -> None:
        if failure.property == defect.breaks and len(failure.calls) <= MOST_CALLS:
            raise Caught(failure)

    try:
        run_campaign(
            load_defect(name),
            f"defect:{name}",
            flags_of(defect),
            Limits(examples=examples),
            seed=seed,
            on_failure=judge,
        )
    except Caught as caught:
        return caught.failure
    return None


def flags_of(defect: Defect) -> Flags:
    """Return the switches without which the defect is not judged."""
    return Flags("policy" in defect.flags, "misuse" in defect.flags)


def table() -> str:
    """Return the text of docs/defects.md."""
    lines = []
    for name, defect in DEFECTS.items():
        failure = catch(name)
        calls = "not caught" if failure is None else str(len(failure.calls))
        switches = " ".join(f"`--{flag}`" for flag in defect.flags)
        lines.append(f"| {name} | {defect.says} | {switches} | {defect.breaks} | {calls} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
