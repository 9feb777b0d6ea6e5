"""The specification's pool on small examples: the right values, the errors, the refusals."""

import copy
import logging
from collections.abc import Callable

import pytest

from kvproof.spec import rules
from kvproof.spec.block_pool import AllBlocksCleared, BlockPool, BlockRemoved, BlockStored
from kvproof.spec.quantities import BlockId, GroupId, Key, TokenId
from kvproof.spec.rules import KVCacheError

G0, G1 = GroupId(0), GroupId(1)
B1, B2, B3 = BlockId(1), BlockId(2), BlockId(3)
AAAA = tuple(map(TokenId, (0, 0, 0, 0, 1, 1, 1, 1)))
BBBB = tuple(map(TokenId, (1, 1, 1, 1, 1, 1, 1, 1)))


def pool(blocks: int, caching: bool = True, size: int = 4, **more: object) -> BlockPool:
    return BlockPool(blocks, caching, 2, {G0: size, G1: size}, True, **more)  # type: ignore[arg-type]


def queue(p: BlockPool) -> list[int]:
    return p.state.free_queue.as_list()  # type: ignore[attr-defined, no-any-return]


def everything(p: BlockPool) -> object:
    state = {name: getattr(p.state, name) for name in type(p.state).__slots__}
    shown = {
        "queue": queue(p),
        "cached": copy.deepcopy(p.state.cached.lists_of),  # type: ignore[attr-defined]
        "events": list(p.state.events.log),  # type: ignore[attr-defined]
        "keys": {b: tuple(s) for b, s in p.state.partial_keys.items()},  # type: ignore[attr-defined]
        "retired": {b: tuple(s) for b, s in p.state.retired.items()},  # type: ignore[attr-defined]
    }
    plain = {n: dict(v) for n, v in state.items() if isinstance(v, dict) and n not in shown}
    return shown, {n: v for n, v in plain.items() if n not in ("partial_keys", "retired")}


def test_a_second_free_is_refused_and_nothing_changes() -> None:
    p = pool(4)
    blocks = p.get_new_blocks(2)
    p.free_blocks(blocks)
    before = everything(p)
    with pytest.raises(rules.UnheldBlockError, match=r"release-held.*block = 1"):
        p.free_blocks(blocks)
    assert everything(p) == before


def test_a_negative_count_is_refused() -> None:
    p = pool(6)
    with pytest.raises(rules.NegativeCountError):
        p.get_new_blocks(-1)
    assert p.get_new_blocks(5) == [1, 2, 3, 4, 5]
    with pytest.raises(rules.OutOfBlocksError):
        p.get_new_blocks(1)


def test_asking_for_too_many_leaves_the_counter() -> None:
    p = pool(4)
    with pytest.raises(ValueError, match="enough-free"):
        p.get_new_blocks(4)
    assert p.get_num_free_blocks() == 3
    assert p.get_new_blocks(3) == [1, 2, 3]


def test_twice_in_one_batch_is_queued_once() -> None:
    p = pool(4)
    blocks = p.get_new_blocks(1)
    p.touch(blocks)
    p.free_blocks(blocks + blocks)
    assert queue(p) == [1, 2, 3]
    assert p.get_num_free_blocks() == 3


def test_a_block_that_is_handed_out_loses_its_key() -> None:
    p = pool(3)
    p.get_new_blocks(1)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)
    p.free_blocks([B1])
    p.get_new_blocks(2)
    assert p.get_cached_block(AAAA[:4], [G0]) is None


def test_a_key_retired_by_promotion_stays_retired_until_the_block_is_handed_out() -> None:
    p = pool(3)
    p.get_new_blocks(1)
    assert p.cache_partial_block(AAAA, B1, 2, G0, 4) == Key(AAAA[:2], G0)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)
    assert p.cache_partial_block(AAAA, B1, 2, G0, 4) is None
    assert p.get_cached_block(AAAA[:2], [G0]) is None
    p.free_blocks([B1])
    p.get_new_blocks(2)
    assert p.cache_partial_block(AAAA, B1, 2, G0, 4) == Key(AAAA[:2], G0)


def test_a_hit_keeps_its_key_and_leaves_the_queue() -> None:
    p = pool(3)
    p.get_new_blocks(1)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)
    p.free_blocks([B1])
    assert queue(p) == [2, 1]
    p.touch(p.get_cached_block(AAAA[:4], [G0]) or [])
    assert queue(p) == [2]
    assert p.block(B1).ref_cnt == 1
    assert p.block(B1).block_hash == Key(AAAA[:4], G0)
    assert p.block(B1).block_hash_num_tokens == 4


