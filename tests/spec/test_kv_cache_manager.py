"""The manager of the specification: its four paths, and what may not happen on them."""

from typing import Any

import pytest

from kvproof.spec import manager_rules
from kvproof.spec.kv_cache_coordinator import Blocks, get_kv_cache_coordinator
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from kvproof.spec.pool_properties import STATE_PROPERTIES
from kvproof.spec.quantities import BlockId, NumTokens, TokenId
from kvproof.spec.request import Request, RequestId
from kvproof.spec.rules import KVCacheError, Rule

SIZE = NumTokens(4)
FULL = FullAttentionSpec(SIZE)
WINDOW = SlidingWindowSpec(SIZE, NumTokens(6))
CHUNK = ChunkedLocalAttentionSpec(SIZE, NumTokens(8))


def manager_of(spec: KVCacheSpec, num_blocks: int, **options: Any) -> KVCacheManager:
    config = KVCacheConfig(num_blocks, (spec,))
    return KVCacheManager(config, NumTokens(64), SIZE, SIZE, **options)


def request_of(name: str, length: int, token: int = 0) -> Request:
    tokens = (TokenId(token),) * length
    return Request(RequestId(name), tokens, NumTokens(length))


def start(manager: KVCacheManager, request: Request, count: int, **more: Any) -> Blocks | None:
    """Look up, allocate, and count on: what a scheduler does with a request that waits."""
    hit, num_hits = manager.get_computed_blocks(request)
    new = NumTokens(count)
    given = manager.allocate_slots(request, new, num_hits, hit, **more)
    if given is not None:
        external = more.get("num_external_computed_tokens", 0)
        request.num_computed_tokens = NumTokens(num_hits + external + count)
        request.is_running = True
    return given


def state(manager: KVCacheManager) -> list[Any]:
    pool = manager.block_pool
    blocks = [pool.block(BlockId(block)) for block in range(pool.num_gpu_blocks)]
    tables = [dict(m.req_to_blocks) for m in manager.coordinator.single_type_managers]
    return [blocks, list(pool.state.free_queue), tables]  # type: ignore[call-overload]


def sound(manager: KVCacheManager) -> None:
    for found in STATE_PROPERTIES.values():
        assert found.statement is None or found.statement(manager.block_pool.state), found.name


def refused(rule: Rule, call: Any) -> None:
    with pytest.raises(KVCacheError) as error:
        call()
    assert error.value.rule is rule


