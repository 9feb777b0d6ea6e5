"""What a request consists of besides tokens, as JSON values, and as numbers in place of tokens.

`extra` is None or an object with some of these; `kvproof.spec.hashing` says what each means:

    "lora": [name, id]                        the adapter; a name goes with one id
    "salt": text                              the cache salt
    "mm": [[identifier, offset, length], ...] multimodal items, by offset from the first token
    "embeds": [row or null, ...]              one entry for each token of the prompt: null where
                                              the token is read, else the byte that stands for
                                              its embedding (in a hidden size of one)
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from kvproof.fuzz.picks import Pick
from kvproof.spec import hashing, manager_rules
from kvproof.spec.quantities import NumTokens, TokenId
from kvproof.spec.rules import KVCacheError, Rule

_FIRST = 2**32
"""Elements with extra keys start here, behind all tokens."""


@dataclass(frozen=True, slots=True)
class RequestContent:
    """All tokens of a request that are known, and what else is hashed."""

    tokens: tuple[int, ...]
    extra: dict[str, Any] | None = None


def content_of(tokens: Sequence[int], extra: Mapping[str, Any] | None) -> RequestContent:
    """Return the content of a request."""
    return RequestContent(tuple(tokens), dict(extra) if extra else None)


def specified(content: RequestContent) -> hashing.RequestContent:
    """Return the request as the specification hashes it. Raises RequestContentError or
    TokenCountError when there can be no such request.
    """
    extra = content.extra or {}
    adapter, salt, rows = extra.get("lora"), extra.get("salt"), extra.get("embeds")
    return hashing.RequestContent(
        tuple(map(TokenId, content.tokens)),
        None if adapter is None else hashing.LoraName(adapter[0]),
        None if salt is None else hashing.CacheSalt(salt),
        tuple(
            hashing.MultimodalFeature(hashing.Identifier(identifier), offset, NumTokens(length))
            for identifier, offset, length in extra.get("mm", ())
        ),
        None if rows is None else tuple(map(_row, rows)),
    )


def rule_of(tokens: Sequence[int], extra: Mapping[str, Any] | None) -> Rule | None:
    """Return the rule that a new request with this prompt would break; None when it is legal."""
    rows = None if extra is None else extra.get("embeds")
    if rows is not None and len(rows) != len(tokens):
        return manager_rules.WITHIN_TOKENS
    try:
        specified(content_of(tokens, extra))
    except KVCacheError as error:
        return error.rule
    return None


def is_extra(value: object) -> bool:
    """The value has the form of `extra`."""
    if value is None:
        return True
    return isinstance(value, dict) and all(
        kind in _FORMS and _FORMS[kind](part) for kind, part in value.items()
    )


def elements(tokens: Sequence[int], extra: Mapping[str, Any] | None, unit: int) -> tuple[int, ...]:
    """Return what stands for a request's tokens in hashes and contents: the token itself where
    its hash unit has no extra key, else a number that stands for both.

    In two requests prefixes of whole units are equal exactly when their hashes are. An element
    stays as it is when tokens are appended. The items may reach beyond the tokens. Raises
    RequestContentError for items that can be in no request.
    """
    if not extra:
        return tuple(tokens)
    keys = _keys_of_units(json.dumps(extra, sort_keys=True), -(-len(tokens) // unit), unit)
    return tuple(_element(token, keys[place // unit]) for place, token in enumerate(tokens))


@lru_cache(maxsize=4096)
def _keys_of_units(extra: str, num_units: int, unit: int) -> tuple[bytes, ...]:
    """Write the extra keys of each unit, those of the last also when it is not full yet."""
    read = json.loads(extra)
    reach = max((offset + length for _, offset, length in read.get("mm", ())), default=0)
    room = max(reach, len(read.get("embeds") or ()), num_units * unit)
    request = specified(content_of((0,) * room, read))
    found = (hashing.extra_keys(request, n * unit, (n + 1) * unit) for n in range(num_units))
    return tuple(repr(keys).encode() if keys else b"" for keys in found)


@lru_cache(maxsize=65536)
def _element(token: int, keys: bytes) -> int:
    if not keys:
        return token
    digest = sha256(b"%d %b" % (token, keys)).digest()
    return _FIRST + int.from_bytes(digest[:4])


def _row(row: int | None) -> hashing.EmbedRow | None:
    return None if row is None else hashing.EmbedRow(bytes([row]))


# What is drawn: few names, so that requests are alike, and one name is used for several kinds.

_NAMES = ("a", "b")
_ITEMS = {"a": 1, "a0b0": 2, "a0b1": 2, "c0ffee": 5}
"""Identifiers and their lengths: one identifier is one item. Two differ late."""

_ROWS = (1, 1, 2, 0, None)


def draw_extra(pick: Pick, length: int) -> dict[str, Any] | None:
    """Draw what a request with a prompt of `length` tokens has besides them: half the time
    nothing, else one kind or two.
    """
    if pick.flag():
        return None
    extra: dict[str, Any] = {}
    for kind in pick.some(("lora", "salt", "mm", "embeds"), 1, 2):
        if kind == "lora":
            number = pick.number(0, len(_NAMES) - 1)
            extra["lora"] = [_NAMES[number], number + 1]
        elif kind == "salt":
            extra["salt"] = pick.one(_NAMES)
        elif kind == "mm":
            extra["mm"] = _draw_items(pick, length)
        else:
            extra["embeds"] = [pick.one(_ROWS) for _ in range(length)]
    return {kind: part for kind, part in extra.items() if part} or None


def _draw_items(pick: Pick, length: int) -> list[list[Any]]:
    """Draw items one behind the other; seldom two begin at one place, as a video and its sound."""
    items: list[list[Any]] = []
    place = pick.number(0, min(3, length - 1))
    for _ in range(pick.number(1, 3)):
        fitting = [name for name, size in _ITEMS.items() if place + size <= length]
        if fitting:
            name = pick.one(fitting)
            items.append([name, place, _ITEMS[name]])
            place += _ITEMS[name] if pick.number(0, 7) else 0
            place += pick.number(0, 1)
    return items


# What has the form of each part.


def _has_types(value: object, *types: type) -> bool:
    return isinstance(value, list) and tuple(map(type, value)) == types


def _is_items(value: object) -> bool:
    return isinstance(value, list) and all(_has_types(item, str, int, int) for item in value)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and all(
        row is None or (type(row) is int and 0 <= row < 256) for row in value
    )


_FORMS: dict[str, Callable[[object], bool]] = {
    "lora": lambda value: _has_types(value, str, int),
    "salt": lambda value: isinstance(value, str),
    "mm": _is_items,
    "embeds": _is_rows,
}
