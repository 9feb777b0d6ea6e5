"""The symbolic containers: what the specification stores when a solver reads it.

A map is a Python function from expressions to an expression: at first an uninterpreted
function, then, after each assignment, an if-then-else around the one before. Order is a
number: a block's stamp in the queue, or in a key's list. What a container asks of its
caller ("a block that is not queued") becomes an obligation.
"""

from collections.abc import Callable
from typing import Any

import z3

from kvproof.proofs.paths import current
from kvproof.proofs.readings import BLOCK, KEY, Reading, SymbolicDomain
from kvproof.proofs.terms import Term, choice, conjunction, disjunction, equal, lift, negation
from kvproof.spec.logic import exists, forall, implies, ite, neg

Function = Callable[..., Any]


def arbitrary(reading: Reading, name: str, domain: tuple[str, ...], codomain: Any) -> Function:
    """Return a function that nothing is known about."""
    function = z3.Function(name, *map(reading.sort, domain), codomain)
    context, arity = function.ctx_ref(), len(domain)
    made = {z3.Z3_BOOL_SORT: z3.BoolRef, z3.Z3_INT_SORT: z3.ArithRef}
    wrapper = made.get(codomain.kind(), z3.ExprRef)

    def apply(*arguments: Any) -> Any:
        if len(arguments) != arity:
            raise TypeError(f"{name} takes {arity} arguments, not {len(arguments)}")
        array = (z3.Ast * arity)(*(argument.as_ast() for argument in arguments))
        return wrapper(z3.Z3_mk_app(context, function.ast, arity, array), function.ctx)

    return apply


def overridden(function: Function, place: tuple[Any, ...], value: Any) -> Function:
    """Return the function with one value replaced."""
    return lambda *arguments: choice(
        conjunction(map(equal, arguments, place)), value, function(*arguments)
    )


