"""One call of the protocol, as data: it can be made, saved, shrunk and printed.

Arguments are those of `PoolTarget`, except that a request is given by its tokens:
`{"request": {"tokens": [0, 1]}}`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvproof.fuzz.target import Hash, RequestView
from kvproof.spec.quantities import BlockHash, TokenId, hash_text


@dataclass(frozen=True, slots=True)
class Call:
    """The operation's name and its arguments, by name."""

    name: str
    args: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the call as one JSON object; `call_from_json` reads it."""
        return {"op": self.name, **self.args}

    def __str__(self) -> str:
        parts = [f"{name}={_text(value)}" for name, value in self.args.items()]
        return f"{self.name}({', '.join(parts)})"


@dataclass(slots=True)
class Outcome:
    """What a call came to: a value, or an error's text."""

    value: Any = None
    error: str | None = None

    @property
    def refused(self) -> bool:
        """The call raised."""
        return self.error is not None

    def __str__(self) -> str:
        return f"raises {self.error}" if self.error is not None else f"returns {self.value!r}"


ARGUMENTS: dict[str, dict[str, str]] = {
    "get_new_blocks": {"num_blocks": "int"},
    "touch": {"blocks": "ints"},
    "free_blocks": {"blocks": "ints"},
    "get_cached_block": {"block_hash": "hash", "groups": "ints"},
    "cache_full_blocks": {
        "request": "request",
        "blocks": "ints",
        "num_cached_blocks": "int",
        "num_full_blocks": "int",
        "block_size": "int",
        "group": "int",
        "block_mask": "mask",
    },
    "cache_partial_block": {
        "request": "request",
        "block": "int",
        "num_tokens": "int",
        "group": "int",
        "block_size": "int",
    },
    "evict_blocks": {"blocks": "ints"},
    "reset_prefix_cache": {},
    "take_events": {},
    "get_num_free_blocks": {},
    "get_usage": {},
}
"""The arguments of each operation and their kinds."""


class BadCall(ValueError):
    """A JSON value is no call of the protocol."""


def call_from_json(value: object) -> Call:
    """Read a call. Raises BadCall, naming the operation or argument that is wrong."""
    if not isinstance(value, dict):
        raise BadCall(f"a call must be an object, not {type(value).__name__}")
    args = dict(value)
    name = args.pop("op", None)
    if not isinstance(name, str) or name not in ARGUMENTS:
        raise BadCall(f"unknown operation {name!r}; known: {', '.join(ARGUMENTS)}")
    kinds = ARGUMENTS[name]
    if set(args) != set(kinds):
        raise BadCall(f"{name} takes the arguments {sorted(kinds)}, not {sorted(args)}")
    for argument, kind in kinds.items():
        if not _CHECKS[kind](args[argument]):
            raise BadCall(f"{name}: {argument} must be {_SAYS[kind]}")
    return Call(name, args)


def is_int(value: object) -> bool:
    """The value is an integer of a sensible size."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def is_ints(value: object) -> bool:
    """The value is a list of such integers."""
    return isinstance(value, list) and len(value) <= 10_000 and all(map(is_int, value))


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and all(map(_is_token, value.split(".")))


def _is_token(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11


def _is_request(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"tokens"} and is_ints(value["tokens"])


def _is_mask(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(entry, bool) for entry in value)
    )


_CHECKS = {
    "int": is_int,
    "ints": is_ints,
    "hash": _is_hash,
    "request": _is_request,
    "mask": _is_mask,
}
_SAYS = {
    "int": "an integer",
    "ints": "a list of integers",
    "hash": 'tokens joined by dots, such as "0.1"',
    "request": 'an object {"tokens": [...]}',
    "mask": "null or a list of booleans",
}


def _text(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"tokens"}:
        return f"Request({value['tokens']})"
    return repr(value)


@lru_cache(maxsize=65536)
def to_wire(block_hash: BlockHash) -> Hash:
    """Return a block hash of the specification as a target sees it."""
    return hash_text(block_hash)


@lru_cache(maxsize=65536)
def from_wire(text: Hash) -> BlockHash:
    """Return a block hash as the specification sees it."""
    return tuple(TokenId(int(token)) for token in text.split("."))


def request_view(tokens: list[int], hash_block_size: int) -> RequestView:
    """Return what a pool may see of the request that has these tokens."""
    return RequestView(tokens.copy(), list(_hashes(tuple(tokens), hash_block_size)))


@lru_cache(maxsize=4096)
def _hashes(tokens: tuple[int, ...], hash_block_size: int) -> tuple[Hash, ...]:
    ends = range(hash_block_size, len(tokens) + 1, hash_block_size)
    return tuple(to_wire(tuple(map(TokenId, tokens[:end]))) for end in ends)
