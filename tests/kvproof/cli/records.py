"""The file that `--json` writes: one object, as docs/json-schema.json describes it."""

import importlib.metadata
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import click

from kvproof.cli import interrupt
from kvproof.cli.errors import Stop, one_line

VERSION = importlib.metadata.version("kvproof")


@dataclass
class Result:
    """What a command came to, as it is written to the file."""

    command: str
    target: str | None = None
    seed: int | None = None
    verdict: str = "error"
    message: str | None = None
    records: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def recorded(path: str | None, result: Result) -> Iterator[Result]:
    """Write the result when the command ends, also when it ends with an error.

    Raises Stop at once when the file cannot be written.
    """
    if path is None:
        yield result
        return
    file = Path(path)
    _open(file)
    began = monotonic()
    try:
        yield result
    except BaseException as error:
        result.verdict, result.message = "error", _message(error)
        _write(file, result, monotonic() - began)
        raise
    _write(file, result, monotonic() - began)


def _message(error: BaseException) -> str:
    if interrupt.seen() or isinstance(error, KeyboardInterrupt | click.Abort):
        return "stopped"
    if isinstance(error, Stop):
        return one_line(str(error))
    return one_line(f"internal error: {type(error).__name__}: {error}")


def _open(file: Path) -> None:
    try:
        with file.open("a", encoding="utf-8"):
            pass
    except (OSError, ValueError) as error:
        raise Stop(f"cannot write {file}: {reason(error)}") from None


def _write(file: Path, result: Result, seconds: float) -> None:
    value: dict[str, Any] = {
        "command": result.command,
        "version": VERSION,
        "target": result.target,
        "seed": result.seed,
        "seconds": round(seconds, 3),
        "verdict": result.verdict,
        "records": result.records,
    }
    if result.message is not None:
        value["message"] = result.message
    try:
        file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise Stop(f"cannot write {file}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Say in a few words why a file cannot be used."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