class TestPaths:
    def test_prefill_fills_a_table_and_publishes_what_is_full(self) -> None:
        manager, a = manager_of(FULL, 8), request_of("a", 10)
        assert start(manager, a, 10) == ([1, 2, 3],)
        pool = manager.block_pool
        keyed = [pool.block(BlockId(b)).block_hash_num_tokens for b in (1, 2, 3)]
        assert keyed == [4, 8, None]
        assert manager.take_new_block_ids() == [1, 2, 3]
        assert manager.take_new_block_ids() == []
        sound(manager)

    def test_decode_takes_a_block_only_when_the_last_one_is_full(self) -> None:
        manager, a = manager_of(FULL, 8), request_of("a", 7)
        start(manager, a, 7)
        a.tokens += (TokenId(1),)
        assert manager.allocate_slots(a, NumTokens(1)) == ([],)
        a.num_computed_tokens, a.tokens = NumTokens(8), (*a.tokens, TokenId(1))
        assert manager.allocate_slots(a, NumTokens(1)) == ([3],)

    def test_a_hit_is_held_and_the_rest_is_new(self) -> None:
        manager, a, b = manager_of(FULL, 8), request_of("a", 12), request_of("b", 12)
        start(manager, a, 12)
        assert manager.get_computed_blocks(b) == (([1, 2],), 8)
        assert start(manager, b, 4) == ([4],)
        assert manager.get_block_ids(b.request_id) == ([1, 2, 4],)
        assert manager.block_pool.block(BlockId(1)).ref_cnt == 2
        assert manager.get_num_common_prefix_blocks(b.request_id) == [2]
        sound(manager)

    def test_free_queues_the_tail_first_and_keeps_the_keys(self) -> None:
        manager, a = manager_of(FULL, 5), request_of("a", 12)
        start(manager, a, 12)
        manager.free(a)
        assert list(manager.block_pool.state.free_queue) == [4, 3, 2, 1]  # type: ignore
        assert manager.get_computed_blocks(request_of("b", 12)) == (([1, 2],), 8)
        assert manager.usage == 0.0

    def test_popping_and_freeing_later_is_the_same(self) -> None:
        results = []
        for deferred in (False, True):
            manager, a = manager_of(FULL, 6), request_of("a", 12)
            start(manager, a, 12)
            if deferred:
                blocks = manager.pop_blocks_for_free(a)
                assert blocks == [1, 2, 3]
                manager.block_pool.free_blocks(reversed(blocks))
            else:
                manager.free(a)
            results.append(state(manager))
        assert results[0] == results[1]

    def test_without_caching_nothing_is_hit_and_any_number_of_groups_will_do(self) -> None:
        for groups in ((), (FULL,), (FULL, WINDOW)):
            config = KVCacheConfig(12, groups)
            manager = KVCacheManager(config, NumTokens(64), SIZE, SIZE, enable_caching=False)
            a, b = request_of("a", 12), request_of("b", 12)
            assert start(manager, a, 12) == tuple(
                [1 + 3 * i, 2 + 3 * i, 3 + 3 * i] for i in range(len(groups))
            )
            assert manager.get_computed_blocks(b) == (tuple([] for _ in groups), 0)
            assert manager.get_num_common_prefix_blocks(a.request_id) == [0 for _ in groups]
            manager.cache_blocks(a, NumTokens(12))
            manager.free(a)
            assert manager.reset_prefix_cache()


class TestKnownDefects:
    """What went wrong in real engines, with the right value."""

    def test_whole_prompt(self) -> None:
        manager, a = manager_of(FULL, 8), request_of("a", 16)
        start(manager, a, 16)
        assert manager.get_computed_blocks(request_of("b", 16))[1] == 12
        assert manager.get_computed_blocks(request_of("b", 17))[1] == 16

    def test_touch_before_check(self) -> None:
        manager, a = manager_of(FULL, 5), request_of("a", 8)
        start(manager, a, 8)
        manager.free(a)
        before = state(manager)
        assert start(manager, request_of("b", 21), 13) is None
        assert state(manager) == before

    def test_leaf_unlocked(self) -> None:
        manager, a, b = manager_of(FULL, 4), request_of("a", 12), request_of("b", 13)
        start(manager, a, 12)
        manager.free(a)
        assert manager.get_computed_blocks(b) == (([1, 2, 3],), 12)
        assert start(manager, b, 1) is None, "the hit leaves no block for the last token"
        c = request_of("c", 12)
        assert start(manager, c, 4) == ([3],)
        assert manager.get_block_ids(c.request_id) == ([1, 2, 3],)

    def test_grow_twice(self) -> None:
        manager, a = manager_of(FULL, 20), request_of("a", 60)
        start(manager, a, 20)
        given = manager.allocate_slots(a, NumTokens(20))
        assert given is not None
        assert len(given[0]) == 5

    def test_freed_then_cached(self) -> None:
        manager, a = manager_of(WINDOW, 12), request_of("a", 24)
        start(manager, a, 12, delay_cache_blocks=True)
        manager.remove_skipped_blocks(a.request_id, NumTokens(12))
        assert manager.get_block_ids(a.request_id) == ([0, 2, 3],)
        manager.cache_blocks(a, NumTokens(12))
        assert manager.block_pool.block(BlockId(1)).block_hash is None
        sound(manager)

    def test_common_blocks_are_in_every_table_also_with_frees_to_come(self) -> None:
        manager = manager_of(FULL, 12)
        a, b = request_of("a", 9), request_of("b", 9)
        start(manager, a, 9)
        start(manager, b, 1)
        later = manager.pop_blocks_for_free(a)
        c = request_of("c", 9, token=1)
        start(manager, c, 9)
        assert manager.get_num_common_prefix_blocks(b.request_id) == [0]
        manager.free(c)
        assert manager.get_num_common_prefix_blocks(b.request_id) == [3]
        manager.block_pool.free_blocks(reversed(later))


