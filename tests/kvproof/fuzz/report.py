"""A failure as text: what is broken, a program that shows it, what was expected and what came.

Plain text, the same for the command, for a test suite and for a file.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from kvproof.fuzz.calls import Call, Outcome, request_view
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.manager_report import manager_program
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.target import PoolConfig
from kvproof.spec.properties import Property

WIDTH = 96


def render(failure: Failure, answers: Sequence[Outcome] = (), command: str | None = None) -> str:
    """Write a failure. `answers` are what the target answered to the calls, and `command` is
    the command line that finds the failure again, where they are known.
    """
    broken = property_of(failure)
    lines = [
        f"{broken.name} is violated: {broken.klass.value}, {broken.consequence.value}",
        *_wrap(f"It says: {broken.says}."),
        *_wrap(f"When it does not hold, {broken.because}."),
    ]
    if failure.finding.says != broken.says:
        lines += _wrap(f"Here: {failure.finding.says}.")
    lines += ["", *program(failure, answers).splitlines(), ""]
    lines += _field("expected", failure.finding.expected or "nothing changes")
    lines += _field("actual", failure.finding.actual or "nothing changes")
    lines += _field("layout", failure.layout)
    lines += _field("signature", failure.signature)
    again = f": {command}" if command is not None else ""
    lines += _field("seed", f"{failure.seed}{again}")
    if failure.file is not None:
        lines += _field("saved to", failure.file)
    for note in failure.notes:
        lines += _field("note", note)
    return "\n".join(lines) + "\n"


def property_of(failure: Failure) -> Property:
    """Return the property that a failure breaks."""
    return PROPERTIES[failure.property]


def program(failure: Failure, answers: Sequence[Outcome] = ()) -> str:
    """Write a failure as a Python program against the target protocol.

    What each call returned stands behind it, where it is known.
    """
    if not isinstance(failure.config, PoolConfig):
        return manager_program(failure, answers)
    names = _request_names(failure.calls)
    known: list[Outcome | None] = [*answers, *[None] * len(failure.calls)]
    last = len(failure.calls) - 1
    imports = ["PoolConfig", "RequestView"] if names else ["PoolConfig"]
    body: list[str] = []
    suppresses = raises = False
    for number, call in enumerate(failure.calls):
        text = _call(call, names)
        answer = known[number]
        if answer is not None and answer.refused:
            suppresses = suppresses or number < last
            raises = number == last
        if answer is not None and answer.refused and number < last:
            body += ["with suppress(Exception):", *_indent(_with_comment(text, answer))]
        else:
            body += _with_comment(text, answer)
    made, factory = _factory(failure.target)
    made = [*made, f"from kvproof.fuzz.target import {', '.join(imports)}"]
    lines = ["from contextlib import suppress", ""] if suppresses else []
    lines += sorted(made)
    lines += ["", *factory, *_statement("pool = factory", _config(failure.config))]
    lines += [
        f"{name} = RequestView(tokens={view.tokens}, block_hashes={_texts(view.block_hashes)})"
        for tokens, name in names.items()
        for view in [request_view(list(tokens), failure.config.hash_block_size)]
    ]
    lines += ["", *body]
    if not raises:
        events = failure.property == "events-mirror-cache"
        if events and not any(call.name == "take_events" for call in failure.calls):
            lines.append("print(pool.take_events())")
        lines.append("print(pool.observe())")
    return "\n".join(lines) + "\n"


def _factory(target: str) -> tuple[list[str], list[str]]:
    """Return the imports, and the lines that define `factory`."""
    kind, _, rest = target.partition(":")
    if target in ("impl", "vllm"):
        return [f"from kvproof.fuzz.{target}_target import factory"], []
    if kind == "defect":
        load = "from kvproof.fuzz.defects import load_defect"
        return [load], [f"factory = load_defect({_quoted(rest)})"]
    path = rest.split(".")
    if kind != "exec" and rest and all(part.isidentifier() for part in [*kind.split("."), *path]):
        if len(path) == 1:
            plain = path[0] == "factory"
            return [f"from {kind} import {rest}" + ("" if plain else " as factory")], []
        return [f"from {kind} import {path[0]}"], [f"factory = {rest}"]
    resolve = "from kvproof.fuzz.targets import resolve"
    return [resolve], [f"factory = resolve({_quoted(target)}).factory"]


def _config(config: PoolConfig) -> list[str]:
    default = PoolConfig(config.num_gpu_blocks)
    given = [
        f"{field.name}={getattr(config, field.name)!r}"
        for field in fields(config)
        if field.name == "num_gpu_blocks"
        or getattr(config, field.name) != getattr(default, field.name)
    ]
    return [f"PoolConfig({', '.join(given)})"]


def _request_names(calls: Sequence[Call]) -> dict[tuple[int, ...], str]:
    """Return a variable's name for each distinct list of tokens."""
    names: dict[tuple[int, ...], str] = {}
    for call in calls:
        if "request" in call.args:
            number = len(names)
            name = "abcdefgh"[number] if number < 8 else f"request_{number}"
            names.setdefault(tuple(call.args["request"]["tokens"]), name)
    return names


def _call(call: Call, names: dict[tuple[int, ...], str]) -> list[str]:
    given = [
        f"{name}={names[tuple(value['tokens'])] if name == 'request' else _value(value)}"
        for name, value in call.args.items()
    ]
    return _statement(f"pool.{call.name}", given)


def _statement(function: str, arguments: list[str]) -> list[str]:
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return [line]
    return [f"{function}(", *(f"    {argument}," for argument in arguments), ")"]


def _with_comment(text: list[str], answer: Outcome | None) -> list[str]:
    if answer is None:
        return text
    comment = "  # " + " ".join(str(answer).split())
    if len(text) == 1 and len(text[0] + comment) > WIDTH:
        return [comment.strip()[:WIDTH], *text]
    return [*text[:-1], text[-1] + comment[:WIDTH]]


def _value(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


def _texts(values: list[str]) -> str:
    return "[" + ", ".join(map(_quoted, values)) + "]"


def _quoted(text: str) -> str:
    shown = repr(text)
    return f'"{text}"' if shown == f"'{text}'" and '"' not in text else shown


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH + 4,
        initial_indent=f"{name:<10} ",
        subsequent_indent=" " * 11,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
