"""Failures are made short, and stay the same failures."""

from typing import Any

import pytest

from kvproof.fuzz.calls import Call
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defects import load_defect
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.replay import replay
from kvproof.fuzz.run import Flags
from kvproof.fuzz.session import Irreproducible, Session
from kvproof.fuzz.shrink import Handed, Step, absolute, fewer_blocks, relative, shrink
from kvproof.fuzz.target import PoolConfig


def get(count: int) -> Call:
    return Call("get_new_blocks", {"num_blocks": count})


def free(*blocks: Any) -> Call:
    return Call("free_blocks", {"blocks": list(blocks)})


def touch(*blocks: Any) -> Call:
    return Call("touch", {"blocks": list(blocks)})


def full(*blocks: Any, tokens: int | None = None, first: int = 0) -> Call:
    return Call(
        "cache_full_blocks",
        {
            "request": {"tokens": [0] * (2 * len(blocks) if tokens is None else tokens)},
            "blocks": list(blocks),
            "num_cached_blocks": first,
            "num_full_blocks": len(blocks),
            "block_size": 2,
            "group": 0,
            "block_mask": None,
        },
    )


def partial(block: Any, num_tokens: int, size: int = 4, tokens: int = 12) -> Call:
    return Call(
        "cache_partial_block",
        {
            "request": {"tokens": [0] * tokens},
            "block": block,
            "num_tokens": num_tokens,
            "group": 0,
            "block_size": size,
        },
    )


RESET = Call("reset_prefix_cache", {})

SHORT: dict[str, tuple[str, list[str]]] = {
    "negative-count": ("misuse-refused", ["get_new_blocks(num_blocks=-1)"]),
    "counter-before-check": ("failed-is-noop", ["get_new_blocks(num_blocks="]),
    "double-free": ("misuse-refused", ["free_blocks(blocks=[1])"]),
    "stale-key": (
        "index-agrees",
        [
            "get_new_blocks(num_blocks=1)",
            "cache_full_blocks",
            "free_blocks(blocks=[1])",
            "get_new_blocks(num_blocks=1)",
        ],
    ),
    "cleared-untold": (
        "events-mirror-cache",
        [
            "get_new_blocks(num_blocks=1)",
            "cache_full_blocks",
            "free_blocks(blocks=[1])",
            "reset_prefix_cache()",
        ],
    ),
    "touch-not-counted": ("refs-exact", ["get_new_blocks(num_blocks=1)", "touch(blocks=[1])"]),
    "evict-requeues": (
        "decision-equal",
        [
            "get_new_blocks(num_blocks=",
            "cache_full_blocks",
            "free_blocks(blocks=",
            "evict_blocks(blocks=",
        ],
    ),
}
"""Defects, what they break, and the shortest calls that show it."""


def failures(name: str, layout: str = "one-size") -> list[Failure]:
    flags, limits = Flags(policy=True, misuse=True), Limits(examples=25)
    session = run_campaign(load_defect(name), name, flags, limits, [LAYOUTS[layout]], seed=4)
    return list(session.failures.values())


@pytest.mark.parametrize("name", SHORT)
def test_a_failure_is_shrunk_to_its_shortest_form(name: str) -> None:
    broken, wanted = SHORT[name]
    found = [failure for failure in failures(name) if failure.property == broken]
    texts = [[str(call) for call in failure.calls] for failure in found]
    assert any(
        len(text) == len(wanted)
        and all(one.startswith(start) for one, start in zip(text, wanted, strict=True))
        for text in texts
    ), texts
    configs = [failure.config for failure in found]
    assert all(isinstance(one, PoolConfig) and one.num_gpu_blocks <= 4 for one in configs)


@pytest.mark.parametrize(
    "name", ["twice-in-one-batch", "promotion-keeps-partial", "stored-orphan", "takes-from-back"]
)
def test_what_is_shrunk_fails_again_in_the_same_way(name: str) -> None:
    found = failures(name, "partial")
    assert found
    for failure in found:
        verdicts, broken = replay(failure, load_defect(name))
        assert broken is not None
        assert broken.finding == failure.finding
        assert len(verdicts) == len(failure.calls)


class TestRelative:
    """Ids become positions in what was handed out, and ids again."""

    calls = (get(2), full(1, 2), free(2, 1), get(2), touch(1, 0), partial(3, 2))
    answers = ([1, 2], None, None, [2, 1], None, True)

    def test_ids_are_named_by_their_last_origin(self) -> None:
        steps = relative(self.calls, self.answers)
        assert steps[1].call.args["blocks"] == [Handed(0, 0), Handed(0, 1)]
        assert steps[4].call.args["blocks"] == [Handed(3, 1), 0]
        assert steps[5].call.args["block"] == 3
        assert [step.allocation for step in steps] == [0, None, None, 3, None, None]

    def test_they_become_what_is_handed_out_now(self) -> None:
        steps = relative(self.calls, self.answers)
        handed = {Handed(0, 0): 5, Handed(0, 1): 4}
        assert absolute(steps[1], handed) == full(5, 4)
        assert absolute(steps[2], handed) == free(4, 5)
        assert absolute(steps[0], handed) == get(2)

    def test_what_was_not_handed_out_goes(self) -> None:
        steps = relative(self.calls, self.answers)
        handed = {Handed(0, 1): 4}
        assert absolute(steps[1], handed) == full(0, 4)
        assert absolute(steps[2], handed) == free(4)
        assert absolute(steps[2], {}) is None
        assert absolute(Step(partial(Handed(0, 0), 2)), {}) is None

    def test_the_same_calls_come_back(self) -> None:
        handed: dict[Handed, int] = {}
        steps = relative(self.calls, self.answers)
        for step, call, answer in zip(steps, self.calls, self.answers, strict=True):
            assert absolute(step, handed) == call
            if step.allocation is not None and isinstance(answer, list):
                for position, block in enumerate(answer):
                    handed[Handed(step.allocation, position)] = block


