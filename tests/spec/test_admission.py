"""The admission gate and the startup bound of the specification, played on its manager."""

from dataclasses import dataclass
from itertools import product

import pytest

from kvproof.spec.attention import startup_bound
from kvproof.spec.kv_cache_coordinator import attention_of
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    SlidingWindowSpec,
)
from kvproof.spec.quantities import NumTokens, TokenId
from kvproof.spec.request import Request, RequestId

SIZE, STEP = NumTokens(2), NumTokens(3)
GROUPS: list[KVCacheSpec] = [
    FullAttentionSpec(SIZE),
    *(SlidingWindowSpec(SIZE, NumTokens(window)) for window in (1, 2, 3, 4, 6)),
    *(ChunkedLocalAttentionSpec(SIZE, NumTokens(chunk)) for chunk in (2, 4, 6)),
]


def request_of(name: str, length: int, token: int = 0) -> Request:
    return Request(RequestId(name), (TokenId(token),) * length, NumTokens(length))


@dataclass(frozen=True)
class Case:
    """A request of `tokens` tokens; another one has computed the first `cached`, and is gone or
    still there. `external` tokens more come from another store.
    """

    spec: KVCacheSpec
    tokens: int
    cached: int
    is_there: bool
    external: int
    ahead: int

    def manager(self, num_blocks: int = 60) -> KVCacheManager:
        """Return a manager where the other one has run."""
        manager = KVCacheManager(
            KVCacheConfig(num_blocks, (self.spec,)), NumTokens(20), SIZE, SIZE, STEP
        )
        other = request_of("other", self.cached)
        if self.cached:
            assert manager.allocate_slots(other, NumTokens(self.cached)) is not None
            if not self.is_there:
                manager.free(other)
        return manager

    def play(self, small_steps: int) -> tuple[int, int]:
        """Return what the gate asks for, and how many blocks more than before were out of the
        queue at the most, where the first steps are of one token.
        """
        manager, one = self.manager(), request_of("one", self.tokens)
        free = manager.block_pool.get_num_free_blocks
        before = lowest = free()
        hit, hits = manager.get_computed_blocks(one)
        external = min(self.external, self.tokens - 1 - hits)
        computed = hits + external
        asked = manager.coordinator.get_num_blocks_to_admit(
            one.request_id,
            NumTokens(min(self.tokens + self.ahead, 20)),
            hit,
            NumTokens(computed),
            NumTokens(STEP + self.ahead),
        )
        ahead = NumTokens(self.ahead)
        while computed < self.tokens:
            count = min(1 if small_steps > 0 else STEP, self.tokens - computed)
            more = (hits, hit, ahead, NumTokens(external))
            given = manager.allocate_slots(
                one,
                NumTokens(count),
                *(more if not one.is_running else (NumTokens(0), None, ahead)),
            )
            assert given is not None
            small_steps, computed = small_steps - 1, computed + count
            one.num_computed_tokens, one.is_running = NumTokens(computed), True
            lowest = min(lowest, free())
        return asked, before - lowest


@pytest.mark.parametrize("spec", GROUPS, ids=repr)
def test_the_gate_is_the_peak_of_the_prefill(spec: KVCacheSpec) -> None:
    """No way to cut the prompt into steps takes more, and one takes as much."""
    for tokens, cached, there, external, ahead in product(
        (1, 7, 12), (0, 5, 8), (True, False), (0, 3), (0, 2)
    ):
        case = Case(spec, tokens, cached, there, external, ahead)
        played = [case.play(small_steps) for small_steps in range(tokens)]
        asked = {gate for gate, _ in played}
        assert asked == {max(taken for _, taken in played)}, case


