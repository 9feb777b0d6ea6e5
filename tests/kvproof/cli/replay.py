"""`kvproof replay`: make a saved failure happen again."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kvproof.cli.counterexample import MARK, again, render
from kvproof.cli.errors import Stop
from kvproof.cli.output import say
from kvproof.cli.target import find_target
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.manager_script import engine_script as manager_script
from kvproof.fuzz.parallel import blame_target
from kvproof.fuzz.replay import LARGEST_FILE, BadReplay, load
from kvproof.fuzz.replay import replay as make
from kvproof.fuzz.report import program, property_of
from kvproof.fuzz.report import render as show
from kvproof.fuzz.vllm_script import engine_script

ENGINE_SCRIPTS: dict[tuple[str, str], Callable[..., str]] = {
    ("vllm", "pool"): engine_script,
    ("vllm", "manager"): manager_script,
}
"""For each target and level the writer of programs that import only the engine."""


@click.command()
@click.argument("file")
@click.option("--target", metavar="TARGET", help="Another target than the one in the file.")
@click.option("--script", is_flag=True, help="Print a program that needs only the engine.")
def replay(file: str, target: str | None, script: bool) -> int:
    """Make a saved failure happen again.

    FILE was saved by kvproof fuzz or by kvproof prove. Exit status 1 when it still fails, 0
    when it does not.
    """
    path = Path(file)
    value = _peek(path)
    if value is not None:
        if script or target is not None:
            raise Stop(f"{file}: a counterexample of the prover has no target and no script")
        return _replay_proof(path, value)
    failure = _load(path)
    if target is not None:
        failure.target = target
    if script:
        say(script_of(failure).rstrip())
        return 0
    return _replay_failure(failure, path)


def script_of(failure: Failure) -> str:
    """Return a program that shows the failure: of the engine only, where there is a writer for
    it. The target is not imported.
    """
    broken = property_of(failure)
    writer = ENGINE_SCRIPTS.get((failure.target, failure.level))
    if writer is None:
        head = f"# {broken.name}: {broken.says}"
        return f"{head}\n{program(failure)}"
    return writer(
        config=failure.config,
        calls=[(call.name, call.args) for call in failure.calls],
        title=f"{broken.name}: {broken.says}. When it does not hold, {broken.because}.",
        expected=failure.finding.expected,
        actual=failure.finding.actual,
    )


def _replay_failure(failure: Failure, path: Path) -> int:
    target = find_target(failure.target, failure.level)
    try:
        verdicts, broken = make(failure, target.factory)
    except Exception as error:
        blamed = blame_target(error)
        if blamed is None:
            raise
        raise Stop(blamed) from None
    finally:
        target.close()
    say(f"{path} on {target.name}: {target.about}")
    say()
    if broken is None or broken.finding is None:
        for verdict in verdicts:
            say(f"  {verdict.call} {verdict.answer}")
        say()
        say(f"HOLDS: {failure.property} is not violated by these calls", "bold green")
        return 0
    seen = replace(failure, finding=broken.finding, calls=failure.calls[: len(verdicts)], file=None)
    say(show(seen, [verdict.answer for verdict in verdicts]).rstrip())
    say()
    if seen.property != failure.property:
        say(f"the file says {failure.property}; now it is {seen.property} that breaks")
    say(f"FAILS: {seen.property} is violated", "bold red")
    return 1


def _replay_proof(path: Path, value: dict[str, Any]) -> int:
    found = again(path, value)
    say(f"{path} on the specification: {found.theorem}")
    say(f"  {found.says}")
    say(f"  stated in {found.where}")
    say(render(found))
    if found.replayed:
        say(f"FAILS: {found.theorem} is refuted by this", "bold red")
        return 1
    say(f"HOLDS: {found.theorem} is not refuted by this", "bold green")
    return 0


def _peek(path: Path) -> dict[str, Any] | None:
    """Return the object in the file when it is a counterexample of the prover."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("kvproof") == MARK else None


def _load(path: Path) -> Failure:
    if path.exists() and not path.is_file():
        raise Stop(f"{path}: not a file")
    try:
        return load(path)
    except BadReplay as error:
        raise Stop(str(error)) from None
    except Exception as error:  # a hostile file may hold anything
        says = f"{type(error).__name__}: {error}"
        raise Stop(f"{path}: it is no failure saved by kvproof ({says})") from None
