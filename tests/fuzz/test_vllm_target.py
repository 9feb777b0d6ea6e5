"""vLLM's pool as a target where vLLM is installed, and the programs that show its failures."""

import ast
import importlib.util
import os
import subprocess
import sys

import pytest

from kvproof.fuzz.target import NotExpressible, PoolConfig, RequestView
from kvproof.fuzz.vllm_script import Call, engine_script
from kvproof.fuzz.vllm_target import VllmPool, factory

found = importlib.util.find_spec("vllm")
needs_vllm = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)

TOKENS = [0, 1, 1, 0, 0, 0, 1, 1]


@pytest.fixture
def pool() -> VllmPool:
    return factory(PoolConfig(6, block_sizes={0: 4, 1: 2}))


@pytest.fixture
def request_view() -> RequestView:
    return RequestView(TOKENS, [])


@needs_vllm
def test_blocks_are_handed_out_touched_and_freed(pool: VllmPool) -> None:
    assert pool.get_new_blocks(2) == [1, 2]
    pool.touch([1, 0])
    pool.free_blocks([2, 1])
    seen = pool.observe()
    assert (seen.free, seen.num_free_blocks) == ([2, 3, 4, 5], 4)
    assert seen.ref_cnt is not None
    assert seen.ref_cnt[1:] == [1, 0, 0, 0, 0]
    assert seen.hooks == [
        ("evicted", 1),
        ("allocated", 1),
        ("evicted", 2),
        ("allocated", 2),
        ("accessed", 1),
        ("accessed", 0),
    ]
    assert pool.get_num_free_blocks() == 4
    assert pool.get_usage() == pytest.approx(0.2)
    assert pool.observe().hooks == []


@needs_vllm
def test_keys_lookup_eviction_and_events(pool: VllmPool, request_view: RequestView) -> None:
    pool.get_new_blocks(4)
    assert pool.cache_partial_block(request_view, 2, 6, 0, 4)
    assert pool.cache_partial_block(request_view, 0, 6, 0, 4) is False
    pool.cache_full_blocks(request_view, [1], 0, 1, 4, 0, None)
    pool.cache_full_blocks(request_view, [3, 4], 0, 2, 2, 1, [False, True])
    assert pool.get_cached_block("0.1.1.0", [0, 1]) == [1, 4]
    assert pool.get_cached_block("0.1", [1]) is None
    seen = pool.observe()
    keys = [[("0.1.1.0", 0)], [("0.1.1.0.0.0", 0)], [], [("0.1.1.0", 1)], []]
    assert seen.keys == [[], *keys]
    assert seen.index == {
        ("0.1.1.0.0.0", 0): [2],
        ("0.1.1.0", 0): [1],
        ("0.1.1.0", 1): [4],
    }
    assert pool.take_events() == [
        ["stored", ["0.1.1.0.0.0"], "0.1.1.0", [0, 0], 0, 2],
        ["stored", ["0.1.1.0"], None, [0, 1, 1, 0], 0, 4],
        ["stored", ["0.1.1.0"], None, [0, 1, 1, 0], 1, 2],
    ]
    pool.evict_blocks([1, 4])
    assert pool.get_cached_block("0.1.1.0", [0]) is None
    removed = [["removed", ["0.1.1.0"], 0], ["removed", ["0.1.1.0"], 1]]
    assert sorted(pool.take_events()) == removed
    assert not pool.reset_prefix_cache()
    pool.free_blocks([1, 2, 3, 4])
    assert pool.reset_prefix_cache()
    assert pool.take_events() == [["cleared"]]
    assert pool.observe().index == {}


@needs_vllm
def test_several_keys_of_a_block_come_in_a_fixed_order(request_view: RequestView) -> None:
    pool = factory(PoolConfig(2, block_sizes={0: 8}))
    pool.get_new_blocks(1)
    for num_tokens in (6, 4, 2):
        pool.cache_partial_block(request_view, 1, num_tokens, 0, 8)
    assert pool.observe().keys == [[], [("0.1.1.0.0.0", 0), ("0.1", 0), ("0.1.1.0", 0)]]


@needs_vllm
def test_a_key_lists_its_blocks_in_order(request_view: RequestView) -> None:
    pool = factory(PoolConfig(4))
    pool.get_new_blocks(2)
    for block in (2, 1):
        pool.cache_full_blocks(request_view, [block], 0, 1, 2, 0, None)
    assert pool.observe().index == {("0.1", 0): [2, 1]}


