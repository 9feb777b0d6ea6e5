"""The real managers of vLLM 0.25.1 against the types of attention, by brute force.

Small sizes, every cached set. A test named `test_erratum_...` shows a defect of 0.25.1 and
asserts the wrong value beside the right one. So it fails with a release that mends it: then it
is time to turn it round.
"""

import importlib
import importlib.util
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.fuzz.manager_calls import make
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.vllm_manager import VllmManager, manager_parts
from kvproof.fuzz.vllm_release import installed
from kvproof.fuzz.vllm_target import hashing
from kvproof.spec import attention as text
from kvproof.spec.attention import ChunkedLocal, Full, SlidingWindow
from kvproof.spec.quantities import NumTokens

found = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)

Type = Full | SlidingWindow | ChunkedLocal
BLOCKS = 6
SIZES = (1, 2, 3)
TYPES: list[Type] = [
    Full(),
    *(SlidingWindow(window) for window in range(2, 9)),
    *(ChunkedLocal(chunk) for chunk in range(1, 9)),
]
CASES = [
    (one, size)
    for one, size in product(TYPES, SIZES)
    if not isinstance(one, ChunkedLocal) or one.chunk % size == 0
]
of_each_type = pytest.mark.parametrize(("attention", "size"), CASES, ids=repr)


@cache
def managers() -> Any:
    """The module under test. It is imported when the first test asks for it."""
    manager_parts()
    return importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")


def spec_of(attention: Type, size: int) -> Any:
    parts = manager_parts()
    common = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": parts.torch.float16}
    if isinstance(attention, SlidingWindow):
        return parts.SlidingWindowSpec(**common, sliding_window=attention.window)
    if isinstance(attention, ChunkedLocal):
        return parts.ChunkedLocalAttentionSpec(**common, attention_chunk_size=attention.chunk)
    return parts.FullAttentionSpec(**common)


class Cached:
    """A pool in which the blocks `keyed` of one request are cached, and no others."""

    def __init__(self, attention: Type, size: int, keyed: set[int], blocks: int = BLOCKS) -> None:
        self.spec, self.size = spec_of(attention, size), size
        self.pool = installed().parts.BlockPool(blocks + 1, True, hash_block_size=size)
        self.request = hashing(installed(), size).request([0] * (blocks * size))
        self.blocks = self.pool.get_new_blocks(blocks)
        mask = [index in keyed for index in range(blocks)]
        self.pool.cache_full_blocks(self.request, self.blocks, 0, blocks, size, 0, mask)

    def hit(self, limit: int, alignment: int) -> list[int]:
        """Return the entries of vLLM's hit: the index of a block plus one, 0 for null."""
        scan = managers().KVCacheSpecRegistry.get_manager_class(self.spec).find_longest_cache_hit
        hashes = self.request.block_hashes
        (entries,) = scan(hashes, limit, [0], self.pool, self.spec, False, alignment)
        return [block.block_id for block in entries]

    def manager(self, step: int = 8, longest: int = 64) -> Any:
        """Return a manager of the pool."""
        return managers().get_manager_for_kv_cache_spec(
            self.spec,
            max_num_batched_tokens=step,
            max_model_len=longest,
            block_pool=self.pool,
            enable_caching=True,
            kv_cache_group_id=0,
            scheduler_block_size=self.size,
        )


def right_hit(attention: Type, limit: int, size: int, alignment: int, keyed: set[int]) -> list[int]:
    hit = text.longest_hit(attention, NumTokens(limit), size, alignment, keyed.__contains__)
    entries = text.entries(attention, hit, size)
    return [index + 1 if is_cached else 0 for index, is_cached in enumerate(entries)]


def right_mask(attention: Type, size: int, alignment: int, *rest: Any) -> list[bool]:
    return text.wanted_blocks(attention, 0, BLOCKS, size, alignment, *rest)


def mask_of(
    attention: Type, size: int, alignment: int, interval: int | None, prompt: int
) -> list[bool]:
    spec = spec_of(attention, size)
    mask = (
        managers()
        .KVCacheSpecRegistry.get_manager_class(spec)
        .reachable_block_mask(0, BLOCKS, alignment, spec, False, interval, prompt)
    )
    return [True] * BLOCKS if mask is None else list(mask)


