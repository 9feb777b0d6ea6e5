"""Replay files: what is saved is what is loaded, and anything else is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.fuzz import replay
from kvproof.fuzz.calls import ARGUMENTS, BadCall, Call, call_from_json
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defects import load_defect
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.impl_target import factory
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.replay import BadReplay, load, save
from kvproof.fuzz.run import Flags

Drawn = Callable[..., list[Call]]


def found(name: str, layout: str = "two-sizes") -> Failure:
    session = run_campaign(
        load_defect(name),
        f"defect:{name}",
        Flags(policy=True),
        Limits(examples=20),
        [LAYOUTS[layout]],
        seed=5,
    )
    return next(iter(session.failures.values()))


@pytest.fixture(scope="module")
def failure() -> Failure:
    return found("stale-key")


@pytest.fixture
def value(failure: Failure) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(failure.as_json()))
    return made


@pytest.mark.parametrize("name", ["stale-key", "null-not-zero", "reset-counts-null"])
def test_what_is_saved_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    failure = found(name)
    path = save(failure, tmp_path / "new" / "folder")
    loaded = load(path)
    assert loaded == Failure(**{**vars(failure), "seen": 1, "file": None})
    assert save(loaded, tmp_path) != path
    verdict = replay.replay(loaded, load_defect(name))[1]
    assert verdict is not None
    assert verdict.finding == failure.finding
    assert replay.replay(loaded, factory)[1] is None


def test_every_call_that_is_made_can_be_written_down(drawn: Drawn) -> None:
    for layout in LAYOUTS:
        for call in drawn(layout, 1, 80, misuse=layout != "full"):
            assert call_from_json(json.loads(json.dumps(call.as_json()))) == call


def test_failures_of_two_targets_have_two_files(failure: Failure, tmp_path: Path) -> None:
    other = Failure(**{**vars(failure), "target": "impl"})
    assert save(failure, tmp_path) != save(other, tmp_path)


BYTES = {
    "nothing": b"",
    "text": b"no JSON",
    "binary": bytes(range(256)) * 20,
    "not UTF-8": b'{"kvproof": "\xff"}',
    "nested": b"[" * 200_000,
    "nested deep in a call": b'{"operations": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a long number": b'{"format": ' + b"9" * 10_000 + b"}",
    "half": b'{"kvproof": "pool-failure", "format": 1',
    "a list": b"[]",
    "null": b"null",
    "NaN": b"NaN",
    "two objects": b"{} {}",
    "another file of JSON": b'{"name": "left-pad"}',
}


def refused(path: Path) -> str:
    with pytest.raises(BadReplay) as raised:
        load(path)
    text = str(raised.value)
    assert len(text.splitlines()) == 1
    assert str(path) in text
    return text


@pytest.mark.parametrize("name", BYTES)
def test_a_file_that_is_something_else(name: str, tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    path.write_bytes(BYTES[name])
    refused(path)


def test_no_file(tmp_path: Path) -> None:
    refused(tmp_path / "none.json")
    refused(tmp_path)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "LARGEST_FILE", 10)
    path = tmp_path / "replay.json"
    path.write_text("{}          ")
    assert "larger than 10 bytes" in refused(path)


ODD: list[Any] = [None, True, 3, -1, 1.5, "text", "", [], [1], {}, {"a": 1}, "\ud800", 10**30]
TEXTS = ("signature", "finding", "expected", "actual", "target", "layout")
WRONG: dict[tuple[str, ...], list[Any]] = {
    ("kvproof",): ODD,
    ("format",): [one for one in ODD if one is not True],
    ("property",): [*ODD, ["refs-exact"], "refs_exact"],
    **{(name,): [one for one in ODD if not isinstance(one, str)] for name in TEXTS},
    ("operations",): [one for one in ODD if not isinstance(one, list)] + [[1], [[]], [None], [{}]],
    ("flags",): [one for one in ODD if not isinstance(one, dict)],
    ("pool",): ODD,
    ("pool", "num_gpu_blocks"): [*(one for one in ODD if one != 3), 0, 10**9, "3"],
    ("pool", "hash_block_size"): [*(one for one in ODD if one not in (3, True)), 0, -2],
    ("pool", "enable_caching"): [one for one in ODD if one is not True],
    ("pool", "enable_kv_cache_events"): [one for one in ODD if one is not True],
    ("pool", "block_sizes"): [
        *ODD,
        {"0": 3},
        {"0": 0},
        {"0": -2},
        {"0": "2"},
        {"0": 10**9},
        {"-1": 2},
        {"": 2},
        {"x": 2},
        {"²": 2},
        {"9" * 5000: 2},
        {"0": {"0": 2}},
    ],
}


@pytest.mark.parametrize("where", WRONG, ids=".".join)
def test_a_field_of_the_wrong_kind(
    where: tuple[str, ...], value: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "replay.json"
    for wrong in WRONG[where]:
        changed = json.loads(json.dumps(value))
        inner = changed if len(where) == 1 else changed[where[0]]
        inner[where[-1]] = wrong
        path.write_text(json.dumps(changed))
        refused(path)
    changed = json.loads(json.dumps(value))
    del (changed if len(where) == 1 else changed[where[0]])[where[-1]]
    path.write_text(json.dumps(changed))
    refused(path)


def test_what_may_be_missing(value: dict[str, Any], failure: Failure, tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    for name in ("seed", "protocol", "class", "says", "consequence"):
        value.pop(name)
    path.write_text(json.dumps(value))
    assert load(path) == Failure(**{**vars(failure), "seed": 0, "seen": 1})


ARGUMENT: dict[str, list[Any]] = {
    "int": [None, "1", 1.0, True, [1], 2**40],
    "ints": [None, 1, "12", [None], ["1"], [1.5], [True], {}, [2**40], [0] * 20_000],
    "hash": [None, 0, "", ".", "0.", "a", "0 1", "-1", "²", "٣", "9" * 5000, ["0"]],
    "request": [None, [], {}, {"tokens": 1}, {"tokens": ["1"]}, {"tokens": [1], "more": 1}],
    "mask": [True, "10", [1], [None], {}],
}


@pytest.mark.parametrize("operation", ARGUMENTS)
def test_an_argument_of_the_wrong_kind(operation: str) -> None:
    good: dict[str, Any] = {
        "int": 1,
        "ints": [1],
        "hash": "0.0",
        "request": {"tokens": [0]},
        "mask": None,
    }
    kinds = ARGUMENTS[operation]
    call: dict[str, Any] = {"op": operation, **{name: good[kind] for name, kind in kinds.items()}}
    assert call_from_json(call).name == operation
    for argument, kind in kinds.items():
        for wrong in ARGUMENT[kind]:
            with pytest.raises(BadCall, match=f"^{operation}: {argument} must be "):
                call_from_json({**call, argument: wrong})
        with pytest.raises(BadCall, match="takes the arguments"):
            call_from_json({name: given for name, given in call.items() if name != argument})
    with pytest.raises(BadCall, match="takes the arguments"):
        call_from_json({**call, "more": 1})


@pytest.mark.parametrize("operation", [None, "", "observe", "__class__", 1, [], {}, ["touch"]])
def test_an_operation_that_is_none(operation: Any) -> None:
    with pytest.raises(BadCall, match="unknown operation"):
        call_from_json({"op": operation})


EXTREME = [
    Call("get_new_blocks", {"num_blocks": 2**31 - 1}),
    Call("get_new_blocks", {"num_blocks": -(2**31) + 1}),
    Call("touch", {"blocks": [-(2**31) + 1, 2**31 - 1]}),
    Call("free_blocks", {"blocks": [1] * 200}),
    Call("evict_blocks", {"blocks": [2**31 - 1]}),
    Call("get_cached_block", {"block_hash": "9999999999", "groups": [-7]}),
    Call("get_cached_block", {"block_hash": "0.0", "groups": []}),
    *(
        Call(
            "cache_full_blocks",
            {
                "request": {"tokens": [-1] * 4},
                "blocks": blocks,
                "num_cached_blocks": first,
                "num_full_blocks": last,
                "block_size": size,
                "group": group,
                "block_mask": mask,
            },
        )
        for blocks in ([], [1], [1, -1], [9, 9])
        for first, last in ((0, 1), (-3, 2), (2, 1), (0, 2**31 - 1), (-5, -2))
        for size in (0, -2, 2, 3)
        for group in (0, -1, 7)
        for mask in (None, [], [True] * 9)
    ),
    *(
        Call(
            "cache_partial_block",
            {
                "request": {"tokens": tokens},
                "block": block,
                "num_tokens": num_tokens,
                "group": group,
                "block_size": size,
            },
        )
        for tokens in ([], [5] * 7)
        for block in (-1, 0, 1, 9)
        for num_tokens in (-1, 0, 1, 2, 2**31 - 1)
        for size in (0, -4, 4)
        for group in (0, 7)
    ),
]


def test_any_call_of_the_right_kind_can_be_judged(failure: Failure) -> None:
    config = LAYOUTS["partial"].config(4)
    for call in EXTREME:
        calls = [Call("get_new_blocks", {"num_blocks": 1}), call]
        hostile = Failure(**{**vars(failure), "config": config, "calls": calls})
        assert replay.replay(hostile, factory)[1] is None, call
