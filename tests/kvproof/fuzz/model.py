"""The oracle: the specification's pool, driven by the same calls as the target.

After each call the model is what the target should be. `view` says so in the form of an
`Observation`. When a target went another way that is allowed, or whose difference is
known, `adopt` makes the model follow it.
"""

from typing import Any, cast

from kvproof.fuzz.calls import Call, Outcome, from_wire, to_wire
from kvproof.fuzz.ledger import Told
from kvproof.fuzz.target import OPERATIONS, Event, Observation, PoolConfig
from kvproof.fuzz.view import View, WireKey, key_from_wire, key_to_wire
from kvproof.spec.block_pool import AllBlocksCleared, BlockPool, BlockRemoved, KVCacheEvent
from kvproof.spec.concrete import ConcreteEvents, ConcreteIndex, ConcreteKeySet, ConcreteQueue
from kvproof.spec.ghosts import add_holder, count_used
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId
from kvproof.spec.rules import KVCacheError, Rule
from kvproof.spec.state import PoolState, keys_of


class Hooks:
    """A metrics collector that writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_block_allocated(self, block: int) -> None:
        """See `MetricsCollector`."""
        self.calls.append(("allocated", block))

    def on_block_accessed(self, block: int) -> None:
        """See `MetricsCollector`."""
        self.calls.append(("accessed", block))

    def on_block_evicted(self, block: int) -> None:
        """See `MetricsCollector`."""
        self.calls.append(("evicted", block))

    def reset(self) -> None:
        """See `MetricsCollector`."""
        self.calls.append(("reset", 0))


class Model:
    """The specification's pool behind the target protocol."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.hooks = Hooks()
        self._view = View(config.num_gpu_blocks)
        self._operations = {name: getattr(self, f"_{name}") for name in OPERATIONS}
        self.pool = BlockPool(
            config.num_gpu_blocks,
            config.enable_caching,
            config.hash_block_size,
            {GroupId(group): size for group, size in config.block_sizes.items()},
            config.enable_kv_cache_events,
            self.hooks,
        )

    @property
    def state(self) -> PoolState:
        """The specification's state."""
        return self.pool.state

    def apply(self, call: Call) -> tuple[Outcome, Rule | None]:
        """Make the call. Return what it comes to, and the rule that it breaks, if any."""
        try:
            return Outcome(self._operations[call.name](**call.args)), None
        except KVCacheError as error:
            return Outcome(error=f"{type(error).__name__}: {error}"), error.rule

    def view(self) -> Observation:
        """Return everything that a target may show, as it should be."""
        hooks, self.hooks.calls = self.hooks.calls, []
        return self._view.look(self.pool.state, hooks)

    def adopt(self, held: list[int], seen: Observation, consumer: dict[WireKey, None]) -> None:
        """Make the model follow the target: `held` holders for each block, what was seen of
        its queue, keys and index, and what a consumer of its events believes.

        What was not seen is taken from the model. Keys that were retired stay so.
        """
        retired = self.state.retired
        before = self.view()
        self.hooks.calls = []
        self.pool.state = state = PoolState(self.pool.universe)
        state.retired = retired
        self.pool.universe.known_slots.clear()
        self.pool.universe.known_keys.clear()
        for keys in retired.values():  # type: ignore[attr-defined]
            self.pool.universe.known_keys.update(dict.fromkeys(keys))
        for block, count in enumerate(held):
            if block and count > 0:
                count_used(state, BlockId(block))
            for _ in range(max(count, 0) if block else 0):
                add_holder(state, self.pool._new_slot(), BlockId(block))
        if seen.ref_cnt is not None:
            for block, count in enumerate(seen.ref_cnt):
                state.ref_cnt[BlockId(block)] = count if block else 0
        if seen.num_free_blocks is not None:
            state.num_free_blocks = seen.num_free_blocks
        free = seen.free
        if free is None:
            known = [block for block in before.free or () if held[block] == 0]
            rest = [b for b, count in enumerate(held) if b and count == 0 and b not in known]
            free = rest + known
        state.free_queue = ConcreteQueue([BlockId(block) for block in free])
        keys = seen.keys
        if keys is None and seen.index is not None:
            listed = seen.index.items()
            keys = [[key for key, found in listed if block in found] for block in range(len(held))]
        self._adopt_keys(state, before.keys or [] if keys is None else keys)
        self._adopt_index(state, seen, before)
        events = ConcreteEvents()
        events.folded = {key_from_wire(key): None for key in consumer}
        state.events = events
        self.hooks.calls = []

    def forget_retired(self, blocks: list[int]) -> None:
        """Take these blocks, which the target handed out, for blocks handed out anew."""
        for block in blocks:
            self.state.retired[BlockId(block)] = ConcreteKeySet()

    def told(self) -> list[Told]:
        """Take the events, each key told on its own."""
        events = self.pool.state.events
        assert isinstance(events, ConcreteEvents)
        if not events.log:
            return []
        log, events.log = events.log, []
        return [(kind, None if key is None else key_to_wire(key)) for kind, key in log]

    def accept_retired(self) -> None:
        """Take keys that have come back, although retired, for given anew."""
        state = self.state
        for block, keys in list(state.retired.items()):  # type: ignore[attr-defined]
            carried = keys_of(state, block)
            state.retired[block] = ConcreteKeySet(
                tuple(key for key in keys if not carried.has(key))
            )

    def _adopt_keys(self, state: PoolState, keys: list[list[WireKey]]) -> None:
        for number, wire in enumerate(keys):
            block = BlockId(number)
            mine = sorted(map(key_from_wire, wire), key=lambda key: -len(key.block_hash))
            self.pool.universe.known_keys.update(dict.fromkeys(mine))
            state.block_hash[block] = mine[0] if mine else NO_KEY
            state.partial_keys[block] = ConcreteKeySet(tuple(mine[1:]))

    def _adopt_index(self, state: PoolState, seen: Observation, before: Observation) -> None:
        index = ConcreteIndex()
        if seen.index is not None:
            for wire, blocks in seen.index.items():
                key = key_from_wire(wire)
                self.pool.universe.known_keys[key] = None
                index.lists_of[key] = {BlockId(block): None for block in blocks}
        else:
            order = dict(before.index or {})
            for number in range(self.config.num_gpu_blocks):
                for key in keys_of(state, BlockId(number)):  # type: ignore[attr-defined]
                    index.insert(key, BlockId(number))
            for wire, blocks in order.items():
                listed = index.lists_of.get(key_from_wire(wire))
                if listed is not None:
                    first = [BlockId(block) for block in blocks if BlockId(block) in listed]
                    index.lists_of[key_from_wire(wire)] = dict.fromkeys([*first, *listed])
        state.cached = index

    def _get_new_blocks(self, num_blocks: int) -> list[int]:
        return list(self.pool.get_new_blocks(num_blocks))

    def _touch(self, blocks: list[int]) -> None:
        self.pool.touch(blocks)  # type: ignore[arg-type]

    def _free_blocks(self, blocks: list[int]) -> None:
        self.pool.free_blocks(blocks)  # type: ignore[arg-type]

    def _get_cached_block(self, block_hash: str, groups: list[int]) -> list[int] | None:
        return self.pool.get_cached_block(from_wire(block_hash), groups)  # type: ignore

    def _cache_full_blocks(
        self, request: dict[str, Any], group: int, blocks: list[int], **rest: Any
    ) -> None:
        tokens, ids = tuple(request["tokens"]), cast("list[BlockId]", blocks)
        self.pool.cache_full_blocks(tokens, ids, kv_cache_group_id=GroupId(group), **rest)

    def _cache_partial_block(
        self, request: dict[str, Any], block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        tokens = tuple(request["tokens"])
        tokens = tokens[: len(tokens) - len(tokens) % self.config.hash_block_size]
        key = self.pool.cache_partial_block(
            tokens, BlockId(block), num_tokens, GroupId(group), block_size
        )
        return key is not None

    def _evict_blocks(self, blocks: list[int]) -> None:
        self.pool.evict_blocks(map(BlockId, blocks))

    def _reset_prefix_cache(self) -> bool:
        return self.pool.reset_prefix_cache()

    def _take_events(self) -> list[Event]:
        return [wire_event(event) for event in self.pool.take_events()]

    def _get_num_free_blocks(self) -> int:
        return self.pool.get_num_free_blocks()

    def _get_usage(self) -> float:
        return self.pool.get_usage()


def wire_event(event: KVCacheEvent) -> Event:
    """Return an event as a target tells it."""
    if isinstance(event, AllBlocksCleared):
        return ["cleared"]
    if isinstance(event, BlockRemoved):
        return ["removed", [to_wire(event.block_hash)], event.group_idx]
    parent = None if event.parent_block_hash is None else to_wire(event.parent_block_hash)
    return [
        "stored",
        [to_wire(event.block_hash)],
        parent,
        list(event.token_ids),
        event.group_idx,
    ]
