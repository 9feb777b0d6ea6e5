"""The specification's state as an `Observation`: what a target may show, as it should be.

This is done after every call, so what did not change is not written again.
"""

from functools import lru_cache

from kvproof.fuzz.calls import from_wire, to_wire
from kvproof.fuzz.target import Hash, Observation
from kvproof.spec.concrete import ConcreteIndex, ConcreteKeySet, ConcreteMap, ConcreteQueue
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key
from kvproof.spec.state import PoolState

WireKey = tuple[Hash, int]


@lru_cache(maxsize=65536)
def key_to_wire(key: Key) -> WireKey:
    """Return a key as a target shows it."""
    return to_wire(key.block_hash), key.group


@lru_cache(maxsize=65536)
def key_from_wire(wire: WireKey) -> Key:
    """Return a key as the specification has it."""
    return Key(from_wire(wire[0]), GroupId(wire[1]))


class View:
    """Looks at states of a pool of `num_blocks` blocks, one after the other."""

    def __init__(self, num_blocks: int) -> None:
        self._blocks = [BlockId(block) for block in range(num_blocks)]
        self._index: tuple[ConcreteIndex, int] | None = None
        self._own: list[Key] = []
        self._others: dict[BlockId, ConcreteKeySet] = {}
        self._seen = Observation(keys=[[] for _ in self._blocks], index={})

    def look(self, state: PoolState, hooks: list[tuple[str, int]]) -> Observation:
        """Return everything that may be shown. Lists of keys may be those of the last look."""
        queue, counts = state.free_queue, state.ref_cnt
        assert isinstance(queue, ConcreteQueue)
        assert isinstance(counts, ConcreteMap)
        self._seen = seen = Observation(
            queue.as_list(),  # type: ignore[arg-type]
            list(map(counts.__getitem__, self._blocks)),
            self._keys(state),
            self._lists(state),
            state.num_free_blocks,
            hooks,
        )
        return seen

    def _keys(self, state: PoolState) -> list[list[WireKey]] | None:
        own, others = state.block_hash, state.partial_keys
        assert isinstance(own, dict)
        assert isinstance(others, dict)
        mine = list(map(own.__getitem__, self._blocks))
        if mine == self._own and others == self._others:
            return self._seen.keys
        self._own, self._others = mine, others.copy()
        keys: list[list[WireKey]] = [
            [] if key is NO_KEY or key == NO_KEY else [key_to_wire(key)] for key in mine
        ]
        for block, rest in others.items():
            if rest.members:
                keys[block] += map(key_to_wire, rest.members)
        return keys

    def _lists(self, state: PoolState) -> dict[WireKey, list[int]] | None:
        index = state.cached
        assert isinstance(index, ConcreteIndex)
        if self._index == (index, index.version):
            return self._seen.index
        self._index = index, index.version
        return {key_to_wire(key): list(listed) for key, listed in index.lists_of.items()}
