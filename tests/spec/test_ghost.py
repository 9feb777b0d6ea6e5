"""The ghost contents under random engines that keep the rules, and under some that do not."""

import random
from collections import Counter
from typing import Any

import pytest

from kvproof.spec import ghost_transitions as do
from kvproof.spec import logic
from kvproof.spec.attention import ChunkedLocal, Full, SlidingWindow
from kvproof.spec.ghost_concrete import POISON, ConcreteGhostUniverse, Shape
from kvproof.spec.ghost_properties import CONTENTS_INVARIANT
from kvproof.spec.ghost_state import GhostState, RequestId, is_initial
from kvproof.spec.logic import CheckFailed
from kvproof.spec.protocol_rules import ProtocolError
from kvproof.spec.quantities import NO_KEY, GroupId, Key, TokenId

SEQUENCES = ((0, 0, 0, 0, 0, 0), (0, 0, 0, 1, 1, 1), (1, 0, 0, 0, 0, 0))
TRANSITIONS = {
    "admit": ("request", "tokens", "count", "count"),
    "hit": ("request", "group", "block"),
    "pad": ("request", "group"),
    "start": ("request",),
    "append": ("request", "group", "block"),
    "schedule": ("request", "group"),
    "publish": ("request", "group", "index"),
    "write": ("request", "group"),
    "read": ("request", "group", "position", "position"),
    "settle": (),
    "accept": ("request", "tokens", "count", "count"),
    "skip": ("request", "group", "index"),
    "unschedule": ("request", "group"),
    "fail_load": ("request", "group"),
    "load": ("request", "group"),
    "fall_back": ("request", "count"),
    "stop": ("request",),
    "free_last": ("request", "group"),
    "close": ("request",),
    "retract": ("block",),
    "reset": (),
}
WEIGHTS = {"start": 0.3, "load": 4.0, "settle": 0.1, "stop": 0.1, "retract": 0.05, "reset": 0.05}
WEIGHTS |= {
    "schedule": 3.0,
    "write": 3.0,
    "read": 6.0,
    "accept": 6.0,
    "skip": 2.0,
    "pad": 2.0,
    "hit": 30.0,
}
SHAPES = {
    "full": [Shape(2, Full())],
    "sliding-window": [Shape(2, SlidingWindow(2))],
    "chunked-local": [Shape(1, ChunkedLocal(2))],
    "two groups": [Shape(2, Full()), Shape(1, SlidingWindow(2))],
}


def universe_of(shapes: list[Shape]) -> ConcreteGhostUniverse:
    return ConcreteGhostUniverse(6, 2, shapes, SEQUENCES)


def draw(rng: random.Random, universe: ConcreteGhostUniverse, kind: str) -> Any:
    if kind == "tokens":
        return rng.choice(SEQUENCES)
    sizes = {
        "request": 2,
        "group": len(universe.shapes),
        "block": 6,
        "index": 3,
        "position": universe.length,
        "count": universe.length,
    }
    return rng.randrange(sizes[kind])


def is_at_the_end(state: GhostState, request: RequestId, group: GroupId) -> bool:
    """There are no more tokens for one more block."""
    u = state.universe
    return u.start(group, state.num_entries[request, group] + 1) > len(SEQUENCES[0])


def walk(seed: int, shapes: list[Shape], length: int) -> Counter[str]:
    """Make random transitions, and count them. What a rule refuses is not made."""
    rng, state = random.Random(seed), GhostState(universe_of(shapes))
    names = list(TRANSITIONS)
    weights = [WEIGHTS.get(name, 1.0) for name in names]
    made: Counter[str] = Counter()
    for _ in range(length):
        (name,) = rng.choices(names, weights)
        arguments = [draw(rng, state.universe, kind) for kind in TRANSITIONS[name]]  # type: ignore[arg-type]
        if name in ("append", "hit", "pad") and is_at_the_end(state, *arguments[:2]):
            continue
        try:
            getattr(do, name)(state, *arguments)
        except ProtocolError:
            continue
        made[name] += 1
        for part, holds in CONTENTS_INVARIANT.items():
            assert holds(state), (seed, part, name, arguments)
    return made


@pytest.mark.parametrize("name", SHAPES)
def test_engines_that_keep_the_rules_keep_the_invariant(name: str) -> None:
    made: Counter[str] = Counter()
    for seed in range(4):
        made += walk(seed, SHAPES[name], 3000)
    missing = set(TRANSITIONS) - set(made)
    forgets = any(shape.attention.forgets for shape in SHAPES[name])
    assert missing <= (set() if forgets else {"pad", "skip"}), made


def test_without_the_rules_random_engines_go_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the walk checks can fail."""

    def requires(condition: Any, rule: Any, subject: object = None) -> None:
        if rule in (do.REQUEST_PHASE, do.SLOT_THERE):
            logic.requires(condition, rule, subject)

    monkeypatch.setattr(do, "requires", requires)
    with pytest.raises((AssertionError, CheckFailed)):
        walk(0, SHAPES["full"], 2000)


@pytest.mark.parametrize("name", SHAPES)
def test_a_new_state_is_initial(name: str) -> None:
    state = GhostState(universe_of(SHAPES[name]))
    assert is_initial(state)
    assert [part for part, holds in CONTENTS_INVARIANT.items() if not holds(state)] == []
    do.admit(state, *_REQUEST)
    assert not is_initial(state)


_REQUEST: Any = (0, SEQUENCES[0], 0, 1)


def key(*tokens: int) -> Key:
    return Key(tuple(map(TokenId, tokens)), GroupId(0))


def test_what_a_key_says_of_its_slots() -> None:
    universe = universe_of(SHAPES["full"])
    full = universe.prefix(GroupId(0), SEQUENCES[1], 3)
    assert full == key(0, 0, 0, 1)
    assert [universe.content_at(full, offset) for offset in range(2)] == [key(0, 0, 0), full]
    assert universe.position(full) == 3
    assert {NO_KEY, POISON, full} <= set(universe.keys)


def test_a_token_reads_itself_and_what_its_attention_reads() -> None:
    universe = universe_of(SHAPES["sliding-window"])
    request: Any = 0
    read = [universe.reads(request, GroupId(0), 3, position) for position in range(6)]
    assert read == [False, False, True, True, False, False]


def test_every_transition_is_walked() -> None:
    public = {name for name, found in vars(do).items() if _is_transition(name, found)}
    assert public == set(TRANSITIONS)


def _is_transition(name: str, found: Any) -> bool:
    is_own = getattr(found, "__module__", "") == do.__name__
    return is_own and callable(found) and not name.startswith("_")