def test_the_null_block_is_block_0_and_inert() -> None:
    p = pool(2)
    assert p.null_block == 0
    assert p.block(BlockId(0)).is_null
    p.touch([BlockId(0)])
    p.free_blocks([BlockId(0), BlockId(0), BlockId(0)])
    p.cache_full_blocks(AAAA, [BlockId(0)], 0, 1, 4, G0)
    assert p.cache_partial_block(AAAA, BlockId(0), 2, G0, 4) is None
    assert queue(p) == [1]
    assert p.get_cached_block(AAAA[:4], [G0]) is None


@pytest.mark.parametrize("caching", [True, False])
def test_unkeyed_blocks_are_reused_in_the_order_in_which_they_are_freed(caching: bool) -> None:
    p = pool(5, caching)
    p.get_new_blocks(3)
    p.free_blocks([B3, B2, B1])
    assert queue(p) == [3, 2, 1, 4]


def test_keyed_blocks_go_to_the_back_unkeyed_ones_to_the_front() -> None:
    p = pool(6)
    p.get_new_blocks(4)
    p.cache_full_blocks(AAAA, [B1, B2], 0, 2, 4, G0)
    p.free_blocks([BlockId(4), B2, B3, B1])
    assert queue(p) == [4, 3, 5, 2, 1]


def test_one_key_lists_several_blocks_and_the_first_is_found() -> None:
    p = pool(4)
    p.get_new_blocks(2)
    p.cache_full_blocks(AAAA, [B2], 0, 1, 4, G0)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)
    assert p.get_cached_block(AAAA[:4], [G0]) == [2]
    p.take_events()
    p.evict_blocks([B2])
    assert p.take_events() == []  # the key is still resident, in block 1
    assert p.get_cached_block(AAAA[:4], [G0]) == [1]
    p.evict_blocks([B1])
    assert p.take_events() == [BlockRemoved(AAAA[:4], G0)]


def test_a_hit_needs_every_group() -> None:
    p = pool(4)
    p.get_new_blocks(2)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)
    assert p.get_cached_block(AAAA[:4], [G0, G1]) is None
    p.cache_full_blocks(AAAA, [B2], 0, 1, 4, G1)
    assert p.get_cached_block(AAAA[:4], [G0, G1]) == [1, 2]


def test_masked_blocks_are_left_out_and_their_events_are_true() -> None:
    p = pool(5, size=2)
    p.get_new_blocks(3)
    p.cache_full_blocks(AAAA, [B1, B2, B3], 0, 3, 2, G0, [True, False, True])
    assert p.get_cached_block(AAAA[:4], [G0]) is None
    assert p.take_events() == [
        BlockStored(AAAA[:2], None, AAAA[:2], G0),
        BlockStored(AAAA[:6], AAAA[:4], AAAA[4:6], G0),
    ]


def test_reset_needs_every_block_back(caplog: pytest.LogCaptureFixture) -> None:
    p = pool(3)
    p.get_new_blocks(1)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)
    with caplog.at_level(logging.WARNING, "kvproof.spec.block_pool"):
        assert p.reset_prefix_cache() is False
    assert "1 blocks are in use" in caplog.text
    assert p.get_cached_block(AAAA[:4], [G0]) == [1]
    p.free_blocks([B1])
    assert p.reset_prefix_cache() is True
    assert p.get_cached_block(AAAA[:4], [G0]) is None
    assert p.take_events()[-1] == AllBlocksCleared()


def test_usage() -> None:
    p = pool(5)
    assert p.get_usage() == 0.0
    p.get_new_blocks(1)
    assert p.get_usage() == 0.25
    assert pool(1).get_usage() == 0.0
    assert pool(1).get_num_free_blocks() == 0


def test_without_events_there_are_none() -> None:
    p = BlockPool(3, True, 2, {G0: 2})
    p.get_new_blocks(1)
    p.cache_full_blocks(AAAA, [B1], 0, 1, 2, G0)
    assert p.take_events() == []


class Hooks:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_block_allocated(self, block: BlockId) -> None:
        self.calls.append(("allocated", block))

    def on_block_accessed(self, block: BlockId) -> None:
        self.calls.append(("accessed", block))

    def on_block_evicted(self, block: BlockId) -> None:
        self.calls.append(("evicted", block))

    def reset(self) -> None:
        self.calls.append(("reset", 0))


def test_metrics_are_told() -> None:
    hooks = Hooks()
    p = pool(3, metrics_collector=hooks)
    p.get_new_blocks(1)
    p.touch([B1])
    p.evict_blocks([B1])
    p.free_blocks([B1, B1])
    p.reset_prefix_cache()
    told = [("evicted", 1), ("allocated", 1), ("accessed", 1), ("evicted", 1), ("reset", 0)]
    assert hooks.calls == told


