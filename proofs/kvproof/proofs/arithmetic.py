"""The specification of attention run on unknown numbers: products and quotients of unknowns.

No solver is asked to divide by an unknown. A quotient is an unknown of its own, of which the
two inequations that define it are known, and how its multiples compare with others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.proofs.terms import Term, lift
from kvproof.spec.concrete import ConcreteDomain

FULL, WINDOW, CHUNK = "full", "sliding-window", "chunked-local"
FORGETS = (WINDOW, CHUNK)
EVERY = (FULL, *FORGETS)


def products_grow(fewer: Any, more: Any, size: Any) -> Any:
    """Say that one more of a size is a size more: what a solver would have to guess."""
    return z3.Implies(z3.And(size >= 0, fewer < more), fewer * size + size <= more * size)


@dataclass
class Arithmetic:
    """The products and quotients by unknown sizes, and what is known of them."""

    facts: list[Any] = field(default_factory=list)
    _quotients: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)
    _products: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)

    def product(self, number: Any, size: Any) -> Any:
        """Multiply."""
        key = number.get_id(), size.get_id()
        if key not in self._products:
            for other, by in self._products.values():
                if by.eq(size):
                    self.facts += [products_grow(number, other, by)]
                    self.facts += [products_grow(other, number, by)]
            self._products[key] = number, size
        return number * size

    def quotient(self, number: Any, size: Any) -> Any:
        """Return the unknown that is the whole part of the division."""
        key = number.get_id(), size.get_id()
        if key not in self._quotients:
            whole = z3.Int(f"{QUOTIENT}{len(self._quotients)}")
            self._quotients[key] = whole, number, size
            start = self.product(whole, size)
            inside = z3.And(start <= number, number < start + size)
            self.facts.append(z3.Implies(size >= 1, inside))
        return self._quotients[key][0]


QUOTIENT = "quotient."


class Divisor(Term):
    """An unknown size that numbers are divided and multiplied by."""

    __slots__ = ("arithmetic",)

    def __init__(self, expr: Any, arithmetic: Arithmetic) -> None:
        super().__init__(expr)
        self.arithmetic = arithmetic

    def __mul__(self, number: Any) -> Term:
        return Term(self.arithmetic.product(self.expr, lift(number)))

    def __rmul__(self, number: Any) -> Term:
        return Term(self.arithmetic.product(lift(number), self.expr))

    def __rfloordiv__(self, number: Any) -> "Divisor":
        return Divisor(self.arithmetic.quotient(lift(number), self.expr), self.arithmetic)

    def __rmod__(self, number: Any) -> Term:
        whole = self.arithmetic.quotient(lift(number), self.expr)
        return Term(lift(number) - self.arithmetic.product(whole, self.expr))


@dataclass(frozen=True)
class Only:
    """One block, standing for any: what holds of all blocks holds of it."""

    block: Any

    def forall(self, others: Any, body: Callable[..., Any]) -> Any:
        """See `kvproof.spec.logic.Domain`."""
        return body(self.block)

    exists = forall


class Setting:
    """A type of attention of unknown sizes, and unknown numbers, none of them negative."""

    def __init__(self, text: Any, kind: str) -> None:
        self.text, self.kind = text, kind
        self.arithmetic = Arithmetic()
        self.known: list[Any] = []

    def numbers(self, *names: str) -> list[Any]:
        """Return numbers."""
        found = [self.value(name) for name in names]
        self.known += [number >= 0 for number in found]
        return found

    def size(self, name: str) -> Any:
        """Return a number that is not 0 and can be divided by."""
        self.known.append(self.value(name) >= 1)
        return self.divisor(name)

    def block_size(self) -> Any:
        """Return the block size. A chunk is a whole number of blocks."""
        size = self.size("block_size")
        if self.kind == CHUNK:
            self.known.append(self.value("chunk") % size == 0)
        return size

    def attention(self) -> Any:
        """Return the type, of any window or chunk."""
        if self.kind == FULL:
            return self.text.Full()
        if self.kind == WINDOW:
            return self.text.SlidingWindow(self.size("window"))
        return self.text.ChunkedLocal(self.size("chunk"))

    def value(self, name: str) -> Any:
        """Return the number of that name."""
        return Term(z3.Int(name))

    def divisor(self, name: str) -> Any:
        """Return the number of that name, to divide by."""
        return Divisor(z3.Int(name), self.arithmetic)

    def only(self, block: Any) -> Any:
        """Return the domain of this block."""
        return Only(block)


class Played(Setting):
    """The same with the numbers of a counterexample."""

    def __init__(self, text: Any, kind: str, played: dict[str, int]) -> None:
        super().__init__(text, kind)
        self.played = played

    def value(self, name: str) -> Any:
        """See `Setting`."""
        return self.played[name]

    def divisor(self, name: str) -> Any:
        """See `Setting`."""
        return self.played[name]

    def only(self, block: Any) -> Any:
        """See `Setting`."""
        return ConcreteDomain([block])


Statement = Callable[[Setting], tuple[Any, Any]]
"""From a setting: what is given, and what follows."""
