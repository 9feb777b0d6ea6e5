"""The two symbolic readings: how sorts and quantifiers are understood.

Unbounded: blocks, keys and slots are uninterpreted sorts, and `forall` is a quantifier.
What is proved there holds for pools of any size. Bounded: each sort has a few named
elements, and `forall` is spelled out. A solver decides everything there, and a model is a
small concrete state; but nothing is proved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import z3

from kvproof.proofs.terms import FALSE, NAMED, TRUE, Term, conjunction, disjunction, lift, negation
from kvproof.spec.quantities import NO_KEY, GroupId, Key

BLOCK, KEY, SLOT, INT, BOOL = "Block", "Key", "Slot", "Int", "Bool"


@dataclass(frozen=True)
class Scope:
    """How many elements the bounded reading has, and which keys they are."""

    num_blocks: int
    num_slots: int
    keys: tuple[Key, ...]
    block_sizes: tuple[tuple[GroupId, int], ...]


class Reading:
    """The unbounded reading."""

    scope: Scope | None = None
    elements: dict[str, list[Any]]
    """The elements of each sort, when they have names."""

    def __init__(self) -> None:
        self.elements = {}
        self.sorts = {name: z3.DeclareSort(name) for name in (BLOCK, KEY, SLOT)}
        self.sorts |= {INT: z3.IntSort(), BOOL: z3.BoolSort()}
        self._depth = 0

    def sort(self, name: str) -> Any:
        """Return the solver's sort."""
        return self.sorts[name]

    def quantify(
        self, universal: bool, domains: "tuple[SymbolicDomain, ...]", body: Callable[..., Any]
    ) -> Term:
        """Read `forall` or `exists`. Bound names depend on the depth only, so that the same
        statement about the same values is the same expression.
        """
        names = [
            z3.Const(f"{domain.sort.lower()}.{self._depth + place}", self.sort(domain.sort))
            for place, domain in enumerate(domains)
        ]
        self._depth += len(names)
        try:
            expr = lift(body(*map(Term, names)))
        finally:
            self._depth -= len(names)
        matrix = _guarded(universal, domains, names, expr)
        if z3.is_true(matrix) or z3.is_false(matrix):
            return Term(matrix)
        patterns = self.patterns(domains, names)
        return Term((z3.ForAll if universal else z3.Exists)(names, matrix, patterns=patterns))

    def patterns(self, domains: "tuple[SymbolicDomain, ...]", names: list[Any]) -> list[Any]:
        """Return the terms that tell a solver when a quantifier is of use."""
        return [
            lift(domain.trigger(Term(name)))
            for domain, name in zip(domains, names, strict=True)
            if domain.trigger is not None
        ]


class BoundedReading(Reading):
    """The bounded reading in a scope."""

    _enumerations: ClassVar[dict[tuple[str, int], tuple[Any, list[Any]]]] = {}

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope: Scope = scope
        numbers = range(max(scope.num_blocks, scope.num_slots) + 3)
        self.elements[INT] = [z3.IntVal(number) for number in numbers]
        sizes = ((BLOCK, scope.num_blocks), (KEY, len(scope.keys)), (SLOT, scope.num_slots))
        for name, size in sizes:
            self.sorts[name], self.elements[name] = self._enumeration(name, size)

    def quantify(
        self, universal: bool, domains: "tuple[SymbolicDomain, ...]", body: Callable[..., Any]
    ) -> Term:
        """Spell out `forall` or `exists`."""
        parts = []
        for values in product(*(self.elements[domain.sort] for domain in domains)):
            expr = lift(body(*map(Term, values)))
            parts.append(_guarded(universal, domains, values, expr))
        return Term(conjunction(parts) if universal else disjunction(parts))

    @classmethod
    def _enumeration(cls, name: str, size: int) -> tuple[Any, list[Any]]:
        if (name, size) not in cls._enumerations:
            names = [f"{name.lower()}{place}of{size}" for place in range(size)]
            sort, elements = z3.EnumSort(f"{name}{size}", names)
            NAMED.update((element.get_id(), element) for element in elements)
            cls._enumerations[name, size] = sort, elements
        return cls._enumerations[name, size]


@dataclass(frozen=True)
class SymbolicDomain:
    """What a quantifier ranges over: a sort, or the integers from 0 below a bound.

    `trigger` tells a solver for which elements a statement about all of them is of use:
    those of which it talks in this form.
    """

    reading: Reading
    sort: str
    bound: Any = None
    trigger: Callable[[Any], Any] | None = None

    def guards(self, value: Any) -> list[Any]:
        """Return the conditions under which a value of the sort is in the domain."""
        if self.bound is None:
            return []
        return [_folded(value >= 0), _folded(value < self.bound)]

    def forall(self, others: tuple[Any, ...], body: Callable[..., Any]) -> Any:
        """See `kvproof.spec.logic.Domain`."""
        return self.reading.quantify(True, (self, *others), body)

    def exists(self, others: tuple[Any, ...], body: Callable[..., Any]) -> Any:
        """See `kvproof.spec.logic.Domain`."""
        return self.reading.quantify(False, (self, *others), body)


def triggered(domain: Any, trigger: Callable[[Any], Any]) -> Any:
    """Return the domain with a trigger, where it is symbolic; else the domain."""
    if isinstance(domain, SymbolicDomain):
        return replace(domain, trigger=trigger)
    return domain


def _folded(condition: Any) -> Any:
    """Decide a comparison of numbers."""
    simple = z3.simplify(condition)
    return TRUE if z3.is_true(simple) else FALSE if z3.is_false(simple) else condition


def _guarded(
    universal: bool, domains: tuple[SymbolicDomain, ...], values: Sequence[Any], expr: Any
) -> Any:
    """Restrict a quantifier's body to values that are in the domains."""
    guards = conjunction(
        guard
        for domain, value in zip(domains, values, strict=True)
        for guard in domain.guards(value)
    )
    if universal:
        return disjunction((negation(guards), expr))
    return conjunction((guards, expr))


def _chain(*tokens: int, group: int = 0) -> Key:
    return Key(tuple(tokens), GroupId(group))  # type: ignore[arg-type]


_TWO = ((GroupId(0), 2), (GroupId(1), 2))
_FOUR = ((GroupId(0), 4), (GroupId(1), 4))

SCOPES = (
    Scope(2, 1, (NO_KEY, _chain(0), _chain(0, 0)), _TWO),
    Scope(3, 2, (NO_KEY, _chain(0), _chain(0, 0), _chain(0, 1)), _TWO),
    Scope(3, 3, (NO_KEY, _chain(0), _chain(0, 0), _chain(0, 0, 0), _chain(0, 0, 0, 0)), _FOUR),
    Scope(4, 3, (NO_KEY, _chain(0, 0), _chain(0, 0, 0), _chain(1, 0), _chain(0, 0, group=1)), _TWO),
)
"""Where counterexamples are looked for, the smallest first. Prefixes of one chain and of
others, partial and full, in one block and in the next, in two groups."""

TABLE_SCOPES = (
    Scope(2, 2, (NO_KEY, _chain(0, 0), _chain(0, 0, 0, 0)), _TWO),
    Scope(3, 2, (NO_KEY, _chain(0, 0), _chain(0, 0, 0, 0)), _TWO),
    Scope(3, 3, (NO_KEY, _chain(0, 0), _chain(0, 0, 0, 0)), _TWO),
    Scope(4, 3, (NO_KEY, _chain(0, 0), _chain(0, 0, 0, 0), _chain(0, 0, 1, 1)), _TWO),
)
"""The same for block tables: full keys only, and with each key its parent."""
