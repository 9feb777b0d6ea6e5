"""vLLM's own block hashes against the specification's, and every way in which they differ.

Real `Request` objects, hashed by the real `get_request_block_hasher`. A test named
`test_erratum_...` shows a defect of 0.25.1 and asserts the wrong behaviour. So it fails with a
release that mends it: then it is time to turn it round.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.fuzz.vllm_release import installed
from kvproof.spec.hashing import (
    CacheSalt,
    CacheSaltKey,
    ChainedHash,
    EmbedRow,
    ExtraKey,
    Identifier,
    LoraKey,
    LoraName,
    MultimodalFeature,
    PromptEmbedsKey,
    RequestContent,
    block_hashes,
    incremental_equals_fresh,
    key_injective,
    view,
)
from kvproof.spec.quantities import NumTokens, TokenId

found = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)

ZERO, A, B = EmbedRow(b"\x00\x00"), EmbedRow(b"\x01\x00"), EmbedRow(b"\x02\x00")
LENGTHS = {"a": 1, "b": 2, "c": 3}
"""An identifier names one item, so it has one length."""

both_algorithms = pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])


@cache
def engine() -> SimpleNamespace:
    """What is used of vLLM. It is imported when the first test asks for it."""
    parts = SimpleNamespace(**vars(installed().parts))
    homes = {
        "vllm.lora.request": ["LoRARequest"],
        "vllm.multimodal.inputs": ["MultiModalFeatureSpec", "PlaceholderRange"],
        "vllm.utils.hashing": ["sha256_cbor"],
        "vllm.v1.core.kv_cache_utils": [
            "BlockHashListWithBlockSize",
            "make_block_hash_with_group_id",
        ],
        "vllm.v1.core.sched.scheduler": ["Scheduler"],
        "vllm.v1.request": ["StreamingUpdate"],
    }
    for home, names in homes.items():
        for name in names:
            setattr(parts, name, getattr(importlib.import_module(home), name))
    parts.torch = importlib.import_module("torch")
    return parts


def features(items: Sequence[MultimodalFeature]) -> list[Any]:
    """The items as vLLM has them."""
    vllm = engine()
    return [
        vllm.MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=item.identifier,
            mm_position=vllm.PlaceholderRange(offset=item.offset, length=item.length),
        )
        for item in items
    ]


def hasher(size: int, algorithm: str) -> Any:
    vllm = engine()
    return vllm.get_request_block_hasher(size, getattr(vllm, algorithm))


def build(content: RequestContent, num_prompt_tokens: int | None = None, **options: Any) -> Any:
    """Return vLLM's request with this prompt; what is behind it is sampled, token by token.

    With prompt embeddings the prompt is what they cover.
    """
    vllm, rows = engine(), content.prompt_embeds
    if rows is not None:
        num_prompt_tokens = len(rows)
        embeds = [list(row or ZERO) for row in rows]
        options["prompt_embeds"] = vllm.torch.tensor(embeds, dtype=vllm.torch.uint8)
        options["prompt_is_token_ids"] = [row is None for row in rows]
    if content.lora_name is not None:
        options["lora_request"] = vllm.LoRARequest(content.lora_name, 1, "/adapter")
    request = vllm.Request(
        request_id="kvproof",
        prompt_token_ids=list(content.tokens[:num_prompt_tokens]),
        sampling_params=vllm.SamplingParams(max_tokens=1),
        pooling_params=None,
        mm_features=features(content.mm_features),
        cache_salt=content.cache_salt,
        **options,
    )
    for token in content.tokens[len(request.all_token_ids) :]:
        request.append_output_token_ids(token)
    return request


def fresh(content: RequestContent, size: int, algorithm: str = "sha256_cbor") -> list[bytes]:
    """vLLM's hashes of a request, computed at once."""
    hashes: list[bytes] = hasher(size, algorithm)(build(content))
    return hashes


def stepwise(
    content: RequestContent, num_prompt_tokens: int, size: int, algorithm: str = "sha256_cbor"
) -> list[bytes]:
    """vLLM's hashes of a request whose prompt is hashed first, then each token as it comes."""
    request = build(content, num_prompt_tokens, block_hasher=hasher(size, algorithm))
    hashes: list[bytes] = request.block_hashes
    return hashes


def content_of(request: Any) -> RequestContent:
    """What a real request without extra keys is to the specification."""
    items = [
        item(f.identifier, f.mm_position.offset, f.mm_position.length) for f in request.mm_features
    ]
    return RequestContent(tuple(request.all_token_ids), mm_features=tuple(items))


def item(identifier: str, offset: int, length: int) -> MultimodalFeature:
    return MultimodalFeature(Identifier(identifier), offset, NumTokens(length))


