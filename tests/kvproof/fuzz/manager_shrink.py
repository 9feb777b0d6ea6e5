"""Making a manager's failure short.

Calls are left out and arguments made smaller; then the sequence is made again on a fresh
manager, where progress counts are put right and what has become senseless is left out, too. So
each candidate is a legal life of requests, and what is kept breaks the same property.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.manager_calls import DEFAULTS
from kvproof.fuzz.manager_target import ManagerConfig

MOST_TOKENS = 64
"""As many new tokens as there can be: put right, it is all that is left to compute."""

Remade = Callable[[Sequence[Call], ManagerConfig], list[Call] | None]
"""Makes the calls again on a fresh manager; returns those that led to the failure, or None."""


MOST_CALLS = 20_000
PER_CALL = 80
"""How many calls are made again, at most, while a failure is made shorter: so many, and so many
for each call that it has at first.
"""


def shrink(
    calls: Sequence[Call], config: ManagerConfig, remade: Remade
) -> tuple[list[Call], ManagerConfig]:
    """Return a shorter sequence, on a smaller manager, that fails in the same way."""
    best = _Best(calls, config, remade)
    progress = True
    while progress:
        size = best.size
        best.drop_requests()
        best.drop_calls()
        best.foresee_tokens()
        best.drop_extras()
        best.simplify_config()
        best.simplify_calls()
        progress = best.size < size
    best.rename()
    return best.calls, best.config


class _Best:
    """The shortest sequence so far, and the ways to make it shorter."""

    def __init__(self, calls: Sequence[Call], config: ManagerConfig, remade: Remade) -> None:
        self.calls, self.config = list(calls), config
        self._remade = remade
        self._left = MOST_CALLS + PER_CALL * len(calls)

    @property
    def size(self) -> tuple[int, int, int]:
        """How long it is: calls first, then their arguments, then the manager."""
        return _size(self.calls, self.config)

    def drop_requests(self) -> None:
        """Leave out all calls of a request, of many at first."""
        names = _names(self.calls)
        width = max(len(names) // 2, 1)
        while width >= 1:
            start = 0
            while start < len(names):
                gone = {*names[start : start + width]}
                if self._try([call for call in self.calls if call.args.get("request") not in gone]):
                    names = _names(self.calls)
                else:
                    start += width
            width //= 2

    def drop_calls(self) -> None:
        """Leave out calls, many in a row at first."""
        width = len(self.calls) // 2
        while width >= 1:
            start = 0
            while start < len(self.calls) - 1:
                if not self._try([*self.calls[:start], *self.calls[start + width :]]):
                    start += width
            width //= 2

    def foresee_tokens(self) -> None:
        """Let a request arrive with all that it samples later, and then do in fewer steps."""
        for name in _names(self.calls):
            known = [
                token
                for call in self.calls
                if call.args.get("request") == name and "tokens" in call.args
                for token in call.args["tokens"]
            ]
            foreseen = [
                _foreseen(call, known) if call.args.get("request") == name else call
                for call in self.calls
                if call.name != "append_tokens" or call.args["request"] != name
            ]
            self._try(foreseen)

    def drop_extras(self) -> None:
        """Leave out what requests have besides tokens, one kind in all of them at once."""
        for kind in sorted({kind for call in self.calls for kind in call.args.get("extra") or ()}):
            self._try([_without(call, kind) for call in self.calls])

    def simplify_config(self) -> None:
        """Make the manager smaller and plainer."""
        for simpler in _simpler(self.config):
            if self._try(self.calls, simpler):
                return

    def simplify_calls(self) -> None:
        """Make each call's arguments smaller, as long as that helps."""
        position = 0
        while position < len(self.calls):
            call = self.calls[position]
            position += not any(self._put(position, smaller) for smaller in _smaller(call))

    def rename(self) -> None:
        """Give the requests short names."""
        for number, name in enumerate(_names(self.calls)):
            self._try(_renamed(self.calls, number, name))

    def _put(self, position: int, call: Call) -> bool:
        return self._try([*self.calls[:position], call, *self.calls[position + 1 :]])

    def _try(self, calls: Sequence[Call], config: ManagerConfig | None = None) -> bool:
        """Take a candidate when it fails in the same way and is shorter."""
        self._left -= len(calls)
        if self._left < 0:
            return False
        other = self.config if config is None else config
        found = self._remade(calls, other)
        if found is None or _size(found, other) >= self.size:
            return False
        self.calls, self.config = found, other
        return True


def _foreseen(call: Call, known: list[int]) -> Call:
    if call.name == "new_request":
        return _with(call, "tokens", known)
    return _with(call, "num_new_tokens", MOST_TOKENS) if call.name == "allocate_slots" else call


def _without(call: Call, kind: str) -> Call:
    extra = call.args.get("extra") or {}
    kept = {name: part for name, part in extra.items() if name != kind}
    return _with(call, "extra", kept or None) if kind in extra else call