@of_each_type
def test_hits_are_the_longest_for_every_cached_set(attention: Type, size: int) -> None:
    """With one group the alignment is its block size; the coarser ones are those of a hybrid."""
    factors = (1,) if isinstance(attention, ChunkedLocal) else (1, 2, 3)
    for flags in product((False, True), repeat=BLOCKS):
        keyed = {index for index, flag in enumerate(flags) if flag}
        cached = Cached(attention, size, keyed)
        for limit, factor in product(range(BLOCKS * size + 1), factors):
            got = cached.hit(limit, factor * size)
            assert got == right_hit(attention, limit, size, factor * size, keyed), (keyed, limit)


@of_each_type
def test_as_many_tokens_are_skipped(attention: Type, size: int) -> None:
    manager = Cached(attention, size, set()).manager()
    for computed in range(40):
        right = text.skipped_tokens(attention, NumTokens(computed))
        assert manager.get_num_skipped_tokens(computed) == right


@of_each_type
def test_the_same_entries_become_null(attention: Type, size: int) -> None:
    for computed in range(BLOCKS * size + 1):
        cached = Cached(attention, size, set())
        manager = cached.manager()
        manager.req_to_blocks["r"] = list(cached.blocks)
        manager.remove_skipped_blocks("r", computed)
        gone = text.skipped_tokens(attention, NumTokens(computed)) // size
        table = [block.block_id for block in manager.req_to_blocks["r"]]
        assert table == [0 if index < gone else index + 1 for index in range(BLOCKS)]
        free = [block.block_id for block in cached.pool.free_block_queue.get_all_free_blocks()]
        assert free == list(range(gone, 0, -1))


@of_each_type
def test_the_same_blocks_are_published(attention: Type, size: int) -> None:
    for factor, interval, prompt in product((1, 2, 3), (None, 0, 1, 2), range(BLOCKS * size + 1)):
        alignment = factor * size
        span = None if interval is None else interval * alignment
        right = right_mask(attention, size, alignment, span, prompt)
        assert mask_of(attention, size, alignment, span, prompt) == right


def startup_blocks(spec: Any, step: int, longest: int) -> int:
    memory: int = spec.max_memory_usage_bytes(config_of(step, longest))
    return memory // int(spec.page_size_bytes)


def config_of(step: int, longest: int) -> SimpleNamespace:
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=longest),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=step),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
    )


@of_each_type
def test_the_startup_bound_without_look_ahead_is_at_most_one_too_many(
    attention: Type, size: int
) -> None:
    """See the erratum of one block too many: here is where it is right."""
    spec = spec_of(attention, size)
    for step, longest in product(range(1, 12), range(1, 30)):
        right = text.startup_bound(attention, step, longest, size)
        assert right <= startup_blocks(spec, step, longest) <= right + 1
        held = attention.most_tokens_held(step, 1)
        window = isinstance(attention, SlidingWindow)
        ends = held is not None and held % size == (1 % size if window else 0)
        if held is None or (not ends and longest >= held + size):
            assert startup_blocks(spec, step, longest) == right


@of_each_type
def test_the_gate_without_a_hit_is_at_most_one_too_many(attention: Type, size: int) -> None:
    for step, tokens in product((1, 3, 8), range(1, BLOCKS * size + 1)):
        manager = Cached(attention, size, set()).manager(step)
        asked = manager.get_num_blocks_to_allocate("r", tokens, [], 0, tokens, True)
        right = text.admission_blocks(attention, 0, tokens, step, size, lambda entry: False)
        assert right <= asked <= right + (attention != Full())


@pytest.mark.parametrize("held", range(BLOCKS))
def test_the_gate_of_full_attention_after_a_hit(held: int) -> None:
    """The first blocks of the hit are held by another request, the rest is queued."""
    cached = Cached(Full(), 2, set(range(BLOCKS)))
    cached.pool.free_blocks(list(reversed(cached.blocks[held:])))
    hits = BLOCKS - 1
    asked = cached.manager().get_num_blocks_to_allocate(
        "r", 2 * BLOCKS + 3, cached.blocks[:hits], 2 * hits, 2 * BLOCKS + 3, True
    )
    assert asked == text.admission_blocks(
        Full(), 2 * hits, 2 * BLOCKS + 3, 8, 2, lambda entry: entry < held
    )