def _full(p: BlockPool) -> None:
    p.cache_full_blocks(AAAA, [B1], 0, 1, 4, G0)


REFUSALS: dict[str, tuple[rules.Rule, type[Exception], Callable[[BlockPool], object]]] = {
    "too many": (rules.ENOUGH_FREE, ValueError, lambda p: p.get_new_blocks(9)),
    "negative": (rules.COUNT_NONNEGATIVE, ValueError, lambda p: p.get_new_blocks(-1)),
    "free twice": (rules.RELEASE_HELD, AssertionError, lambda p: p.free_blocks([B1, B1])),
    "free unheld": (rules.RELEASE_HELD, AssertionError, lambda p: p.free_blocks([B1, B3])),
    "touch nothing": (rules.SHARE_READABLE, RuntimeError, lambda p: p.touch([B1, B3])),
    "evict beyond": (rules.ID_IN_RANGE, AssertionError, lambda p: p.evict_blocks([B1, BlockId(5)])),
    "evict below": (rules.ID_IN_RANGE, AssertionError, lambda p: p.evict_blocks([BlockId(-1)])),
    "free beyond": (rules.ID_IN_RANGE, AssertionError, lambda p: p.free_blocks([BlockId(5)])),
    "second full key": (
        rules.PUBLISH_ONCE,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B2, B1], 0, 2, 4, G0),
    ),
    "one block twice": (
        rules.PUBLISH_ONCE,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B2, B2], 0, 2, 4, G0),
    ),
    "full key of another chain": (
        rules.ONE_CHAIN,
        AssertionError,
        lambda p: p.cache_full_blocks(BBBB, [B2], 0, 1, 4, G0),
    ),
    "partial key of another chain": (
        rules.ONE_CHAIN,
        AssertionError,
        lambda p: p.cache_partial_block(BBBB, B1, 2, G0, 4),
    ),
    "partial key of another group": (
        rules.ONE_CHAIN,
        AssertionError,
        lambda p: p.cache_partial_block(AAAA, B1, 2, G1, 4),
    ),
    "key on a free block": (
        rules.PUBLISH_HELD,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B3], 0, 1, 4, G0),
    ),
    "partial key on a boundary": (
        rules.PARTIAL_INSIDE,
        AssertionError,
        lambda p: p.cache_partial_block(AAAA, B2, 4, G0, 4),
    ),
    "half a hash unit": (
        rules.TOKENS_KNOWN,
        AssertionError,
        lambda p: p.cache_partial_block(AAAA, B2, 3, G0, 4),
    ),
    "tokens without hash": (
        rules.TOKENS_KNOWN,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA[:7], [B2, B2], 1, 2, 4, G0),
    ),
    "short table": (
        rules.BLOCKS_GIVEN,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B2], 0, 2, 4, G0),
    ),
    "negative start": (
        rules.BLOCKS_GIVEN,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B2], -1, 1, 4, G0),
    ),
    "short mask": (
        rules.MASK_FITS,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B2], 0, 1, 4, G0, []),
    ),
    "other block size": (
        rules.ONE_BLOCK_SIZE,
        AssertionError,
        lambda p: p.cache_full_blocks(AAAA, [B2], 0, 1, 2, G0),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_name_their_rule_and_change_nothing(case: str) -> None:
    rule, like_vllm, call = REFUSALS[case]
    p = pool(5)
    p.get_new_blocks(2)
    _full(p)
    if case == "full key of another chain":
        p.cache_partial_block(AAAA, B2, 2, G0, 4)
    before = everything(p)
    with pytest.raises(KVCacheError) as raised:
        call(p)
    assert raised.value.rule is rule
    assert isinstance(raised.value, like_vllm)
    assert str(raised.value).startswith(f"{rule.name}: {rule.says}")
    assert rule.advice in str(raised.value)
    assert everything(p) == before


def test_keys_need_caching() -> None:
    p = pool(3, caching=False)
    p.get_new_blocks(1)
    with pytest.raises(rules.CachingDisabledError):
        _full(p)
    with pytest.raises(rules.CachingDisabledError):
        p.cache_partial_block(AAAA, B1, 2, G0, 4)
    assert p.get_cached_block(AAAA[:4], [G0]) is None


@pytest.mark.parametrize(
    ("blocks", "unit", "size"), [(0, 2, 2), (-1, 2, 2), (2, 0, 2), (2, -2, 2), (2, 2, 3), (2, 2, 0)]
)
def test_a_pool_that_cannot_be_is_refused(blocks: int, unit: int, size: int) -> None:
    with pytest.raises(KVCacheError):
        BlockPool(blocks, True, unit, {G0: size})
