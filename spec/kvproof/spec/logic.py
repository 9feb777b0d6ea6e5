"""The words in which the specification speaks: requires, check, forall, implies and so on.

The same text is read in two ways. On the concrete reading conditions are Python bools. On
the symbolic reading they are formulas, which bring their own `implies`, `iff`, `ite`,
`neg`, `assume` and `oblige`; nothing here knows a solver. Python's `and`, `or`, `not` and
`if` decide a condition (symbolically: they fork the run), so inside a quantified
statement write `&`, `|` and `neg` instead.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kvproof.spec.rules import Rule

V = TypeVar("V")

Bool = bool
"""A condition: a bool on the concrete reading, a formula on the symbolic one."""


class Domain(Protocol):
    """What a quantifier ranges over."""

    def forall(self, others: "tuple[Domain, ...]", body: Callable[..., Bool]) -> Bool:
        """Say whether `body` holds for every choice from this domain and the others."""
        ...

    def exists(self, others: "tuple[Domain, ...]", body: Callable[..., Bool]) -> Bool:
        """Say whether `body` holds for some choice from this domain and the others."""
        ...


class CheckFailed(AssertionError):
    """A `check` is false: the specification itself is wrong."""


def requires(condition: Bool, rule: Rule, subject: object = None) -> None:
    """State a precondition. Raises the rule's error when `condition` is false.

    On the symbolic reading the condition is assumed, or refused when refusals are explored.
    """
    if condition is True:
        return
    if condition is False:
        raise rule.error(rule, subject)
    condition.assume(rule)


def check(condition: Bool, says: str) -> None:
    """State what must hold here. Raises CheckFailed when it does not; symbolically, a proof
    obligation.
    """
    if condition is True:
        return
    if condition is False:
        raise CheckFailed(says)
    condition.oblige(says)


def forall(domains: Domain | tuple[Domain, ...], body: Callable[..., Bool]) -> Bool:
    """For every element of the domains, `body` holds."""
    if isinstance(domains, tuple):
        return domains[0].forall(domains[1:], body)
    return domains.forall((), body)


def exists(domains: Domain | tuple[Domain, ...], body: Callable[..., Bool]) -> Bool:
    """For some element of the domains, `body` holds."""
    if isinstance(domains, tuple):
        return domains[0].exists(domains[1:], body)
    return domains.exists((), body)


def neg(condition: Bool) -> Bool:
    """The condition is false.

    >>> neg(True)
    False
    """
    if condition is True:
        return False
    if condition is False:
        return True
    return condition.neg()


def implies(antecedent: Bool, consequent: Bool) -> Bool:
    """If the first holds, so does the second.

    >>> implies(False, False), implies(True, False)
    (True, False)
    """
    if antecedent is False:
        return True
    if antecedent is True:
        return consequent
    return antecedent.implies(consequent)


def iff(left: Bool, right: Bool) -> Bool:
    """Both hold, or neither.

    >>> iff(False, False), iff(True, False)
    (True, False)
    """
    if isinstance(left, bool):
        if isinstance(right, bool):
            return left is right
        left, right = right, left
    return left.iff(right)


def ite(condition: Bool, then: V, otherwise: V) -> V:
    """The second when the condition holds, the third when not (both are evaluated).

    >>> ite(True, 1, 2)
    1
    """
    if condition is True:
        return then
    if condition is False:
        return otherwise
    chosen: V = condition.ite(then, otherwise)
    return chosen


def never(_: Any) -> Bool:
    """Hold of nothing: the predicate of the empty set."""
    return False