@of_each_type
def test_a_request_alone_holds_the_peak(attention: Type, size: int) -> None:
    """Where each step is full the table holds what `held_blocks` says, on the real manager."""
    step, longest = 5, 24
    config = ManagerConfig(30, (group_of(attention, size),), longest, step)
    for first in range(1, step + 1):
        manager = VllmManager(config)
        manager.new_request("r", [0] * longest, None)
        computed, most = 0, 0
        for count in [first] + [step] * longest:
            new = min(count, longest - computed)
            if new == 0:
                break
            held = blocks_after(manager, computed, new, 0)
            assert held == text.held_blocks(attention, computed, computed + new, size)
            most, computed = max(most, held or 0), computed + new
        assert 0 < most <= text.peak_blocks(attention, step, longest, size)


def group_of(attention: Type, size: int) -> GroupConfig:
    if isinstance(attention, SlidingWindow):
        return GroupConfig("sliding-window", size, attention.window)
    if isinstance(attention, ChunkedLocal):
        return GroupConfig("chunked-local", size, attention.chunk)
    return GroupConfig("full", size)


def blocks_after(manager: VllmManager, computed: int, new: int, ahead: int) -> int | None:
    """Give the request room for `new` tokens more, and return how many blocks it holds."""
    given = make(
        manager,
        "allocate_slots",
        request="r",
        num_computed_tokens=computed,
        is_running=computed > 0,
        num_new_tokens=new,
        num_lookahead_tokens=ahead,
        has_scheduled_reqs=False,
    )
    if given is None:
        return None
    return sum(block != 0 for block in manager.observe().tables["r"][0])


def test_erratum_a_window_of_one_is_never_hit() -> None:
    """hit-longest: a token that reads only itself needs no block, so every boundary is a hit, and
    no block is worth publishing. 0.25.1 publishes none, and looks for one nevertheless.
    """
    window = SlidingWindow(1)
    assert Cached(window, 2, set()).hit(7, 2) == []
    assert right_hit(window, 7, 2, 2, set()) == [0, 0, 0]
    assert Cached(window, 2, {1}).hit(7, 2) == [0, 2]
    assert right_hit(window, 7, 2, 2, {1}) == [0, 0, 0]
    assert mask_of(window, 2, 2, None, 7) == [False] * BLOCKS
    assert right_mask(window, 2, 2, None, 7) == [False] * BLOCKS


def test_erratum_a_chunk_of_no_whole_blocks_hits_the_null_block() -> None:
    """hit-backed: chunks of 6, blocks of 4. The token at 4 reads positions 0 to 3, whose block is
    not cached, and 0.25.1 gives it the null block. It takes the chunk's start from the limit,
    7, not from the hit. `make_local_attention_virtual_batches` refuses such sizes when the
    first step runs; the manager and the spec do not.
    """
    chunk = ChunkedLocal(6)
    assert Cached(chunk, 4, set()).hit(7, 4) == [0]
    assert right_hit(chunk, 7, 4, 4, set()) == []


def test_erratum_look_ahead_is_not_in_the_bound() -> None:
    """bound-covers-peak: a request that fits by the startup bound comes to a halt, alone.

    Blocks of 4, a window of 6, steps of 3 tokens, 2 of look-ahead. At token 12 the table begins
    with position 7 in block 1, and reaches to token 17 in block 4: 4 blocks, not 3.
    """
    window, step, ahead, longest = SlidingWindow(6), 3, 2, 24
    bound = startup_blocks(spec_of(window, 4), step, longest)
    assert bound == text.startup_bound(window, step, longest, 4) == 3
    assert text.startup_bound(window, step, longest, 4, ahead) == 4
    answers = {}
    for usable in (3, 4):
        manager = VllmManager(ManagerConfig(1 + usable, (group_of(window, 4),), longest, step))
        manager.new_request("r", [0] * 15, None)
        answers[usable] = [blocks_after(manager, c, 3, ahead) for c in (0, 3, 6, 9, 12)]
    assert answers == {3: [2, 2, 3, 3, None], 4: [2, 2, 3, 3, 4]}


