"""The implementation against the specification, on random calls, legal and illegal."""

import logging
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kvproof.fuzz.defect import Defect
from kvproof.fuzz.defects import DEFECTS, DefectError, edited_sources, load_defect
from kvproof.fuzz.impl_target import ImplPool, RecordingCollector, factory
from kvproof.fuzz.target import Event, Observation, PoolConfig, PoolFactory, RequestView
from kvproof.impl import BlockPool, BlockRemoved, BlockStored, block_pool
from kvproof.spec import block_pool as specified
from kvproof.spec.pool_properties import STATE_PROPERTIES
from kvproof.spec.properties import Class
from kvproof.spec.quantities import (
    NO_KEY,
    BlockHash,
    BlockId,
    GroupId,
    Key,
    TokenId,
    hash_from_text,
    hash_text,
)
from kvproof.spec.rules import (
    RELEASE_HELD,
    BlockIdError,
    BlockSizeError,
    ForeignKeyError,
    KVCacheError,
    NegativeCountError,
    OutOfBlocksError,
    UnheldBlockError,
)
from kvproof.spec.state import keys_of
from kvproof.spec.steps import STEP_PROPERTIES

UNIT = 2
CONFIGS = {
    "one unit": PoolConfig(7, hash_block_size=UNIT, block_sizes={0: 2}),
    "three units": PoolConfig(7, hash_block_size=UNIT, block_sizes={0: 6}),
    "two groups": PoolConfig(7, hash_block_size=UNIT, block_sizes={0: 2, 1: 4}),
    "no events": PoolConfig(
        5, hash_block_size=UNIT, block_sizes={0: 4}, enable_kv_cache_events=False
    ),
    "caching off": PoolConfig(5, False, UNIT, {0: 2, 1: 4}),
    "null only": PoolConfig(1, hash_block_size=UNIT, block_sizes={0: 2}),
}

Call = tuple[Any, ...]
"""The name of an operation, and its arguments in the order of `PoolTarget`."""


def request(*tokens: int) -> RequestView:
    ends = range(UNIT, len(tokens) + 1, UNIT)
    return RequestView(list(tokens), [hash_text(tuple(map(TokenId, tokens[:end]))) for end in ends])