@needs_vllm
def test_equal_tokens_have_equal_hashes_in_every_pool() -> None:
    first, second = (factory(PoolConfig(4)) for _ in range(2))
    for pool in (first, second):
        pool.get_new_blocks(1)
        pool.cache_full_blocks(RequestView(list(TOKENS[:3]), []), [1], 0, 1, 2, 0, None)
        assert pool.get_cached_block("0.1", [0]) == [1]
    assert first.take_events() == second.take_events()


@needs_vllm
def test_what_vllm_cannot_be_given_is_not_its_refusal(pool: VllmPool) -> None:
    for call in (pool.touch, pool.free_blocks):
        for block in (-1, 6):
            with pytest.raises(NotExpressible):
                call([block])
    with pytest.raises(NotExpressible):
        pool.get_cached_block("0.1.1", [0])
    with pytest.raises(AssertionError):
        pool.evict_blocks([6])
    with pytest.raises(ValueError, match="free blocks"):
        pool.get_new_blocks(9)


@needs_vllm
def test_a_broken_free_list_is_shown(pool: VllmPool) -> None:
    pool.get_new_blocks(-2)
    assert pool.get_new_blocks(6) == [1, 2, 3, 4, 5, -1]
    assert pool.observe().free == [1, -1]


@needs_vllm
def test_without_events_and_caching() -> None:
    pool = factory(PoolConfig(3, enable_caching=False, enable_kv_cache_events=False))
    assert pool.get_new_blocks(1) == [1]
    assert pool.take_events() == []
    assert pool.observe().hooks == [("allocated", 1)]


# Programs.


def _get(count: int) -> Call:
    return ("get_new_blocks", {"num_blocks": count})


def _full(block: int, block_size: int) -> Call:
    arguments = {"request": {"tokens": TOKENS[:4]}, "blocks": [block], "num_cached_blocks": 0}
    more = {"num_full_blocks": 1, "block_size": block_size, "group": 0, "block_mask": None}
    return ("cache_full_blocks", {**arguments, **more})


def _partial(block: int) -> Call:
    where = {"request": {"tokens": TOKENS[:4]}, "block": block, "num_tokens": 2}
    return ("cache_partial_block", {**where, "group": 0, "block_size": 4})


def _free(*blocks: int) -> Call:
    return ("free_blocks", {"blocks": list(blocks)})


LOOKUP: Call = ("get_cached_block", {"block_hash": "0.1", "groups": [0]})
SCRIPTS: dict[str, tuple[PoolConfig, list[Call], list[str]]] = {
    "double free": (
        PoolConfig(4, enable_kv_cache_events=False),
        [_get(2), _free(1, 2), _free(1, 2)],
        ["free_blocks([1, 2]) -> None", "ref counts:     [0, -1, -1, 0]"],
    ),
    "retired key is back": (
        PoolConfig(3, block_sizes={0: 4}),
        [_get(1), _partial(1), _full(1, 4), _partial(1), LOOKUP, ("take_events", {})],
        [
            "get_cached_block(0.1, [0]) -> [1]",
            "keys:           {1: ['0.1.1.0@0', '0.1@0']}",
            "BlockRemoved ['0.1'] in group 0",
        ],
    ),
    "removed event while a duplicate is resident": (
        PoolConfig(4),
        [_get(2), _full(1, 2), _full(2, 2), ("evict_blocks", {"blocks": [1]}), LOOKUP],
        [
            "get_cached_block(0.1, [0]) -> [2]",
            "keys:           {2: ['0.1@0']}",
            "told by events: []",
        ],
    ),
}


def _script(name: str) -> str:
    config, calls, _ = SCRIPTS[name]
    return engine_script(config, calls, title=name, expected='an "error"\nhere', actual="none")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_a_program_that_imports_vllm_only(name: str) -> None:
    text = _script(name)
    tree = ast.parse(text)
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert all(module == "vllm" or str(module).startswith("vllm.") for module in found)
    assert text.startswith(f'# {name}\n#\n# expected: an "error"\n# here\n# actual:   none\n')
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_no_helper_that_it_does_not_use(name: str) -> None:
    tree = ast.parse(_script(name))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            defined.update(alias.name for alias in node.names)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert defined <= used


def test_a_script_without_requests_builds_none() -> None:
    text = _script("double free")
    assert "Request" not in text
    assert "sha256" not in text


@needs_vllm
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_shows_the_failure(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _script(name)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu"},
    )
    for line in [*SCRIPTS[name][2], 'expected: an "error"\nhere', "actual:   none"]:
        assert line in done.stdout
