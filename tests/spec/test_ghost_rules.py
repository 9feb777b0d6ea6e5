"""For each protocol rule: what goes wrong without it, from the first admission to a token that
reads, or writes, what is not its own. With the rule, the call that breaks it is refused.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from kvproof.spec import ghost_transitions as do
from kvproof.spec import logic
from kvproof.spec.attention import Full, SlidingWindow
from kvproof.spec.ghost_concrete import ConcreteGhostUniverse, Shape
from kvproof.spec.ghost_properties import CONTENTS_INVARIANT
from kvproof.spec.ghost_state import GhostState, Tokens
from kvproof.spec.logic import CheckFailed
from kvproof.spec.protocol_rules import PROTOCOL_RULES, ProtocolError

A: Tokens = (0, 0, 0, 0, 0, 0)
B: Tokens = (0, 0, 1, 1, 1, 1)
A3: Tokens = (0, 0, 0, 1, 1, 1)
C: Tokens = (1, 1, 1, 1, 1, 1)

FULL, WINDOW_2, WINDOW_3 = Full(), SlidingWindow(2), SlidingWindow(3)


class Engine:
    """The calls of an engine with blocks of two tokens, in one group."""

    def __init__(self, attention: Any) -> None:
        shape = Shape(2, attention)
        self.state = GhostState(ConcreteGhostUniverse(6, 2, [shape], [A, B, A3, C]))

    def __getattr__(self, name: str) -> Callable[..., None]:
        transition = getattr(do, name)
        in_group = "group" in transition.__annotations__

        def call(*arguments: Any) -> None:
            request = (arguments[0], 0) if in_group else arguments[:1]
            transition(self.state, *request, *arguments[1:])

        return call

    def begins(self, request: int, tokens: Tokens, known: int, *blocks: int) -> None:
        """Let a request start with nothing computed, and give it blocks."""
        self.admit(request, tokens, 0, known)
        self.start(request)
        for block in blocks:
            self.append(request, block)

    def computes(self, request: int, count: int) -> None:
        """Schedule so many tokens of the request, and write them."""
        for _ in range(count):
            self.schedule(request)
        for _ in range(count):
            self.write(request)

    def publishes(self, request: int, *indices: int) -> None:
        """Publish blocks."""
        for index in indices:
            self.publish(request, index)

    def hits(self, request: int, tokens: Tokens, *blocks: int) -> None:
        """Let a request start with a hit of these blocks, and compute one token in block 5."""
        self.admit(request, tokens, 2 * len(blocks), 2 * len(blocks) + 1)
        for block in blocks:
            self.hit(request, block)
        self.start(request)
        self.append(request, 5)
        self.computes(request, 1)


def acquire_unheld(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.computes(0, 2)
    engine.begins(1, C, 3, 1)
    engine.computes(1, 1)


def acquire_retracts(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.computes(0, 2)
    engine.publishes(0, 0)
    engine.stop(0)
    engine.free_last(0)
    engine.begins(1, C, 3, 1)
    engine.computes(1, 1)


def hit_key(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.computes(0, 2)
    engine.publishes(0, 0)
    engine.hits(1, C, 1)
    engine.read(1, 2, 0)


def hit_below_known(engine: Engine) -> None:
    engine.begins(0, A, 5, 1, 2)
    engine.computes(0, 4)
    engine.publishes(0, 0, 1)
    engine.admit(1, A, 2, 3)
    engine.hit(1, 1)
    engine.hit(1, 2)
    engine.start(1)
    engine.accept(1, A3, 3, 4)
    engine.computes(1, 1)


def publish_scheduled(engine: Engine) -> None:
    engine.begins(0, A, 5, 1, 2)
    engine.computes(0, 2)
    engine.publishes(0, 0, 1)
    engine.hits(1, A, 1, 2)
    engine.read(1, 4, 3)


def publish_known(engine: Engine) -> None:
    engine.begins(0, A, 3, 1, 2)
    engine.computes(0, 4)
    engine.publishes(0, 0, 1)
    engine.accept(0, A3, 3, 4)
    engine.computes(0, 1)


def writes_before_reads(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.schedule(0)
    engine.read(0, 0, 0)


def ready_complete(engine: Engine) -> None:
    engine.admit(0, A, 2, 3)
    engine.start(0)
    engine.append(0, 1)
    engine.append(0, 2)
    engine.computes(0, 1)
    engine.read(0, 2, 0)


def pad_invisible(engine: Engine) -> None:
    engine.admit(0, A, 2, 4)
    engine.pad(0)
    engine.start(0)
    engine.append(0, 1)
    engine.computes(0, 1)
    engine.read(0, 2, 1)


def skip_invisible(engine: Engine) -> None:
    engine.begins(0, A, 6, 1, 2)
    engine.computes(0, 2)
    engine.accept(0, A, 2, 6)
    engine.skip(0, 0)
    engine.computes(0, 1)
    engine.read(0, 2, 1)


def skip_written(engine: Engine) -> None:
    engine.admit(0, A, 4, 5)
    engine.append(0, 1)
    engine.append(0, 2)
    for _ in range(4):
        engine.schedule(0)
    engine.start(0)
    engine.skip(0, 0)
    engine.write(0)


def accepted_agree(engine: Engine) -> None:
    engine.begins(0, A, 2, 1, 2, 3)
    engine.computes(0, 4)
    engine.accept(0, B, 4, 5)
    engine.computes(0, 1)
    engine.read(0, 4, 2)


def known_fixed(engine: Engine) -> None:
    engine.begins(0, A, 4, 1, 2)
    engine.computes(0, 4)
    engine.publishes(0, 0, 1)
    engine.accept(0, B, 2, 4)
    engine.computes(0, 1)


def no_rollback_below_skip(engine: Engine) -> None:
    engine.begins(0, A, 2, 1, 2)
    engine.computes(0, 4)
    engine.accept(0, A, 4, 5)
    engine.skip(0, 0)
    engine.accept(0, A, 2, 5)
    engine.computes(0, 1)
    engine.read(0, 2, 1)


def free_no_promise(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.schedule(0)
    engine.schedule(0)
    engine.publishes(0, 0)
    engine.stop(0)
    engine.free_last(0)
    engine.hits(1, A, 1)
    engine.read(1, 2, 0)


def unpromise_unkeyed(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.schedule(0)
    engine.schedule(0)
    engine.publishes(0, 0)
    engine.unschedule(0)
    engine.unschedule(0)
    engine.hits(1, A, 1)
    engine.read(1, 2, 0)


def unpromise_unshared(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.schedule(0)
    engine.schedule(0)
    engine.publishes(0, 0)
    engine.hits(1, A, 1)
    engine.retract(1)
    engine.unschedule(0)
    engine.unschedule(0)
    engine.read(1, 2, 0)


def unpromise_not_ready(engine: Engine) -> None:
    engine.admit(0, A, 2, 3)
    engine.append(0, 1)
    engine.append(0, 2)
    engine.schedule(0)
    engine.schedule(0)
    engine.start(0)
    engine.unschedule(0)
    engine.computes(0, 1)
    engine.read(0, 2, 1)


def rollback_window(engine: Engine) -> None:
    engine.admit(0, A, 4, 6)
    engine.pad(0)
    engine.append(0, 1)
    engine.load(0)
    engine.load(0)
    engine.fall_back(0, 2)
    engine.start(0)
    engine.computes(0, 1)
    engine.read(0, 2, 1)


def load_not_inflight(engine: Engine) -> None:
    engine.begins(0, A, 3, 1)
    engine.computes(0, 2)
    engine.stop(0)
    engine.free_last(0)
    engine.admit(1, C, 2, 3)
    engine.append(1, 1)
    engine.load(1)
    engine.load(1)
    engine.start(1)
    engine.append(1, 2)
    engine.computes(1, 1)
    engine.read(1, 2, 0)


STORIES: dict[str, tuple[Any, Callable[[Engine], None], str]] = {
    "acquire-unheld": (FULL, acquire_unheld, "writes-exclusive"),
    "acquire-retracts": (FULL, acquire_retracts, "writes-exclusive"),
    "hit-key": (FULL, hit_key, "reads-own-prefix"),
    "hit-below-known": (FULL, hit_below_known, "writes-exclusive"),
    "publish-scheduled": (FULL, publish_scheduled, "reads-own-prefix"),
    "publish-known": (FULL, publish_known, "writes-exclusive"),
    "writes-before-reads": (FULL, writes_before_reads, "reads-own-prefix"),
    "ready-complete": (FULL, ready_complete, "reads-own-prefix"),
    "pad-invisible": (WINDOW_3, pad_invisible, "reads-own-prefix"),
    "skip-invisible": (WINDOW_3, skip_invisible, "reads-own-prefix"),
    "skip-written": (WINDOW_2, skip_written, "writes-exclusive"),
    "accepted-agree": (FULL, accepted_agree, "reads-own-prefix"),
    "known-fixed": (FULL, known_fixed, "writes-exclusive"),
    "no-rollback-below-skip": (WINDOW_2, no_rollback_below_skip, "reads-own-prefix"),
    "free-no-promise": (FULL, free_no_promise, "reads-own-prefix"),
    "unpromise-unkeyed": (FULL, unpromise_unkeyed, "reads-own-prefix"),
    "unpromise-unshared": (FULL, unpromise_unshared, "reads-own-prefix"),
    "unpromise-not-ready": (FULL, unpromise_not_ready, "reads-own-prefix"),
    "rollback-window": (WINDOW_2, rollback_window, "reads-own-prefix"),
    "load-not-inflight": (FULL, load_not_inflight, "reads-own-prefix"),
}
"""For each rule: the attention, what happens, and what is wrong at last."""


def broken(state: GhostState) -> list[str]:
    return [name for name, holds in CONTENTS_INVARIANT.items() if not holds(state)]


def test_every_rule_has_its_story() -> None:
    assert set(STORIES) == set(PROTOCOL_RULES)


@pytest.mark.parametrize("name", STORIES)
def test_without_the_rule_a_wrong_slot_is_read_or_written(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, story, wrong = STORIES[name]

    def requires(condition: Any, rule: Any, subject: object = None) -> None:
        if rule.name != name:
            logic.requires(condition, rule, subject)

    monkeypatch.setattr(do, "requires", requires)
    with pytest.raises(CheckFailed, match=f"^{wrong}$"):
        story(Engine(attention))


@pytest.mark.parametrize("name", STORIES)
def test_the_rule_refuses_it_and_nothing_is_changed(name: str) -> None:
    attention, story, _ = STORIES[name]
    engine = Engine(attention)
    before: list[Any] = []

    def remembered(state: GhostState) -> dict[str, Any]:
        fields = [field for field in GhostState.__slots__ if field != "universe"]
        return {field: deepcopy(getattr(state, field)) for field in fields}

    def watched(transition: str) -> Callable[..., None]:
        before.append(remembered(engine.state))
        assert broken(engine.state) == []
        return Engine.__getattr__(engine, transition)

    class Watched(Engine):
        def __init__(self) -> None:
            self.state = engine.state

        def __getattr__(self, transition: str) -> Callable[..., None]:
            return watched(transition)

    with pytest.raises(ProtocolError) as error:
        story(Watched())
    assert error.value.rule is PROTOCOL_RULES[name]
    assert remembered(engine.state) == before[-1]
