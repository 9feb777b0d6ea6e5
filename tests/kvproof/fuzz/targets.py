"""Finding a target by its name on the command line.

| name | what it is |
| --- | --- |
| `impl` | our own implementation |
| `defect:NAME` | our own implementation with one seeded defect (`kvproof.fuzz.defects`) |
| `vllm` | the real pool of whatever vLLM is installed |
| `module:factory` | a `PoolFactory` of yours, importable from the current folder |
| `exec:COMMAND` | a program that speaks JSON lines (docs/your-own-pool.md) |
"""

import difflib
import importlib
import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvproof.fuzz import impl_target, vllm_target
from kvproof.fuzz.calls import ARGUMENTS
from kvproof.fuzz.defects import DEFECTS, load_defect
from kvproof.fuzz.exec_target import ExecError, ExecTarget
from kvproof.fuzz.handle import Handle, raised
from kvproof.fuzz.impl_manager import ImplManager
from kvproof.fuzz.manager_defects import MANAGER_DEFECTS, load_manager_defect
from kvproof.fuzz.manager_handle import ManagerHandle
from kvproof.fuzz.manager_model import SpecManager
from kvproof.fuzz.manager_script import engine_script as manager_script
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.target import (
    PoolConfig,
    PoolFactory,
    PoolTarget,
    TargetBroken,
)
from kvproof.fuzz.vllm_manager import VllmManager
from kvproof.fuzz.vllm_script import engine_script
from kvproof.fuzz.vllm_target import VllmUnavailable


class TargetError(Exception):
    """A target's name cannot be made into a target. The message is one line."""


@dataclass
class Target:
    """A target that was found: its name, its factory, one line about it, and how to end it.

    The factory takes a `PoolConfig`, or, of a target at manager level, a `ManagerConfig`.
    """

    name: str
    factory: Callable[[Any], Any]
    about: str
    script: Callable[..., str] | None = None
    close: Callable[[], None] = field(default=lambda: None)


def levels_of(name: str) -> list[str]:
    """Return the levels at which a target is fuzzed when none is asked for."""
    kind, _, rest = name.partition(":")
    if kind == "defect" and rest in MANAGER_DEFECTS:
        return ["manager"]
    return ["pool", "manager"] if name in ("impl", "vllm") else ["pool"]


def resolve_for(level: str, name: str) -> Target:
    """Find a target at one of the levels. Raises TargetError, saying what to do."""
    return resolve(name) if level == "pool" else resolve_manager(name)


def resolve_manager(name: str) -> Target:
    """Find a target at manager level. Raises TargetError, saying what to do."""
    kind, _, rest = name.partition(":")
    if name == "impl":
        target = Target(name, ImplManager, "kvproof's own manager, plain Python")
    elif name == "spec":
        target = Target(name, SpecManager, "the specification's manager")
    elif name == "vllm":
        target = _vllm_manager(name)
    elif kind == "defect":
        target = _manager_defect(name, rest)
    elif kind == "exec":
        raise TargetError("exec: a program is fuzzed at pool level only; use --level pool")
    elif kind and rest:
        target = Target(name, _import(kind, rest), f"{rest} of {kind}")
    else:
        raise TargetError(f"unknown target {name!r}: use impl, defect:NAME, vllm or module:factory")
    return checked_manager(target)


def checked_for(level: str, target: Target) -> Target:
    """Build one at a level, so that a target that cannot work is refused: TargetError."""
    return checked(target) if level == "pool" else checked_manager(target)


def checked_manager(target: Target) -> Target:
    """Build a manager once, so that a target that cannot work is refused in one line."""
    try:
        group = GroupConfig("full", 4)
        ManagerHandle(target.factory, ManagerConfig(4, (group,))).first_look()
    except TargetBroken as error:
        raise TargetError(f"the target {target.name} does not start: {error}") from None
    return target


