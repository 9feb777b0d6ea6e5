"""The world around a manager: counts, and which calls are legal."""

from typing import Any

import pytest

from kvproof.fuzz.calls import Call
from kvproof.fuzz.manager_calls import manager_call_from_json
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.world import World

FULL = ManagerConfig(10, (GroupConfig("full", 2),), max_model_len=32)
WINDOW = ManagerConfig(10, (GroupConfig("sliding-window", 2, 3),), max_model_len=32)


def call(op: str, **args: Any) -> Call:
    """Write a call, with what goes without saying left out."""
    return manager_call_from_json({"op": op, **args})


def slots(request: str, new: int, computed: int = 0, **args: Any) -> Call:
    """Ask for slots."""
    return call(
        "allocate_slots",
        request=request,
        num_new_tokens=new,
        num_computed_tokens=computed,
        **args,
    )


def tell(world: World, made: Call, answer: Any = None) -> None:
    """Make a legal call."""
    assert world.rule(made) is None, f"{world.rule(made)}: {made}"
    world.record(made, answer)


def broken(world: World, made: Call) -> str:
    """Return the name of the rule that a call would break."""
    rule = world.rule(made)
    assert rule is not None, f"{made} is legal"
    return rule.name


def started(config: ManagerConfig = FULL, tokens: int = 4, drafts: int = 0) -> World:
    """Return a world where request a has computed its prompt and sampled a token."""
    world = World(config)
    tell(world, call("new_request", request="a", tokens=[0] * tokens))
    tell(world, slots("a", tokens + drafts, num_draft_tokens=drafts), [[1, 2]])
    tell(world, call("run_step", sampled={"a": [1] * (drafts + 1)}))
    return world


def test_a_step_settles_when_it_comes_back() -> None:
    world = started()
    life = world.lives["a"]
    assert (life.num_computed, life.expected, life.tokens) == (4, 5, [0] * 4)
    tell(world, call("update_from_output"))
    assert life.due == [1]
    assert broken(world, slots("a", 1, 4, is_running=True)) == "scheduled-once"
    tell(world, call("append_tokens", request="a", tokens=[1]))
    assert life.tokens == [0, 0, 0, 0, 1]
    tell(world, slots("a", 1, 4, is_running=True), [[3]])


def test_rejected_drafts_are_taken_back_when_their_step_comes_back() -> None:
    world = World(FULL)
    tell(world, call("new_request", request="a", tokens=[0] * 4))
    tell(world, slots("a", 7, num_draft_tokens=3), [[1, 2, 3, 4]])
    tell(world, call("run_step", sampled={"a": [1, 1]}))
    life = world.lives["a"]
    assert (life.num_computed, life.num_unsettled, life.rejected) == (7, 3, 2)
    tell(world, slots("a", 1, 7, num_unsettled_tokens=3, is_running=True), [[]])
    work = world.work(call("run_step", sampled={"a": [0]}))
    assert work[0].start == 5, "the worker computes from where the request really is"
    tell(world, call("run_step", sampled={"a": [0]}))
    tell(world, call("update_from_output"))
    assert (life.num_computed, life.num_unsettled, life.due) == (6, 0, [1, 1])


def test_what_was_in_flight_when_a_request_was_freed_is_dropped() -> None:
    world = started()
    tell(world, call("free", request="a"))
    tell(world, call("update_from_output"))
    life = world.lives["a"]
    assert (life.due, life.tokens, life.true) == ([], [0] * 4, [0] * 4)
    tell(world, slots("a", 4), [[1, 2]])


def test_counts_that_are_not_the_requests_are_refused() -> None:
    world = started()
    assert broken(world, slots("a", 1, 3, is_running=True)) == "progress-told"
    assert broken(world, slots("a", 1, 4)) == "progress-told"
    assert broken(world, slots("a", 2, 4, is_running=True)) == "not-beyond-expected"
    assert broken(world, slots("b", 1)) == "request-known"
    assert broken(world, slots("a", 0, 4, is_running=True)) == "something-new"


def test_a_step_samples_for_those_who_reach_their_last_token() -> None:
    world = World(FULL)
    tell(world, call("new_request", request="a", tokens=[0] * 4))
    tell(world, slots("a", 2), [[1]])
    assert broken(world, call("run_step", sampled={"a": [0]})) == "step-complete"
    tell(world, call("run_step", sampled={}))
    tell(world, slots("a", 2, 2, is_running=True), [[2]])
    assert broken(world, call("run_step", sampled={})) == "step-complete"
    assert broken(world, call("run_step", sampled={"a": [0, 0]})) == "step-complete"
    tell(world, call("run_step", sampled={"a": [0]}))


def test_a_request_taken_out_of_its_step_writes_nothing() -> None:
    world = World(FULL)
    tell(world, call("new_request", request="a", tokens=[0] * 4))
    tell(world, slots("a", 4), [[1, 2]])
    assert broken(world, call("free", request="a")) == "freed-when-idle"
    assert broken(world, call("unschedule", request="a", num_computed_tokens=1)) == "progress-told"
    tell(world, call("unschedule", request="a", num_computed_tokens=0))
    assert broken(world, slots("a", 4)) == "scheduled-once"
    tell(world, call("free", request="a"))
    assert not world.pending


