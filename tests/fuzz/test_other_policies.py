"""Correct pools with policies of their own: a safety run reports nothing about them.

A false alarm costs an engineer more than a missed defect. These pools share no code with
the specification or the implementation; they keep every safety property, evict in another
order, find another duplicate, forget keys early, and show more or less of their state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import pytest

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.properties import POOL_LEVEL as PROPERTIES
from kvproof.fuzz.run import Flags
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.target import (
    OPERATIONS,
    Event,
    Hash,
    Observation,
    PoolConfig,
    PoolFactory,
    RequestView,
)
from kvproof.spec.properties import Class

WireKey = tuple[Hash, int]


@dataclass(frozen=True)
class Policy:
    """Whatever a pool may decide for itself."""

    takes_last: bool = False
    """Hand out the block that was freed last."""
    by_number: bool = False
    """Hand out the free block with the highest number."""
    forgets: bool = False
    """Drop a block's keys as soon as nobody holds it."""
    finds_last: bool = False
    """A lookup finds the block that was listed last."""
    lists_once: bool = False
    """A second block under one key is not listed."""
    answers_none: bool = False
    """Too few free blocks: the answer is None, not an exception."""
    tells_in_one: bool = False
    """An event tells that a key is stored only when it was not resident before."""


class OwnPool:
    """A pool in the plainest Python, that shows the fields in `shows`."""

    operations: tuple[str, ...] = OPERATIONS

    def __init__(self, config: PoolConfig, policy: Policy, shows: Sequence[str]) -> None:
        self.config, self.policy, self.shows = config, policy, shows
        self.free = list(range(1, config.num_gpu_blocks))
        self.holders = [0] * config.num_gpu_blocks
        self.carried: list[list[WireKey]] = [[] for _ in self.holders]
        self.listed: dict[WireKey, list[int]] = {}
        self.events: list[Event] = []

    def get_new_blocks(self, num_blocks: int) -> list[int] | None:
        if num_blocks > len(self.free):
            if self.policy.answers_none:
                return None
            raise MemoryError("full")
        if self.policy.by_number:
            self.free.sort(reverse=True)
        blocks = [self.free.pop(-1 if self.policy.takes_last else 0) for _ in range(num_blocks)]
        for block in blocks:
            self._drop(block)
            self.holders[block] = 1
        return blocks

    def touch(self, blocks: list[int]) -> None:
        for block in blocks:
            if block == 0:
                continue
            if self.holders[block] == 0:
                if not self.carried[block]:
                    raise LookupError(f"block {block} holds nothing")
                self.free.remove(block)
            self.holders[block] += 1

    def free_blocks(self, blocks: list[int]) -> None:
        for block in blocks:
            if block == 0:
                continue
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free.append(block)
                if self.policy.forgets:
                    self._drop(block)

    def get_cached_block(self, block_hash: Hash, groups: list[int]) -> list[int] | None:
        found = [self.listed.get((block_hash, group)) for group in groups]
        at = -1 if self.policy.finds_last else 0
        blocks = [listed[at] for listed in found if listed]
        return blocks if len(blocks) == len(groups) else None

    def cache_full_blocks(
        self,
        request: RequestView,
        blocks: list[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        group: int,
        block_mask: list[bool] | None,
    ) -> None:
        for index in range(num_cached_blocks, num_full_blocks):
            if blocks[index] and (block_mask is None or block_mask[index - num_cached_blocks]):
                self._list(request, blocks[index], (index + 1) * block_size, block_size, group)

    def cache_partial_block(
        self, request: RequestView, block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        if block == 0:
            return False
        self._list(request, block, num_tokens, self.config.hash_block_size, group)
        return True

    def evict_blocks(self, blocks: list[int]) -> None:
        for block in blocks:
            self._drop(block)

    def reset_prefix_cache(self) -> bool:
        if any(self.holders):
            return False
        for block in range(len(self.holders)):
            self._drop(block)
        return True

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def get_num_free_blocks(self) -> int:
        return len(self.free)

    def get_usage(self) -> float:
        return sum(map(bool, self.holders)) / max(len(self.holders) - 1, 1)

    def observe(self) -> Observation:
        index = {key: list(blocks) for key, blocks in self.listed.items()}
        keys = [sorted(mine, key=lambda key: -len(key[0])) for mine in self.carried]
        state = Observation(
            list(self.free), list(self.holders), keys, index, len(self.free), hooks=[]
        )
        return Observation(**{name: getattr(state, name) for name in self.shows})

    def _list(self, request: RequestView, block: int, end: int, told: int, group: int) -> None:
        unit = self.config.hash_block_size
        key = request.block_hashes[end // unit - 1], group
        listed = self.listed.setdefault(key, [])
        if block in listed or (listed and self.policy.lists_once):
            return
        if not (listed and self.policy.tells_in_one):
            first = end - told
            parent = request.block_hashes[first // unit - 1] if first else None
            self.events.append(["stored", [key[0]], parent, request.tokens[first:end], group])
        listed.append(block)
        self.carried[block].append(key)

    def _drop(self, block: int) -> None:
        for key in self.carried[block]:
            self.listed[key].remove(block)
            if not self.listed[key]:
                del self.listed[key]
                self.events.append(["removed", [key[0]], key[1]])
        self.carried[block] = []


POLICIES = {
    "last": Policy(takes_last=True),
    "number": Policy(by_number=True),
    "forgets": Policy(forgets=True),
    "finds last": Policy(takes_last=True, finds_last=True, answers_none=True),
    "lists once": Policy(by_number=True, lists_once=True),
    "everything": Policy(True, True, True, True, True, True, True),
}
EVERYTHING = tuple(field.name for field in fields(Observation) if field.name != "hooks")
SHOWS: dict[str, tuple[str, ...]] = {
    "everything": EVERYTHING,
    "nothing": (),
    "counts": ("ref_cnt", "num_free_blocks"),
    "queue": ("free",),
    "index only": ("index",),
    "keys only": ("keys", "free"),
}


def fuzz(factory: Callable[[PoolConfig], object], flags: Flags, examples: int) -> Tally:
    made: PoolFactory = factory  # type: ignore[assignment]
    return run_campaign(made, "own", flags, Limits(examples=examples), seed=3)


def own(name: str, shown: str) -> Callable[[PoolConfig], object]:
    return lambda config: OwnPool(config, POLICIES[name], SHOWS[shown])


@pytest.mark.parametrize("shown", SHOWS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_safety_run_reports_nothing(name: str, shown: str) -> None:
    session = fuzz(own(name, shown), Flags(), 8)
    assert not session.failures
    assert not session.runs_over


@pytest.mark.parametrize("shown", ["everything", "nothing"])
def test_a_longer_safety_run_reports_nothing(shown: str) -> None:
    session = fuzz(own("everything", shown), Flags(), 100)
    assert not session.failures
    assert not session.runs_over
    assert session.operations["touch"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("shown", SHOWS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_long_safety_run_reports_nothing(name: str, shown: str) -> None:
    assert not fuzz(own(name, shown), Flags(), 150).failures


@pytest.mark.parametrize("shown", ["everything", "nothing"])
def test_another_policy_is_reported_where_policy_is_judged(shown: str) -> None:
    session = fuzz(own("number", shown), Flags(policy=True), 25)
    assert session.failures
    assert not any(failure.property == "legal-accepted" for failure in session.failures.values())
    classes = {PROPERTIES[failure.property].klass for failure in session.failures.values()}
    assert classes == {Class.POLICY}
