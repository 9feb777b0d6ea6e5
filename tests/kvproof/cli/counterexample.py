"""Counterexamples of the prover: as text, in a file, and out of it."""

import importlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvproof.cli.errors import Stop, one_line
from kvproof.cli.records import VERSION

if TYPE_CHECKING:
    from kvproof.proofs.counterexamples import Counterexample

MARK = "proof-counterexample"
"""What a file of this kind says in its field `kvproof`."""

GHOSTS = ("rank", "holder", "place", "block_at")
"""Parts of a state that only the proofs need."""


def render(found: "Counterexample") -> str:
    """Write a counterexample: the state before, the transition, the state after."""
    calls = [
        f"{one['call']}({', '.join(f'{k}={v!r}' for k, v in one['arguments'].items())})"
        for one in found.operations
    ]
    lines = ["  state before", *_state(found.before, None)]
    lines += ["  transition", *(f"    {call}" for call in calls), f"    {found.outcome or 'none'}"]
    if found.after is not None:
        lines += ["  state after (what has changed)", *_state(found.after, found.before)]
    broken = ", ".join(found.broken) or (found.theorem if found.replayed else "nothing")
    lines.append(f"  broken: {broken}")
    return "\n".join(lines)


def _state(state: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    shown = {
        name: value
        for name, value in state.items()
        if (name not in GHOSTS if before is None else before.get(name) != value)
    }
    return [f"    {name:<16} {_value(value)}" for name, value in shown.items()] or ["    nothing"]


def _value(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 400 else text[:397] + "..."


def save(found: "Counterexample", folder: Path) -> Path:
    """Write a counterexample to a file named after its theorem. Return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"theorem-{found.theorem}.json"
    value = {"kvproof": MARK, "format": 1, "version": VERSION, **asdict(found)}
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return path


def again(path: Path, value: dict[str, Any]) -> "Counterexample":
    """Run a saved counterexample on the specification. Raises Stop when it is none."""
    try:
        counterexamples = importlib.import_module("kvproof.proofs.counterexamples")
        runner = importlib.import_module("kvproof.proofs.runner")
    except ImportError as error:
        raise Stop(f"replaying a proof needs {error.name}, which is not installed") from None
    names = counterexamples.Counterexample.__dataclass_fields__
    fields = {name: value[name] for name in names if name in value}
    _check(path, fields, value)
    try:
        found: Counterexample = runner.replay(json.dumps(fields))
        return found
    except Exception as error:  # what the file says of a state may be anything
        says = one_line(f"{type(error).__name__}: {error}")[:200]
        raise Stop(f"{path}: it describes no state that can be replayed: {says}") from None


def _check(path: Path, fields: dict[str, Any], value: dict[str, Any]) -> None:
    kinds = {"theorem": str, "says": str, "where": str, "operations": list, "before": dict}
    if value.get("format") != 1:
        raise Stop(f"{path}: format {value.get('format')!r} is not known; this reads 1")
    for name, kind in kinds.items():
        if not isinstance(fields.get(name), kind):
            raise Stop(f"{path}: {name} is missing or of the wrong kind")
    for one in fields["operations"]:
        fits = isinstance(one, dict) and isinstance(one.get("arguments"), dict)
        if not fits or not isinstance(one.get("call"), str):
            raise Stop(f"{path}: an operation needs a call and its arguments")
    blocks = fields["before"].get("num_blocks")
    if not isinstance(blocks, int) or not 0 < blocks <= 1000:
        raise Stop(f"{path}: before.num_blocks must be 1 .. 1000")
