"""The symbolic universe: containers full of unknowns, and keys of which only axioms are known."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import z3

from kvproof.proofs.axioms import KEY_AXIOMS, TABLE_AXIOMS
from kvproof.proofs.containers import (
    SymbolicEvents,
    SymbolicIndex,
    SymbolicKeySet,
    SymbolicKeySetMap,
    SymbolicMap,
    SymbolicQueue,
    arbitrary,
)
from kvproof.proofs.readings import BLOCK, INT, KEY, SLOT, Reading, SymbolicDomain
from kvproof.proofs.terms import FALSE, Term, lift


class SymbolicUniverse:
    """An arbitrary pool (see `kvproof.spec.universe.Universe`). On the bounded reading the
    keys of the scope stand for themselves, and its numbers of blocks and slots are fixed.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.blocks = SymbolicDomain(reading, BLOCK)
        self.keys = SymbolicDomain(reading, KEY)
        self.slots = SymbolicDomain(reading, SLOT)
        self.enable_caching = Term(z3.Bool("enable_caching"))
        self._prefix = ""
        scope = reading.scope
        if scope is None:
            self.null = Term(z3.Const("null", reading.sort(BLOCK)))
            self.no_key = Term(z3.Const("no_key", reading.sort(KEY)))
            self.num_blocks = Term(z3.Int("num_blocks"))
        else:
            self.null = Term(reading.elements[BLOCK][0])
            self.no_key = Term(reading.elements[KEY][0])
            self.num_blocks = Term(z3.IntVal(scope.num_blocks))
        boolean, number = z3.BoolSort(), z3.IntSort()
        self._is_prefix = self._relation("is_prefix", (KEY, KEY), boolean)
        self._same_block = self._relation("same_block", (KEY, KEY), boolean)
        self._is_full = self._relation("is_full", (KEY,), boolean)
        self._group = self._relation("group", (KEY,), number)
        self._parent = self._relation("parent", (KEY,), reading.sort(KEY))

    @contextmanager
    def named(self, prefix: str) -> Iterator[None]:
        """Let the states that are made meanwhile have unknowns of their own."""
        before, self._prefix = self._prefix, prefix
        try:
            yield
        finally:
            self._prefix = before

    def axioms(self) -> list[Any]:
        """Return what is known about the universe."""
        return [lift(axiom.statement(self)) for axiom in KEY_AXIOMS]

    def below(self, bound: Any) -> SymbolicDomain:
        """See `Universe`."""
        return SymbolicDomain(self.reading, INT, lift(bound))

    def is_prefix(self, first: Any, second: Any) -> Any:
        """See `Universe`."""
        return self._is_prefix[first, second]

    def same_block(self, first: Any, second: Any) -> Any:
        """See `Universe`."""
        return self._same_block[first, second]

    def is_full(self, key: Any) -> Any:
        """See `Universe`."""
        return self._is_full[key]

    def group(self, key: Any) -> Any:
        """See `Universe`."""
        return self._group[key]

    def parent(self, key: Any) -> Any:
        """See `Universe`."""
        return self._parent[key]

    def counts(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (BLOCK,), z3.IntSort())

    def ranks(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (SLOT,), z3.IntSort())

    def flags(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (SLOT,), z3.BoolSort())

    def block_keys(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (BLOCK,), self.reading.sort(KEY))

    def block_key_sets(self, name: str) -> SymbolicKeySetMap:
        """See `Universe`."""
        member = arbitrary(self.reading, self._prefix + name, (BLOCK, KEY), z3.BoolSort())
        return SymbolicKeySetMap(self.no_key.expr, member)

    def slot_blocks(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (SLOT,), self.reading.sort(BLOCK))

    def block_slots(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (BLOCK, INT), self.reading.sort(SLOT))

    def places(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (BLOCK,), z3.IntSort())

    def placed(self, name: str) -> SymbolicMap:
        """See `Universe`."""
        return self._map(name, (INT,), self.reading.sort(BLOCK))

    def number(self, name: str, initial: Any) -> Any:
        """See `Universe`."""
        return Term(z3.Int(self._prefix + name))

    def no_keys(self) -> SymbolicKeySet:
        """See `Universe`."""
        return SymbolicKeySet(self.no_key.expr, lambda key: FALSE)

    def free_queue(self, name: str) -> SymbolicQueue:
        """See `Universe`."""
        return SymbolicQueue(self.reading, self._prefix + name)

    def index(self, name: str) -> SymbolicIndex:
        """See `Universe`."""
        return SymbolicIndex(self.reading, self._prefix + name)

    def events(self, name: str) -> SymbolicEvents:
        """See `Universe`."""
        return SymbolicEvents(self.reading, self._prefix + name)

    def constant(self, name: str, sort: str) -> Any:
        """Return an arbitrary element of a sort: an argument of a transition."""
        return Term(z3.Const(name, self.reading.sort(sort)))

    def _map(self, name: str, domain: tuple[str, ...], codomain: Any) -> SymbolicMap:
        return SymbolicMap(arbitrary(self.reading, self._prefix + name, domain, codomain))

    def _relation(self, name: str, domain: tuple[str, ...], codomain: Any) -> SymbolicMap:
        return SymbolicMap(arbitrary(self.reading, name, domain, codomain))


class SymbolicTableUniverse(SymbolicUniverse):
    """An arbitrary pool whose slots are table entries (`full_attention.TableUniverse`)."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._is_first = self._relation("is_first", (SLOT,), z3.BoolSort())
        self._previous = self._relation("previous", (SLOT,), reading.sort(SLOT))
        self._key_of = self._relation("key_of", (SLOT,), reading.sort(KEY))

    def axioms(self) -> list[Any]:
        """Return what is known about the universe."""
        return super().axioms() + [lift(axiom.statement(self)) for axiom in TABLE_AXIOMS]

    def is_first(self, slot: Any) -> Any:
        """See `TableUniverse`."""
        return self._is_first[slot]

    def previous(self, slot: Any) -> Any:
        """See `TableUniverse`."""
        return self._previous[slot]

    def key_of(self, slot: Any) -> Any:
        """See `TableUniverse`."""
        return self._key_of[slot]


def facts(universe: SymbolicUniverse, concrete: Any) -> list[Any]:
    """Return all about the keys of a bounded reading, as the concrete universe has it."""
    reading = universe.reading
    assert reading.scope is not None
    elements = reading.elements[KEY]
    keys = dict(zip(reading.scope.keys, map(Term, elements), strict=True))
    found = []
    for one, first in keys.items():
        found.append(universe.group(first) == concrete.group(one))
        found.append(universe.is_full(first) == concrete.is_full(one))
        if isinstance(universe, SymbolicTableUniverse):
            found.append(universe.parent(first) == keys[concrete.parent(one)])
        for other, second in keys.items():
            found.append(universe.is_prefix(first, second) == concrete.is_prefix(one, other))
            found.append(universe.same_block(first, second) == concrete.same_block(one, other))
    if isinstance(universe, SymbolicTableUniverse):
        found.extend(Term(lift(axiom.statement(universe))) for axiom in TABLE_AXIOMS[:3])
    return [lift(fact) for fact in found]