def toks(*tokens: int) -> tuple[TokenId, ...]:
    return tuple(map(TokenId, tokens))


# Where the release and the specification agree.


@st.composite
def requests(draw: st.DrawFn, /, confusable: bool = False, min_items: int = 0) -> RequestContent:
    """A request of few tokens, from alphabets so small that two are often equal. Items do not
    overlap. `confusable` is what two errata confuse: equal names, and embeddings of zeros.
    """
    items, place = [], 0
    for name in draw(st.lists(st.sampled_from("abc"), min_size=min_items, max_size=3)):
        place += draw(st.integers(0, 1))
        items.append(item(name, place, LENGTHS[name]))
        place += LENGTHS[name]
    tokens = draw(st.lists(st.integers(0, 1), min_size=max(place, 1), max_size=place + 4))
    row = st.none() | st.sampled_from([A, ZERO if confusable else B])
    num_rows = draw(st.none() | st.integers(max(place, 1), len(tokens)))
    return RequestContent(
        toks(*tokens),
        draw(st.none() | st.sampled_from("xy").map(LoraName)),
        draw(st.none() | st.sampled_from("xy" if confusable else "st").map(CacheSalt)),
        tuple(items),
        None if num_rows is None else draw(st.tuples(*[row] * num_rows)),
    )


@st.composite
def pairs(draw: st.DrawFn, /, confusable: bool = False) -> tuple[RequestContent, RequestContent]:
    """Two requests that are alike: the second takes some of its fields from another."""
    first, other = draw(requests(confusable)), draw(requests(confusable))
    fields: dict[str, Any] = {}
    for name in RequestContent.__slots__:
        fields[name] = getattr(other if draw(st.integers(0, 3)) == 0 else first, name)
    if confusable and draw(st.booleans()):
        fields["lora_name"], fields["cache_salt"] = fields["cache_salt"], fields["lora_name"]
    rows = fields["prompt_embeds"] and fields["prompt_embeds"][: len(fields["tokens"])]
    if confusable and rows and draw(st.booleans()):
        rows = tuple(row or ZERO for row in rows)
    last = len(fields["tokens"] if rows is None else rows)
    items = tuple(found for found in fields["mm_features"] if found.end <= last)
    return first, RequestContent(**{**fields, "prompt_embeds": rows, "mm_features": items})