def test_nobody_is_taken_out_of_a_step_whose_blocks_were_hit_since() -> None:
    world = World(FULL)
    for name in "ab":
        tell(world, call("new_request", request=name, tokens=[0] * 4))
    tell(world, slots("a", 4), [[1, 2]])
    tell(world, call("get_computed_blocks", request="b"), ([[1]], 2))
    tell(world, slots("b", 2, use_hit=True), [[3]])
    taken = call("unschedule", request="a", num_computed_tokens=0)
    assert broken(world, taken) == "unpromise-unshared"


@pytest.mark.parametrize(("failed_from", "computed"), [(None, 4), (3, 2), (1, 0)])
def test_a_load_that_fails_is_cut_back_to_whole_blocks(
    failed_from: int | None, computed: int
) -> None:
    world = World(FULL)
    tell(world, call("new_request", request="a", tokens=[0] * 6))
    later = slots("a", 0, num_external_computed_tokens=4, delay_cache_blocks=True)
    tell(world, later, [[1, 2]])
    assert broken(world, call("free", request="a")) == "freed-when-idle"
    assert broken(world, slots("a", 2, 4)) == "scheduled-once"
    tell(world, call("load", request="a", start=0, end=4, failed_from=failed_from))
    assert world.lives["a"].num_computed == computed


def test_a_whole_prompt_that_was_loaded_leaves_its_last_token_to_compute() -> None:
    world = World(FULL)
    tell(world, call("new_request", request="a", tokens=[0] * 4))
    tell(world, slots("a", 0, num_external_computed_tokens=4, delay_cache_blocks=True), [[1, 2]])
    tell(world, call("load", request="a", start=0, end=4))
    tell(world, call("cache_blocks", request="a", num_computed_tokens=4))
    tell(world, slots("a", 1, 3), [[]])


def test_a_failed_load_in_a_step_is_taken_back_when_the_step_has_come_back() -> None:
    world = World(FULL)
    for name in "ab":
        tell(world, call("new_request", request=name, tokens=[0] * 6))
    tell(world, slots("a", 2, num_external_computed_tokens=4), [[1, 2, 3]])
    assert broken(world, call("run_step", sampled={"a": [0]})) == "loaded-as-asked"
    tell(world, call("load", request="a", start=0, end=4, failed_from=2))
    tell(world, call("run_step", sampled={"a": [0]}))
    hit = call("get_computed_blocks", request="b")
    assert broken(world, hit) == "unpromise-unshared"
    assert broken(world, call("free", request="a")) == "free-no-promise"
    tell(world, call("update_from_output"))
    assert broken(world, slots("a", 4, 2, is_running=True)) == "scheduled-once"
    tell(world, call("unschedule", request="a", num_computed_tokens=2))
    tell(world, hit, ([[1]], 2))
    tell(world, slots("a", 4, 2, is_running=True), [[]])


def test_a_request_does_not_resume_where_its_window_is_gone() -> None:
    world = World(WINDOW)
    tell(world, call("new_request", request="a", tokens=[0] * 10))
    later = slots("a", 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    tell(world, later, [[0, 0, 0, 1]])
    tell(world, call("load", request="a", start=0, end=8, failed_from=4))
    assert broken(world, slots("a", 2, 4)) == "rollback-window"
    tell(world, call("free", request="a"))
    tell(world, slots("a", 2), [[1]])


def test_nothing_is_loaded_into_blocks_that_a_step_in_flight_may_write() -> None:
    world = started()
    tell(world, call("new_request", request="b", tokens=[0] * 6))
    later = slots("b", 0, num_external_computed_tokens=4, delay_cache_blocks=True)
    tell(world, call("pop_blocks_for_free", request="a"), [1, 2])
    assert world.rule(later) is None
    assert broken(world, call("free_blocks", blocks=[1, 2])) == "popped-once"
    tell(world, call("free_blocks", blocks=[2, 1]))
    assert broken(world, later) == "load-not-inflight"
    tell(world, call("update_from_output"))
    tell(world, later, [[3, 4]])


def test_cache_blocks_is_for_tokens_that_are_there() -> None:
    world = started()
    assert broken(world, call("cache_blocks", request="a", num_computed_tokens=5)) == (
        "cached-are-known"
    )
    tell(world, call("cache_blocks", request="a", num_computed_tokens=4))
    tell(world, call("new_request", request="b", tokens=[0] * 4))
    tell(world, slots("b", 2), [[5]])
    made = call("cache_blocks", request="b", num_computed_tokens=4)
    assert broken(world, made) == "publish-scheduled"


def test_a_hit_is_used_at_once() -> None:
    world = World(FULL)
    for name in "ab":
        tell(world, call("new_request", request=name, tokens=[0] * 6))
    tell(world, call("get_computed_blocks", request="a"), ([[1]], 2))
    assert broken(world, slots("b", 2, use_hit=True)) == "hit-at-once"
    tell(world, call("evict_blocks", blocks=[3]))
    assert broken(world, slots("a", 2, use_hit=True)) == "hit-at-once"
    tell(world, call("get_computed_blocks", request="a"), ([[1, 2]], 4))
    too_far = slots("a", 1, use_hit=True, num_external_computed_tokens=2)
    assert broken(world, too_far) == "hit-below-known"