class SymbolicMap:
    """A total map (see `kvproof.spec.universe.Map`)."""

    __slots__ = ("at",)

    def __init__(self, at: Function) -> None:
        self.at = at

    def __getitem__(self, key: Any) -> Any:
        return Term(self.at(*_place(key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.at = overridden(self.at, _place(key), lift(value))

    def clear(self, value: Any) -> None:
        """See `Map`."""
        constant = lift(value)
        self.at = lambda *arguments: constant


class SymbolicKeySet:
    """A set of keys, as its characteristic function (see `kvproof.spec.universe.KeySet`)."""

    __slots__ = ("no_key", "of")

    def __init__(self, no_key: Any, of: Function) -> None:
        self.no_key = no_key
        self.of = of

    def has(self, key: Any) -> Any:
        """See `KeySet`."""
        member = lift(key)
        return Term(conjunction((negation(equal(member, self.no_key)), self.of(member))))

    def add(self, key: Any) -> "SymbolicKeySet":
        """See `KeySet`."""
        added, old = lift(key), self.of
        return SymbolicKeySet(self.no_key, lambda key: disjunction((equal(key, added), old(key))))

    def union(self, other: "SymbolicKeySet") -> "SymbolicKeySet":
        """See `KeySet`."""
        mine, others = self.of, other.of
        return SymbolicKeySet(self.no_key, lambda key: disjunction((mine(key), others(key))))

    def where(self, predicate: Callable[[Any], Any]) -> "SymbolicKeySet":
        """See `KeySet`."""
        old = self.of
        return SymbolicKeySet(
            self.no_key, lambda key: conjunction((old(key), lift(predicate(Term(key)))))
        )


class SymbolicKeySetMap:
    """A map from blocks to sets of keys."""

    __slots__ = ("no_key", "of")

    def __init__(self, no_key: Any, of: Function) -> None:
        self.no_key = no_key
        self.of = of

    def __getitem__(self, block: Any) -> SymbolicKeySet:
        place, of = lift(block), self.of
        return SymbolicKeySet(self.no_key, lambda key: of(place, key))

    def __setitem__(self, block: Any, keys: SymbolicKeySet) -> None:
        place, old, new = lift(block), self.of, keys.of
        self.of = lambda other, key: choice(equal(other, place), new(key), old(other, key))

    def clear(self, keys: SymbolicKeySet) -> None:
        """See `Map`."""
        new = keys.of
        self.of = lambda block, key: new(key)


class SymbolicQueue:
    """An order of blocks (see `kvproof.spec.universe.Queue`): who is in it, and a stamp for
    each. The front has the smallest stamp; `low` and `high` bound those given so far.
    """

    __slots__ = ("high", "low", "member", "reading", "stamp")

    def __init__(self, reading: Reading, name: str) -> None:
        self.reading = reading
        self.member = SymbolicMap(arbitrary(reading, name, (BLOCK,), z3.BoolSort()))
        self.stamp = SymbolicMap(arbitrary(reading, name + ".stamp", (BLOCK,), z3.IntSort()))
        self.low: Any = Term(z3.Int(name + ".low"))
        self.high: Any = Term(z3.Int(name + ".high"))

    @property
    def _blocks(self) -> SymbolicDomain:
        return SymbolicDomain(self.reading, BLOCK)

    def has(self, block: Any) -> Any:
        """See `Queue`."""
        return self.member[block]

    def nonempty(self) -> Any:
        """See `Queue`."""
        return exists(self._blocks, lambda block: self.member[block])

    def before(self, first: Any, second: Any) -> Any:
        """See `Queue`."""
        return self.member[first] & self.member[second] & (self.stamp[first] < self.stamp[second])

    def popleft(self) -> Any:
        """See `Queue`."""
        current().oblige(lift(self.nonempty()), "a block is taken from a queue that has one")
        front = Term(current().fresh("front", self.reading.sort(BLOCK)))
        current().assume(lift(self.member[front]))
        current().assume(
            lift(
                forall(
                    self._blocks,
                    lambda other: implies(
                        self.member[other], self.stamp[front] <= self.stamp[other]
                    ),
                )
            )
        )
        self.member[front] = False
        return front

    def prepend(self, block: Any) -> None:
        """See `Queue`."""
        self._oblige_absent(block)
        self.member[block] = True
        self.stamp[block] = self.low
        self.low = self.low - 1

    def append(self, block: Any) -> None:
        """See `Queue`."""
        self._oblige_absent(block)
        self.member[block] = True
        self.stamp[block] = self.high
        self.high = self.high + 1

    def remove(self, block: Any) -> None:
        """See `Queue`."""
        current().oblige(lift(self.member[block]), "a block that leaves the queue is queued")
        self.member[block] = False

    def well_formed(self) -> Any:
        """See `Queue`: all stamps lie between the bounds, and no two are equal."""
        blocks = self._blocks
        return (
            (self.low < self.high)
            & forall(
                blocks,
                lambda block: implies(
                    self.member[block],
                    (self.low < self.stamp[block]) & (self.stamp[block] < self.high),
                ),
            )
            & forall(
                (blocks, blocks),
                lambda one, other: implies(
                    self.member[one] & self.member[other] & (self.stamp[one] == self.stamp[other]),
                    one == other,
                ),
            )
        )

    def _oblige_absent(self, block: Any) -> None:
        current().oblige(lift(neg(self.member[block])), "a block that is queued is not queued yet")


class SymbolicIndex:
    """Who is listed under which key (see `kvproof.spec.universe.Index`), with a stamp each."""

    __slots__ = ("high", "member", "reading", "stamp")

    def __init__(self, reading: Reading, name: str) -> None:
        self.reading = reading
        self.member = SymbolicMap(arbitrary(reading, name, (KEY, BLOCK), z3.BoolSort()))
        self.stamp = SymbolicMap(arbitrary(reading, name + ".stamp", (KEY, BLOCK), z3.IntSort()))
        self.high: Any = Term(z3.Int(name + ".high"))

    @property
    def _blocks(self) -> SymbolicDomain:
        return SymbolicDomain(self.reading, BLOCK)

    def contain(self, key: Any, block: Any) -> Any:
        """See `Index`."""
        return self.member[key, block]

    def lists(self, key: Any) -> Any:
        """See `Index`."""
        return exists(self._blocks, lambda block: self.member[key, block])

    def before(self, key: Any, first: Any, second: Any) -> Any:
        """See `Index`."""
        return (
            self.member[key, first]
            & self.member[key, second]
            & (self.stamp[key, first] < self.stamp[key, second])
        )

    def get_one_block(self, key: Any) -> Any:
        """See `Index`."""
        current().oblige(lift(self.lists(key)), "the first block of a list that has one")
        found = Term(current().fresh("found", self.reading.sort(BLOCK)))
        current().assume(lift(self.member[key, found]))
        current().assume(
            lift(
                forall(
                    self._blocks,
                    lambda other: implies(
                        self.member[key, other],
                        self.stamp[key, found] <= self.stamp[key, other],
                    ),
                )
            )
        )
        return found

    def insert(self, key: Any, block: Any) -> None:
        """See `Index`."""
        listed = self.member[key, block]
        current().mention(lift(listed))
        current().oblige(lift(neg(listed)), "a block is listed under a key once")
        self.stamp[key, block] = ite(listed, self.stamp[key, block], self.high)
        self.member[key, block] = True
        self.high = self.high + 1

    def pop(self, keys: SymbolicKeySet, block: Any) -> None:
        """See `Index`."""
        old, popped = self.member.at, lift(block)
        self.member.at = lambda key, other: conjunction(
            (
                old(key, other),
                disjunction((negation(equal(other, popped)), negation(lift(keys.has(Term(key)))))),
            )
        )

    def clear(self) -> None:
        """See `Index`."""
        self.member.clear(False)

    def well_formed(self) -> Any:
        """See `Index`: stamps lie below the bound, and differ within a list."""
        keys, blocks = SymbolicDomain(self.reading, KEY), self._blocks
        return forall(
            (keys, blocks),
            lambda key, block: implies(self.member[key, block], self.stamp[key, block] < self.high),
        ) & forall(
            (keys, blocks, blocks),
            lambda key, one, other: implies(
                self.member[key, one]
                & self.member[key, other]
                & (self.stamp[key, one] == self.stamp[key, other]),
                one == other,
            ),
        )


class SymbolicEvents:
    """What a consumer of the stream believes (see `kvproof.spec.universe.Events`)."""

    __slots__ = ("_believed",)

    def __init__(self, reading: Reading, name: str) -> None:
        self._believed = SymbolicMap(arbitrary(reading, name, (KEY,), z3.BoolSort()))

    def stored(self, key: Any) -> None:
        """See `Events`."""
        self._believed[key] = True

    def removed(self, keys: SymbolicKeySet) -> None:
        """See `Events`."""
        old = self._believed.at
        self._believed.at = lambda key: conjunction((old(key), negation(lift(keys.has(Term(key))))))

    def cleared(self) -> None:
        """See `Events`."""
        self._believed.clear(False)

    def believed(self, key: Any) -> Any:
        """See `Events`."""
        return self._believed[key]


def _place(key: Any) -> tuple[Any, ...]:
    return tuple(map(lift, key)) if isinstance(key, tuple) else (lift(key),)
