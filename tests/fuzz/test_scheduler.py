"""The small scheduler on the specification's manager: its calls are legal, and it comes to every
situation that it names.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.fuzz.calls import Call
from kvproof.fuzz.elements import draw_extra
from kvproof.fuzz.manager_calls import ARGUMENTS, WORLD, manager_call_from_json
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.manager_model import SpecManager
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.scheduler import BRANCHES, Scheduler
from kvproof.fuzz.scheduler_step import MOST_RUNNING
from kvproof.fuzz.world import World

ROOMY = ManagerConfig(1000, (GroupConfig("full", 4),), max_model_len=48)


class Driven:
    """A scheduler on a manager. Every call is checked against the world's rules."""

    def __init__(self, config: ManagerConfig, seed: str, extras: bool = False) -> None:
        self.config, self.seed = config, seed
        self.world, self.manager = World(config), SpecManager(config)
        self.calls: list[Call] = []
        self.answer: Any = None
        self.scheduler = Scheduler(
            config, self.make, self.world, RandomPick(seed.encode()), draw_extra if extras else None
        )

    def make(self, call: Call) -> Any:
        rule = self.world.rule(call)
        assert rule is None, f"{rule}: {call}"
        assert manager_call_from_json(call.as_json()) == call
        asks = call.name not in WORLD
        self.answer = self.manager.call(call.name, call.args) if asks else None
        self.world.record(call, self.answer)
        self.calls.append(call)
        return self.answer

    def act(self, times: int) -> None:
        """Act, with another source of choices now and then."""
        for turn in range(times):
            if turn % 20 == 19:
                self.scheduler.pick = RandomPick(f"{self.seed}+{turn}".encode())
            self.scheduler.act()


class Watched(Driven):
    """Looks at who gives way when there are no slots for a request that runs."""

    def __init__(self, config: ManagerConfig, seed: str) -> None:
        self.gave_way: list[tuple[str, list[tuple[str, tuple[int, int]]]]] = []
        super().__init__(config, seed)

    def make(self, call: Call) -> Any:
        short = self.calls and self.calls[-1].name == "allocate_slots" and self.answer is None
        if short and self.calls[-1].args["is_running"]:
            running = [(job.name, job.rank) for job in self.scheduler.running]
            self.gave_way.append((call.args["request"], running))
        return super().make(call)


def config_of(layout: str, seed: str) -> ManagerConfig:
    """Draw a small manager of a layout."""
    return MANAGER_LAYOUTS[layout].draw(RandomPick(f"of {seed}".encode()))


def small(layout: str, seed: str, extras: bool = False) -> Driven:
    """Return a scheduler on a small manager of a layout."""
    return Driven(config_of(layout, seed), seed, extras)


def lives(layout: str, runs: int) -> Iterator[Driven]:
    """Let requests live on small managers of a layout, until all have ended."""
    for number in range(runs):
        driven = small(layout, f"{layout}{number}", number % 3 == 0)
        driven.act(100)
        driven.scheduler.finish()
        yield driven


@pytest.mark.parametrize("layout", MANAGER_LAYOUTS)
def test_no_call_breaks_a_rule_and_all_that_lived_has_ended(layout: str) -> None:
    made: set[str] = set()
    for driven in lives(layout, 25):
        made |= {call.name for call in driven.calls}
        world = driven.world
        assert not any(life.admitted for life in world.lives.values())
        assert not world.pending
        assert not world.steps
        assert not world.popped
        assert driven.calls[-1].name == "reset_prefix_cache"
        assert driven.answer, "a block is still in use"
    assert made == set(ARGUMENTS) - {"take_events"}


@pytest.fixture(scope="module")
def situations() -> dict[bool, Counter[str]]:
    """What schedulers came to, by whether they go by priority."""
    found: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for layout in ("full", "swa"):
        for driven in lives(layout, 90):
            found[driven.scheduler.habits.by_priority] += driven.scheduler.branches
    return found


@pytest.mark.parametrize("name", BRANCHES)
def test_every_situation_is_come_to(name: str, situations: dict[bool, Counter[str]]) -> None:
    assert situations[True][name]
    own_step = name == "preempted-in-its-own-step"
    assert bool(situations[False][name]) != own_step, "the last that runs is scheduled last"


def test_every_situation_that_is_counted_has_a_name(
    situations: dict[bool, Counter[str]],
) -> None:
    assert set(situations[False] + situations[True]) == set(BRANCHES)


@pytest.mark.parametrize("by_priority", [False, True])
def test_who_gives_way(by_priority: bool) -> None:
    gave_way = []
    for number in range(40):
        seed = f"way{number}"
        watched = Watched(config_of("full", seed), seed)
        if watched.scheduler.habits.by_priority == by_priority:
            watched.act(80)
            gave_way += watched.gave_way
    assert len(gave_way) > 10
    for name, running in gave_way:
        worst = max(running, key=lambda one: one[1]) if by_priority else running[-1]
        assert name == worst[0]


def test_steps_stay_within_their_bounds() -> None:
    for number in range(20):
        driven = small("swa", f"bounds{number}")
        scheduler, world = driven.scheduler, driven.world
        for _ in range(80):
            driven.act(1)
            assert len(scheduler.running) <= MOST_RUNNING
            assert len(world.steps) <= scheduler.habits.depth
            for step in world.steps:
                tokens = sum(entry.end - entry.start for entry in step.entries)
                assert 0 < tokens <= driven.config.max_num_batched_tokens


def test_where_there_is_room_nobody_gives_way_and_requests_end() -> None:
    branches: Counter[str] = Counter()
    for number in range(20):
        driven = Driven(ROOMY, f"room{number}")
        driven.act(100)
        branches += driven.scheduler.branches
    assert not branches["no-slots"]
    assert not branches["preempted"]
    assert branches["ended"] > 20


def test_a_run_can_be_ended_at_any_point() -> None:
    for length in range(60):
        driven = small("chunked", f"cut{length % 5}", extras=True)
        driven.act(length)
        driven.scheduler.finish()
        assert driven.answer, "a block is still in use"


def test_the_same_choices_make_the_same_calls() -> None:
    once, again, other = (small("full", seed) for seed in ("a", "a", "b"))
    for driven in (once, again, other):
        driven.act(60)
    assert once.calls == again.calls != other.calls


class Over(Exception):
    """The run is over."""


class Stopped(Driven):
    """Is over after so many calls."""

    def __init__(self, config: ManagerConfig, seed: str, limit: int) -> None:
        self.limit = limit
        super().__init__(config, seed)

    def make(self, call: Call) -> Any:
        if len(self.calls) == self.limit:
            raise Over
        return super().make(call)


def test_an_exception_of_a_call_comes_out() -> None:
    for limit in range(0, 200, 5):
        stopped = Stopped(config_of("full", "over"), "over", limit)
        with pytest.raises(Over):
            stopped.act(1000)
        assert len(stopped.calls) == limit