class TestShrink:
    """Each way to make a sequence smaller, alone."""

    def shrunk(self, calls: list[Call], answers: list[Any], wanted: Any) -> list[Call]:
        steps = shrink(relative(calls, answers), wanted)
        return [step.call for step in steps]

    def test_calls_are_left_out(self) -> None:
        calls, answers = [get(1), RESET, free(1), RESET, get(0)], [[1], False, None, True, []]
        found = self.shrunk(calls, answers, lambda steps: any(s.call == RESET for s in steps))
        assert found == [RESET]

    def test_a_touch_goes_with_the_release_that_ends_it(self) -> None:
        calls = [get(2), touch(1, 2), free(1, 1), RESET]
        block = Handed(0, 0)

        def balanced(steps: list[Step]) -> bool:
            names = [step.call.name for step in steps]
            blocks = [b for s in steps if s.call.name == "touch" for b in s.call.args["blocks"]]
            freed = [
                b for s in steps if s.call.name == "free_blocks" for b in s.call.args["blocks"]
            ]
            return "reset_prefix_cache" in names and freed.count(block) == 1 + blocks.count(block)

        found = shrink(relative(calls, [[1, 2], None, None, False]), balanced)
        assert [step.call.name for step in found] == ["free_blocks", "reset_prefix_cache"]

    def test_blocks_that_are_not_needed_are_not_taken(self) -> None:
        calls = [get(4), free(1, 2), full(2, 3), touch(3, 4)]

        def last_touched(steps: list[Step]) -> bool:
            names = [step.call.name for step in steps]
            return names[:1] == ["get_new_blocks"] and len(names) > 2 and names[-1] == "touch"

        found = shrink(relative(calls, [[1, 2, 3, 4], None, None, None]), last_touched)
        assert found[0].call == get(0) or found[0].call.args["num_blocks"] <= 1

    def test_allocations_are_joined_and_their_first_blocks_used(self) -> None:
        calls = [get(2), get(3), touch(5, 2)]

        def two_touched(steps: list[Step]) -> bool:
            args = steps[-1].call.args
            return steps[-1].call.name == "touch" and len(set(args["blocks"])) == 2

        found = shrink(relative(calls, [[1, 2], [3, 4, 5], None]), two_touched)
        assert len(found[-1].call.args["blocks"]) == 2

    def test_requests_are_shortened(self) -> None:
        calls = [get(1), full(0, 0, 1, tokens=12, first=2), partial(1, 10)]

        def both(steps: list[Step]) -> bool:
            return [s.call.name for s in steps[-2:]] == ["cache_full_blocks", "cache_partial_block"]

        keyed, inside = (step.call.args for step in shrink(relative(calls, [[1], 0, 0]), both)[-2:])
        assert keyed["request"] == {"tokens": [0, 0]}
        assert (keyed["num_cached_blocks"], keyed["num_full_blocks"]) == (0, 1)
        assert inside["request"] == {"tokens": [0, 0]}
        assert inside["num_tokens"] == 2

    def test_the_budget_is_kept(self) -> None:
        tried = 0

        def fails(steps: list[Step]) -> bool:
            nonlocal tried
            tried += 1
            return len(steps) > 3

        shrink(relative([RESET] * 64, [True] * 64), fails, budget=10)
        assert tried <= 10

    def test_a_smaller_pool_has_smaller_allocations(self) -> None:
        steps = relative([get(5), get(1)], [[1, 2, 3, 4, 5], [6]])
        sizes = [[s.call.args["num_blocks"] for s in one] for one in fewer_blocks(steps, 3)]
        assert sizes == [[5, 1], [2, 1]]


def test_a_target_that_keeps_something_is_not_blamed_on_kvproof() -> None:
    class Once(ImplPool):
        built = 0

        def __init__(self, config: PoolConfig) -> None:
            super().__init__(config)
            Once.built += 1

        def get_usage(self) -> float:
            return 0.5 if Once.built == 1 else super().get_usage()

    session = Session(Once, "once", Flags())
    run = session.start(LAYOUTS["one-size"].config(4), LAYOUTS["one-size"], drain=True)
    with pytest.raises(Irreproducible, match="a target must be deterministic"):
        session.call(run, Call("get_usage", {}), careful=False)
