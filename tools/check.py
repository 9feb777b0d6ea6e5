"""`make check`: prove the core, fuzz our own pool, plant a bug and see it caught.

Every step is a run of the `kvproof` command, printed before it runs. The last lines are a
verdict that fits one screen. Exit status 0 when every step came out as it should.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

PLANTED = "removed-too-early"
"""The bug that is planted: 'removed' is told while another block still carries the key."""


def run(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a command of kvproof. Return its status, its JSON result, and what it printed."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    print(f"$ kvproof {' '.join(arguments)}", flush=True)
    command = [str(Path(sys.executable).with_name("kvproof")), *arguments, "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not result.exists():
        sys.exit(f"kvproof wrote no result (status {done.returncode}): {done.stderr.strip()}")
    return done.returncode, json.loads(result.read_text(encoding="utf-8")), done.stdout


def prove(folder: Path) -> tuple[bool, str]:
    """Prove the core theorems."""
    status, result, _ = run(folder, "prove", "--core")
    records = result["records"]
    proved = [record for record in records if record["status"] == "proved"]
    for record in records:
        if record["status"] != "proved":
            print(f"  {record['status']}: {record['name']}")
    says = f"{len(proved)} of {len(records)} core theorems proved, for any number of blocks"
    return status == 0 and bool(records), says


def fuzz(folder: Path) -> tuple[bool, str]:
    """Fuzz our own pool."""
    save = str(folder / "failures")
    status, result, _ = run(
        folder, "fuzz", "impl", "--policy", "--misuse", "--seconds", "15", "--save", save
    )
    violated = [r["name"] for r in result["records"] if r["status"] == "violated"]
    judged = [r for r in result["records"] if r["status"] in ("holds", "violated")]
    says = f"our own pool: {len(judged)} properties judged, {len(violated)} violated"
    return status == 0 and not violated, f"{says} (seed {result['seed']})"


def plant(folder: Path) -> tuple[bool, str]:
    """Plant a bug, and see it caught, shrunk and explained."""
    save = str(folder / "planted")
    target = f"defect:{PLANTED}"
    status, result, printed = run(
        folder, "fuzz", target, "--examples", "150", "--seed", "1", "--save", save
    )
    print(first_failure(printed))
    found = [r for r in result["records"] if r["status"] == "violated"]
    if status != 1 or not found:
        return False, f"the planted bug {PLANTED} was not caught"
    shortest = min(len(record["operations"]) for record in found)
    names = ", ".join(sorted({record["name"] for record in found}))
    return True, f"planted bug {PLANTED}: caught as {names}, in {shortest} operations"


def first_failure(printed: str) -> str:
    """Return the report of the first failure, indented."""
    lines = printed.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("-- failure")]
    if not starts:
        return "  (no failure was reported)"
    end = starts[1] if len(starts) > 1 else len(lines)
    report = lines[starts[0] : end]
    for number, line in enumerate(report):
        if line.startswith("saved to"):
            report = report[:number]
            break
    return "\n".join("  " + line for line in report).rstrip()


def main() -> int:
    """Run the steps and print the verdict."""
    began = monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kvproof-check-"))
    try:
        verdicts = [step(folder) for step in (prove, fuzz, plant)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\nkvproof check")
    for good, says in verdicts:
        print(f"  {'ok  ' if good else 'FAIL'}  {says}")
    good = all(good for good, _ in verdicts)
    print(f"{'HOLDS' if good else 'FAILS'} in {monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