class TestWindows:
    def test_what_no_token_reads_is_released_and_null(self) -> None:
        manager, a = manager_of(WINDOW, 12), request_of("a", 24)
        start(manager, a, 16)
        manager.allocate_slots(a, NumTokens(4))
        assert manager.get_block_ids(a.request_id) == ([0, 0, 3, 4, 5],)

    def test_a_hit_needs_the_window_only(self) -> None:
        manager, a, b = manager_of(WINDOW, 12), request_of("a", 17), request_of("b", 17)
        start(manager, a, 17)
        manager.free(a)
        manager.evict_blocks([BlockId(1)])
        assert manager.get_computed_blocks(b) == (([0, 0, 3, 4],), 16)
        manager.evict_blocks([BlockId(4)])
        assert manager.get_computed_blocks(b) == (([0, 2, 3],), 12)
        manager.evict_blocks([BlockId(3)])
        assert manager.get_computed_blocks(b)[1] == 0

    def test_a_short_prefix_is_a_hit(self) -> None:
        manager, a = manager_of(WINDOW, 12), request_of("a", 5)
        start(manager, a, 5)
        assert manager.get_computed_blocks(request_of("b", 5)) == (([1],), 4)

    def test_a_chunk_that_begins_needs_nothing(self) -> None:
        manager = manager_of(CHUNK, 12)
        assert manager.get_computed_blocks(request_of("a", 9)) == (([0, 0],), 8)
        assert manager.get_computed_blocks(request_of("a", 8)) == (([],), 0)

    def test_retention_keeps_what_is_promised_only(self) -> None:
        manager = manager_of(WINDOW, 20, retention_interval=0)
        a = request_of("a", 22)
        start(manager, a, 22)
        assert manager.get_computed_blocks(request_of("b", 22))[1] == 20
        assert manager.get_computed_blocks(request_of("b", 20))[1] == 0


class TestArguments:
    def test_external_tokens_take_blocks_and_delayed_ones_are_published_later(self) -> None:
        manager, a = manager_of(FULL, 8), request_of("a", 12)
        given = start(
            manager, a, 0, num_external_computed_tokens=NumTokens(8), delay_cache_blocks=True
        )
        assert given == ([],)
        assert manager.get_block_ids(a.request_id) == ([1, 2],)
        assert manager.get_computed_blocks(request_of("b", 12))[1] == 0
        manager.cache_blocks(a, NumTokens(8))
        assert manager.get_computed_blocks(request_of("b", 12))[1] == 8

    def test_the_watermark_is_for_those_that_wait(self) -> None:
        manager, a = manager_of(FULL, 10, watermark=0.5), request_of("a", 24)
        assert start(manager, a, 20) is None
        assert start(manager, a, 20, has_scheduled_reqs=False) == ([1, 2, 3, 4, 5],)

    def test_reserved_blocks_are_left(self) -> None:
        manager, a = manager_of(FULL, 6), request_of("a", 16)
        assert start(manager, a, 16, reserved_blocks=2) is None
        assert start(manager, a, 16, reserved_blocks=1) is not None

    def test_the_whole_sequence_must_fit(self) -> None:
        manager, a = manager_of(FULL, 6), request_of("a", 24)
        assert start(manager, a, 4, full_sequence_must_fit=True) is None
        assert start(manager, a, 4) == ([1],)
        window, b = manager_of(WINDOW, 6, max_num_batched_tokens=SIZE), request_of("b", 24)
        assert start(window, b, 4, full_sequence_must_fit=True) == ([1],)

    def test_drafts_are_not_published_and_lookahead_gets_room(self) -> None:
        manager, a = manager_of(FULL, 8), request_of("a", 6)
        assert start(manager, a, 8, num_lookahead_tokens=NumTokens(4)) == ([1, 2, 3],)
        assert manager.block_pool.block(BlockId(2)).block_hash is None

    def test_what_is_refused(self) -> None:
        manager, a = manager_of(FULL, 8), request_of("a", 12)
        none, four = NumTokens(0), NumTokens(4)
        refused(manager_rules.SOMETHING_NEW, lambda: manager.allocate_slots(a, none))
        refused(manager_rules.TOKENS_NONNEGATIVE, lambda: manager.allocate_slots(a, NumTokens(-1)))
        refused(manager_rules.HIT_IS_WHOLE, lambda: manager.allocate_slots(a, four, four))
        start(manager, a, 12)
        before = state(manager)
        hit = manager.get_computed_blocks(request_of("b", 12))
        refused(
            manager_rules.HITS_COME_FIRST,
            lambda: manager.allocate_slots(a, four, hit[1], hit[0]),
        )
        refused(manager_rules.CACHED_ARE_KNOWN, lambda: manager.cache_blocks(a, NumTokens(13)))
        assert state(manager) == before


