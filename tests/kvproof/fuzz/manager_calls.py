"""The calls of the manager level, as data: their arguments, and how they are read from a file.

Three of them are told to the world only, and are no calls of the target: `run_step`, the
scheduled tokens are computed; `update_from_output`, the oldest step comes back; `load`, tokens
from another store arrive.
"""

from typing import Any

from kvproof.fuzz.calls import BadCall, Call, is_int, is_ints
from kvproof.fuzz.elements import is_extra

ARGUMENTS: dict[str, dict[str, str]] = {
    "new_request": {"request": "name", "tokens": "ints", "extra": "extra"},
    "append_tokens": {"request": "name", "tokens": "ints"},
    "get_computed_blocks": {"request": "name"},
    "allocate_slots": {
        "request": "name",
        "num_computed_tokens": "int",
        "num_unsettled_tokens": "int",
        "is_running": "flag",
        "num_preemptions": "int",
        "num_new_tokens": "int",
        "num_draft_tokens": "int",
        "use_hit": "flag",
        "num_lookahead_tokens": "int",
        "num_external_computed_tokens": "int",
        "delay_cache_blocks": "flag",
        "full_sequence_must_fit": "flag",
        "reserved_blocks": "int",
        "has_scheduled_reqs": "flag",
    },
    "unschedule": {"request": "name", "num_computed_tokens": "int"},
    "cache_blocks": {"request": "name", "num_computed_tokens": "int"},
    "free": {"request": "name"},
    "pop_blocks_for_free": {"request": "name"},
    "free_blocks": {"blocks": "ints"},
    "remove_skipped_blocks": {"request": "name", "total_computed_tokens": "int"},
    "evict_blocks": {"blocks": "ints"},
    "reset_prefix_cache": {},
    "get_num_common_prefix_blocks": {"request": "name"},
    "take_events": {},
    "take_new_block_ids": {},
    "run_step": {"sampled": "sampled"},
    "load": {"request": "name", "start": "int", "end": "int", "failed_from": "int or none"},
    "update_from_output": {},
}
"""The arguments of each call and their kinds."""

WORLD = {"run_step", "load", "update_from_output"}
"""What is told to the world only."""

DEFAULTS: dict[str, Any] = {
    "extra": None,
    "num_unsettled_tokens": 0,
    "is_running": False,
    "num_preemptions": 0,
    "num_draft_tokens": 0,
    "use_hit": False,
    "num_lookahead_tokens": 0,
    "num_external_computed_tokens": 0,
    "delay_cache_blocks": False,
    "full_sequence_must_fit": False,
    "reserved_blocks": 0,
    "has_scheduled_reqs": True,
    "failed_from": None,
}
"""What an argument is when it is not worth mentioning."""


def manager_call_from_json(value: object) -> Call:
    """Read a call; arguments that have a default may be left out. Raises BadCall."""
    if not isinstance(value, dict):
        raise BadCall(f"a call must be an object, not {type(value).__name__}")
    args = dict(value)
    name = args.pop("op", None)
    if not isinstance(name, str) or name not in ARGUMENTS:
        raise BadCall(f"unknown operation {name!r}; known: {', '.join(ARGUMENTS)}")
    kinds = ARGUMENTS[name]
    full = {**{key: DEFAULTS[key] for key in kinds if key in DEFAULTS}, **args}
    if set(full) != set(kinds):
        raise BadCall(f"{name} takes the arguments {sorted(kinds)}, not {sorted(args)}")
    for argument, kind in kinds.items():
        if not _is(kind, full[argument]):
            raise BadCall(f"{name}: {argument} must be {_SAYS[kind]}")
    return Call(name, {key: full[key] for key in kinds})


def make(manager: Any, name: str, **given: Any) -> Any:
    """Make a call on a manager, with what goes without saying filled in. A manager without
    `unschedule` does nothing there.
    """
    if name == "unschedule" and not hasattr(manager, name):
        return None
    return getattr(manager, name)(**manager_call_from_json({"op": name, **given}).args)


def shown_args(call: Call) -> dict[str, Any]:
    """Return the arguments that are worth mentioning."""
    return {
        name: value
        for name, value in call.args.items()
        if name not in DEFAULTS or value != DEFAULTS[name]
    }


def shown(call: Call) -> str:
    """Write a call on one line, without the arguments that are as always."""
    given = ", ".join(f"{name}={value!r}" for name, value in shown_args(call).items())
    return f"{call.name}({given})"


def _is(kind: str, value: object) -> bool:
    if kind == "int":
        return is_int(value)
    if kind == "ints":
        return is_ints(value)
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "name":
        return isinstance(value, str) and 0 < len(value) <= 64
    if kind == "int or none":
        return value is None or is_int(value)
    if kind == "sampled":
        return isinstance(value, dict) and all(
            _is("name", name) and is_ints(tokens) for name, tokens in value.items()
        )
    return is_extra(value)


_SAYS = {
    "int": "an integer",
    "ints": "a list of integers",
    "flag": "true or false",
    "name": "a short text",
    "int or none": "an integer or null",
    "sampled": "an object: request -> list of integers",
    "extra": "null, or an object with lora, salt, mm or embeds (kvproof.fuzz.elements)",
}
