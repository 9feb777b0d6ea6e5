"""Which properties of states are evaluated after a call, and of what.

While target and model agree, a property is evaluated when something that it reads has
changed, and of the blocks, keys and slots that the call named: it speaks of one at a time,
and held for all of them before. What speaks of keys is evaluated once for each situation of a
block: there are few of them, and a run comes back to them again and again.
"""

from collections.abc import Callable, Iterable
from typing import Any

from kvproof.fuzz.model import Model
from kvproof.fuzz.target import Observation
from kvproof.fuzz.view import key_from_wire
from kvproof.spec.concrete import ConcreteIndex
from kvproof.spec.logic import Bool
from kvproof.spec.pool_properties import STATE_PROPERTIES
from kvproof.spec.properties import Class
from kvproof.spec.quantities import NO_KEY, BlockId, Key, Slot
from kvproof.spec.state import PoolState

WHOLE = {"all-returned", "events-mirror-cache"}
"""Properties that speak of the whole state, and are judged by the ledger."""

READS: dict[str, tuple[str, ...]] = {
    "refs-nonnegative": ("ref_cnt",),
    "refs-exact": ("ref_cnt",),
    "free-iff-unreferenced": ("free", "ref_cnt"),
    "queue-is-a-set": ("free", "num_free_blocks"),
    "blocks-conserved": ("free", "ref_cnt", "num_free_blocks"),
    "index-agrees": ("keys", "index"),
    "one-chain-per-block": ("keys",),
    "null-inert": ("free", "keys", "index"),
    "retired-stays-retired": ("keys", "index"),
}
"""What each property reads of an observation; ghosts change with what they witness."""

_FIELDS = ("free", "ref_cnt", "num_free_blocks", "keys", "index")

Statement = tuple[str, Callable[[PoolState], Bool]]

Plan = tuple[list[Statement], list[Statement], set[tuple[Any, ...]]]
"""Statements that read no keys, those that do, and the situations in which the latter hold."""


class Statements:
    """The statements that are judged besides safety when `policy` is set, on a model's state.

    `every` and `after` return the name of a property that is broken, or None.
    """

    def __init__(self, model: Model, policy: bool) -> None:
        self.model = model
        self._all: list[Statement] = [
            (name, found.statement)
            for name, found in STATE_PROPERTIES.items()
            if name not in WHOLE
            and found.statement is not None
            and (policy or found.klass is Class.SAFETY)
        ]
        self._plans: dict[tuple[bool, ...], Plan] = {}

    def every(self) -> str | None:
        """Evaluate each one, of everything."""
        return self._broken(self._all)

    def after(self, blocks: list[BlockId], before: Observation, now: Observation) -> str | None:
        """Evaluate what a call about these blocks can have broken."""
        about_counts, about_keys, sound = self._plan(before, now)
        broken = None
        if about_keys:
            broken = self._keyed(about_keys, sound, blocks, before, now)
        if about_counts and broken is None:
            with self.model.pool.universe.focus(blocks, (), self._holders(blocks)):
                return self._broken(about_counts)
        return broken

    def _plan(self, before: Observation, now: Observation) -> Plan:
        """Return the statements that read what has changed."""
        changed = (
            before.free != now.free,
            before.ref_cnt != now.ref_cnt,
            before.num_free_blocks != now.num_free_blocks,
            before.keys is not now.keys and before.keys != now.keys,
            before.index is not now.index and before.index != now.index,
        )
        plan = self._plans.get(changed)
        if plan is None:
            moved = {field for field, differs in zip(_FIELDS, changed, strict=True) if differs}
            read = [one for one in self._all if not moved.isdisjoint(READS[one[0]])]
            by_key = {"keys", "index"} & moved
            keyed = [one for one in read if by_key and "keys" in READS[one[0]]]
            plan = [one for one in read if one not in keyed], keyed, set()
            self._plans[changed] = plan
        return plan

    def _keyed(
        self,
        statements: list[Statement],
        sound: set[tuple[Any, ...]],
        blocks: list[BlockId],
        before: Observation,
        now: Observation,
    ) -> str | None:
        focus = self.model.pool.universe.focus
        assert before.keys is not None
        assert now.keys is not None
        for block in blocks:
            had = before.keys[block]
            if had == now.keys[block]:
                continue
            keys = self._keys_about(block, had)
            situation = self._situation(block, keys)
            if situation in sound:
                continue
            with focus((block,), keys, ()):
                broken = self._broken(statements)
            if broken is not None:
                return broken
            sound.add(situation)
        return None

    def _situation(self, block: BlockId, keys: dict[Key, None]) -> tuple[Any, ...]:
        """Return all that the statements about keys read, when they are narrowed to these."""
        state = self.model.pool.state
        index, own, null = state.cached, state.block_hash, self.model.pool.null_block
        assert isinstance(index, ConcreteIndex)
        partial: Any = state.partial_keys
        retired: Any = state.retired
        lists = index.lists_of.get
        return (
            block == null,
            own[block],
            partial[block].members,
            retired[block].members,
            own[null],
            partial[null].members,
            state.ref_cnt[null],
            state.free_queue.has(null),
            index.well_formed(),
            *keys,
            *[block in lists(key, ()) for key in keys],
            *[null in lists(key, ()) for key in keys],
        )

    def _broken(self, statements: Iterable[Statement]) -> str | None:
        state = self.model.pool.state
        for name, statement in statements:
            if not statement(state):
                return name
        return None

    def _keys_about(self, block: BlockId, had: list[tuple[str, int]]) -> dict[Key, None]:
        """Return the keys that the block carries, carried before the call, or gave up."""
        state = self.model.pool.state
        keys = dict.fromkeys(map(key_from_wire, had))
        keys[state.block_hash[block]] = None
        keys.update(dict.fromkeys(state.partial_keys[block]))  # type: ignore[call-overload]
        keys.update(dict.fromkeys(state.retired[block]))  # type: ignore[call-overload]
        keys.pop(NO_KEY, None)
        return keys

    def _holders(self, blocks: list[BlockId]) -> list[Slot]:
        state = self.model.pool.state
        holder, counts = state.holder, state.ref_cnt
        return [holder[block, rank] for block in blocks for rank in range(counts[block])]
