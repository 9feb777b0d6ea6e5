"""Where the seeds contradict the release: what docs/seeds.md says of it, on the release itself."""

import importlib.util
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

found = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)

SIZE = 4


@pytest.fixture(scope="module")
def vllm() -> SimpleNamespace:
    """The parts of vLLM that are asked."""
    homes = {
        "vllm.v1.core.block_pool": ("BlockPool",),
        "vllm.v1.core.kv_cache_coordinator": (
            "KVCacheCoordinatorNoPrefixCache",
            "HybridKVCacheCoordinator",
        ),
        "vllm.v1.core.kv_cache_manager": ("KVCacheManager",),
        "vllm.v1.core.kv_cache_utils": (
            "get_request_block_hasher",
            "init_none_hash",
            "resolve_kv_cache_block_sizes",
        ),
        "vllm.v1.core.single_type_kv_cache_manager": (
            "SingleTypeKVCacheManager",
            "register_all_kvcache_specs",
        ),
        "vllm.v1.kv_cache_interface": (
            "FullAttentionSpec",
            "KVCacheConfig",
            "KVCacheGroupSpec",
            "SlidingWindowSpec",
        ),
        "vllm.v1.request": ("Request", "RequestStatus"),
        "vllm.sampling_params": ("SamplingParams",),
        "vllm.utils.hashing": ("sha256",),
    }
    parts = {
        name: getattr(importlib.import_module(home), name)
        for home, names in homes.items()
        for name in names
    }
    parts["register_all_kvcache_specs"](None)
    parts["init_none_hash"](parts["sha256"])
    return SimpleNamespace(
        torch=importlib.import_module("torch"), envs=importlib.import_module("vllm.envs"), **parts
    )


def full(vllm: SimpleNamespace, size: int = SIZE) -> Any:
    return vllm.FullAttentionSpec(size, num_kv_heads=1, head_size=2, dtype=vllm.torch.float16)


def window(vllm: SimpleNamespace, tokens: int, size: int = SIZE) -> Any:
    return vllm.SlidingWindowSpec(
        size, num_kv_heads=1, head_size=2, dtype=vllm.torch.float16, sliding_window=tokens
    )


def manager(vllm: SimpleNamespace, *specs: Any, blocks: int = 12, **options: Any) -> Any:
    groups = [vllm.KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
    config = vllm.KVCacheConfig(blocks, [], groups)
    return vllm.KVCacheManager(config, 64, SIZE, SIZE, **options)


def request(vllm: SimpleNamespace, name: str, tokens: list[int], unit: int = SIZE) -> Any:
    hasher = vllm.get_request_block_hasher(unit, vllm.sha256)
    sampling = vllm.SamplingParams(max_tokens=8)
    return vllm.Request(name, tokens, sampling, None, block_hasher=hasher)


def free_ids(pool: Any) -> list[int]:
    return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


def ids(blocks: Any) -> list[int]:
    return [block.block_id for block in blocks]


def test_all_groups_share_one_pool(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm), window(vllm, 8))
    managers = made.coordinator.single_type_managers
    assert len(managers) == 2
    assert all(one.block_pool is made.block_pool for one in managers)


def test_a_request_holds_different_blocks_in_each_group(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm), window(vllm, 8))
    made.allocate_slots(request(vllm, "a", [1] * 8), 8)
    first, second = made.get_block_ids("a")
    assert not {*first} & {*second}


def published(vllm: SimpleNamespace) -> tuple[Any, Any, Any]:
    pool = vllm.BlockPool(6, True, 2)
    (block,) = pool.get_new_blocks(1)
    one = request(vllm, "a", [1] * 8, 2)
    pool.cache_full_blocks(one, [block], 0, 1, 4, 0)
    return pool, block, one


def test_a_second_full_key_is_refused(vllm: SimpleNamespace) -> None:
    pool, block, one = published(vllm)
    with pytest.raises(AssertionError):
        pool.cache_full_blocks(one, [block], 0, 1, 4, 1)


def test_a_second_full_key_that_covers_more_replaces_the_first(vllm: SimpleNamespace) -> None:
    pool, block, one = published(vllm)
    pool.cache_full_blocks(one, [None, block], 1, 2, 4, 1)
    assert pool.get_cached_block(one.block_hashes[1], [0]) is None
    assert pool.get_cached_block(one.block_hashes[3], [1]) == [block]


