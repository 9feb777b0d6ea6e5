"""Our manager does what the specification's does, when one scheduler drives both."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.fuzz.impl_manager import ImplManager, ImplRequest
from kvproof.fuzz.lockstep import Differs, Lockstep
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig, ManagerTarget
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.scheduler import Scheduler
from kvproof.impl.kv_cache_manager import KVCacheManager
from kvproof.impl.reach import GroupSpec, Reach, Window
from kvproof.spec.rules import KVCacheError

LAYOUTS = {
    "full": GroupConfig("full", 4),
    "mla": GroupConfig("mla", 2),
    "window": GroupConfig("sliding-window", 4, 6),
    "window of whole blocks": GroupConfig("sliding-window", 2, 5),
    "smallest window": GroupConfig("sliding-window", 4, 2),
    "chunk": GroupConfig("chunked-local", 4, 8),
    "chunk of one block": GroupConfig("chunked-local", 4, 4),
}


def live(
    layout: str, seed: int, make: Callable[[ManagerConfig], ManagerTarget], acts: int = 50
) -> int:
    """Let requests live on both. Return the number of calls."""
    pick, group = RandomPick(f"{layout}:{seed}".encode()), LAYOUTS[layout]
    size = group.block_size
    window = group.kind == "sliding-window"
    config = ManagerConfig(
        num_blocks=pick.number(6, 20),
        groups=(group,),
        max_model_len=48,
        max_num_batched_tokens=pick.number(4, 24),
        enable_caching=pick.number(0, 5) > 0,
        watermark=pick.one([0.0, 0.1]),
        retention_interval=pick.one([None, 0, size, 3 * size]) if window else None,
    )
    lockstep = Lockstep(config, make(config))
    scheduler = Scheduler(config, lockstep.make, pick)
    for _ in range(acts):
        scheduler.act(1 + seed % 2)
    return lockstep.calls


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_does_what_the_specification_does(layout: str) -> None:
    assert sum(live(layout, seed, ImplManager) for seed in range(25)) > 2000


def with_method(name: str, method: Any) -> Callable[[ManagerConfig], ManagerTarget]:
    return lambda config: ImplManager(config, type("Wrong", (KVCacheManager,), {name: method}))


def _no_cap(self: KVCacheManager, *args: Any, **rest: Any) -> None:
    KVCacheManager.__init__(self, *args, **rest)
    self.admission_cap = None


def _shifted(self: KVCacheManager, request: Any) -> tuple[list[int], int]:
    hit, _ = KVCacheManager.get_computed_blocks(self, request)
    if len(request.block_hashes) > len(hit) and len(request.tokens) % self.block_size == 0:
        found = self.block_pool.cached.get_one_block(request.block_hashes[len(hit)], 0)
        hit = [*hit, *([] if found is None else [found])]
    return hit, len(hit) * self.block_size


def _front_first(self: KVCacheManager, request: Any) -> None:
    self.block_pool.free_blocks(self.pop_blocks_for_free(request))


def _counted(self: KVCacheManager, running_request_id: str) -> int:
    if type(self.reach) is not Reach or not self.enable_caching:
        return 0
    own, count = self.req_to_blocks.get(running_request_id, []), 0
    while count < len(own) and self.block_pool.ref_cnt[own[count]] == len(self.req_to_blocks):
        count += 1
    return count


def _nothing_queued(self: KVCacheManager, table: Any, wanted: int, hit: Any, computed: int) -> int:
    there = len(table) if table else max(len(hit), self.reach.skipped_blocks(computed))
    return max(wanted - there, 0)


def _grow_again(self: KVCacheManager, name: str, table: Any, wanted: int) -> list[int]:
    more = wanted + len(table or []) if table and wanted > len(table) else wanted
    return KVCacheManager._grow(self, name, table, more)


def _drafts_too(self: KVCacheManager, request: Any, num_tokens: int) -> None:
    KVCacheManager._cache(self, request, num_tokens + self.block_size)


def _untouched_leaf(self: KVCacheManager, name: str, hit: Any, computed: int) -> list[int]:
    table = KVCacheManager._begin(self, name, hit, computed)
    if hit and table[-1]:
        self.block_pool.free_blocks([table[-1]])
    return table


def _keeps(self: KVCacheManager, request_id: str, total_computed_tokens: int) -> None:
    return None


def _too_much(self: KVCacheManager, request_id: str, total_computed_tokens: int) -> None:
    KVCacheManager.remove_skipped_blocks(self, request_id, total_computed_tokens + self.block_size)


def _forgets_count(self: KVCacheManager, request: Any) -> list[int]:
    return self.req_to_blocks.pop(request.request_id, [])


def _ids_stay(self: KVCacheManager) -> list[int]:
    return list(self.new_block_ids)


def _holds_all(self: KVCacheManager, name: str, hit: Any, computed: int) -> list[int]:
    self.block_pool.touch([block for block in hit if block])
    table = self.req_to_blocks[name] = list(hit)
    skipped = self.reach.skipped_blocks(computed)
    table += [0] * max(skipped - len(hit), 0)
    self.num_cached_block[name] = len(table)
    return table


DEFECTS: dict[str, Callable[[ManagerConfig], ManagerTarget]] = {
    "the whole prompt is hit": with_method("get_computed_blocks", _shifted),
    "a table is freed from its front": with_method("free", _front_first),
    "common blocks are counted by references": with_method(
        "get_num_common_prefix_blocks", _counted
    ),
    "queued blocks of a hit are not counted": with_method("_leaving", _nothing_queued),
    "a table grows by what it should be": with_method("_grow", _grow_again),
    "drafts are published": with_method("_cache", _drafts_too),
    "the last block of a hit is not held": with_method("_begin", _untouched_leaf),
    "blocks outside the window are held": with_method("_begin", _holds_all),
    "a window never lets go": with_method("remove_skipped_blocks", _keeps),
    "a window lets go too early": with_method("remove_skipped_blocks", _too_much),
    "what was published is remembered": with_method("pop_blocks_for_free", _forgets_count),
    "new blocks are told twice": with_method("take_new_block_ids", _ids_stay),
    "admission knows no window": with_method("__init__", _no_cap),
}
"""Managers with one thing wrong."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_caught(name: str) -> None:
    for seed in range(60):
        for layout in LAYOUTS:
            try:
                live(layout, seed, DEFECTS[name])
            except Differs:
                return
    pytest.fail("not caught")


