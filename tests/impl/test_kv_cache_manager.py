"""Our manager: what a run of the fuzzer does not see, or sees seldom.

That it does what the specification does is what `kvproof fuzz impl --level manager --policy`
judges (tests/fuzz/test_manager_campaigns.py), and each seeded defect of it is caught.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.fuzz.impl_manager import ImplRequest
from kvproof.impl.kv_cache_manager import KVCacheManager
from kvproof.impl.reach import GroupSpec
from kvproof.spec.rules import KVCacheError


def request_of(name: str, tokens: list[int]) -> ImplRequest:
    """Return a request with this prompt, hashed by blocks of 4."""
    made = ImplRequest(name, [], None, 4, len(tokens))
    made.append(tokens)
    return made


class TestStep:
    """One call for the running requests of a step."""

    def test_it_serves_until_one_gets_nothing(self) -> None:
        manager = KVCacheManager(6, [GroupSpec("full", 4)], 64)
        requests = [request_of(name, [0] * 4) for name in "abc"]
        for request in requests:
            manager.allocate_slots(request, 4)
            request.num_computed_tokens, request.is_running = 4, True
            request.append([1])
        assert manager.allocate_step(requests, [1, 1, 1]) == [[[4]], [[5]]]
        assert manager.req_to_blocks["c"] == [[3]]

    def test_it_is_what_single_calls_are(self) -> None:
        tables = []
        for batched in (False, True):
            manager = KVCacheManager(9, [GroupSpec("sliding-window", 4, 6)], 64)
            requests = [request_of(name, [0] * 7) for name in "ab"]
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
        KVCacheManager(8, [group], 64, **options)


def test_what_is_refused_changes_nothing() -> None:
    manager = KVCacheManager(8, [GroupSpec("full", 4)], 64)
    a = request_of("a", [0] * 12)
    manager.allocate_slots(a, 12)
    before = copy.deepcopy((manager.req_to_blocks, manager.block_pool.ref_cnt))
    calls: list[Callable[[], object]] = [
        lambda: manager.allocate_slots(a, 0),
        lambda: manager.allocate_slots(a, -1),
        lambda: manager.allocate_slots(a, 1, 4, [[]]),
        lambda: manager.allocate_slots(a, 1, 4, [[1]]),
        lambda: manager.cache_blocks(a, 13),
    ]
    for call in calls:
        with pytest.raises(KVCacheError):
            call()
    assert (manager.req_to_blocks, manager.block_pool.ref_cnt) == before


def test_several_groups_are_served_without_prefix_caching_only() -> None:
    groups = [GroupSpec("full", 4), GroupSpec("sliding-window", 2, 3)]
    with pytest.raises(KVCacheError, match="group-count"):
        KVCacheManager(8, groups, 64)
    manager = KVCacheManager(8, groups, 64, enable_caching=False)
    a = request_of("a", [0] * 6)
    assert manager.get_computed_blocks(a) == ([[], []], 0)
    assert manager.allocate_slots(a, 6) == [[1, 2], [3, 4, 5]]
    a.num_computed_tokens, a.is_running = 6, True
    a.append([0])
    assert manager.allocate_slots(a, 1) == [[], [4]], "the last that was freed comes first"
    assert manager.get_num_common_prefix_blocks("a") == [0, 0]


def test_without_groups_nothing_is_allocated() -> None:
    manager = KVCacheManager(2, [], 64, enable_caching=False)
    a = request_of("a", [0] * 40)
    assert manager.get_computed_blocks(a) == ([], 0)
    assert manager.allocate_slots(a, 40) == []
    manager.free(a)