def test_a_partial_key_of_another_group_is_accepted(vllm: SimpleNamespace) -> None:
    pool, block, one = published(vllm)
    pool.cache_partial_block(one, block, 2, 1, 4)
    assert pool.get_cached_block(one.block_hashes[1], [0]) == [block]
    assert pool.get_cached_block(one.block_hashes[0], [1]) == [block]


@pytest.mark.parametrize(("interval", "accepted"), [(0, True), (8, True), (6, False), (-4, False)])
def test_0_is_a_retention_interval(
    vllm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, interval: int, accepted: bool
) -> None:
    monkeypatch.setattr(vllm.envs, "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", interval, raising=False)
    if accepted:
        assert manager(vllm, window(vllm, 8)).coordinator.retention_interval == interval
    else:
        with pytest.raises(ValueError, match="must be non-negative"):
            manager(vllm, window(vllm, 8))


def test_retention_is_refused_when_nothing_is_forgotten(
    vllm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm.envs, "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", SIZE, raising=False)
    with pytest.raises(ValueError, match="no sliding-window"):
        manager(vllm, full(vllm))


def test_freed_blocks_go_to_the_front_without_a_hash_and_to_the_back_with_one(
    vllm: SimpleNamespace,
) -> None:
    pool = vllm.BlockPool(7, True, SIZE)
    a, b, c, d = pool.get_new_blocks(4)
    pool.cache_full_blocks(request(vllm, "a", [1] * 8), [a, b], 0, 2, SIZE, 0)
    pool.free_blocks([b, d, a, c])
    assert free_ids(pool) == [4, 3, 5, 6, 2, 1]


def test_the_manager_reverses_its_table(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm), blocks=5)
    one = request(vllm, "a", [1] * 12)
    made.allocate_slots(one, 12)
    assert made.get_block_ids("a") == ([1, 2, 3],)
    made.free(one)
    assert free_ids(made.block_pool) == [4, 3, 2, 1]


def sizes(vllm: SimpleNamespace, *groups: int, asked: int | None = None) -> tuple[int, int]:
    config = SimpleNamespace(
        cache_config=SimpleNamespace(
            block_size=groups[0], enable_prefix_caching=True, hash_block_size=asked
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
        kv_transfer_config=None,
    )
    specs = [vllm.KVCacheGroupSpec([f"l{size}"], full(vllm, size)) for size in groups]
    found: tuple[int, int] = vllm.resolve_kv_cache_block_sizes(
        vllm.KVCacheConfig(4, [], specs), config
    )
    return found


def test_the_hash_unit_is_the_greatest_common_divisor(vllm: SimpleNamespace) -> None:
    assert sizes(vllm, 16, 24) == (48, 8)
    with pytest.raises(ValueError, match="Invalid hash_block_size=16"):
        sizes(vllm, 16, 24, asked=min(16, 24))


def test_the_names_that_the_release_does_not_have(vllm: SimpleNamespace) -> None:
    assert not hasattr(vllm.KVCacheManager, "prefill_allocation")
    for name in ("append_slots", "allocate_slots"):
        assert not hasattr(vllm.SingleTypeKVCacheManager, name)
    assert [*inspect.signature(vllm.BlockPool.free_blocks).parameters] == ["self", "ordered_blocks"]
    assert [*inspect.signature(vllm.KVCacheManager.free).parameters] == ["self", "request"]


def test_get_new_blocks_checks_first_but_not_for_negative_numbers(vllm: SimpleNamespace) -> None:
    pool = vllm.BlockPool(4, True, SIZE)
    with pytest.raises(ValueError, match="Cannot get 4 free blocks"):
        pool.get_new_blocks(4)
    assert pool.get_num_free_blocks() == 3
    pool.get_new_blocks(-1)
    assert pool.get_num_free_blocks() == 4


def test_evict_blocks_does_not_see_a_negative_id_and_may_stop_half_way(
    vllm: SimpleNamespace,
) -> None:
    pool, block, one = published(vllm)
    pool.evict_blocks({-5})
    assert pool.get_cached_block(one.block_hashes[1], [0]) is None
    pool, block, one = published(vllm)
    with pytest.raises(AssertionError):
        pool.evict_blocks([block.block_id, 99])
    assert pool.get_cached_block(one.block_hashes[1], [0]) is None


def test_a_preempted_request_leaves_no_null_block(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm))
    one = request(vllm, "a", [1] * 8)
    made.allocate_slots(one, 8)
    made.free(one)
    assert made.get_block_ids("a") == ([],)


