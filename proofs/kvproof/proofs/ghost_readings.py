"""The symbolic readings of the ghost contents (see `kvproof.proofs.readings`).

Unbounded: requests, groups and sequences of tokens are uninterpreted, too, and so are where
blocks start, what a prefix is, and which positions a token reads: only axioms are known. Bounded:
all of that is spelled out for a few requests with a few short sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.proofs.containers import SymbolicMap, arbitrary
from kvproof.proofs.readings import (
    BLOCK,
    BOOL,
    INT,
    KEY,
    BoundedReading,
    Reading,
    SymbolicDomain,
)
from kvproof.proofs.terms import Term, choice, equal, lift
from kvproof.spec.ghost_concrete import Shape
from kvproof.spec.ghost_state import Sort

REQUEST, GROUP, TOKENS = "Request", "Group", "Tokens"


class Numbers(SymbolicDomain):
    """The integers from 0 on."""

    def guards(self, value: Any) -> list[Any]:
        """See `SymbolicDomain`."""
        return [z3.simplify(value >= 0)]


@dataclass(frozen=True)
class GhostScope:
    """How many elements the bounded reading has, and what they are."""

    num_blocks: int
    num_requests: int
    shapes: tuple[Shape, ...]
    sequences: tuple[tuple[int, ...], ...]

    def universe(self, concrete: Any) -> Any:
        """Return the universe of the concrete reading, of the module that is given."""
        return concrete.ConcreteGhostUniverse(
            self.num_blocks, self.num_requests, self.shapes, self.sequences
        )


class GhostReading(Reading):
    """The unbounded reading. A trigger of the first domain is one of all bound names."""

    def __init__(self) -> None:
        super().__init__()
        self.sorts |= {name: z3.DeclareSort(name) for name in (REQUEST, GROUP, TOKENS)}

    def patterns(self, domains: tuple[SymbolicDomain, ...], names: list[Any]) -> list[Any]:
        """See `Reading`."""
        trigger: Callable[..., tuple[Any, ...]] | None = domains[0].trigger
        if trigger is None:
            return []
        return [z3.MultiPattern(*map(lift, trigger(*map(Term, names))))]


class BoundedGhostReading(BoundedReading, GhostReading):
    """The bounded reading in a scope."""

    def __init__(self, scope: GhostScope, concrete: Any) -> None:
        GhostReading.__init__(self)
        self.ghost_scope = scope
        self.concrete = scope.universe(concrete)
        self.values: dict[str, list[Any]] = {
            BLOCK: list(self.concrete.blocks),
            KEY: list(self.concrete.keys),
            REQUEST: list(self.concrete.requests),
            GROUP: list(self.concrete.groups),
            TOKENS: list(self.concrete.sequences),
        }
        for name, values in self.values.items():
            self.sorts[name], self.elements[name] = self._enumeration(name, len(values))
        self.elements[INT] = [z3.IntVal(number) for number in self.concrete.numbers]


class SymbolicRows(SymbolicMap):
    """A number for each group of each request (see `kvproof.spec.ghost_state.Rows`)."""

    __slots__ = ()

    def fill(self, request: Any, value: Any) -> None:
        """See `Rows`."""
        old, row, new = self.at, lift(request), lift(value)
        self.at = lambda other, group: choice(equal(other, row), new, old(other, group))


class SymbolicGhostUniverse:
    """Blocks, tokens and attention of which only axioms are known (see
    `kvproof.spec.ghost_state.GhostUniverse`).
    """

    def __init__(self, reading: GhostReading) -> None:
        self.reading = reading
        self.blocks, self.keys, self.requests, self.groups, self.sequences = (
            SymbolicDomain(reading, name) for name in (BLOCK, KEY, REQUEST, GROUP, TOKENS)
        )
        self.numbers = Numbers(reading, INT)
        self.null = Term(z3.Const("null", reading.sort(BLOCK)))
        self.no_key = Term(z3.Const("no_key", reading.sort(KEY)))
        self.poison = Term(z3.Const("poison", reading.sort(KEY)))
        number, boolean, key = (reading.sort(name) for name in (INT, BOOL, KEY))
        self._block_size = self._relation("block_size", (GROUP,), number)
        self._start = self._relation("start", (GROUP, INT), number)
        self._last = self._relation("last", (GROUP, INT), number)
        self._index = self._relation("index", (GROUP, INT), number)
        self._prefix = self._relation("prefix", (GROUP, TOKENS, INT), key)
        self._content_at = self._relation("content_at", (KEY, INT), key)
        self._position = self._relation("position", (KEY,), number)
        self._group = self._relation("group", (KEY,), reading.sort(GROUP))
        self._reads = self._relation("reads", (REQUEST, GROUP, INT, INT), boolean)

    def block_size(self, group: Any) -> Any:
        """See `GhostUniverse`."""
        return self._block_size[group]

    def start(self, group: Any, index: Any) -> Any:
        """See `GhostUniverse`."""
        return self._start[group, index]

    def last(self, group: Any, index: Any) -> Any:
        """See `GhostUniverse`."""
        return self._last[group, index]

    def index(self, group: Any, position: Any) -> Any:
        """See `GhostUniverse`."""
        return self._index[group, position]

    def prefix(self, group: Any, tokens: Any, position: Any) -> Any:
        """See `GhostUniverse`."""
        return self._prefix[group, tokens, position]

    def content_at(self, key: Any, offset: Any) -> Any:
        """See `GhostUniverse`."""
        return self._content_at[key, offset]

    def position(self, key: Any) -> Any:
        """See `GhostUniverse`."""
        return self._position[key]

    def group(self, key: Any) -> Any:
        """See `GhostUniverse`."""
        return self._group[key]

    def reads(self, request: Any, group: Any, reader: Any, position: Any) -> Any:
        """See `GhostUniverse`."""
        return self._reads[request, group, reader, position]

    def map(
        self, name: str, domain: tuple[Sort, ...], codomain: Sort, default: object
    ) -> SymbolicMap:
        """See `GhostUniverse`: the default is left aside."""
        sorts = tuple(sort.value for sort in domain)
        return SymbolicMap(arbitrary(self.reading, name, sorts, self.reading.sort(codomain.value)))

    def rows(self, name: str) -> SymbolicRows:
        """See `GhostUniverse`."""
        return SymbolicRows(arbitrary(self.reading, name, (REQUEST, GROUP), self.reading.sort(INT)))

    def constant(self, name: str, sort: str) -> Any:
        """Return an arbitrary element of a sort: an argument of a transition."""
        return Term(z3.Const(f"argument.{name}", self.reading.sort(sort)))

    def _relation(self, name: str, domain: tuple[str, ...], codomain: Any) -> SymbolicMap:
        return SymbolicMap(arbitrary(self.reading, name, domain, codomain))


class BoundedGhostUniverse(SymbolicGhostUniverse):
    """The same in a scope: where blocks start is computed, the rest is listed (`facts`)."""

    reading: BoundedGhostReading

    def block_size(self, group: Any) -> Any:
        """See `GhostUniverse`."""
        return self._of_group(group, z3.IntVal)

    def start(self, group: Any, index: Any) -> Any:
        """See `GhostUniverse`."""
        return self._of_group(group, lambda size: lift(index) * size)

    def last(self, group: Any, index: Any) -> Any:
        """See `GhostUniverse`."""
        return self._of_group(group, lambda size: lift(index) * size + (size - 1))

    def index(self, group: Any, position: Any) -> Any:
        """See `GhostUniverse`."""
        return self._of_group(group, lambda size: lift(position) / size)

    def facts(self) -> list[Any]:
        """Return all about prefixes and attention, as the concrete universe has it."""
        reading, known = self.reading, self.reading.concrete
        keys, requests, groups, sequences = (
            list(zip(reading.values[name], map(Term, reading.elements[name]), strict=True))
            for name in (KEY, REQUEST, GROUP, TOKENS)
        )
        named, grouped = (dict(pairs) for pairs in (keys, groups))
        found = [self.null == Term(reading.elements[BLOCK][0])]
        found += [self.no_key == named[known.no_key], self.poison == named[known.poison]]
        for key, term in keys:
            found.append(self.position(term) == known.position(key))
            if key.group in grouped:
                found.append(self.group(term) == grouped[key.group])
                found += [
                    self.content_at(term, offset) == named[known.content_at(key, offset)]
                    for offset in range(known.block_size(key.group))
                    if known.content_at(key, offset) in named
                ]
        for (group, group_term), position in (
            (pair, number) for pair in groups for number in known.numbers
        ):
            found += [
                self.prefix(group_term, term, position)
                == named[known.prefix(group, tokens, position)]
                for tokens, term in sequences
            ]
            found += [
                self.reads(term, group_term, reader, position)
                == known.reads(request, group, reader, position)
                for request, term in requests
                for reader in (-1, *known.numbers, known.length)
            ]
        return [lift(fact) for fact in found]

    def _of_group(self, group: Any, made: Callable[[int], Any]) -> Any:
        *others, last = self.reading.concrete.shapes
        expr = made(last.block_size)
        for shape, element in zip(others, self.reading.elements[GROUP], strict=False):
            expr = choice(equal(lift(group), element), made(shape.block_size), expr)
        return Term(z3.simplify(expr))
