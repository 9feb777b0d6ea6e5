"""What each wrong answer and each wrong observation is judged as."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvproof.fuzz.calls import Call
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.run import Flags, Run
from kvproof.fuzz.target import (
    NotExpressible,
    Observation,
    PoolConfig,
    PoolFactory,
    PoolTarget,
    TargetBroken,
)

ONE = PoolConfig(4)
WIDE = PoolConfig(4, block_sizes={0: 4})
TWO = PoolConfig(4, block_sizes={0: 2, 1: 2})


def get(count: int) -> Call:
    return Call("get_new_blocks", {"num_blocks": count})


def free(*blocks: int) -> Call:
    return Call("free_blocks", {"blocks": list(blocks)})


def touch(*blocks: int) -> Call:
    return Call("touch", {"blocks": list(blocks)})


def lookup(block_hash: str = "0.0", *groups: int) -> Call:
    return Call("get_cached_block", {"block_hash": block_hash, "groups": list(groups or (0,))})


def full(*blocks: int, size: int = 2, group: int = 0, mask: list[bool] | None = None) -> Call:
    return Call(
        "cache_full_blocks",
        {
            "request": {"tokens": [0] * size * len(blocks)},
            "blocks": list(blocks),
            "num_cached_blocks": 0,
            "num_full_blocks": len(blocks),
            "block_size": size,
            "group": group,
            "block_mask": mask,
        },
    )


def partial(block: int, num_tokens: int = 2) -> Call:
    return Call(
        "cache_partial_block",
        {
            "request": {"tokens": [0] * 4},
            "block": block,
            "num_tokens": num_tokens,
            "group": 0,
            "block_size": 4,
        },
    )


def evict(*blocks: int) -> Call:
    return Call("evict_blocks", {"blocks": list(blocks)})


RESET = Call("reset_prefix_cache", {})
TAKE = Call("take_events", {})
COUNT = Call("get_num_free_blocks", {})
USAGE = Call("get_usage", {})

Edit = Callable[[Any], Any]


def answering(operation: str, edit: Edit) -> PoolFactory:
    """Our pool, with what one operation answers changed."""

    class Wrong(ImplPool):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if name != operation:
                return found
            return lambda *args, **kwargs: edit(found(*args, **kwargs))

    return Wrong


def showing(**edits: Edit) -> PoolFactory:
    """Our pool, with fields of what it shows changed: once it holds something, or, where its
    keys are changed, once it has some.
    """
    about_keys = bool({"keys", "index"} & edits.keys())

    class Wrong(ImplPool):
        def observe(self) -> Observation:
            seen = super().observe()
            if not any((seen.keys or ()) if about_keys else self.pool.ref_cnt):
                return seen
            return replace(
                seen, **{name: edit(getattr(seen, name)) for name, edit in edits.items()}
            )

    return Wrong


def silent(factory: PoolFactory) -> PoolFactory:
    """The same pool, showing nothing."""

    def build(config: PoolConfig) -> PoolTarget:
        pool: Any = factory(config)
        pool.observe = Observation
        made: PoolTarget = pool
        return made

    return build


def judged(
    factory: PoolFactory,
    *calls: Call,
    config: PoolConfig = ONE,
    flags: Flags = Flags(),  # noqa: B008
    drain: bool = True,
) -> Finding | None:
    """Make the calls; return what the last one breaks. Those before it break nothing."""
    run = Run(factory, config, flags, drain)
    assert run.start is None
    for call in calls[:-1]:
        verdict = run.step(call)
        assert verdict.finding is None, verdict
    return run.step(calls[-1]).finding


def fixed(value: Any) -> Edit:
    return lambda _: value


ANSWERS: dict[str, tuple[PoolFactory, tuple[Call, ...], str]] = {
    "fewer blocks": (answering("get_new_blocks", lambda b: b[1:]), (get(2),), "prediction-exact"),
    "more blocks": (
        answering("get_new_blocks", lambda b: [*b, 3]),
        (get(1),),
        "prediction-exact",
    ),
    "the null block": (answering("get_new_blocks", fixed([0])), (get(1),), "null-inert"),
    "no block of the pool": (
        answering("get_new_blocks", fixed([4])),
        (get(1),),
        "blocks-conserved",
    ),
    "a negative id": (answering("get_new_blocks", fixed([-1])), (get(1),), "blocks-conserved"),
    "one block twice": (
        answering("get_new_blocks", lambda b: [1] * len(b)),
        (get(2),),
        "free-iff-unreferenced",
    ),
    "a block that is held": (
        answering("get_new_blocks", fixed([1])),
        (get(1), get(1)),
        "free-iff-unreferenced",
    ),
    "a hit of another block": (
        answering("get_cached_block", fixed([2])),
        (get(2), full(1), lookup()),
        "hit-backed",
    ),
    "a hit of the null block": (
        answering("get_cached_block", fixed([0])),
        (get(2), full(1), lookup()),
        "null-inert",
    ),
    "a hit of no block": (answering("get_cached_block", fixed([9])), (lookup(),), "hit-backed"),
    "a hit in too few groups": (
        answering("get_cached_block", lambda b: b and b[:1]),
        (get(2), full(1), full(2, group=1), lookup("0.0", 0, 1)),
        "hit-backed",
    ),
    "a hit of a block handed out anew": (
        answering("get_cached_block", fixed([1])),
        (get(3), full(1), free(1), get(1), lookup()),
        "hit-backed",
    ),
    "a hit after eviction": (
        answering("get_cached_block", fixed([1])),
        (get(1), full(1), evict(1), lookup()),
        "hit-backed",
    ),
    "a hit after a reset": (
        answering("get_cached_block", fixed([1])),
        (get(1), full(1), free(1), RESET, lookup()),
        "hit-backed",
    ),
    "a reset that refuses": (
        answering("reset_prefix_cache", fixed(False)),
        (RESET,),
        "all-returned",
    ),
    "a reset in use": (
        answering("reset_prefix_cache", fixed(True)),
        (get(1), RESET),
        "failed-is-noop",
    ),
    "a wrong number": (
        answering("get_num_free_blocks", lambda n: n - 1),
        (COUNT,),
        "blocks-conserved",
    ),
    "a wrong usage": (answering("get_usage", lambda u: u + 0.1), (USAGE,), "blocks-conserved"),
    "a usage that is no number": (
        answering("get_usage", fixed(math.nan)),
        (USAGE,),
        "blocks-conserved",
    ),
    "an event with another parent": (
        answering("take_events", lambda e: [["stored", ["0.0"], "1.1", [0, 0], 0]] if e else e),
        (get(1), full(1)),
        "events-mirror-cache",
    ),
    "an event with other tokens": (
        answering("take_events", lambda e: [["stored", ["0.0"], None, [0, 1], 0]] if e else e),
        (get(1), full(1)),
        "events-mirror-cache",
    ),
    "an event with one token for two": (
        answering("take_events", lambda e: [["stored", ["0.0"], None, [0], 0]] if e else e),
        (get(1), full(1)),
        "events-mirror-cache",
    ),
    "an event of another group": (
        answering("take_events", lambda e: [["stored", ["0.0"], None, [0, 0], 1]] if e else e),
        (get(1), full(1)),
        "events-mirror-cache",
    ),
    "an event about what is not resident": (
        answering("take_events", lambda e: [*e, ["stored", ["1.1"], None, [1, 1], 0]]),
        (get(1),),
        "events-mirror-cache",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_answer(name: str) -> None:
    factory, calls, broken = ANSWERS[name]
    config = TWO if "groups" in name else ONE
    finding = judged(factory, *calls, config=config)
    assert finding is not None
    assert finding.property == broken
    assert finding.expected != finding.actual


NEEDS_SIGHT = {"an event about what is not resident", "an event of another group"}


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - NEEDS_SIGHT))
def test_a_wrong_answer_of_a_pool_that_shows_nothing(name: str) -> None:
    factory, calls, broken = ANSWERS[name]
    finding = judged(silent(factory), *calls, config=TWO if "groups" in name else ONE)
    assert finding is not None
    assert finding.property == broken


@pytest.mark.parametrize("name", sorted(NEEDS_SIGHT))
def test_events_of_a_pool_that_shows_nothing_are_held_against_lookups(name: str) -> None:
    factory, calls, broken = ANSWERS[name]
    asked = lookup("1.1" if "resident" in name else "0.0")
    finding = judged(silent(factory), *calls, asked)
    assert finding is not None
    assert finding.property == broken


def test_an_event_that_is_not_told_shows_at_a_lookup() -> None:
    untold = silent(answering("take_events", fixed([])))
    finding = judged(untold, get(1), full(1), lookup())
    assert finding is not None
    assert finding.property == "events-mirror-cache"
    assert judged(silent(ImplPool), get(1), full(1), lookup()) is None


MALFORMED: dict[str, tuple[Call, ...]] = {
    "get_new_blocks": (get(1),),
    "get_cached_block": (get(1), full(1), lookup()),
    "reset_prefix_cache": (RESET,),
    "take_events": (TAKE,),
    "get_num_free_blocks": (COUNT,),
    "get_usage": (USAGE,),
}
NOT_BLOCKS = ["1", 1, [1.0], ["1"], [None], [True], {"1": 1}]
VALUES: dict[str, list[Any]] = {
    "get_new_blocks": [None, *NOT_BLOCKS],
    "get_cached_block": NOT_BLOCKS,
    "reset_prefix_cache": [None, 1, "true", []],
    "take_events": [None, "stored", [None], [[]], [["stored"]], [["removed", ["0"], "0"]],
                    [["cleared", 1]], [["evicted", ["0.0"], 0]], [["removed", [0], 0]],
                    [["stored", ["0.0"], None, [0, "0"], 0]], [["stored", ["0.0"], 1, [0, 0], 0]]],
    "get_num_free_blocks": [None, "3", 3.0, True, [3]],
    "get_usage": [None, "0.0", False],
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "value"), [(name, value) for name in VALUES for value in VALUES[name]]
)
def test_an_answer_of_another_form(operation: str, value: Any) -> None:
    finding = judged(answering(operation, fixed(value)), *MALFORMED[operation], drain=False)
    assert finding is not None
    assert finding.property == "legal-accepted"
    assert repr(value) in finding.actual


def changed(position: int, value: Any) -> Edit:
    return lambda values: [*values[:position], value, *values[position + 1 :]]


SEEN: dict[str, tuple[PoolFactory, tuple[Call, ...], str]] = {
    "a count too high": (showing(ref_cnt=changed(1, 2)), (get(1),), "refs-exact"),
    "a count too low": (showing(ref_cnt=changed(1, 0)), (get(1),), "refs-exact"),
    "a negative count": (showing(ref_cnt=changed(2, -1)), (get(1),), "refs-nonnegative"),
    "a held block is queued": (
        showing(free=lambda f: [1, *f], num_free_blocks=lambda n: n + 1),
        (get(1),),
        "free-iff-unreferenced",
    ),
    "a free block is lost": (
        showing(free=lambda f: f[1:], num_free_blocks=lambda n: n - 1),
        (get(1),),
        "free-iff-unreferenced",
    ),
    "a block is queued twice": (
        showing(free=lambda f: [*f[:-1], f[0]]),
        (get(1),),
        "free-iff-unreferenced",
    ),
    "the null block is queued": (showing(free=lambda f: [0, *f]), (get(1),), "null-inert"),
    "a sentinel is queued": (showing(free=lambda f: [*f, -1]), (get(1),), "queue-is-a-set"),
    "a wrong counter": (showing(num_free_blocks=lambda n: n + 1), (get(1),), "queue-is-a-set"),
    "a key is listed nowhere": (showing(index=fixed({})), (get(1), full(1)), "index-agrees"),
    "an empty list": (
        showing(index=lambda i: {**i, ("1.1", 0): []}),
        (get(1), full(1)),
        "index-agrees",
    ),
    "a block carries nothing": (
        showing(keys=fixed([[], [], [], []])),
        (get(1), full(1)),
        "index-agrees",
    ),
    "a block is listed under another key": (
        showing(index=lambda i: {**i, ("1.1", 0): [1]}),
        (get(1), full(1)),
        "index-agrees",
    ),
    "a block carries another key": (
        showing(keys=fixed([[], [("1.1", 0)], [], []])),
        (get(1), full(1)),
        "index-agrees",
    ),
    "the null block is listed": (
        showing(index=lambda i: {**i, ("0.0", 0): [0, 1]}),
        (get(1), full(1)),
        "index-agrees",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_wrong_state(name: str) -> None:
    factory, calls, broken = SEEN[name]
    finding = judged(factory, *calls)
    assert finding is not None
    assert finding.property == broken
    assert finding.expected != finding.actual


def test_a_stale_key_of_a_pool_that_shows_its_keys_only() -> None:
    stale = [[], [("0.0", 0)], [], []]

    class Stale(ImplPool):
        def observe(self) -> Observation:
            return Observation(keys=stale if any(self.pool.ref_cnt) else super().observe().keys)

    calls = [get(1), full(1), evict(1)]
    with pytest.raises(AssertionError, match="carries a key that it was not given"):
        judged(Stale, *calls)


SHAPES: dict[str, list[Any]] = {
    "free": [1, ["1"], "12", [None]],
    "ref_cnt": [[0, 1], 3, [0, "1", 0, 0], [0, None, 0, 0]],
    "keys": [[[]], [None] * 4, [[], [["0.0", 0]], [], []], "keys"],
    "index": [[], {"0.0": [1]}, {("0.0", 0): 1}, {("0.0", "0"): [1]}],
    "num_free_blocks": ["2", 2.5, [2]],
    "hooks": [["allocated"], [("allocated", "1")], 1],
}


@pytest.mark.parametrize(
    ("field", "value"), [(name, value) for name in SHAPES for value in SHAPES[name]]
)
def test_what_is_shown_in_another_form_is_named(field: str, value: Any) -> None:
    about_keys = field in ("keys", "index")
    with pytest.raises(TargetBroken, match=f"^observe: {field} must be ") as raised:
        judged(showing(**{field: fixed(value)}), get(1), *([full(1)] if about_keys else []))
    assert len(str(raised.value).splitlines()) == 1


def test_a_field_that_is_shown_now_and_then() -> None:
    class Shy(ImplPool):
        asked = 0

        def observe(self) -> Observation:
            self.asked += 1
            return super().observe() if self.asked % 2 else Observation()

    assert judged(Shy, get(2), full(1), touch(1), free(1, 1, 2), get(1), get(9), RESET) is None


class TestRefusals:
    """What must not raise, and what must."""

    @pytest.mark.parametrize("error", [ValueError("no"), AssertionError(), KeyError(1)])
    def test_a_legal_call_raises(self, error: Exception) -> None:
        class Raises(ImplPool):
            def touch(self, blocks: list[int]) -> None:
                raise error

        finding = judged(Raises, get(1), touch(1))
        assert finding is not None
        assert finding.property == "legal-accepted"
        assert type(error).__name__ in finding.actual

    def test_it_cannot_be_observed_after_a_call(self) -> None:
        class Blind(ImplPool):
            def observe(self) -> Observation:
                if any(self.pool.ref_cnt):
                    raise RuntimeError("the queue\nis broken")
                return super().observe()

        finding = judged(Blind, get(1))
        assert finding is not None
        assert finding.property == "legal-accepted"
        assert "cannot be observed" in finding.says
        assert "is broken" not in finding.actual.replace("the queue", "")

    @pytest.mark.parametrize("answer", [[], [1], False])
    def test_more_blocks_than_there_are_are_handed_out(self, answer: Any) -> None:
        class Takes(ImplPool):
            def get_new_blocks(self, num_blocks: int) -> Any:
                return super().get_new_blocks(num_blocks) if num_blocks < 4 else answer

        finding = judged(Takes, get(4))
        assert finding is not None
        assert finding.property == "failed-is-noop"

    def test_too_few_blocks_may_be_none(self) -> None:
        class Takes(ImplPool):
            def get_new_blocks(self, num_blocks: int) -> Any:
                return super().get_new_blocks(num_blocks) if num_blocks < 4 else None

        assert judged(Takes, get(4)) is None

    @pytest.mark.parametrize("call", [free(1), get(-1), evict(9), touch(1), full(1), touch(-1)])
    def test_misuse_that_is_accepted(self, call: Call) -> None:
        class Accepts(ImplPool):
            def __getattribute__(self, name: str) -> Any:
                return (lambda **_: None) if name == call.name else super().__getattribute__(name)

        finding = judged(Accepts, call, flags=Flags(misuse=True))
        assert finding is not None
        assert finding.property == "misuse-refused"
        assert "accepted" in finding.says
        assert judged(ImplPool, call, flags=Flags(misuse=True)) is None

    def test_misuse_that_is_half_done(self) -> None:
        class Half(ImplPool):
            def evict_blocks(self, blocks: list[int]) -> None:
                for block in blocks:
                    super().evict_blocks([block])

        finding = judged(Half, get(1), full(1), evict(1, 9), flags=Flags(misuse=True))
        assert finding is not None
        assert finding.property == "misuse-refused"
        assert finding.says == "refused, but something has changed"

    def test_a_refusal_may_be_noted_by_the_metrics(self) -> None:
        class Notes(ImplPool):
            def free_blocks(self, blocks: list[int]) -> None:
                self.collector.on_block_accessed(1)
                super().free_blocks(blocks)

        assert judged(Notes, free(1), flags=Flags(misuse=True)) is None


def test_a_call_that_cannot_be_made_moves_nothing() -> None:
    class NoMasks(ImplPool):
        def cache_full_blocks(self, *args: Any, **kwargs: Any) -> None:
            if kwargs["block_mask"] is not None:
                raise NotExpressible
            super().cache_full_blocks(*args, **kwargs)

    run = Run(NoMasks, ONE, Flags(policy=True))
    for call in [get(1), full(1, mask=[True]), lookup(), full(1), lookup()]:
        assert run.step(call).finding is None
    assert run.model.pool.get_cached_block((0, 0), [0]) == [1]  # type: ignore[arg-type, list-item]


class TestFewerOperations:
    """A target has what it has."""

    def test_events_are_taken_only_where_there_are_some(self) -> None:
        class NoEvents(ImplPool):
            operations: tuple[str, ...] = ("get_new_blocks", "cache_full_blocks")

            def take_events(self) -> list[Any]:
                raise AssertionError("not an operation of this pool")

        assert judged(NoEvents, get(1), full(1)) is None

    def test_a_missing_hook_is_not_missed(self) -> None:
        without = showing(hooks=fixed(None))
        assert judged(without, get(2), touch(1), free(1), flags=Flags(policy=True)) is None

    def test_hooks_are_policy(self) -> None:
        silent_hooks = showing(hooks=fixed([]))
        assert judged(silent_hooks, get(1)) is None
        finding = judged(silent_hooks, get(1), flags=Flags(policy=True))
        assert finding is not None
        assert finding.property == "decision-equal"


POLICIES: dict[str, tuple[PoolFactory, tuple[Call, ...], str]] = {
    "another block": (answering("get_new_blocks", fixed([2])), (get(1),), "order-rule"),
    "another order": (showing(free=lambda f: f[::-1]), (get(1),), "order-rule"),
    "a lost hit": (
        answering("get_cached_block", fixed(None)),
        (get(1), full(1), lookup()),
        "lazy-eviction",
    ),
    "another duplicate": (
        answering("get_cached_block", fixed([2])),
        (get(2), full(1), full(2), lookup()),
        "first-inserted",
    ),
    "another listing": (
        showing(index=lambda i: {key: found[::-1] for key, found in i.items()}),
        (get(2), full(1), full(2)),
        "first-inserted",
    ),
    "another answer": (
        answering("cache_partial_block", lambda listed: not listed),
        (get(1), partial(1)),
        "decision-equal",
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_another_policy_is_judged_with_policy_only(name: str) -> None:
    factory, calls, broken = POLICIES[name]
    config = WIDE if any(call.name == "cache_partial_block" for call in calls) else ONE
    if name != "another block":
        assert judged(factory, *calls, config=config) is None
    finding = judged(silent(factory) if name == "another block" else factory, *calls,
                     config=config, flags=Flags(policy=True))  # fmt: skip
    assert finding is not None
    assert finding.property == broken


def test_a_new_pool_that_differs() -> None:
    class Reversed(ImplPool):
        def observe(self) -> Observation:
            return Observation(free=(super().observe().free or [])[::-1])

    assert Run(Reversed, ONE, Flags()).start is None
    start = Run(Reversed, ONE, Flags(policy=True)).start
    assert start is not None
    assert start.property == "decision-equal"

    class Null(ImplPool):
        def observe(self) -> Observation:
            return Observation(free=[0, 1, 2, 3])

    found = Run(Null, ONE, Flags()).start
    assert found is not None
    assert found.property == "null-inert"