def test_erratum_the_null_block_is_not_in_the_bound() -> None:
    """bound-covers-peak: memory for 2 blocks is enough for 8 tokens, says the startup check. One
    of them is the null block, and 5 tokens never get room.
    """
    utils: Any = importlib.import_module("vllm.v1.core.kv_cache_utils")
    spec = spec_of(Full(), 4)
    utils.check_enough_kv_cache_memory(config_of(8, 8), {"layer": spec}, 2 * spec.page_size_bytes)
    assert text.startup_bound(Full(), 8, 8, 4) + 1 == 3
    answers = {}
    for num_blocks in (2, 3):
        manager = VllmManager(ManagerConfig(num_blocks, (GroupConfig("full", 4),), 8, 8))
        manager.new_request("r", [0] * 5, None)
        answers[num_blocks] = blocks_after(manager, 0, 5, 0)
    assert answers == {2: None, 3: 2}


def test_erratum_the_gate_forgets_the_null_entries_of_a_hit() -> None:
    """bound-covers-peak: the cap of 3 blocks is compared with all entries of the table, those
    that are null included. After a hit of 4 entries, 3 of them null, nothing more is asked for,
    and the request holds 3.
    """
    window, tokens, hit = SlidingWindow(4), 28, 16
    cached = Cached(window, 4, set(range(7)), 7)
    cached.pool.free_blocks(list(reversed(cached.blocks)))
    entries = [0, 0, 0, 4]
    assert cached.hit(19, 4) == entries
    blocks = [cached.pool.blocks[index] for index in entries]
    manager = cached.manager(step=4)
    asked = manager.get_num_blocks_to_allocate("r", tokens, blocks, hit, tokens, True)
    assert (manager._max_admission_blocks_per_request, asked) == (3, 1)
    assert text.admission_blocks(window, hit, tokens, 4, 4, lambda entry: False) == 3
    first_step = manager.get_num_blocks_to_allocate("r", hit + 4, blocks, hit, hit + 4)
    assert first_step == 2


@pytest.mark.parametrize(
    ("attention", "step", "peak"),
    [(SlidingWindow(6), 8, 4), (SlidingWindow(8), 2, 3), (ChunkedLocal(8), 5, 3)],
    ids=repr,
)
def test_erratum_one_block_too_many_is_asked_for(attention: Type, step: int, peak: int) -> None:
    """bound-tight: a window whose tokens held are one more than whole blocks, and a chunk whose
    step is, are counted with a block that is never held. It is never more than one.
    """
    assert text.startup_bound(attention, step, 100, 4) == peak
    assert startup_blocks(spec_of(attention, 4), step, 100) == peak + 1


def test_erratum_the_gate_takes_what_is_shared_now_from_what_is_held_later() -> None:
    """bound-covers-peak: another request holds the block that the hit needs. The window leaves it
    behind, and then 3 blocks are the request's own; 0.25.1 asks for none.
    """
    window, tokens, hit = SlidingWindow(4), 28, 16
    cached = Cached(window, 4, set(range(7)), 7)
    blocks = [cached.pool.blocks[index] for index in cached.hit(19, 4)]
    manager = cached.manager(step=4)
    assert manager.get_num_blocks_to_allocate("r", tokens, blocks, hit, tokens, True) == 0
    assert text.admission_blocks(window, hit, tokens, 4, 4, lambda entry: entry < 4) == 3


def test_erratum_the_gate_leaves_out_look_ahead() -> None:
    """bound-covers-peak: 4 tokens with 1 of look-ahead need 2 blocks of 4, of which the pool has
    one. The gate, which speaks of the whole request, does not even look at it.
    """
    manager = Cached(Full(), 4, set()).manager(step=8)
    assert manager.get_num_blocks_to_allocate("r", 4, [], 0, 4, True) == 1
    assert text.admission_blocks(Full(), 0, 4 + 1, 8 + 1, 4, lambda entry: False) == 2
