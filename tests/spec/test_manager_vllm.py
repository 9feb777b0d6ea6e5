"""The specification's manager and vLLM's, driven by one scheduler, do the same.

What they do differently is an erratum, with a test of its own that says what is right.
"""

import importlib.util

import pytest

from kvproof.fuzz.lockstep import COMMON, EVENTS, Lockstep
from kvproof.fuzz.manager_model import SpecManager
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig, ManagerTarget
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.scheduler import Scheduler
from kvproof.fuzz.vllm_manager import VllmManager

found = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(
    found is None or found.origin is None,
    reason="vLLM is not installed; make vllm VERSION=0.25.1",
)

LAYOUTS = {
    "full": GroupConfig("full", 4),
    "mla": GroupConfig("mla", 4),
    "window of one block and a half": GroupConfig("sliding-window", 4, 6),
    "window of two blocks": GroupConfig("sliding-window", 2, 4),
    "chunk of two blocks": GroupConfig("chunked-local", 4, 8),
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_they_do_the_same(layout: str, depth: int) -> None:
    calls = 0
    for seed in range(20):
        pick = RandomPick(f"{layout}:{depth}:{seed}".encode())
        group = LAYOUTS[layout]
        interval = pick.one([None, 0, 8]) if group.kind == "sliding-window" else None
        config = ManagerConfig(
            num_blocks=pick.number(6, 20),
            groups=(group,),
            max_model_len=48,
            max_num_batched_tokens=pick.number(4, 24),
            enable_caching=pick.number(0, 5) > 0,
            watermark=pick.one([0.0, 0.0, 0.1]),
            retention_interval=interval,
        )
        lockstep = Lockstep(config, VllmManager(config), frozenset({EVENTS, COMMON}))
        scheduler = Scheduler(config, lockstep.make, pick)
        for _ in range(50):
            scheduler.act(depth)
        calls += lockstep.calls
    assert calls > 1000


def common(manager: ManagerTarget, length: int) -> list[list[int]]:
    """Let b share a prefix with a; pop a's blocks; let c run with another prefix. Return what
    is said to be common while c runs, and when it has ended.
    """
    first, other = [0] * length, [1] * length

    def begin(name: str, tokens: list[int]) -> None:
        manager.new_request(name, tokens)
        hits = manager.get_computed_blocks(name)[1]
        manager.allocate_slots(name, len(tokens) - hits, True, 0, 0, False, False, 0, True)
        manager.set_progress(name, len(tokens), True, 0)

    begin("a", first)
    begin("b", first)
    manager.pop_blocks_for_free("a")
    begin("c", other)
    during = manager.get_num_common_prefix_blocks("b")
    manager.free("c")
    return [during, manager.get_num_common_prefix_blocks("b")]


def test_erratum_blocks_that_wait_to_be_freed_are_taken_for_common() -> None:
    """common-prefix-true: c's table does not begin with b's blocks, but two references are
    counted for two requests. A kernel that trusts it reads b's prefix for c.
    """
    config = ManagerConfig(12, (GroupConfig("full", 4),))
    assert common(SpecManager(config), 9) == [[0], [3]]
    assert common(VllmManager(config), 9) == [[2], [0]]