def test_a_wrong_window_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "_needed", property(lambda self: self.reach // self.block_size))

    def live_on() -> None:
        for seed in range(60):
            live("window", seed, ImplManager)

    with pytest.raises(Differs):
        live_on()


class TestStep:
    """One call for the running requests of a step."""

    def test_it_serves_until_one_gets_nothing(self) -> None:
        manager = KVCacheManager(6, GroupSpec("full", 4), 64)
        requests = [ImplRequest(name, [0] * 4, 4, 4) for name in "abc"]
        for request in requests:
            manager.allocate_slots(request, 4)
            request.num_computed_tokens, request.is_running = 4, True
            request.append([1])
        assert manager.allocate_step(requests, [1, 1, 1]) == [[4], [5]]
        assert manager.req_to_blocks["c"] == [3]

    def test_it_is_what_single_calls_are(self) -> None:
        tables = []
        for batched in (False, True):
            manager = KVCacheManager(9, GroupSpec("sliding-window", 4, 6), 64)
            requests = [ImplRequest(name, [0] * 7, 7, 4) for name in "ab"]
            for request in requests:
                manager.allocate_slots(request, 7)
                request.num_computed_tokens, request.is_running = 7, True
            if batched:
                manager.allocate_step(requests, [3, 1])
            else:
                manager.allocate_slots(requests[0], 3)
                manager.allocate_slots(requests[1], 1)
            tables.append(manager.req_to_blocks)
        assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("group", "options"),
    [
        (GroupSpec("mamba", 4), {}),
        (GroupSpec("full", 0), {}),
        (GroupSpec("chunked-local", 4, 6), {}),
        (GroupSpec("full", 4), {"retention_interval": 4}),
        (GroupSpec("sliding-window", 4, 6), {"retention_interval": 3}),
        (GroupSpec("full", 4), {"watermark": -0.1}),
    ],
)
def test_what_cannot_be_built(group: GroupSpec, options: dict[str, Any]) -> None:
    with pytest.raises(KVCacheError):
        KVCacheManager(8, group, 64, **options)


def test_what_is_refused_changes_nothing() -> None:
    manager = KVCacheManager(8, GroupSpec("full", 4), 64)
    a = ImplRequest("a", [0] * 12, 12, 4)
    manager.allocate_slots(a, 12)
    before = copy.deepcopy((manager.req_to_blocks, manager.block_pool.ref_cnt))
    calls: list[Callable[[], object]] = [
        lambda: manager.allocate_slots(a, 0),
        lambda: manager.allocate_slots(a, -1),
        lambda: manager.allocate_slots(a, 1, 4, []),
        lambda: manager.allocate_slots(a, 1, 4, [1]),
        lambda: manager.cache_blocks(a, 13),
    ]
    for call in calls:
        with pytest.raises(KVCacheError):
            call()
    assert (manager.req_to_blocks, manager.block_pool.ref_cnt) == before
