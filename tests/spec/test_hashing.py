"""The specification's block hashes on small examples, and on random requests."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.spec import rules
from kvproof.spec.hashing import (
    INCREMENTAL_EQUALS_FRESH,
    KEY_INJECTIVE,
    CacheSalt,
    CacheSaltKey,
    ChainedHash,
    EmbedRow,
    ExtraKey,
    Identifier,
    LoraKey,
    LoraName,
    MultimodalFeature,
    MultimodalKey,
    PromptEmbedsKey,
    RequestContent,
    Unit,
    block_hashes,
    extend,
    extra_keys,
    incremental_equals_fresh,
    kept,
    key_injective,
    view,
    with_group,
)
from kvproof.spec.manager_rules import RequestContentError
from kvproof.spec.properties import Class, Consequence
from kvproof.spec.quantities import GroupId, NumTokens, TokenId

A, B = EmbedRow(b"\x01\x00"), EmbedRow(b"\x02\x00")


def toks(*tokens: int) -> tuple[TokenId, ...]:
    return tuple(map(TokenId, tokens))


def item(identifier: str, offset: int, length: int) -> MultimodalFeature:
    return MultimodalFeature(Identifier(identifier), offset, NumTokens(length))


def lora(name: str, *tokens: int) -> RequestContent:
    return RequestContent(toks(*tokens), lora_name=LoraName(name))


def salted(salt: str, *tokens: int) -> RequestContent:
    return RequestContent(toks(*tokens), cache_salt=CacheSalt(salt))


def pictured(*items: MultimodalFeature, num_tokens: int = 8) -> RequestContent:
    return RequestContent(toks(*[0] * num_tokens), mm_features=items)


def plain(*tokens: int) -> RequestContent:
    return RequestContent(toks(*tokens))


def common(first: RequestContent, second: RequestContent, size: int = 4) -> int:
    """How many units two requests share."""
    pairs = zip(block_hashes(first, size), block_hashes(second, size), strict=False)
    return sum(one == other for one, other in pairs)


# What is hashed.


def test_a_hash_is_the_chain_of_units_from_the_first_on() -> None:
    first, second = Unit(toks(1, 2), ()), Unit(toks(3, 4), ())
    assert block_hashes(plain(1, 2, 3, 4, 5), 2) == ((first,), (first, second))


def test_tokens_that_fill_no_unit_have_no_hash() -> None:
    assert block_hashes(plain(1, 2, 3), 4) == ()
    assert block_hashes(plain(), 4) == ()


def test_equal_tokens_behind_another_prefix_have_another_hash() -> None:
    assert common(plain(1, 2, 3, 4), plain(9, 2, 3, 4), 2) == 0


def test_defect_salt_is_lora() -> None:
    keys: set[ExtraKey] = {LoraKey(LoraName("X")), CacheSaltKey(CacheSalt("X"))}
    assert len(keys) == 2
    assert common(lora("X", 1, 2, 3, 4), salted("X", 1, 2, 3, 4)) == 0


def test_defect_adapter_missing() -> None:
    tokens = 1, 2, 3, 4, 5, 6, 7, 8
    assert common(lora("a", *tokens), lora("b", *tokens)) == 0
    assert common(lora("a", *tokens), plain(*tokens)) == 0
    assert common(lora("a", *tokens), lora("a", *tokens)) == 2
    assert extra_keys(lora("a", *tokens), 4, 8) == (LoraKey(LoraName("a")),)


def test_defect_short_image_hash() -> None:
    first, second = "abcd" * 16 + "0", "abcd" * 16 + "1"
    assert common(pictured(item(first, 0, 2)), pictured(item(second, 0, 2))) == 0
    assert common(pictured(item(first, 0, 2)), pictured(item(first, 0, 2))) == 2


def test_defect_truncated_session() -> None:
    session = plain(1, 2, 3, 99)
    hashes = block_hashes(session, 4)
    session = session.truncate(NumTokens(3)).append_tokens(toks(4, 5, 6, 7, 8))
    right = block_hashes(plain(1, 2, 3, 4, 5, 6, 7, 8), 4)
    assert extend(kept(hashes, NumTokens(3), 4), session, 4) == right

    stale = extend(hashes, session, 4)
    assert not incremental_equals_fresh(stale, right)
    assert not key_injective((session, stale), (plain(1, 2, 3, 99), hashes), 4)


def test_the_salt_is_in_the_first_unit_only_and_keeps_all_apart() -> None:
    request = salted("s", 1, 2, 3, 4)
    (first, second) = block_hashes(request, 2)[-1]
    assert first.extra_keys == (CacheSaltKey(CacheSalt("s")),)
    assert second.extra_keys == ()
    assert common(request, salted("t", 1, 2, 3, 4), 2) == 0
    assert common(request, plain(1, 2, 3, 4), 2) == 0


def key(identifier: str, offset: int) -> MultimodalKey:
    return MultimodalKey(Identifier(identifier), offset)


@pytest.mark.parametrize(
    ("items", "keys"),
    [
        ([item("a", 0, 4)], [[key("a", 0)], []]),
        ([item("a", 4, 4)], [[], [key("a", 0)]]),
        ([item("a", 3, 1)], [[key("a", 3)], []]),
        ([item("a", 3, 2)], [[key("a", 3)], [key("a", -1)]]),
        ([item("a", 0, 8)], [[key("a", 0)], [key("a", -4)]]),
        ([item("a", 2, 2), item("b", 4, 2)], [[key("a", 2)], [key("b", 0)]]),
        ([item("a", 4, 1), item("b", 5, 1)], [[], [key("a", 0), key("b", 1)]]),
        (
            [item("a", 0, 8), item("b", 0, 8)],
            [[key("a", 0), key("b", 0)], [key("a", -4), key("b", -4)]],
        ),
        ([item("a", 0, 8), item("b", 1, 2)], [[key("a", 0), key("b", 1)], [key("a", -4)]]),
    ],
)
def test_an_item_is_in_every_unit_that_it_has_a_token_in(
    items: list[MultimodalFeature], keys: list[list[MultimodalKey]]
) -> None:
    units = block_hashes(pictured(*items), 4)[-1]
    assert [list(unit.extra_keys) for unit in units] == keys


def test_the_same_item_elsewhere_is_another_key() -> None:
    assert common(pictured(item("a", 0, 2)), pictured(item("a", 1, 2))) == 0
    assert common(pictured(item("a", 4, 2)), pictured(item("a", 5, 2))) == 1


def test_embeddings_are_in_every_unit() -> None:
    request = RequestContent(toks(0, 0, 0, 5, 6, 7), prompt_embeds=(A, None, B))
    rows = [unit.extra_keys for unit in block_hashes(request, 2)[-1]]
    assert rows == [
        (PromptEmbedsKey((A, None)),),
        (PromptEmbedsKey((B,)),),
        (PromptEmbedsKey(()),),
    ]


def test_embeddings_are_told_from_each_other_and_from_tokens() -> None:
    def embedded(*rows: EmbedRow | None) -> RequestContent:
        return RequestContent(toks(0, 0, 0, 0), prompt_embeds=rows)

    assert common(embedded(A, A), embedded(A, B), 2) == 0
    assert common(embedded(A, A, A, A), embedded(A, A, A, B), 2) == 1
    assert common(embedded(A, A), embedded(A, A), 2) == 2
    assert common(embedded(A, A), plain(0, 0, 0, 0), 2) == 0
    assert common(embedded(None, None), plain(0, 0, 0, 0), 2) == 0
    zero = EmbedRow(b"\x00\x00")
    assert common(embedded(zero, A), embedded(None, A), 2) == 0


def test_extra_keys_are_ordered_by_kind() -> None:
    request = RequestContent(
        toks(0, 0), LoraName("x"), CacheSalt("x"), (item("x", 1, 1),), (A, None)
    )
    assert extra_keys(request, 0, 2) == (
        LoraKey(LoraName("x")),
        key("x", 1),
        CacheSaltKey(CacheSalt("x")),
        PromptEmbedsKey((A, None)),
    )


# Coarser views and groups.


def test_a_coarse_block_has_the_hash_of_its_last_unit() -> None:
    hashes = block_hashes(plain(*range(10)), 2)
    assert view(hashes, 2, 2) == hashes
    assert view(hashes, 2, 4) == (hashes[1], hashes[3])
    assert view(hashes, 2, 6) == (hashes[2],)
    assert view(hashes, 2, 12) == ()


def test_two_views_of_one_prefix_agree_where_they_meet() -> None:
    hashes = block_hashes(plain(*range(12)), 2)
    assert view(hashes, 2, 4)[2] == view(hashes, 2, 6)[1] == view(hashes, 2, 12)[0]


@pytest.mark.parametrize(("unit", "size"), [(2, 3), (4, 2), (2, 0), (2, -2), (0, 4), (-2, 4)])
def test_a_block_that_is_no_multiple_of_the_unit_is_refused(unit: int, size: int) -> None:
    with pytest.raises(rules.BlockSizeError, match="one-block-size"):
        view((), unit, size)


def test_groups_are_told_apart() -> None:
    (block_hash,) = block_hashes(plain(1, 2), 2)
    assert with_group(block_hash, GroupId(0)) != with_group(block_hash, GroupId(1))
    assert with_group(block_hash, GroupId(1)) == (block_hash, 1)


# What is refused.


def truncate(request: RequestContent, num_tokens: int) -> Callable[[], object]:
    return lambda: request.truncate(NumTokens(num_tokens))


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("name-given", lambda: lora("", 1)),
        ("name-given", lambda: salted("", 1)),
        ("name-given", lambda: pictured(item("", 0, 1))),
        ("items-in-order", lambda: pictured(item("a", 1, 1), item("b", 0, 1))),
        ("items-in-order", lambda: pictured(item("a", 0, 0))),
        ("items-in-order", lambda: pictured(item("a", -1, 2))),
        ("items-in-order", lambda: pictured(item("a", 7, 2))),
        ("items-in-order", lambda: plain(1).append_tokens(toks(2), [item("a", -1, 2)])),
        ("items-in-order", truncate(pictured(item("a", 1, 2)), 2)),
    ],
)
def test_contents_that_cannot_be_are_refused(rule: str, call: Callable[[], object]) -> None:
    with pytest.raises(RequestContentError, match=rule):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: RequestContent(toks(1), prompt_embeds=(A, A)),
        truncate(plain(1, 2), 3),
        truncate(plain(1, 2), -1),
        lambda: kept((), NumTokens(-1), 2),
        lambda: extend(block_hashes(plain(1, 2, 3, 4), 2), plain(1, 2, 3), 2),
    ],
)
def test_what_lies_beyond_the_tokens_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(rules.TokenCountError, match="within-tokens"):
        call()


@pytest.mark.parametrize("size", [0, -1])
def test_a_unit_without_tokens_is_refused(size: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: block_hashes(plain(1), size),
        lambda: extend((), plain(1), size),
        lambda: kept((), NumTokens(0), size),
    ]
    for call in calls:
        with pytest.raises(rules.BlockSizeError, match="one-block-size"):
            call()


def test_truncation_drops_what_belongs_to_the_dropped_tokens() -> None:
    request = RequestContent(
        toks(0, 1, 2, 3), mm_features=(item("a", 0, 2), item("b", 2, 1)), prompt_embeds=(A, B, A)
    )
    assert request.truncate(NumTokens(2)) == RequestContent(
        toks(0, 1), mm_features=(item("a", 0, 2),), prompt_embeds=(A, B)
    )
    assert request.truncate(NumTokens(4)) == request
    assert plain(1, 2).truncate(NumTokens(0)) == plain()


def test_what_is_appended_counts_from_its_own_first_token() -> None:
    request = pictured(item("a", 0, 1), num_tokens=2).append_tokens(toks(0, 0), [item("b", 1, 1)])
    assert request == pictured(item("a", 0, 1), item("b", 3, 1), num_tokens=4)


# Random requests.

LENGTHS = {"a": 1, "b": 2, "c": 3}
"""An identifier names one item, so it has one length."""


@st.composite
def requests(draw: st.DrawFn) -> RequestContent:
    """A request of few tokens, from alphabets so small that two are often equal."""
    tokens = draw(st.lists(st.integers(0, 1), max_size=9))
    items, place = [], 0
    for name in draw(st.lists(st.sampled_from("abc"), max_size=3)):
        place += draw(st.integers(0, 2))
        if place + LENGTHS[name] > len(tokens):
            break
        items.append(item(name, place, LENGTHS[name]))
        place += 0 if draw(st.booleans()) else LENGTHS[name]
    rows = st.lists(st.sampled_from([None, A, B]), max_size=len(tokens)).map(tuple)
    return RequestContent(
        toks(*tokens),
        draw(st.none() | st.sampled_from("xy").map(LoraName)),
        draw(st.none() | st.sampled_from("xs").map(CacheSalt)),
        tuple(items),
        draw(st.none() | rows),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[RequestContent, RequestContent]:
    """Two requests that are alike: the second takes some of its fields from another."""
    first, other = draw(requests()), draw(requests())
    fields: dict[str, Any] = {}
    for name in RequestContent.__slots__:
        fields[name] = getattr(other if draw(st.integers(0, 3)) == 0 else first, name)
    num_tokens = len(fields["tokens"])
    fields["mm_features"] = tuple(
        found for found in fields["mm_features"] if found.end <= num_tokens
    )
    fields["prompt_embeds"] = fields["prompt_embeds"] and fields["prompt_embeds"][:num_tokens]
    return first, RequestContent(**fields)


def read_at(request: RequestContent, position: int) -> object:
    """Everything that the keys and values of one position depend on, said position by position."""
    found = [f for f in request.mm_features if f.offset <= position < f.offset + f.length]
    rows = request.prompt_embeds
    return (
        request.tokens[position],
        ("lora", request.lora_name),
        ("salt", request.cache_salt),
        [(f.identifier, position - f.offset) for f in found],
        None if rows is None else [rows[position] if position < len(rows) else "behind the prompt"],
    )


@given(pairs(), st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_hashes_are_equal_exactly_when_what_is_read_is_equal(
    two: tuple[RequestContent, RequestContent], size: int
) -> None:
    first, second = two
    for i, one in enumerate(block_hashes(first, size)):
        for j, other in enumerate(block_hashes(second, size)):
            reads = [read_at(first, position) for position in range((i + 1) * size)]
            others = [read_at(second, position) for position in range((j + 1) * size)]
            assert (one == other) == (reads == others)


def untagged(block_hash: ChainedHash) -> object:
    """The hash as it is when extra keys are values without their kinds."""
    return [(unit.tokens, [found[:-1] for found in unit.extra_keys]) for unit in block_hash]


def test_keys_without_their_kinds_are_not_injective() -> None:
    first, second = lora("X", 1, 2), salted("X", 1, 2)
    hashed = [(r, [untagged(found) for found in block_hashes(r, 2)]) for r in (first, second)]
    assert not key_injective(hashed[0], hashed[1], 2)


@given(requests(), st.integers(1, 4), st.data())
@settings(max_examples=300, deadline=None)
def test_step_by_step_equals_at_once(
    request: RequestContent, size: int, data: st.DataObject
) -> None:
    hashes = block_hashes(request, size)
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.sampled_from(["append", "session", "truncate", "extend"]))
        if step == "append":
            more = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
            request = request.append_tokens(toks(*more))
        elif step == "session":
            request = request.append_tokens(toks(0, 0), [item("a", 1, 1)])
        elif step == "truncate":
            whole = [
                num_tokens
                for num_tokens in range(len(request.tokens) + 1)
                if not any(f.offset < num_tokens < f.end for f in request.mm_features)
            ]
            num_tokens = NumTokens(data.draw(st.sampled_from(whole)))
            request, hashes = request.truncate(num_tokens), kept(hashes, num_tokens, size)
        else:
            hashes = extend(hashes, request, size)
        assert incremental_equals_fresh(extend(hashes, request, size), block_hashes(request, size))


@given(pairs(), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_a_view_tells_blocks_apart_exactly_as_hashes_of_that_size_do(
    two: tuple[RequestContent, RequestContent], size: int, scale: int
) -> None:
    coarse = [view(block_hashes(request, size), size, size * scale) for request in two]
    whole = [block_hashes(request, size * scale) for request in two]
    assert list(map(len, coarse)) == list(map(len, whole))
    for i, one in enumerate(coarse[0]):
        for j, other in enumerate(coarse[1]):
            assert (one == other) == (whole[0][i] == whole[1][j])


def test_the_properties_say_what_they_are() -> None:
    for found in (KEY_INJECTIVE, INCREMENTAL_EQUALS_FRESH):
        assert found.klass is Class.SAFETY
        assert found.consequence is Consequence.WRONG_DATA
    assert KEY_INJECTIVE.name == "key-injective"
    assert INCREMENTAL_EQUALS_FRESH.name == "incremental-equals-fresh"
