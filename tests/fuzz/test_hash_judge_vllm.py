"""vLLM's own hashes before the judge: real `Request` objects, hashed step by step and at once.

A test named `test_erratum_...` shows a defect of 0.25.1 and asserts the wrong behaviour. So it
fails with a release that mends it: then it is time to turn it round.
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

from kvproof.fuzz.elements import content_of, draw_extra
from kvproof.fuzz.hash_judge import HashJudge
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.picks import HypothesisPick
from kvproof.fuzz.vllm_release import installed

Extra = dict[str, Any] | None

found = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)


@cache
def vllm() -> SimpleNamespace:
    parts = SimpleNamespace(**vars(installed().parts))
    for home, names in {
        "vllm.lora.request": ["LoRARequest"],
        "vllm.multimodal.inputs": ["MultiModalFeatureSpec", "PlaceholderRange"],
        "vllm.v1.core.sched.scheduler": ["Scheduler"],
        "vllm.v1.request": ["StreamingUpdate"],
    }.items():
        for name in names:
            setattr(parts, name, getattr(importlib.import_module(home), name))
    parts.torch = importlib.import_module("torch")
    return parts


class Released:
    """Requests that vLLM hashes itself, step by step and at once; the judge sees both."""

    def __init__(self, unit: int = 4) -> None:
        parts = vllm()
        self.judge = HashJudge(ManagerConfig(8, (GroupConfig("full", unit),)))
        self.hasher = parts.get_request_block_hasher(unit, parts.sha256)
        self.requests: dict[str, tuple[Any, Extra, int]] = {}

    def new(self, name: str, tokens: Sequence[int], extra: Extra = None) -> Finding | None:
        self.requests[name] = self._request(tokens, extra, self.hasher), extra, len(tokens)
        return self._judge(name)

    def append(self, name: str, tokens: Sequence[int]) -> Finding | None:
        self.requests[name][0].append_output_token_ids(list(tokens))
        return self._judge(name)

    def resume(
        self, name: str, num_computed: int, tokens: Sequence[int], items: Sequence[Any] = ()
    ) -> Finding | None:
        """Let the scheduler give a session its next input; items count from its first token."""
        request, extra, _ = self.requests[name]
        request.num_computed_tokens = num_computed
        update = vllm().StreamingUpdate(
            mm_features=self._features(items),
            prompt_token_ids=list(tokens),
            max_tokens=1,
            arrival_time=0.0,
            sampling_params=vllm().SamplingParams(max_tokens=1),
        )
        scheduler = SimpleNamespace(num_waiting_for_streaming_input=0, log_stats=False)
        vllm().Scheduler._update_request_as_session(scheduler, request, update)
        moved = [[identifier, offset + num_computed, size] for identifier, offset, size in items]
        known = dict(extra or {})
        if moved:
            known["mm"] = [*known.get("mm", []), *moved]
        self.requests[name] = request, known, len(request.all_token_ids)
        return self._judge(name)

    def _judge(self, name: str) -> Finding | None:
        request, extra, num_prompt_tokens = self.requests[name]
        tokens = list(request.all_token_ids)
        equal = self._request(tokens[:num_prompt_tokens], extra, None)
        equal.append_output_token_ids(tokens[num_prompt_tokens:])
        content, fresh = content_of(tokens, extra), self.hasher(equal)
        return self.judge.judge(name, content, request.block_hashes, fresh)

    def _request(self, tokens: Sequence[int], extra: Extra, hasher: Any) -> Any:
        parts, known = vllm(), extra or {}
        options: dict[str, Any] = {"cache_salt": known.get("salt"), "block_hasher": hasher}
        if "lora" in known:
            options["lora_request"] = parts.LoRARequest(*known["lora"], "/adapter")
        if "embeds" in known:
            rows = [[row or 0] for row in known["embeds"]]
            options["prompt_embeds"] = parts.torch.tensor(rows, dtype=parts.torch.uint8)
            options["prompt_is_token_ids"] = [row is None for row in known["embeds"]]
        sampling = parts.SamplingParams(max_tokens=1)
        items = self._features(known.get("mm", ()))
        return parts.Request("r", list(tokens), sampling, None, mm_features=items, **options)

    def _features(self, items: Sequence[Any]) -> list[Any]:
        parts = vllm()
        return [
            parts.MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=identifier,
                mm_position=parts.PlaceholderRange(offset=offset, length=length),
            )
            for identifier, offset, length in items
        ]


def broken(finding: Finding | None) -> str:
    """Return the property that was broken."""
    assert finding is not None
    return finding.property


def assert_shared(first: Extra, second: Extra, tokens: Sequence[int] = (0,) * 4) -> None:
    """The release has one hash for two requests that differ in this."""
    released = Released()
    assert released.new("a", tokens, first) is None
    assert broken(released.new("b", tokens, second)) == "key-injective"


def test_erratum_salt_is_lora() -> None:
    assert_shared({"lora": ["X", 1]}, {"salt": "X"})
    embeds = {"embeds": [1] * 4}
    assert_shared({"lora": ["X", 1], **embeds}, {"salt": "X", **embeds})


def test_erratum_embeds_mask_missing() -> None:
    assert_shared({"embeds": [0, 1, 1, 1]}, {"embeds": [None, 1, 1, 1]})


def test_erratum_overlapping_items() -> None:
    first, second = ({"mm": [["v", 0, 8], [sound, 0, 8]]} for sound in ("a", "b"))
    assert_shared(first, second, [0] * 8)


def test_erratum_last_item_only() -> None:
    released = Released()
    extra = {"mm": [["a", 4, 1], ["c", 5, 1]]}
    assert released.new("a", [0] * 6, extra) is None
    assert broken(released.append("a", [0, 0])) == "incremental-equals-fresh"


def test_erratum_truncated_session() -> None:
    released = Released()
    assert released.new("a", [1, 2, 3]) is None
    assert released.append("a", [99]) is None
    finding = released.resume("a", 3, [4, 5, 6, 7, 8])
    assert broken(finding) == "incremental-equals-fresh"


def test_erratum_truncated_session_has_a_hash_for_a_unit_that_is_not_full() -> None:
    released = Released()
    assert released.new("a", [1, 2, 3]) is None
    assert released.append("a", [99]) is None
    finding = released.resume("a", 3, [])
    assert finding is not None
    assert (finding.expected, finding.actual) == ("0 hashes", "1 hashes")


def test_erratum_of_a_sessions_next_images_only_the_last_is_hashed() -> None:
    # The first fills a whole unit of its own, and is in no key at all.
    both = []
    for image in ("a", "b"):
        released = Released()
        assert released.new("s", [0] * 4) is None
        finding = released.resume("s", 4, [0] * 8, [[image, 0, 4], ["c", 4, 4]])
        assert broken(finding) == "incremental-equals-fresh"
        both.append(list(released.requests["s"][0].block_hashes))
    assert both[0] == both[1]


@st.composite
def sound(draw: st.DrawFn) -> tuple[Sequence[int], Extra, list[int]]:
    """A prompt and what is sampled, free of what the errata confuse: no salt, no embedding of
    zeros, and a single item.
    """
    tokens = draw(st.lists(st.integers(0, 1), min_size=1, max_size=9))
    drawn = draw_extra(HypothesisPick(draw(st.data())), len(tokens)) or {}
    extra = {kind: part for kind, part in drawn.items() if kind != "salt"}
    if "mm" in extra:
        extra["mm"] = extra["mm"][:1]
    if "embeds" in extra:
        extra["embeds"] = [row or 1 for row in extra["embeds"]]
    return tokens, extra, draw(st.lists(st.integers(0, 1), max_size=5))


@given(st.lists(sound(), max_size=6), st.integers(2, 4))
@settings(max_examples=150, deadline=None)
def test_the_release_passes_where_no_erratum_is_met(
    some: list[tuple[Sequence[int], Extra, list[int]]], unit: int
) -> None:
    released = Released(unit)
    for number, (tokens, extra, sampled) in enumerate(some):
        assert released.new(f"r{number}", tokens, extra) is None
        for token in sampled:
            assert released.append(f"r{number}", [token]) is None
