"""Symbolic values: what the specification computes with when a solver reads it.

A `Term` wraps a z3 expression and answers to the operators and methods that
`kvproof.spec.logic` asks of a condition. Expressions are folded as they are built, as far
as literals allow: with a handful of named blocks most comparisons are decided at once.
"""

from collections.abc import Iterable
from typing import Any

import z3

from kvproof.proofs.paths import current
from kvproof.spec.rules import Rule

TRUE = z3.BoolVal(True)
FALSE = z3.BoolVal(False)
_CONTEXT = TRUE.ctx_ref()


class Term:
    """A value of which the solver knows the expression."""

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        return f"Term({self.expr})"

    def __bool__(self) -> bool:
        return current().decide(self.expr)

    def __eq__(self, other: object) -> Any:
        return Term(equal(self.expr, lift(other)))

    def __ne__(self, other: object) -> Any:
        return Term(negation(equal(self.expr, lift(other))))

    def __lt__(self, other: object) -> Any:
        return Term(self.expr < lift(other))

    def __le__(self, other: object) -> Any:
        return Term(self.expr <= lift(other))

    def __gt__(self, other: object) -> Any:
        return Term(self.expr > lift(other))

    def __ge__(self, other: object) -> Any:
        return Term(self.expr >= lift(other))

    def __add__(self, other: object) -> Any:
        return Term(self.expr + lift(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        return Term(self.expr - lift(other))

    def __rsub__(self, other: object) -> Any:
        return Term(lift(other) - self.expr)

    def __and__(self, other: object) -> Any:
        return Term(conjunction((self.expr, lift(other))))

    def __rand__(self, other: object) -> Any:
        return Term(conjunction((lift(other), self.expr)))

    def __or__(self, other: object) -> Any:
        return Term(disjunction((self.expr, lift(other))))

    def __ror__(self, other: object) -> Any:
        return Term(disjunction((lift(other), self.expr)))

    def neg(self) -> Any:
        """See `kvproof.spec.logic.neg`."""
        return Term(negation(self.expr))

    def implies(self, consequent: object) -> Any:
        """See `kvproof.spec.logic.implies`."""
        return Term(disjunction((negation(self.expr), lift(consequent))))

    def iff(self, other: object) -> Any:
        """See `kvproof.spec.logic.iff`."""
        return Term(equal(self.expr, lift(other)))

    def ite(self, then: object, otherwise: object) -> Any:
        """See `kvproof.spec.logic.ite`."""
        return Term(choice(self.expr, lift(then), lift(otherwise)))

    def assume(self, rule: Rule) -> None:
        """Read a `requires` (see `kvproof.proofs.paths.Path.require`)."""
        current().require(self.expr, rule)

    def oblige(self, says: str) -> None:
        """Read a `check`: it must hold, and is taken for true from here on."""
        current().oblige(self.expr, says)
        current().assume(self.expr)


def lift(value: object) -> Any:
    """Return the expression of a term, a bool or an int."""
    if isinstance(value, Term):
        return value.expr
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return z3.IntVal(value)
    raise TypeError(f"{value!r} has no symbolic reading")


def negation(expr: Any) -> Any:
    """Return the negation, folded."""
    if expr is TRUE:
        return FALSE
    if expr is FALSE:
        return TRUE
    return _bool(z3.Z3_mk_not(_CONTEXT, expr.as_ast()))


def conjunction(parts: Iterable[Any]) -> Any:
    """Return the conjunction, folded."""
    kept = []
    for part in parts:
        if part is FALSE:
            return FALSE
        if part is not TRUE:
            kept.append(part)
    if len(kept) < 2:
        return kept[0] if kept else TRUE
    return _bool(z3.Z3_mk_and(_CONTEXT, len(kept), _array(kept)))


def disjunction(parts: Iterable[Any]) -> Any:
    """Return the disjunction, folded."""
    kept = []
    for part in parts:
        if part is TRUE:
            return TRUE
        if part is not FALSE:
            kept.append(part)
    if len(kept) < 2:
        return kept[0] if kept else FALSE
    return _bool(z3.Z3_mk_or(_CONTEXT, len(kept), _array(kept)))


def equal(left: Any, right: Any) -> Any:
    """Return the equation, folded. Raises TypeError for values of different sorts."""
    if left.eq(right):
        return TRUE
    if is_literal(left) and is_literal(right):
        return FALSE
    for one, other in ((left, right), (right, left)):
        if one is TRUE:
            return other
        if one is FALSE:
            return negation(other)
    if left.sort_kind() != right.sort_kind() or left.sort() != right.sort():
        raise TypeError(f"a {left.sort()} is compared with a {right.sort()}")
    return _bool(z3.Z3_mk_eq(_CONTEXT, left.as_ast(), right.as_ast()))


def choice(condition: Any, then: Any, otherwise: Any) -> Any:
    """Return if-then-else, folded."""
    if condition is TRUE or then.eq(otherwise):
        return then
    if condition is FALSE:
        return otherwise
    return z3.If(condition, then, otherwise)


def is_literal(expr: Any) -> bool:
    """The expression is a number or a named element: two different ones are not equal."""
    return isinstance(expr, z3.IntNumRef) or expr.get_id() in NAMED


NAMED: dict[int, Any] = {}
"""The elements of the enumerations, by identity. They are never given up."""


def _bool(ast: Any) -> Any:
    return z3.BoolRef(ast, TRUE.ctx)


def _array(parts: list[Any]) -> Any:
    return (z3.Ast * len(parts))(*(part.as_ast() for part in parts))


def conjuncts(expr: Any) -> list[Any]:
    """Split a conjunction into its parts."""
    if z3.is_and(expr):
        return [part for child in expr.children() for part in conjuncts(child)]
    return [] if z3.is_true(expr) else [expr]
