"""Saving failures and making them happen again (see docs/replay-format.md)."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvproof.fuzz.calls import BadCall, Call, Outcome, call_from_json
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.levels import LEVELS
from kvproof.fuzz.manager_calls import manager_call_from_json
from kvproof.fuzz.manager_run import ManagerRun, ManagerVerdict
from kvproof.fuzz.manager_session import lived
from kvproof.fuzz.manager_target import BadConfig, ManagerConfig, config_from_json
from kvproof.fuzz.run import Flags, Run, Verdict
from kvproof.fuzz.target import PoolConfig, PoolFactory

LARGEST_FILE = 16 * 1024 * 1024
LARGEST_POOL = 1_000_000


class BadReplay(ValueError):
    """A file is no replay file. The message is one line and names the part that is wrong."""


def save(failure: Failure, folder: Path) -> Path:
    """Write a failure to a file of its own, named after target and signature. Return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    named = f"{failure.target} {failure.signature}"
    name = "".join(c if c.isalnum() or c == "-" else "_" for c in named)[:150]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(failure.as_json(), indent=1) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Failure:
    """Read a failure. Raises BadReplay."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise BadReplay(f"larger than {LARGEST_FILE} bytes")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadReplay(f"{path}: {error.strerror or error}") from None
    except BadReplay as error:
        raise BadReplay(f"{path}: {error}") from None
    except (ValueError, RecursionError):
        raise BadReplay(f"{path}: not a JSON file") from None
    try:
        return _failure(value)
    except (BadReplay, BadCall, BadConfig) as error:
        raise BadReplay(f"{path}: {error}") from None


AnyVerdict = Verdict | ManagerVerdict


def replay(
    failure: Failure, factory: Callable[[Any], Any]
) -> tuple[Sequence[AnyVerdict], AnyVerdict | None]:
    """Make the calls again on a fresh target.

    Return the verdicts up to the one that breaks a property, and that one, if any does: the
    last call's when it breaks the same property again, else the first. A failure without calls
    is one of a new pool.
    """
    if isinstance(failure.config, ManagerConfig):
        run = ManagerRun(factory, failure.config, failure.flags)
        return _up_to_the_failure(failure, list(lived(run, failure.calls)))
    return _replay_pool(failure, failure.config, factory)


def _replay_pool(
    failure: Failure, config: PoolConfig, factory: PoolFactory
) -> tuple[Sequence[AnyVerdict], AnyVerdict | None]:
    run = Run(factory, config, failure.flags, True, failure.protocol)
    if run.start is not None and not failure.calls:
        new = Call("new", {})
        return [], Verdict(new, frozenset(), None, Outcome(), run.start)
    verdicts: list[Verdict] = []
    for call in failure.calls:
        verdicts.append(run.step(call))
        if run.over:
            break
    return _up_to_the_failure(failure, verdicts)


def _up_to_the_failure(
    failure: Failure, verdicts: Sequence[AnyVerdict]
) -> tuple[Sequence[AnyVerdict], AnyVerdict | None]:
    last = verdicts[-1].finding if len(verdicts) == len(failure.calls) and verdicts else None
    if last is not None and last.property == failure.property:
        return verdicts, verdicts[-1]
    for number, verdict in enumerate(verdicts, 1):
        if verdict.finding is not None:
            return verdicts[:number], verdict
    return verdicts, None


def _failure(value: Any) -> Failure:
    _need(isinstance(value, dict), "a replay file holds one object")
    level = str(value.get("kvproof")).partition("-failure")[0]
    _need(level in LEVELS, "it is no failure of a pool or a manager saved by kvproof")
    _need(value.get("format") == 1, f"format {value.get('format')!r} is not known; this reads 1")
    known = LEVELS[level].properties
    _need(str(value.get("property")) in known, f"unknown property {value.get('property')!r}")
    for name in ("signature", "finding", "expected", "actual", "target", "layout"):
        _need(isinstance(value.get(name), str), f"{name} must be a text")
    _need(isinstance(value.get("operations"), list), "operations must be a list")
    read = call_from_json if level == "pool" else manager_call_from_json
    flags = value.get("flags")
    _need(isinstance(flags, dict), "flags must be an object")
    return Failure(
        value["signature"],
        Finding(value["property"], value["finding"], value["expected"], value["actual"]),
        value["layout"],
        _config(value.get("pool")) if level == "pool" else config_from_json(value.get("manager")),
        Flags(*(flags.get(name) is True for name in ("policy", "misuse", "quality"))),
        [read(call) for call in value["operations"]],
        value["target"],
        value["seed"] if isinstance(value.get("seed"), int) else 0,
        value.get("protocol") is True,
    )


def _config(value: Any) -> PoolConfig:
    _need(isinstance(value, dict), "pool must be an object")
    blocks, unit, sizes = (
        value.get(name) for name in ("num_gpu_blocks", "hash_block_size", "block_sizes")
    )
    _need(_is_count(blocks), f"pool.num_gpu_blocks must be 1 .. {LARGEST_POOL}")
    _need(_is_count(unit), "pool.hash_block_size must be a positive number of tokens")
    fits = isinstance(sizes, dict) and bool(sizes)
    _need(fits, "pool.block_sizes must be an object: group -> tokens")
    for group, size in sizes.items():
        _need(_is_group(group), f"pool.block_sizes: {group!r} is no group")
        multiple = _is_count(size) and size % unit == 0
        _need(multiple, f"pool.block_sizes: {size!r} is no multiple of the hash unit {unit}")
    for name in ("enable_caching", "enable_kv_cache_events"):
        _need(isinstance(value.get(name), bool), f"pool.{name} must be true or false")
    return PoolConfig(
        blocks,
        value["enable_caching"],
        unit,
        {int(group): size for group, size in sizes.items()},
        value["enable_kv_cache_events"],
    )


def _is_group(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_POOL


def _need(condition: bool, says: str) -> None:
    if not condition:
        raise BadReplay(says)
