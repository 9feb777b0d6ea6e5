"""Are the errata still true? Run in the environment of `make vllm VERSION=...`.

    .venv-vllm-0.25.1/bin/python tools/errata.py            exit 1 when one is not
    .venv-vllm-0.25.1/bin/python tools/errata.py --write    write what is seen now to the files

Each file of docs/errata/vllm-VERSION holds the shortest calls of one erratum. They are made
again on the installed vLLM, and must come to the same signature.
"""

import sys
from dataclasses import replace
from pathlib import Path

from kvproof.fuzz.failure import Failure, signature
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.manager_marks import manager_signature
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.replay import load, replay, save
from kvproof.fuzz.run import Run
from kvproof.fuzz.targets import resolve, resolve_manager

ERRATA = Path(__file__).parents[1] / "docs" / "errata"


def seen_now(failure: Failure) -> tuple[str, Finding | None]:
    """Make the calls on the installed vLLM; return the last one's signature and finding."""
    if isinstance(failure.config, ManagerConfig):
        verdict = replay(failure, resolve_manager("vllm").factory)[1]
        if verdict is None or verdict.finding is None:
            return "nothing", None
        name = verdict.finding.property
        return str(manager_signature(name, failure.calls, failure.config)), verdict.finding
    run = Run(resolve("vllm").factory, failure.config, failure.flags, True, failure.protocol)
    name, found = "nothing", None
    for call in failure.calls:
        verdict = run.step(call, run.branches(call))
        found = verdict.finding
        name = "nothing" if found is None else str(signature(verdict, failure.config))
    return name, found


def main() -> int:
    """Check each file, or write it anew."""
    version = resolve("vllm").about.split(",")[0].removeprefix("vLLM ").split("+")[0]
    files = sorted((ERRATA / f"vllm-{version}").glob("*.json"))
    if not files:
        print(f"no errata of vLLM {version} are on record")
        return 2
    wrong = 0
    for path in files:
        failure = load(path)
        name, found = seen_now(failure)
        if "--write" in sys.argv and found is not None:
            save(replace(failure, signature=name, finding=found), path.parent).rename(path)
        elif name != failure.signature:
            print(f"{path.name}: {failure.signature} is on record, {name} is seen")
            wrong += 1
    print(f"{len(files) - wrong} of {len(files)} errata of vLLM {version} are as on record")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
