"""What stands for a request's tokens, against the specification's hashes."""

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.fuzz.elements import (
    content_of,
    draw_extra,
    elements,
    is_extra,
    rule_of,
    specified,
)
from kvproof.fuzz.picks import HypothesisPick, RandomPick
from kvproof.spec.hashing import block_hashes

Drawn = tuple[list[int], dict[str, Any] | None]


@st.composite
def requests(draw: st.DrawFn) -> Drawn:
    """A prompt, and what else is hashed of it."""
    tokens = draw(st.lists(st.integers(0, 1), min_size=1, max_size=9))
    return tokens, draw_extra(HypothesisPick(draw(st.data())), len(tokens))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Drawn, Drawn]:
    """Two requests that are alike: the second has a part or two of its own."""
    tokens, extra = draw(requests())
    others = [*tokens]
    if draw(st.booleans()):
        others[draw(st.integers(0, len(tokens) - 1))] ^= 1
    parts = dict(extra or {})
    parts.update(draw_extra(HypothesisPick(draw(st.data())), len(tokens)) or {})
    return (tokens, extra), (others, parts)


@given(pairs(), st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_prefixes_are_equal_exactly_when_their_hashes_are(
    two: tuple[Drawn, Drawn], unit: int
) -> None:
    hashed = [block_hashes(specified(content_of(*one)), unit) for one in two]
    stand = [elements(*one, unit) for one in two]
    for end in range(unit, len(two[0][0]) + 1, unit):
        one, other = (hashes[end // unit - 1] for hashes in hashed)
        assert (stand[0][:end] == stand[1][:end]) == (one == other)


@given(pairs(), st.integers(2, 4))
@settings(max_examples=200, deadline=None)
def test_a_finer_unit_tells_the_same_prefixes_apart(two: tuple[Drawn, Drawn], unit: int) -> None:
    coarse, fine = ([elements(*one, size) for one in two] for size in (unit, 1))
    for end in range(unit, len(two[0][0]) + 1, unit):
        same = [one[:end] == other[:end] for one, other in (coarse, fine)]
        assert same[0] == same[1]


@given(requests(), st.lists(st.integers(0, 1), max_size=6), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_an_element_stays_when_tokens_are_appended(
    request: Drawn, more: list[int], unit: int
) -> None:
    tokens, extra = request
    longer = elements(tokens + more, extra, unit)
    assert longer[: len(tokens)] == elements(tokens, extra, unit)


@given(requests(), st.integers(1, 4), st.data())
@settings(max_examples=200, deadline=None)
def test_items_and_rows_may_reach_beyond_the_tokens(
    request: Drawn, unit: int, data: st.DataObject
) -> None:
    tokens, extra = request
    end = data.draw(st.integers(0, len(tokens)))
    assert elements(tokens[:end], extra, unit) == elements(tokens, extra, unit)[:end]


def test_tokens_stand_for_themselves_where_nothing_else_is_hashed() -> None:
    assert elements([5, 6, 7], None, 2) == (5, 6, 7)
    assert elements([5, 6, 7], {}, 2) == (5, 6, 7)
    assert elements([5, 6, 7], {"salt": "a"}, 2)[2:] == (7,)
    assert elements([5, 6, 7, 8], {"mm": [["a", 2, 1]]}, 2)[:2] == (5, 6)


def test_elements_are_told_apart_from_tokens_and_fit_a_hash_on_the_wire() -> None:
    keyed = elements([0, 1] * 20, {"lora": ["a", 1]}, 4)
    assert all(2**31 <= element < 10**10 for element in keyed)


def test_a_kind_is_a_part_of_the_element() -> None:
    texts: list[dict[str, Any]] = [{"lora": ["a", 1]}, {"salt": "a"}, {"mm": [["a", 0, 1]]}]
    assert len({elements([0], extra, 1) for extra in texts}) == 3


def test_an_image_is_the_same_only_where_it_begins_at_the_same_place() -> None:
    first, second = ({"mm": [["c0ffee", offset, 5]]} for offset in (1, 2))
    one, other = elements([0] * 8, first, 4), elements([0] * 8, second, 4)
    assert one[0] != other[0]
    assert one[4] != other[4]


def test_elements_are_the_same_in_every_process() -> None:
    program = "from kvproof.fuzz.elements import elements; print(*elements([3], {'salt': 'a'}, 1))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert [int(told.stdout)] == [*elements([3], {"salt": "a"}, 1)]


@pytest.mark.parametrize("length", [1, 2, 9])
def test_what_is_drawn_is_a_legal_request(length: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(400):
        extra = draw_extra(RandomPick(seed.to_bytes(2)), length)
        assert json.loads(json.dumps(extra)) == extra
        assert is_extra(extra)
        assert rule_of([0] * length, extra) is None
        assert extra != {}
        kinds.update([*(extra or ["none"])])
    assert set(kinds) == {"none", "lora", "salt", "mm", "embeds"}
    assert min(kinds.values()) > 20
    assert kinds["none"] > max(kinds[kind] for kind in ("lora", "salt", "mm", "embeds"))


def test_what_is_drawn_collides_on_purpose() -> None:
    drawn = [draw_extra(RandomPick(seed.to_bytes(2)), 9) or {} for seed in range(400)]
    names = {extra["lora"][0] for extra in drawn if "lora" in extra}
    items = {item[0] for extra in drawn for item in extra.get("mm", ())}
    assert names == {extra["salt"] for extra in drawn if "salt" in extra}
    assert names & items
    assert {"a0b0", "a0b1"} <= items


def test_a_name_goes_with_one_id_and_an_identifier_with_one_length() -> None:
    drawn = [draw_extra(RandomPick(seed.to_bytes(2)), 9) or {} for seed in range(400)]
    for pairs in (
        {tuple(extra["lora"]) for extra in drawn if "lora" in extra},
        {(item[0], item[2]) for extra in drawn for item in extra.get("mm", ())},
    ):
        assert len(pairs) == len({name for name, _ in pairs})


@pytest.mark.parametrize(
    "value",
    [
        7,
        {"adapter": "a"},
        {"lora": "a"},
        {"lora": ["a", True]},
        {"salt": 1},
        {"mm": [["a", 0]]},
        {"mm": [["a", 0, False]]},
        {"mm": "a"},
        {"embeds": [256]},
        {"embeds": [1.0]},
        {"embeds": None},
    ],
)
def test_what_has_not_the_form_is_refused(value: object) -> None:
    assert not is_extra(value)


@pytest.mark.parametrize(
    ("rule", "extra"),
    [
        ("name-given", {"lora": ["", 1]}),
        ("name-given", {"salt": ""}),
        ("items-in-order", {"mm": [["a", 1, 1], ["a", 0, 1]]}),
        ("items-in-order", {"mm": [["a0b0", 1, 2]]}),
        ("within-tokens", {"embeds": [1, 1, 1]}),
        ("within-tokens", {"embeds": [1]}),
    ],
)
def test_what_can_be_in_no_request_breaks_a_rule(rule: str, extra: dict[str, Any]) -> None:
    assert is_extra(extra)
    broken = rule_of([0, 0], extra)
    assert broken is not None
    assert broken.name == rule