@both_algorithms
@given(pairs(), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_hashes_are_equal_exactly_when_the_specification_says_so(
    algorithm: str, two: tuple[RequestContent, RequestContent], size: int
) -> None:
    real = [fresh(content, size, algorithm) for content in two]
    meant = [block_hashes(content, size) for content in two]
    assert list(map(len, real)) == list(map(len, meant))
    for i, one in enumerate(meant[0]):
        for j, other in enumerate(meant[1]):
            assert (real[0][i] == real[1][j]) == (one == other)


def as_released(block_hash: ChainedHash) -> object:
    """The hash as 0.25.1 has it: no kinds ('salt-is-lora'), no mask ('embeds-mask-missing')."""

    def value(found: ExtraKey) -> object:
        if isinstance(found, LoraKey | CacheSaltKey):
            return found[0]
        if isinstance(found, PromptEmbedsKey):
            return b"".join(row or ZERO for row in found.rows)
        return found.identifier, found.offset

    return [(unit.tokens, list(map(value, unit.extra_keys))) for unit in block_hash]


@both_algorithms
@given(pairs(confusable=True), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_two_errata_are_all_that_is_confused(
    algorithm: str, two: tuple[RequestContent, RequestContent], size: int
) -> None:
    real = [fresh(content, size, algorithm) for content in two]
    released = [[as_released(found) for found in block_hashes(content, size)] for content in two]
    for i, one in enumerate(released[0]):
        for j, other in enumerate(released[1]):
            assert (real[0][i] == real[1][j]) == (one == other)


def loses_an_item(content: RequestContent, num_prompt_tokens: int, size: int) -> bool:
    """Erratum 'last-item-only': the unit that the prompt ends in is completed later, and holds
    an item besides the last.
    """
    start = num_prompt_tokens // size * size
    return 0 < start <= len(content.tokens) - size and any(
        found.end > start for found in content.mm_features[:-1]
    )


@both_algorithms
@given(requests(min_items=2), st.integers(2, 4), st.lists(st.integers(0, 1), max_size=4))
@settings(max_examples=300, deadline=None)
def test_step_by_step_equals_at_once_unless_an_item_is_lost(
    algorithm: str, prompt: RequestContent, size: int, sampled: list[int]
) -> None:
    content = prompt.append_tokens(toks(*sampled))
    num_prompt_tokens = len(prompt.tokens if prompt.prompt_embeds is None else prompt.prompt_embeds)
    hashes = stepwise(content, num_prompt_tokens, size, algorithm)
    same = incremental_equals_fresh(hashes, fresh(content, size, algorithm))
    assert same == (not loses_an_item(content, num_prompt_tokens, size))


@given(st.integers(0, 12), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_coarser_view_is_the_specifications(num_tokens: int, size: int, scale: int) -> None:
    content = RequestContent(toks(*range(num_tokens)))
    real, meant = fresh(content, size), block_hashes(content, size)
    coarse = engine().BlockHashListWithBlockSize(real, size, size * scale)
    assert list(coarse) == [real[meant.index(found)] for found in view(meant, size, size * scale)]
    assert len(coarse) == len(view(meant, size, size * scale))


def test_groups_are_told_apart() -> None:
    hashes, groups = fresh(RequestContent(toks(0, 1, 0)), 1), (0, 1, 255, 256, 2**32 - 1)
    keys = {engine().make_block_hash_with_group_id(h, group) for h in hashes for group in groups}
    assert len(keys) == len(hashes) * len(groups)


# Errata. Each shows requests that must not share a hash, or one that must not have two.


def assert_shared(first: RequestContent, second: RequestContent, size: int = 4) -> None:
    """Two requests that differ share their first hash, so one reads the blocks of the other."""
    for algorithm in ("sha256", "sha256_cbor"):
        one, other = fresh(first, size, algorithm), fresh(second, size, algorithm)
        assert one[0] == other[0]
        assert not key_injective((first, one), (second, other), size)


def test_erratum_salt_is_lora() -> None:
    name = "X"
    adapted = RequestContent(toks(1, 2, 3, 4), lora_name=LoraName(name))
    salted = RequestContent(toks(1, 2, 3, 4), cache_salt=CacheSalt(name))
    assert_shared(adapted, salted)


def test_erratum_salt_is_lora_in_the_first_unit_only() -> None:
    tokens = toks(1, 2, 3, 4, 5, 6, 7, 8)
    adapted = fresh(RequestContent(tokens, lora_name=LoraName("X")), 4)
    salted = fresh(RequestContent(tokens, cache_salt=CacheSalt("X")), 4)
    assert [one == other for one, other in zip(adapted, salted, strict=True)] == [True, False]


def test_erratum_adapter_by_name() -> None:
    # The worker picks the weights by number, the hash names them by name.
    content = RequestContent(toks(1, 2, 3, 4))
    adapters = [engine().LoRARequest("x", number, f"/{number}") for number in (1, 2)]
    one, other = (build(content, lora_request=found) for found in adapters)
    assert one.lora_request.lora_int_id != other.lora_request.lora_int_id
    assert hasher(4, "sha256_cbor")(one) == hasher(4, "sha256_cbor")(other)


def test_erratum_empty_salt() -> None:
    salted = build(RequestContent(toks(1, 2, 3, 4)))
    salted.cache_salt = ""
    hashes = hasher(4, "sha256_cbor")(salted)
    assert hashes == fresh(RequestContent(toks(1, 2, 3, 4)), 4)


@pytest.mark.parametrize("hidden", [item("b", 0, 8), item("b", 1, 2)], ids=["over", "inside"])
def test_erratum_overlapping_items(hidden: MultimodalFeature) -> None:
    # A video and its own sound have the same place: only the first is in the key.
    tokens, video = toks(*[0] * 8), item("v", 0, 8)
    other = hidden._replace(identifier=Identifier("c"))
    assert_shared(
        RequestContent(tokens, mm_features=(video, hidden)),
        RequestContent(tokens, mm_features=(video, other)),
    )


def test_erratum_last_item_only() -> None:
    # Two images in the unit that the prompt ends in. Sampled tokens complete it.
    tokens = toks(1, 2, 3, 4, 0, 0, 5, 6)
    first = RequestContent(tokens, mm_features=(item("a", 4, 1), item("c", 5, 1)))
    second = RequestContent(tokens, mm_features=(item("b", 4, 1), item("c", 5, 1)))
    one, other = stepwise(first, 6, 4), stepwise(second, 6, 4)
    assert one == other
    assert not key_injective((first, one), (second, other), 4)
    assert not incremental_equals_fresh(one, fresh(first, 4))
    assert one == fresh(RequestContent(tokens, mm_features=(item("c", 5, 1),)), 4)


def session(prompt: RequestContent, sampled: int, size: int = 4) -> Any:
    """A streaming session that has computed its prompt and sampled one token."""
    num_tokens = len(prompt.tokens)
    request = build(prompt, block_hasher=hasher(size, "sha256_cbor"), resumable=True)
    request.append_output_token_ids(sampled)
    request.num_computed_tokens = num_tokens
    return request


def resume(request: Any, tokens: Sequence[int], items: Sequence[MultimodalFeature] = ()) -> None:
    """Let the real scheduler give a session its next input."""
    vllm = engine()
    update = vllm.StreamingUpdate(
        mm_features=features(items),
        prompt_token_ids=list(tokens),
        max_tokens=1,
        arrival_time=0.0,
        sampling_params=vllm.SamplingParams(max_tokens=1),
    )
    scheduler = SimpleNamespace(num_waiting_for_streaming_input=0, log_stats=False)
    vllm.Scheduler._update_request_as_session(scheduler, request, update)


def test_a_session_whose_sampled_token_completes_no_unit_is_right() -> None:
    request = session(RequestContent(toks(1, 2)), sampled=99)
    resume(request, [4, 5, 6, 7, 8, 9])
    assert list(request.all_token_ids) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert incremental_equals_fresh(request.block_hashes, fresh(content_of(request), 4))


def test_erratum_truncated_session() -> None:
    request = session(RequestContent(toks(1, 2, 3)), sampled=99)
    resume(request, [4, 5, 6, 7, 8])
    assert list(request.all_token_ids) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not incremental_equals_fresh(request.block_hashes, fresh(content_of(request), 4))

    stranger = RequestContent(toks(1, 2, 3, 99))
    assert request.block_hashes[0] == fresh(stranger, 4)[0]
    hashed = (content_of(request), request.block_hashes)
    assert not key_injective(hashed, (stranger, fresh(stranger, 4)), 4)


def test_erratum_last_item_only_in_a_session() -> None:
    hashed = []
    for identifier in ("a", "b"):
        request = session(RequestContent(toks(1, 2, 3, 4)), sampled=99)
        resume(request, [0, 0, 7, 8], [item(identifier, 0, 1), item("c", 1, 1)])
        hashed.append((content_of(request), request.block_hashes))
        assert not incremental_equals_fresh(request.block_hashes, fresh(content_of(request), 4))
    assert hashed[0][0] != hashed[1][0]
    assert hashed[0][1] == hashed[1][1]
    assert not key_injective(hashed[0], hashed[1], 4)


def test_erratum_embeds_mask_missing() -> None:
    # Who reads the token and who reads an embedding of zeros have one key.
    tokens = toks(1, 2, 3, 4)
    assert_shared(
        RequestContent(tokens, prompt_embeds=(ZERO, A, A, A)),
        RequestContent(tokens, prompt_embeds=(None, A, A, A)),
    )


def test_erratum_embeds_dtype() -> None:
    # The rows differ as numbers, but not as bytes.
    torch, content = engine().torch, RequestContent(toks(0, 0, 0, 0))
    half = torch.tensor([[1.0]] * 4, dtype=torch.float16)
    brain = half.view(torch.bfloat16)
    assert not torch.equal(half.float(), brain.float())
    one, other = (build(content, prompt_embeds=rows) for rows in (half, brain))
    assert hasher(4, "sha256_cbor")(one) == hasher(4, "sha256_cbor")(other)


def test_erratum_string_identity() -> None:
    # Pickle writes an object that occurs twice as a reference: equal contents, two hashes.
    name = "tenant"
    twin = "".join(["ten", "ant"])
    assert name == twin
    assert name is not twin

    def hashes(algorithm: str, again: str) -> list[bytes]:
        items = item(name, 0, 1), item(again, 1, 1)
        return fresh(RequestContent(toks(0, 0, 0, 0), mm_features=items), 4, algorithm)

    assert hashes("sha256", name) != hashes("sha256", twin)
    assert hashes("sha256_cbor", name) == hashes("sha256_cbor", twin)


def test_erratum_view_negative_index() -> None:
    # 5 units are two blocks of 2: the last block's hash is the fourth, not the fifth.
    hashes = fresh(RequestContent(toks(*range(5))), 1)
    coarse = engine().BlockHashListWithBlockSize(hashes, 1, 2)
    assert list(coarse)[-1] == hashes[3]
    assert coarse[-1] == hashes[4]


def test_erratum_events_cut_hashes_short(monkeypatch: pytest.MonkeyPatch) -> None:
    # What events tell by default is the last 64 bits.
    monkeypatch.delenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", raising=False)
    one, other = b"a" * 24 + b"c" * 8, b"b" * 24 + b"c" * 8
    told = engine().maybe_convert_block_hash
    assert told(one) == told(other)
