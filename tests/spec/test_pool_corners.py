"""Corners of the specification's pool: lists that repeat, empty pools, refusals that are told."""

import inspect
from collections.abc import Callable

import pytest

from kvproof.spec import rules
from kvproof.spec.block_pool import BlockPool, BlockRemoved, BlockStored
from kvproof.spec.concrete import ConcreteQueue
from kvproof.spec.pool_properties import INVARIANT
from kvproof.spec.quantities import BlockId, GroupId, Key, TokenId
from kvproof.spec.rules import KVCacheError

GROUP = GroupId(0)
TOKENS = tuple(map(TokenId, (0, 0, 0, 0, 1, 1, 1, 1)))
NULL, B1, B2, B3 = map(BlockId, range(4))


class Told:
    """A metrics collector that writes down what it is told."""

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


def pool(blocks: int, size: int = 4, caching: bool = True, told: Told | None = None) -> BlockPool:
    return BlockPool(blocks, caching, 2, {GROUP: size}, True, told)


def queue(p: BlockPool) -> list[int]:
    assert isinstance(p.state.free_queue, ConcreteQueue)
    return list(p.state.free_queue.as_list())


def holds(p: BlockPool) -> None:
    for name, statement in INVARIANT.items():
        assert statement is not None and statement(p.state), name  # noqa: PT018


def test_a_block_listed_twice_is_queued_where_its_last_mention_stands() -> None:
    p = pool(5)
    p.get_new_blocks(3)
    p.touch([B1])
    p.free_blocks([B1, B2, B1, NULL, B3])
    assert queue(p) == [2, 1, 3, 4]
    holds(p)


def test_evicting_moves_nothing_also_what_is_listed_twice() -> None:
    p = pool(4)
    p.get_new_blocks(3)
    p.cache_full_blocks(TOKENS, [B2], 0, 1, 4, GROUP)
    p.free_blocks([B2, B1, B3])
    p.evict_blocks([B2, B2, NULL, B1])
    assert queue(p) == [1, 3, 2]
    assert p.take_events()[1:] == [BlockRemoved(TOKENS[:4], GROUP)]
    holds(p)


def test_a_longer_partial_key_retires_all_shorter_ones_and_a_full_one_that() -> None:
    p = pool(2, size=8)
    p.get_new_blocks(1)
    for num_tokens in (4, 2, 2):
        assert p.cache_partial_block(TOKENS, B1, num_tokens, GROUP, 8) is not None
        assert p.get_cached_block(TOKENS[:4], [GROUP]) == [1]
    p.take_events()
    assert p.cache_partial_block(TOKENS, B1, 6, GROUP, 8) == Key(TOKENS[:6], GROUP)
    assert p.block(B1).block_hash_num_tokens == 6
    p.cache_full_blocks(TOKENS, [B1], 0, 1, 8, GROUP)
    assert p.take_events() == [
        BlockRemoved(TOKENS[:2], GROUP),
        BlockRemoved(TOKENS[:4], GROUP),
        BlockStored(TOKENS[:6], TOKENS[:4], TOKENS[4:6], GROUP),
        BlockRemoved(TOKENS[:6], GROUP),
        BlockStored(TOKENS, None, TOKENS, GROUP),
    ]
    for num_tokens in (2, 4, 6):
        assert p.cache_partial_block(TOKENS, B1, num_tokens, GROUP, 8) is None
        assert p.get_cached_block(TOKENS[:num_tokens], [GROUP]) is None
    assert p.take_events() == []
    holds(p)


def test_a_pool_of_the_null_block_only() -> None:
    p = pool(1)
    assert p.get_new_blocks(0) == []
    with pytest.raises(rules.OutOfBlocksError):
        p.get_new_blocks(1)
    p.touch([NULL])
    p.free_blocks([NULL, NULL])
    p.evict_blocks([NULL])
    assert p.get_cached_block(TOKENS[:4], []) == []
    assert p.reset_prefix_cache()
    assert (p.get_num_free_blocks(), p.get_usage()) == (0, 0.0)
    holds(p)


def test_without_caching_metrics_hear_of_no_eviction_and_null_blocks_may_be_listed() -> None:
    told = Told()
    p = pool(3, caching=False, told=told)
    p.get_new_blocks(1)
    assert told.calls == [("allocated", 1)]
    p.cache_full_blocks(TOKENS, [NULL, NULL], 0, 2, 4, GROUP)
    p.touch([B1])
    p.free_blocks([B1, B1])
    with pytest.raises(rules.UnreadableBlockError):
        p.touch([B1])
    holds(p)


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.get_new_blocks(9),
        lambda p: p.touch([B1, B3]),
        lambda p: p.evict_blocks([B1, BlockId(9)]),
    ],
)
def test_metrics_are_not_told_of_what_was_refused(call: Callable[[BlockPool], object]) -> None:
    told = Told()
    p = pool(4, told=told)
    p.get_new_blocks(1)
    told.calls.clear()
    with pytest.raises(KVCacheError):
        call(p)
    assert not p.reset_prefix_cache()
    assert told.calls == []


RAISES: dict[type[Exception], set[type[KVCacheError]]] = {
    ValueError: {rules.OutOfBlocksError, rules.NegativeCountError},
    RuntimeError: {rules.UnreadableBlockError, rules.BlocksInUseError},
    AssertionError: {
        rules.BlockAlreadyHashedError,
        rules.BlockIdError,
        rules.BlockSizeError,
        rules.CachingDisabledError,
        rules.ForeignKeyError,
        rules.HeldSlotError,
        rules.MaskLengthError,
        rules.NegativeCountError,
        rules.NullBlockError,
        rules.TableOrderError,
        rules.TokenCountError,
        rules.UnheldBlockError,
        rules.UnheldKeyError,
    },
    IndexError: {rules.BlockIdError, rules.TokenCountError},
}
"""What vLLM 0.25.1 raises in the nearest situation."""


def test_an_except_that_is_written_for_vllm_catches_every_error() -> None:
    typed = {
        found
        for _, found in inspect.getmembers(rules, inspect.isclass)
        if issubclass(found, KVCacheError) and found is not KVCacheError
    }
    assert typed == set().union(*RAISES.values())
    for parent, errors in RAISES.items():
        assert errors == {error for error in typed if issubclass(error, parent)}
