"""Requests live on the specification's manager: what they read is their own prefix."""

from typing import Any

import pytest

from kvproof.fuzz.contents import Contents, Wrong
from kvproof.fuzz.manager_model import SpecManager, spec_of
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig, ManagerTarget
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.scheduler import Job, Scheduled, Scheduler
from kvproof.spec import single_type_manager
from kvproof.spec.kv_cache_coordinator import attention_of
from kvproof.spec.pool_properties import STATE_PROPERTIES

LAYOUTS = {
    "full": GroupConfig("full", 4),
    "window": GroupConfig("sliding-window", 4, 6),
    "small window": GroupConfig("sliding-window", 2, 3),
    "chunk": GroupConfig("chunked-local", 4, 8),
}


class Life:
    """A scheduler on a manager, with ghost contents. `wrong` is the first breach."""

    def __init__(self, group: GroupConfig, seed: str) -> None:
        pick = RandomPick(seed.encode())
        config = ManagerConfig(
            pick.number(6, 20), (group,), 48, pick.number(4, 24), watermark=pick.one([0.0, 0.1])
        )
        self.manager: ManagerTarget = SpecManager(config)
        self.contents = Contents(attention_of(spec_of(group)), group.block_size)
        self.wrong: Wrong | None = None
        self.calls: list[str] = []
        self.scheduler = Scheduler(config, self.make, pick, self.loaded)
        self.scheduler.on_step = self.dispatched

    def make(self, name: str, **args: Any) -> Any:
        self.calls.append(name)
        return getattr(self.manager, name)(**args)

    def table(self, job: Job) -> list[int]:
        return self.manager.observe().tables.get(job.name, [[]])[0]

    def loaded(self, job: Job, span: range) -> None:
        kept = [p for p in span if self.table(job)[p // self.contents.block_size]]
        self.wrong = self.wrong or self.contents.write(self.table(job), job.tokens, kept)

    def dispatched(self, done: list[Scheduled]) -> None:
        for one in done:
            tokens = [*one.job.tokens, *one.drafts]
            span = range(one.start, one.end)
            self.wrong = self.wrong or self.contents.write(self.table(one.job), tokens, span)
        for one in done:
            tokens = [*one.job.tokens, *one.drafts]
            for position in range(one.start, one.end):
                read = self.contents.read(self.table(one.job), tokens, position)
                self.wrong = self.wrong or read


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_token_reads_its_own_prefix(layout: str) -> None:
    made = set()
    for seed in range(25):
        life = Life(LAYOUTS[layout], f"{layout}{seed}")
        for _ in range(60):
            life.scheduler.act(1 + seed % 2)
            assert life.wrong is None
        manager = life.manager
        assert isinstance(manager, SpecManager)
        for found in STATE_PROPERTIES.values():
            state = manager.manager.block_pool.state
            assert found.statement is None or found.statement(state), found.name
        made |= set(life.calls)
    assert made >= {"allocate_slots", "pop_blocks_for_free", "cache_blocks", "evict_blocks"}


def test_when_all_have_ended_every_block_is_free() -> None:
    for seed in range(10):
        life = Life(LAYOUTS["window"], f"end{seed}")
        for _ in range(40):
            life.scheduler.act(2)
        scheduler = life.scheduler
        for job in [*scheduler.running, *scheduler.waiting]:
            scheduler.end(job)
        while scheduler.flying:
            scheduler.settle()
        assert life.manager.reset_prefix_cache()


WRONG: dict[str, tuple[str, Any, str]] = {
    "one token too many is skipped": (
        "skipped_tokens",
        lambda attention, c: attention.first_read(c + 4),
        "window-kept",
    ),
    "a hit needs its last block only": (
        "needed_blocks",
        lambda attention, hit, size: range(max(hit // size - 1, 0), hit // size),
        "window-kept",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_manager_that_forgets_too_much_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, wrong, broken = WRONG[name]
    monkeypatch.setattr(single_type_manager, function, wrong)
    found = set()
    for seed in range(20):
        life = Life(LAYOUTS["window"], f"wrong{seed}")
        for _ in range(60):
            life.scheduler.act(1)
            if life.wrong is not None:
                found.add(life.wrong.property)
                break
    assert broken in found