@pytest.mark.parametrize("spec", GROUPS, ids=repr)
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_what_fits_by_the_startup_bound_is_admitted_and_finishes(
    spec: KVCacheSpec, ahead: int
) -> None:
    """Alone with just the blocks of the bound, whatever its steps are; without one of them some
    steps get none.
    """
    longest = 20
    bound = startup_bound(attention_of(spec), STEP, longest, SIZE, ahead)
    for num_blocks, small_steps in product((bound + 1, bound), range(longest)):
        manager = KVCacheManager(
            KVCacheConfig(num_blocks, (spec,)), NumTokens(20), SIZE, SIZE, STEP
        )
        one = request_of("one", longest)
        finished = goes_through(manager, one, small_steps, ahead)
        if num_blocks > bound:
            assert finished
        else:
            assert not finished, "the gate has refused it"


def goes_through(manager: KVCacheManager, one: Request, small_steps: int, ahead: int) -> bool:
    computed = 0
    while computed < one.num_tokens:
        count = min(1 if small_steps > 0 else STEP, one.num_tokens - computed)
        given = manager.allocate_slots(
            one,
            NumTokens(count),
            num_lookahead_tokens=NumTokens(ahead),
            full_sequence_must_fit=computed == 0,
        )
        if given is None:
            return False
        small_steps, computed = small_steps - 1, computed + count
        one.num_computed_tokens, one.is_running = NumTokens(computed), True
    return True


def test_a_request_that_was_loaded_gives_back_what_it_forgets() -> None:
    """Admitted once more after its load it holds two blocks of a window that moves on."""
    spec = SlidingWindowSpec(SIZE, NumTokens(4))
    manager = KVCacheManager(KVCacheConfig(5, (spec,)), NumTokens(20), SIZE, SIZE, STEP)
    one, none = request_of("one", 16), NumTokens(0)
    given = manager.allocate_slots(
        one,
        none,
        num_external_computed_tokens=NumTokens(8),
        delay_cache_blocks=True,
        full_sequence_must_fit=True,
    )
    assert given == ([],)
    assert manager.get_block_ids(one.request_id) == ([0, 0, 1, 2],)
    one.num_computed_tokens = NumTokens(8)
    given = manager.allocate_slots(one, STEP, full_sequence_must_fit=True)
    assert given == ([3, 4],)


def test_the_gate_counts_the_look_ahead_of_the_last_step() -> None:
    """8 tokens and room for a draft are 5 blocks of 2."""
    for num_blocks, given in ((5, None), (6, ([1, 2],))):
        config = KVCacheConfig(num_blocks, (FullAttentionSpec(SIZE),))
        manager = KVCacheManager(config, NumTokens(20), SIZE, SIZE, STEP)
        answer = manager.allocate_slots(
            request_of("one", 8),
            STEP,
            num_lookahead_tokens=NumTokens(1),
            full_sequence_must_fit=True,
        )
        assert answer == given


@pytest.mark.parametrize("steps", [(2, 2), (4,), (1, 1, 1, 1)])
def test_several_groups_are_admitted_with_the_sum_of_their_bounds(steps: tuple[int, ...]) -> None:
    """A full and a window group, one long prompt, a pool of exactly the startup bound."""
    groups = (FullAttentionSpec(NumTokens(4)), SlidingWindowSpec(NumTokens(4), NumTokens(8)))
    size, batch, longest = NumTokens(4), NumTokens(4), 40
    bound = sum(startup_bound(attention_of(spec), batch, longest, size) for spec in groups)
    config = KVCacheConfig(bound + 1, groups)
    manager = KVCacheManager(config, NumTokens(longest), size, size, batch, enable_caching=False)
    one = request_of("one", longest)
    for count in steps * (longest // sum(steps)):
        first = one.num_computed_tokens == 0
        assert manager.allocate_slots(one, NumTokens(count), full_sequence_must_fit=first)
        one.num_computed_tokens = NumTokens(one.num_computed_tokens + count)
    smaller = KVCacheConfig(bound, groups)
    manager = KVCacheManager(smaller, NumTokens(longest), size, size, batch, enable_caching=False)
    two = request_of("two", longest)
    assert manager.allocate_slots(two, NumTokens(1), full_sequence_must_fit=True) is None