def _names(calls: Sequence[Call]) -> list[str]:
    return list(dict.fromkeys(call.args["request"] for call in calls if "request" in call.args))


def _simpler(config: ManagerConfig) -> Iterator[ManagerConfig]:
    for num_blocks in range(2, config.num_blocks):
        yield replace(config, num_blocks=num_blocks)
    if config.watermark:
        yield replace(config, watermark=0.0)
    if config.retention_interval is not None:
        yield replace(config, retention_interval=None)


def _smaller(call: Call) -> Iterator[Call]:
    if call.args.get("use_hit") or call.args.get("num_external_computed_tokens"):
        alone = {"use_hit": False, "num_external_computed_tokens": 0, "delay_cache_blocks": False}
        yield Call(call.name, {**call.args, **alone, "num_new_tokens": MOST_TOKENS})
    if call.name == "pop_blocks_for_free":
        yield Call("free", call.args)
    for name, value in call.args.items():
        if name in DEFAULTS and value != DEFAULTS[name]:
            yield _with(call, name, DEFAULTS[name])
        if name == "tokens":
            yield from (_shorter(call, length) for length in _lengths(len(value)))
            yield _with(call, name, [0] * len(value))
            yield from (
                _with(call, name, [*value[:place], 0, *value[place + 1 :]])
                for place, token in enumerate(value)
                if token
            )
        elif name == "blocks":
            for place in range(len(value)):
                yield _with(call, name, [*value[:place], *value[place + 1 :]])
        elif name == "sampled":
            for request, tokens in value.items():
                for fewer in _lengths(len(tokens)):
                    yield _with(call, name, {**value, request: tokens[:fewer]})
                if any(tokens):
                    yield _with(call, name, {**value, request: [0] * len(tokens)})
        elif name == "extra" and value:
            for kind, part in value.items():
                yield _with(call, name, {k: v for k, v in value.items() if k != kind} or None)
                if kind == "mm":
                    for fewer in (part[:place] + part[place + 1 :] for place in range(len(part))):
                        yield _with(call, name, {**value, kind: fewer})
        elif name == "num_new_tokens":
            yield _with(call, name, MOST_TOKENS)
            yield from (_with(call, name, fewer) for fewer in _lengths(value))
        elif type(value) is int and name != "num_computed_tokens":
            yield from (_with(call, name, fewer) for fewer in _lengths(value))


def _shorter(call: Call, length: int) -> Call:
    """Cut tokens, and what comes with them, to a length."""
    args = {**call.args, "tokens": call.args["tokens"][:length]}
    extra = args.get("extra")
    if extra:
        kept = {**extra}
        if "embeds" in kept:
            kept["embeds"] = kept["embeds"][:length]
        if "mm" in kept:
            kept["mm"] = [item for item in kept["mm"] if item[1] + item[2] <= length]
        args["extra"] = {kind: part for kind, part in kept.items() if part} or None
    return Call(call.name, args)


def _lengths(length: int) -> Iterator[int]:
    """Return what to try instead: one, half, one less."""
    seen = {length}
    for fewer in (1, length // 2, length - 1):
        if 0 < fewer < length and fewer not in seen:
            seen.add(fewer)
            yield fewer


def _renamed(calls: list[Call], number: int, name: str) -> list[Call]:
    """Give a request the name that its number says: a, b, c."""
    short = "abcdefghijklmnopqrstuvwxyz"[number % 26]
    if name == short or any(call.args.get("request") == short for call in calls):
        return calls
    return [_with_name(call, name, short) for call in calls]


def _with_name(call: Call, name: str, short: str) -> Call:
    args = dict(call.args)
    if args.get("request") == name:
        args["request"] = short
    if "sampled" in args:
        args["sampled"] = {short if one == name else one: t for one, t in args["sampled"].items()}
    return Call(call.name, args)


def _with(call: Call, name: str, value: Any) -> Call:
    return Call(call.name, {**call.args, name: value})


def _size(calls: Sequence[Call], config: ManagerConfig) -> tuple[int, int, int]:
    """Measure a sequence: calls first, then their arguments, then the manager."""
    settings = config.num_blocks + 50 * bool(config.watermark)
    settings += 50 * (config.retention_interval is not None)
    weight = sum(_weight(name, value) for call in calls for name, value in call.args.items())
    weight += sum(call.name == "pop_blocks_for_free" for call in calls)
    return len(calls), weight, settings


def _weight(name: str, value: Any) -> int:
    if name in DEFAULTS and value == DEFAULTS[name]:
        return 0
    if isinstance(value, bool):
        return 1
    if isinstance(value, str):
        return len(value) + 100 * (len(value) > 1)
    if isinstance(value, int):
        return abs(value) + 1
    if isinstance(value, dict):
        return 1 + sum(_weight("", one) for one in value.values())
    if isinstance(value, list):
        return len(value) * 10 + sum(_weight("", one) for one in value)
    return 1
