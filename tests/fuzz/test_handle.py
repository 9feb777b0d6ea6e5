"""Targets that do what no target should: each comes to a verdict, or to one clear line."""

import sys
from typing import Any

import pytest

from kvproof.fuzz.calls import Call
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.run import Flags, Run
from kvproof.fuzz.target import Observation, PoolConfig, TargetBroken
from kvproof.fuzz.targets import Target, TargetError, checked


class Exits(ImplPool):
    def touch(self, blocks: list[int]) -> None:
        sys.exit(0)


class Unwinds(ImplPool):
    def touch(self, blocks: list[int]) -> None:
        raise GeneratorExit


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


class Mumbles(ImplPool):
    def touch(self, blocks: list[int]) -> None:
        raise Unreadable


class Empties(ImplPool):
    """Uses up what it is given."""

    def touch(self, blocks: list[int]) -> None:
        super().touch(blocks)
        blocks.clear()

    def cache_full_blocks(self, request: Any, *args: Any, **rest: Any) -> None:
        super().cache_full_blocks(request, *args, **rest)
        request.tokens.clear()
        request.block_hashes.clear()


class Lives(ImplPool):
    """Shows its own lists, which go on changing."""

    def __init__(self, config: PoolConfig) -> None:
        super().__init__(config)
        self.shown = super().observe()

    def observe(self) -> Observation:
        seen = super().observe()
        for name in Observation.__slots__:
            mine, new = getattr(self.shown, name), getattr(seen, name)
            if isinstance(mine, list):
                mine[:] = new
            elif isinstance(mine, dict):
                mine.clear()
                mine.update(new)
            else:
                setattr(self.shown, name, new)
        return self.shown


@pytest.mark.parametrize("target", [Exits, Unwinds, Mumbles])
def test_whatever_a_target_raises_refuses_the_call(target: type[ImplPool]) -> None:
    session = run_campaign(target, "own", Flags(), Limits(examples=20), seed=1)
    assert {failure.property for failure in session.failures.values()} == {"legal-accepted"}


@pytest.mark.parametrize("target", [Empties, Lives])
def test_lists_are_not_shared_with_a_target(target: type[ImplPool]) -> None:
    session = run_campaign(target, "own", Flags(True, True), Limits(examples=25), seed=2)
    assert not session.failures


def test_a_change_by_a_refused_call_is_seen_also_in_lists_that_live_on() -> None:
    class Leaks(Lives):
        def get_new_blocks(self, num_blocks: int) -> list[int]:
            if num_blocks < 0:
                self.pool.ref_cnt[1] += 1
            return super().get_new_blocks(num_blocks)

    run = Run(Leaks, PoolConfig(4), Flags(misuse=True))
    found = run.step(Call("get_new_blocks", {"num_blocks": -1})).finding
    assert found is not None
    assert found.property == "misuse-refused"
    assert "ref_cnt" in found.actual


class NoView(ImplPool):
    def observe(self) -> Observation:
        return None  # type: ignore[return-value]


class DiesLooking(ImplPool):
    def observe(self) -> Observation:
        sys.exit(3)


class DiesAtBirth(ImplPool):
    def __init__(self, config: PoolConfig) -> None:
        sys.exit(0)


class OneName(ImplPool):
    operations = "touch"  # type: ignore[assignment]


class NoNames(ImplPool):
    operations = ()


class Unknown(ImplPool):
    operations = ("touch", "jump")


class Lacks:
    operations = ("touch",)

    def __init__(self, config: PoolConfig) -> None:
        pass

    def observe(self) -> Observation:
        return Observation()


class OtherNames(ImplPool):
    def touch(self, ids: list[int]) -> None:
        pass


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (NoView, "observe must return an Observation, not NoneType"),
        (DiesLooking, "the target cannot observe a new pool: SystemExit: 3"),
        (DiesAtBirth, "the target cannot build a pool: SystemExit: 0"),
        (OneName, "operations must be names, such as .'touch',., not 'touch'"),
        (NoNames, "operations must be names"),
        (Unknown, "operations names 'jump'; known: get_new_blocks"),
        (Lacks, "has no attribute 'touch'"),
        (OtherNames, r"touch must take the arguments \(blocks\), by these names"),
    ],
)
def test_what_is_no_target_is_refused_in_one_line(target: Any, says: str) -> None:
    with pytest.raises(TargetError, match=says) as refused:
        checked(Target("own", target, ""))
    assert len(str(refused.value).splitlines()) == 1


def test_a_target_that_breaks_later_is_named_as_broken() -> None:
    class Tires(ImplPool):
        def observe(self) -> Observation:
            return super().observe() if any(self.pool.ref_cnt) else None  # type: ignore

    with pytest.raises(TargetBroken, match="must return an Observation"):
        run_campaign(Tires, "own", Flags(), Limits(examples=5), seed=1)