def test_the_null_block_is_counted_and_never_queued(vllm: SimpleNamespace) -> None:
    pool = vllm.BlockPool(3, True, SIZE)
    pool.touch([pool.null_block])
    assert pool.null_block.ref_cnt == 1
    pool.free_blocks([pool.null_block, pool.null_block])
    assert pool.null_block.ref_cnt == -1
    assert free_ids(pool) == [1, 2]


def test_hashes_are_there_before_any_block_and_published_before_the_step(
    vllm: SimpleNamespace,
) -> None:
    made = manager(vllm, full(vllm))
    one = request(vllm, "a", [1] * 9)
    assert len(one.block_hashes) == 2
    made.allocate_slots(one, 9)
    assert made.get_computed_blocks(request(vllm, "b", [1] * 9))[1] == 8


def test_blocks_that_decode_fills_are_published(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm))
    one = request(vllm, "a", [1] * 3)
    made.allocate_slots(one, 3)
    one.num_computed_tokens = 3
    one.append_output_token_ids([1])
    made.allocate_slots(one, 1)
    assert made.get_computed_blocks(request(vllm, "b", [1] * 9))[1] == 4


def test_a_hit_is_not_held_before_slots_are_allocated(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm))
    one = request(vllm, "a", [1] * 8)
    made.allocate_slots(one, 8)
    made.free(one)
    blocks, tokens = made.get_computed_blocks(request(vllm, "b", [1] * 9))
    assert tokens == 8
    assert [block.ref_cnt for block in blocks.blocks[0]] == [0, 0]


def test_a_window_counts_what_lies_before_it_as_hit(vllm: SimpleNamespace) -> None:
    made = manager(vllm, window(vllm, 5))
    one = request(vllm, "a", [1] * 16)
    made.allocate_slots(one, 16)
    made.free(one)
    blocks, tokens = made.get_computed_blocks(request(vllm, "b", [1] * 17))
    assert tokens == 16
    assert [block.is_null for block in blocks.blocks[0]] == [True, True, True, False]


def test_a_window_is_hit_wherever_its_blocks_are_and_a_short_prefix_is_a_hit(
    vllm: SimpleNamespace,
) -> None:
    made = manager(vllm, window(vllm, 9))
    one = request(vllm, "a", [1] * 16)
    made.allocate_slots(one, 16)
    *_, last = made.get_block_ids("a")[0]
    made.free(one)
    made.evict_blocks({last})
    assert made.get_computed_blocks(request(vllm, "b", [1] * 17))[1] == 12
    assert made.get_computed_blocks(request(vllm, "c", [1] * 4 + [2] * 4))[1] == 4


def test_only_what_waits_leaves_the_watermark_free(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm), blocks=4, watermark=0.5)
    one = request(vllm, "a", [1] * 8)
    assert made.allocate_slots(one, 8) is None
    one.status = vllm.RequestStatus.RUNNING
    assert made.allocate_slots(one, 8) is not None


def test_reserved_blocks_are_left_whoever_asks(vllm: SimpleNamespace) -> None:
    made = manager(vllm, full(vllm), blocks=4)
    one = request(vllm, "a", [1] * 8)
    one.status = vllm.RequestStatus.RUNNING
    assert made.allocate_slots(one, 8, reserved_blocks=2) is None
    assert made.allocate_slots(one, 8, reserved_blocks=1) is not None


def test_the_coordinator_without_caching_still_publishes_when_it_is_told_to(
    vllm: SimpleNamespace,
) -> None:
    made = manager(vllm, full(vllm), enable_caching=False)
    assert isinstance(made.coordinator, vllm.KVCacheCoordinatorNoPrefixCache)
    one = request(vllm, "a", [1] * 8)
    made.allocate_slots(one, 8)
    made.cache_blocks(one, 8)
    assert len(made.block_pool.cached_block_hash_to_block) == 0
    made.coordinator.cache_blocks(one, 8)
    assert len(made.block_pool.cached_block_hash_to_block) == 2


def test_several_groups_are_merged_by_spec_with_full_attention_first(
    vllm: SimpleNamespace,
) -> None:
    made = manager(vllm, window(vllm, 8), full(vllm), window(vllm, 8))
    coordinator = made.coordinator
    assert isinstance(coordinator, vllm.HybridKVCacheCoordinator)
    assert [group.group_ids for group in coordinator.attention_groups] == [[1], [0, 2]]
    with pytest.raises(AssertionError, match="at least two attention groups"):
        manager(vllm, full(vllm), full(vllm))