def _manager_defect(name: str, defect: str) -> Target:
    if defect not in MANAGER_DEFECTS:
        raise TargetError(_unknown_defect(defect, [*MANAGER_DEFECTS]))
    about = f"kvproof's own manager with a seeded defect: {MANAGER_DEFECTS[defect].says}"
    return Target(name, load_manager_defect(defect), about)


def _vllm_manager(name: str) -> Target:
    try:
        about = f"vLLM {vllm_target.version()}, its own KVCacheManager"
    except VllmUnavailable as error:
        raise TargetError(str(error)) from None
    return Target(name, VllmManager, about, manager_script)


def _unknown_defect(defect: str, known: list[str]) -> str:
    close = difflib.get_close_matches(defect, known, n=3, cutoff=0.5)
    meant = f"do you mean {' or '.join(close)}?" if close else "kvproof explain lists them"
    return f"unknown defect {defect!r}; {meant}"


def resolve(name: str) -> Target:
    """Find a target. Raises TargetError, saying what to do."""
    kind, _, rest = name.partition(":")
    if name == "impl":
        return checked(Target(name, impl_target.factory, "kvproof's own pool, plain Python"))
    if kind == "defect":
        return _defect(name, rest)
    if name == "vllm":
        return _vllm(name)
    if kind == "exec":
        return _exec(name, rest)
    if kind and rest:
        return checked(Target(name, _import(kind, rest), f"{rest} of {kind}"))
    raise TargetError(
        f"unknown target {name!r}: use impl, defect:NAME, vllm, module:factory or exec:COMMAND"
    )


def _defect(name: str, defect: str) -> Target:
    if defect in MANAGER_DEFECTS:
        raise TargetError(f"{defect} is a defect of the manager level; use --level manager")
    if defect not in DEFECTS:
        raise TargetError(_unknown_defect(defect, [*DEFECTS, *MANAGER_DEFECTS]))
    about = f"kvproof's own pool with a seeded defect: {DEFECTS[defect].says}"
    return Target(name, load_defect(defect), about)


def _vllm(name: str) -> Target:
    try:
        about = f"vLLM {vllm_target.version()}, its own BlockPool"
    except VllmUnavailable as error:
        raise TargetError(str(error)) from None
    return checked(Target(name, vllm_target.factory, about, engine_script))


def _exec(name: str, command: str) -> Target:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TargetError(f"exec: the command {command!r} cannot be split: {error}") from None
    if not words:
        raise TargetError("exec: needs a command, such as exec:./my_pool")
    try:
        program = ExecTarget(words)
    except ExecError as error:
        raise TargetError(str(error)) from None
    target = Target(name, program.start, f"the program {command}", close=program.close)
    return checked(target)


def _import(module: str, attribute: str) -> PoolFactory:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise TargetError(f"cannot import {module!r}: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # anything may go wrong in a user's module
        raise TargetError(f"importing {module!r} raised {raised(error)}") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise TargetError(f"module {module!r} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(f"{module}:{attribute} is no factory: it cannot be called")
    factory: PoolFactory = found
    return factory


def checked(target: Target) -> Target:
    """Build a pool once, so that a target that cannot work is refused in one line: TargetError."""
    try:
        handle = Handle(target.factory, PoolConfig(num_gpu_blocks=4))
        handle.first_look()
        says = _unfit(handle.target)
    except TargetBroken as error:
        says = str(error)
    if says is None:
        return target
    target.close()
    raise TargetError(f"the target {target.name} does not start: {says}")


def _unfit(pool: PoolTarget) -> str | None:
    """Say which operation does not take its arguments."""
    for name in pool.operations:
        wanted = list(ARGUMENTS[name])
        try:
            inspect.signature(getattr(pool, name)).bind(**dict.fromkeys(wanted))
        except TypeError:
            return f"{name} must take the arguments ({', '.join(wanted)}), by these names"
        except ValueError:
            continue  # not written in Python: it cannot be asked
    return None