class TestEventsAndStatistics:
    def test_events_name_the_kind_of_their_group(self) -> None:
        for spec, kind, window in (
            (FULL, "full_attention", None),
            (MLAAttentionSpec(SIZE), "mla_attention", None),
            (WINDOW, "sliding_window", 6),
            (CHUNK, "chunked_local_attention", None),
        ):
            manager = manager_of(spec, 8, enable_kv_cache_events=True)
            start(manager, request_of("a", 5), 5)
            (told,) = manager.take_events()
            assert told[1:] == (kind, window)

    def test_lookups_are_counted_those_of_preempted_requests_apart(self) -> None:
        manager, a = manager_of(FULL, 8, log_stats=True), request_of("a", 9)
        start(manager, a, 9)
        b = request_of("b", 9)
        manager.get_computed_blocks(b)
        b.num_preemptions = 1
        manager.get_computed_blocks(b)
        manager.free(a)
        assert manager.reset_prefix_cache()
        stats = manager.make_prefix_cache_stats()
        assert stats is not None
        assert (stats.requests, stats.queries, stats.hits) == (2, 18, 8)
        assert (stats.preempted_requests, stats.preempted_hits, stats.reset) == (1, 8, True)
        again = manager.make_prefix_cache_stats()
        assert again is not None
        assert again.requests == 0
        assert manager_of(FULL, 8).make_prefix_cache_stats() is None

    def test_a_request_may_keep_off_the_cache(self) -> None:
        manager, a, b = manager_of(FULL, 8), request_of("a", 9), request_of("b", 9)
        start(manager, a, 9)
        b.skip_reading_prefix_cache = True
        assert manager.get_computed_blocks(b) == (([],), 0)


@pytest.mark.parametrize(
    ("groups", "options", "rule"),
    [
        ((FULL, WINDOW), {}, manager_rules.GROUP_COUNT),
        ((), {}, manager_rules.GROUP_COUNT),
        ((FullAttentionSpec(NumTokens(3)),), {}, manager_rules.CONFIG_FITS),
        ((FullAttentionSpec(NumTokens(2)),), {}, manager_rules.CONFIG_FITS),
        (
            (ChunkedLocalAttentionSpec(SIZE, NumTokens(6)),),
            {},
            manager_rules.CONFIG_FITS,
        ),
        ((KVCacheSpec(SIZE),), {}, manager_rules.CONFIG_FITS),
        ((FULL,), {"retention_interval": 0}, manager_rules.RETENTION_FITS),
        ((WINDOW,), {"retention_interval": 6}, manager_rules.RETENTION_FITS),
        ((WINDOW,), {"retention_interval": -4}, manager_rules.RETENTION_FITS),
    ],
)
def test_what_cannot_be_built(groups: Any, options: dict[str, Any], rule: Rule) -> None:
    config = KVCacheConfig(8, groups)
    refused(
        rule,
        lambda: get_kv_cache_coordinator(config, True, False, SIZE, SIZE, **options),
    )
