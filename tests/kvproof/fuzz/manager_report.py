"""A manager's failure as a Python program against the target protocol."""

from collections.abc import Sequence
from dataclasses import fields

from kvproof.fuzz.calls import Call, Outcome
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.manager_calls import WORLD, shown_args
from kvproof.fuzz.manager_target import ManagerConfig

WIDTH = 96


def manager_program(failure: Failure, answers: Sequence[Outcome] = ()) -> str:
    """Write the program; what each call returned stands behind it, where it is known.

    What happens outside the manager, tokens computed or loaded, is a comment.
    """
    assert isinstance(failure.config, ManagerConfig)
    known: list[Outcome | None] = [*answers, *[None] * len(failure.calls)]
    body: list[str] = []
    for call, answer in zip(failure.calls, known, strict=False):
        body += _call(call, answer)
    head = [
        "from kvproof.fuzz.manager_calls import make",
        "from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig",
        "from kvproof.fuzz.targets import resolve_manager",
        "",
        f'manager = resolve_manager("{failure.target}").factory(',
        *_config(failure.config),
        ")",
        "",
    ]
    return "\n".join([*head, *body, "print(manager.observe())"]) + "\n"


def _call(call: Call, answer: Outcome | None) -> list[str]:
    given = [f"{name}={value!r}" for name, value in shown_args(call).items()]
    if call.name in WORLD:
        return [f"# {call.name}: {', '.join(given)}"]
    line = f"make(manager, {', '.join([repr(call.name), *given])})".replace("'", '"')
    comment = "" if answer is None else f"  # {answer}"
    if len(line + comment) <= WIDTH:
        return [line + comment]
    if len(line) <= WIDTH:
        return [line, f"#   {answer}"[:WIDTH]] if answer is not None else [line]
    shown = [f"    {text}," for text in [f'"{call.name}"', *given]]
    return ["make(", "    manager,", *(text.replace("'", '"') for text in shown), ")" + comment]


def _config(config: ManagerConfig) -> list[str]:
    default = ManagerConfig(config.num_blocks, config.groups)
    given = [f"num_blocks={config.num_blocks}", f"groups={config.groups!r}"]
    given += [
        f"{field.name}={getattr(config, field.name)!r}"
        for field in fields(config)
        if getattr(config, field.name) != getattr(default, field.name)
    ]
    return ["    ManagerConfig(", *(f"        {one},".replace("'", '"') for one in given), "    )"]