class SpecPool:
    """The specification's pool behind the target protocol."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.collector = RecordingCollector()
        self.pool = specified.BlockPool(
            config.num_gpu_blocks,
            config.enable_caching,
            config.hash_block_size,
            {GroupId(group): size for group, size in config.block_sizes.items()},
            config.enable_kv_cache_events,
            self.collector,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def get_cached_block(self, block_hash: str, groups: list[int]) -> Any:
        return self.pool.get_cached_block(hash_from_text(block_hash), groups)  # type: ignore

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
        self.pool.cache_full_blocks(
            hashed(request),
            list(map(BlockId, blocks)),
            num_cached_blocks,
            num_full_blocks,
            block_size,
            GroupId(group),
            block_mask,
        )

    def cache_partial_block(
        self, request: RequestView, block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        key = self.pool.cache_partial_block(
            hashed(request), BlockId(block), num_tokens, GroupId(group), block_size
        )
        return key is not None

    def evict_blocks(self, blocks: list[int]) -> None:
        self.pool.evict_blocks(map(BlockId, blocks))

    def free_blocks(self, blocks: list[int]) -> None:
        self.pool.free_blocks(map(BlockId, blocks))

    def take_events(self) -> list[Event]:
        events: list[Event] = []
        for event in self.pool.take_events():
            if isinstance(event, specified.BlockStored):
                parent = event.parent_block_hash
                events.append(
                    [
                        "stored",
                        [hash_text(event.block_hash)],
                        None if parent is None else hash_text(parent),
                        list(event.token_ids),
                        event.group_idx,
                    ]
                )
            elif isinstance(event, specified.BlockRemoved):
                events.append(["removed", [hash_text(event.block_hash)], event.group_idx])
            else:
                events.append(["cleared"])
        return events

    def observe(self) -> Observation:
        state: Any = self.pool.state
        blocks = range(self.config.num_gpu_blocks)
        return Observation(
            state.free_queue.as_list(),
            [state.ref_cnt[block] for block in blocks],
            [
                sorted(map(wire, keys_of(state, BlockId(block))), key=lambda key: -len(key[0]))  # type: ignore[call-overload]
                for block in blocks
            ],
            {wire(key): list(listed) for key, listed in state.cached.lists_of.items()},
            state.num_free_blocks,
            self.collector.take(),
        )


def hashed(request: RequestView) -> BlockHash:
    return tuple(map(TokenId, request.tokens[: len(request.block_hashes) * UNIT]))


def wire(key: Key) -> tuple[str, int]:
    return hash_text(key.block_hash), int(key.group)


class Driver:
    """Draws calls that are often legal, often not, from what the specification's pool holds."""

    def __init__(self, config: PoolConfig, seed: int, spec: SpecPool) -> None:
        self.config = config
        self.random = random.Random(seed)
        self.spec = spec

    def draw(self) -> Call:
        # Freeing everything lets a reset succeed now and then.
        weights = {
            self.get: 6,
            self.touch: 4,
            self.free: 4,
            self.free_all: 1,
            self.lookup: 4,
            self.full: 8,
            self.partial: 6,
            self.evict: 1,
            self.plain: 3,
        }
        draw: Any = self.random.choices(list(weights), list(weights.values()))[0]
        call: Call = draw()
        return call

    def block(self, index: int | None = None) -> int:
        """Return a block, held more often than not. One for a place in a table is mostly even
        or odd as the place is, so that a block often meets its own prefix again.
        """
        blocks = range(self.config.num_gpu_blocks)
        if self.random.random() < 0.03:
            return self.random.choice([-1, len(blocks)])
        counts = self.spec.pool.state.ref_cnt
        held = [block for block in blocks if counts[BlockId(block)] > 0]
        chosen = held if held and self.random.random() < 0.9 else list(blocks)
        if index is not None and self.random.random() < 0.9:
            chosen = [block for block in chosen if block % 2 == index % 2] or chosen
        return self.random.choice(chosen)

    def is_new(self, block: BlockId) -> bool:
        state = self.spec.pool.state
        return state.ref_cnt[block] > 0 and state.block_hash[block] == NO_KEY

    def some(self, most: int) -> list[int]:
        return [self.block() for _ in range(self.random.randint(0, most))]

    def tokens(self) -> RequestView:
        """Return one of few prefixes, so that the same ones come again."""
        tokens = [0] * self.random.randint(UNIT, 14)
        if self.random.random() < 0.15:
            tokens[self.random.randrange(len(tokens))] = 1
        return request(*tokens)

    def get(self) -> Call:
        free = self.spec.pool.get_num_free_blocks()
        return "get_new_blocks", self.random.randint(-1, min(free, 3) + 1)

    def touch(self) -> Call:
        if self.random.random() < 0.5:
            keyed = [b for blocks in self.spec.observe().index.values() for b in blocks]  # type: ignore[union-attr]
            if keyed:
                return "touch", self.random.choices(keyed, k=self.random.randint(1, 2))
        return "touch", self.some(3)

    def free(self) -> Call:
        return "free_blocks", self.some(4)

    def free_all(self) -> Call:
        counts = self.spec.pool.state.ref_cnt
        blocks = [b for b in range(self.config.num_gpu_blocks) for _ in range(counts[BlockId(b)])]
        self.random.shuffle(blocks)
        return "free_blocks", blocks

    def lookup(self) -> Call:
        groups = self.random.choice([[0], [0, 1], [1, 0], []])
        view = self.tokens()
        return "get_cached_block", self.random.choice(view.block_hashes), groups

    def group(self) -> tuple[int, int]:
        group = self.random.choice(list(self.config.block_sizes))
        size = self.config.block_sizes[group]
        return group, size + UNIT if self.random.random() < 0.02 else size

    def full(self) -> Call:
        view, (group, size) = self.tokens(), self.group()
        blocks = [self.block(index) for index in range(len(view.tokens) // size)]
        if self.random.random() < 0.4:
            new = [b for b in range(self.config.num_gpu_blocks) if self.is_new(BlockId(b))]
            self.random.shuffle(new)
            blocks = (blocks + new)[-len(blocks) :] if blocks else []
        last = self.random.randint(0, len(blocks))
        first = max(last - self.random.randint(0, 3), 0)
        if self.random.random() < 0.05:
            first, last = self.random.randint(-1, 3), self.random.randint(-1, 9)
        mask = None
        if self.random.random() < 0.5:
            mask = [self.random.random() < 0.6 for _ in range(last - first)]
            mask += [True] * (self.random.random() < 0.05)
        return "cache_full_blocks", view, blocks, first, last, size, group, mask

    def partial(self) -> Call:
        view, (group, size) = self.tokens(), self.group()
        num_tokens = UNIT * self.random.randint(1, len(view.block_hashes))
        if self.random.random() < 0.05:
            num_tokens = self.random.randint(-1, len(view.tokens) + 2)
        block = self.block((num_tokens - 1) // size)
        return "cache_partial_block", view, block, num_tokens, group, size

    def evict(self) -> Call:
        return "evict_blocks", self.some(3)

    def plain(self) -> Call:
        names = ["reset_prefix_cache", "take_events", "get_num_free_blocks", "get_usage"]
        return (self.random.choice(names),)


def answer(target: Any, call: Call) -> tuple[str, Any]:
    name, *args = call
    try:
        return "returns", getattr(target, name)(*args)
    except KVCacheError as error:
        return "raises", error.rule.name
    except Exception as error:
        return "breaks", repr(error)


class Consumer:
    """Folds the events of a target, and checks what they say of themselves."""

    def __init__(self) -> None:
        self.resident: set[tuple[str, int]] = set()
        self.told: Counter[tuple[str, str | None, int | None]] = Counter()

    def fold(self, events: list[Event]) -> None:
        self.told.clear()
        for kind, *rest in events:
            if kind == "cleared":
                self.resident.clear()
                self.told["cleared", None, None] += 1
                continue
            group = rest[3 if kind == "stored" else 1]
            if kind == "stored":
                check_stored(*rest)
                self.resident |= {(block_hash, group) for block_hash in rest[0]}
            else:
                self.resident -= {(block_hash, group) for block_hash in rest[0]}
            self.told.update((kind, block_hash, group) for block_hash in rest[0])


def check_stored(
    hashes: list[str], parent: str | None, tokens: list[int], group: int, size: int | None = None
) -> None:
    """A consumer that computes the hashes again finds those that it was told."""
    size = len(tokens) // len(hashes) if size is None else size
    assert len(tokens) == size * len(hashes)
    prefix = () if parent is None else hash_from_text(parent)
    for number, block_hash in enumerate(hashes, 1):
        assert hash_text((*prefix, *map(TokenId, tokens[: number * size]))) == block_hash


class Lockstep:
    """The specification and a target, given the same calls."""

    def __init__(self, make: PoolFactory, config: PoolConfig) -> None:
        self.spec, self.target = SpecPool(config), make(config)
        self.consumers = Consumer(), Consumer()

    def start(self) -> str | None:
        wanted, seen = self.spec.observe(), self.target.observe()
        return None if same(wanted, seen) else f"a fresh pool is {seen}, not {wanted}"

    def step(self, call: Call) -> str | None:
        """Make the call on both. Return the difference, or None."""
        wanted, given = answer(self.spec, call), answer(self.target, call)
        if call[0] == "take_events" and given[0] == "returns":
            try:
                for consumer, events in zip(self.consumers, (wanted[1], given[1]), strict=True):
                    consumer.fold(events)
            except AssertionError as error:
                return f"{given} tells a lie: {error}"
            wanted, given = (("told", (c.resident, c.told)) for c in self.consumers)
        if wanted != given:
            return f"{call} {given}, not {wanted}"
        left, seen = self.spec.observe(), self.target.observe()
        return None if same(left, seen) else f"{call} leaves {seen}, not {left}"


def same(wanted: Observation, seen: Observation) -> bool:
    """The observations agree. Of a block's keys only the first, the longest, has its place."""
    assert wanted.keys is not None
    assert seen.keys is not None
    return replace(wanted, keys=None) == replace(seen, keys=None) and all(
        ours[:1] == theirs[:1] and sorted(ours) == sorted(theirs)
        for ours, theirs in zip(wanted.keys, seen.keys, strict=True)
    )


def drawn_difference(
    make: PoolFactory, config: PoolConfig, seed: int, num_calls: int
) -> str | None:
    """Return the first difference that random calls show, or None."""
    pair = Lockstep(make, config)
    driver = Driver(config, seed, pair.spec)
    found = pair.start()
    for number in range(num_calls):
        if found is not None:
            return f"call {number}: {found}"
        found = pair.step(driver.draw())
    return found


def shown_difference(make: PoolFactory, config: PoolConfig, calls: list[Call]) -> str | None:
    """Return the first difference that these calls show, or None."""
    pair = Lockstep(make, config)
    return next(filter(None, [pair.start(), *map(pair.step, calls)]), None)


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Resets that are refused warn; thousands of them are no news."""
    for module in (block_pool, specified):
        logging.getLogger(module.__name__).setLevel(logging.ERROR)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(40))
def test_does_what_the_specification_does(name: str, seed: int) -> None:
    assert drawn_difference(factory, CONFIGS[name], seed, 150) is None


def pool(num_blocks: int, size: int = UNIT, enable_caching: bool = True) -> BlockPool:
    return BlockPool(num_blocks, enable_caching, UNIT, {0: size}, enable_kv_cache_events=True)


def cached(num_blocks: int, *tokens: int) -> BlockPool:
    """Return a pool whose first blocks are held and keyed for these tokens, one unit each."""
    made = pool(num_blocks)
    view = request(*tokens)
    count = len(view.block_hashes)
    made.cache_full_blocks(view, made.get_new_blocks(count), 0, count, UNIT, 0)
    return made


def queued(made: BlockPool) -> list[int]:
    """Return the free blocks in the order in which they would be handed out."""
    order, block = [], made.free_queue.next[made.null_block]
    while block != made.null_block:
        order.append(block)
        block = made.free_queue.next[block]
    return order


class TestPoolDefectsOfRealEngines:
    """The right values for the defects that were seen in real engines."""

    def test_a_double_free_is_refused_and_names_the_block(self) -> None:
        made = pool(4)
        x = made.get_new_blocks(2)
        made.free_blocks(x)
        with pytest.raises(UnheldBlockError, match="block = 1") as caught:
            made.free_blocks(x)
        assert caught.value.rule is RELEASE_HELD
        assert (queued(made), made.ref_cnt) == ([1, 2, 3], [0, 0, 0, 0])

    def test_a_double_free_inside_one_call_changes_nothing(self) -> None:
        made = pool(4)
        x, y = made.get_new_blocks(2)
        with pytest.raises(UnheldBlockError):
            made.free_blocks([0, y, x, x])
        assert (queued(made), made.ref_cnt[x], made.ref_cnt[y]) == ([3], 1, 1)

    def test_a_negative_number_of_blocks_is_refused(self) -> None:
        made = pool(6)
        with pytest.raises(NegativeCountError):
            made.get_new_blocks(-1)
        assert made.get_num_free_blocks() == 5
        assert made.get_new_blocks(5) == [1, 2, 3, 4, 5]
        with pytest.raises(OutOfBlocksError):
            made.get_new_blocks(1)

    def test_the_counter_is_unchanged_when_there_are_not_enough_blocks(self) -> None:
        made = pool(4)
        with pytest.raises(OutOfBlocksError):
            made.get_new_blocks(4)
        assert made.get_num_free_blocks() == 3
        assert queued(made) == [1, 2, 3]

    def test_a_block_released_twice_in_one_batch_is_queued_once(self) -> None:
        made = pool(4)
        x = made.get_new_blocks(1)
        made.touch(x)
        made.free_blocks(x + x)
        assert queued(made) == [1, 2, 3]
        assert made.get_num_free_blocks() == 3

    def test_a_reused_block_is_not_hit_for_its_old_contents(self) -> None:
        made = cached(3, 0, 0)
        made.free_blocks([1])
        assert made.get_cached_block("0.0", [0]) == [1]
        assert made.get_new_blocks(2) == [2, 1]
        assert made.get_cached_block("0.0", [0]) is None

    def test_a_key_that_promotion_retired_does_not_come_back(self) -> None:
        made = pool(3, size=4)
        [b] = made.get_new_blocks(1)
        assert made.cache_partial_block(request(0, 0), b, 2, 0, 4) == ("0.0", 0)
        made.cache_full_blocks(request(0, 0, 0, 0), [b], 0, 1, 4, 0)
        assert made.cache_partial_block(request(0, 0), b, 2, 0, 4) is None
        assert made.get_cached_block("0.0", [0]) is None

    def test_a_block_whose_entry_is_gone_already_loses_its_hash(self) -> None:
        made = cached(3, 0, 0)
        made.cached.clear()
        made.evict_blocks([1])
        assert made.block(1).block_hash is None

    def test_a_hit_keeps_the_hash_and_leaves_the_queue(self) -> None:
        made = cached(3, 0, 0)
        made.free_blocks([1])
        made.touch([1])
        assert made.block(1) == (1, 1, ("0.0", 0), 2, False)
        assert queued(made) == [2]

    @pytest.mark.parametrize("num_blocks", [1, 2, 5])
    def test_the_null_block_is_block_0(self, num_blocks: int) -> None:
        made = pool(num_blocks)
        assert made.null_block == 0
        assert made.block(0).is_null
        assert made.get_new_blocks(num_blocks - 1) == list(range(1, num_blocks))

    @pytest.mark.parametrize("enable_caching", [True, False])
    def test_blocks_without_a_key_are_reused_in_the_order_given(self, enable_caching: bool) -> None:
        made = pool(5, enable_caching=enable_caching)
        made.get_new_blocks(3)
        made.free_blocks([3, 2, 1])
        assert made.get_new_blocks(4) == [3, 2, 1, 4]


class TestEvents:
    """One event tells of several blocks only when nothing is missing between them."""

    def test_consecutive_blocks_are_told_at_once(self) -> None:
        made = cached(4, 0, 1, 2, 3, 4, 5)
        assert made.take_events() == [
            BlockStored(["0.1", "0.1.2.3", "0.1.2.3.4.5"], None, [0, 1, 2, 3, 4, 5], 2, 0)
        ]
        assert made.take_events() == []

    @pytest.mark.parametrize("blocks", [[1, 2, 3], [1, 0, 3]])
    def test_a_gap_starts_a_new_event(self, blocks: list[int]) -> None:
        made = pool(4)
        made.get_new_blocks(3)
        view, mask = request(0, 1, 2, 3, 4, 5), [True, blocks[1] == 0, True]
        made.cache_full_blocks(view, blocks, 0, 3, UNIT, 0, mask)
        assert made.take_events() == [
            BlockStored(["0.1"], None, [0, 1], 2, 0),
            BlockStored(["0.1.2.3.4.5"], "0.1.2.3", [4, 5], 2, 0),
        ]

    def test_a_key_is_gone_only_when_its_last_block_is(self) -> None:
        made = pool(3)
        for block in made.get_new_blocks(2):
            made.cache_full_blocks(request(0, 1), [block], 0, 1, UNIT, 0)
        made.take_events()
        made.evict_blocks([1])
        assert made.take_events() == []
        made.evict_blocks([2])
        assert made.take_events() == [BlockRemoved(["0.1"], 0)]

    def test_a_partial_key_covers_one_unit_behind_its_parent(self) -> None:
        made = pool(3, size=6)
        made.get_new_blocks(1)
        made.cache_partial_block(request(0, 1, 2, 3), 1, 4, 0, 6)
        assert made.take_events() == [BlockStored(["0.1.2.3"], "0.1", [2, 3], 2, 0)]

    def test_a_pool_that_tells_no_events_keeps_none(self) -> None:
        made = BlockPool(3, True, UNIT, {0: UNIT})
        made.cache_full_blocks(request(0, 1), made.get_new_blocks(1), 0, 1, UNIT, 0)
        made.evict_blocks([1])
        assert made.reset_prefix_cache() is False
        assert made.take_events() == []


class Opaque:
    """A hash that can be compared and hashed, and nothing else."""


def test_a_block_hash_may_be_anything_hashable() -> None:
    made = pool(4, size=4)
    hashes: list[Any] = [Opaque(), b"b", 3, ("d",)]
    view = RequestView([0, 1, 2, 3, 4, 5, 6, 7], hashes)
    other = RequestView([0, 1, 2, 3, 4, 5, 6, 9], [*hashes[:3], "e"])
    blocks = made.get_new_blocks(3)
    assert made.cache_partial_block(view, blocks[1], 6, 0, 4) == (3, 0)
    with pytest.raises(ForeignKeyError):
        made.cache_partial_block(view, blocks[1], 2, 0, 4)
    made.cache_full_blocks(other, blocks, 0, 2, 4, 0)
    with pytest.raises(ForeignKeyError):
        made.cache_partial_block(view, blocks[0], 6, 0, 4)
    assert made.get_cached_block(b"b", [0]) == [1]
    assert made.get_cached_block("e", [0]) == [2]
    assert made.get_cached_block(("d",), [0]) is None


@pytest.mark.parametrize(("unit", "size"), [(2, 3), (2, 0), (2, -2), (0, 2), (-2, 2)])
def test_a_block_size_is_a_multiple_of_the_hash_unit(unit: int, size: int) -> None:
    with pytest.raises(BlockSizeError):
        BlockPool(4, True, unit, {0: size})


def test_a_pool_has_a_block() -> None:
    with pytest.raises(NegativeCountError):
        pool(0)


def test_what_can_be_read_of_a_block_is_in_the_pool() -> None:
    with pytest.raises(BlockIdError):
        pool(3).block(3)


KEYED: list[Call] = [
    ("get_new_blocks", 1),
    ("cache_full_blocks", request(0, 0), [1], 0, 1, 2, 0, None),
]
TWO_KEYED: list[Call] = [
    ("get_new_blocks", 2),
    ("cache_full_blocks", request(0, 0, 0, 0), [1, 2], 0, 2, 2, 0, None),
    ("free_blocks", [1, 2]),
]
PROMOTED: list[Call] = [
    ("get_new_blocks", 1),
    ("cache_partial_block", request(0, 0), 1, 2, 0, 4),
    ("cache_full_blocks", request(0, 0, 0, 0), [1], 0, 1, 4, 0, None),
]
DUPLICATES: list[Call] = [
    ("get_new_blocks", 2),
    ("cache_full_blocks", request(0, 0), [1], 0, 1, 2, 0, None),
    ("cache_full_blocks", request(0, 0), [2], 0, 1, 2, 0, None),
]
SMALL, COARSE = PoolConfig(4, block_sizes={0: 2}), PoolConfig(3, block_sizes={0: 4})
SHORTEST: dict[str, tuple[PoolConfig, list[Call]]] = {
    "double-free": (
        SMALL,
        [("get_new_blocks", 2), ("free_blocks", [1, 2]), ("free_blocks", [1, 2])],
    ),
    "negative-count": (SMALL, [("get_new_blocks", -1)]),
    "counter-before-check": (SMALL, [("get_new_blocks", 4)]),
    "twice-in-one-batch": (
        SMALL,
        [("get_new_blocks", 1), ("touch", [1]), ("free_blocks", [1, 1])],
    ),
    "stale-key": (SMALL, [*KEYED, ("free_blocks", [1]), ("get_new_blocks", 3)]),
    "resurrected-key": (COARSE, [*PROMOTED, ("cache_partial_block", request(0, 0), 1, 2, 0, 4)]),
    "missed-reset": (SMALL, [*DUPLICATES, ("evict_blocks", [1])]),
    "hit-loses-hash": (SMALL, [*KEYED, ("free_blocks", [1]), ("touch", [1])]),
    "null-not-zero": (SMALL, []),
    "free-order-uncached": (
        PoolConfig(4, enable_caching=False),
        [("get_new_blocks", 3), ("free_blocks", [3, 2, 1])],
    ),
    "stored-across-gap": (
        SMALL,
        [
            ("get_new_blocks", 3),
            (
                "cache_full_blocks",
                request(0, 0, 0, 0, 0, 0),
                [1, 2, 3],
                0,
                3,
                2,
                0,
                [True, False, True],
            ),
            ("take_events",),
        ],
    ),
    "retired-for-ever": (
        COARSE,
        [
            *PROMOTED,
            ("free_blocks", [1]),
            ("get_new_blocks", 2),
            ("cache_partial_block", request(0, 0), 1, 2, 0, 4),
        ],
    ),
    "evict-half-done": (SMALL, [*KEYED, ("evict_blocks", [1, 4])]),
    "reset-keeps-partials": (
        COARSE,
        [
            ("get_new_blocks", 1),
            ("cache_full_blocks", request(0, 0, 0, 0), [1], 0, 1, 4, 0, None),
            ("cache_partial_block", request(0, 0), 1, 2, 0, 4),
            ("free_blocks", [1]),
            ("reset_prefix_cache",),
        ],
    ),
    "mask-shifted": (
        SMALL,
        [
            ("get_new_blocks", 3),
            (
                "cache_full_blocks",
                request(0, 0, 0, 0, 0, 0),
                [1, 2, 3],
                1,
                3,
                2,
                0,
                [True, False],
            ),
        ],
    ),
    "new-front-unlinked": (SMALL, [*TWO_KEYED, ("get_new_blocks", 1), ("touch", [1])]),
    "removed-back-unlinked": (SMALL, [*TWO_KEYED, ("touch", [2]), ("free_blocks", [2])]),
    "retired-in-all-groups": (
        PoolConfig(3, True, 2, {0: 4, 1: 4}),
        [
            ("get_new_blocks", 1),
            ("cache_partial_block", request(0, 0), 1, 2, 0, 4),
            ("cache_full_blocks", request(0, 0, 0, 0), [1], 0, 1, 4, 0, None),
            ("evict_blocks", [1]),
            ("cache_partial_block", request(0, 0), 1, 2, 1, 4),
        ],
    ),
    "lookup-last": (SMALL, [*DUPLICATES, ("get_cached_block", "0.0", [0])]),
}
"""The shortest calls that show a defect: all that were seen in real engines, and those that
random calls seldom show.
"""


class TestDefects:
    """Each seeded defect still fits the implementation, and calls can show it."""

    @pytest.mark.parametrize("name", [name for name in DEFECTS if name not in SHORTEST])
    def test_random_calls_show_it(self, name: str) -> None:
        make = load_defect(name)
        assert any(
            drawn_difference(make, config, seed, 150) is not None
            for seed in range(40)
            for config in CONFIGS.values()
        )

    @pytest.mark.parametrize("name", SHORTEST)
    def test_the_shortest_calls_show_it(self, name: str) -> None:
        config, calls = SHORTEST[name]
        assert shown_difference(factory, config, calls) is None
        assert shown_difference(load_defect(name), config, calls[:-1]) is None or not calls
        assert shown_difference(load_defect(name), config, calls) is not None

    @pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
    def test_it_names_a_property_and_the_switch_that_judges_it(self, defect: Defect) -> None:
        broken = {**STATE_PROPERTIES, **STEP_PROPERTIES}[defect.breaks]
        assert defect.flags == (() if broken.klass is Class.SAFETY else (broken.klass.value,))

    def test_the_implementation_itself_stays_as_it_is(self) -> None:
        for name in DEFECTS:
            assert isinstance(load_defect(name)(SMALL), ImplPool)
        assert ImplPool(SMALL).pool.__class__ is BlockPool
        assert shown_difference(factory, SMALL, TWO_KEYED) is None

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(DefectError, match="no defect 'none'; known: negative-count"):
            load_defect("none")

    @pytest.mark.parametrize("old", ["no such text", "self"])
    def test_an_edit_must_fit_exactly_once(self, old: str) -> None:
        defect = Defect("one", "says", ((old, ""),), "refs-exact")
        with pytest.raises(DefectError, match=r"defect one: .* once in kvproof.impl"):
            edited_sources(defect)
