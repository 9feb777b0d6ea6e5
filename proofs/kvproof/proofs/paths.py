"""Run a function once for each way in which its conditions can turn out.

`if` on a symbolic condition asks the current path to decide. A path replays the decisions
that it was given, takes the true branch from there on, and notes what it assumed; `explore`
then runs the function again for each branch that was not taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import z3

from kvproof.spec.rules import Rule

T = TypeVar("T")

MAX_PATHS = 256
MAX_DECISIONS = 48


class Exploded(Exception):
    """There are more paths, or a longer one, than any transition of a pool has."""


class Refused(BaseException):
    """A `requires` was decided to be false: the path ends here."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.name)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Obligation:
    """Something that must hold in the middle of a path: a `check`, or what a container asks."""

    says: str
    assumptions: tuple[Any, ...]
    goal: Any


@dataclass(slots=True)
class Path:
    """One way through a function. With `fork_refusals`, a `requires` forks, too. What the rule
    `dropped` requires is not assumed.
    """

    given: tuple[bool, ...] = ()
    fork_refusals: bool = True
    dropped: str = ""
    decisions: list[bool] = field(default_factory=list)
    assumptions: list[Any] = field(default_factory=list)
    obligations: list[Obligation] = field(default_factory=list)
    _known: dict[int, bool] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    _fresh: int = 0

    def decide(self, condition: Any) -> bool:
        """Take a branch on the condition. What was decided or is plain is not decided again."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        positive = True
        while z3.is_not(condition):
            condition, positive = condition.arg(0), not positive
        known = self._known.get(condition.get_id())
        if known is not None:
            return known is positive
        count = len(self.decisions)
        if count >= MAX_DECISIONS:
            raise Exploded(f"a path takes more than {MAX_DECISIONS} decisions")
        taken = self.given[count] if count < len(self.given) else True
        self.decisions.append(taken)
        self.assume(condition if taken is positive else z3.Not(condition))
        return taken

    def assume(self, condition: Any) -> None:
        """Take the condition for true from here on."""
        self.assumptions.append(condition)
        positive = True
        while z3.is_not(condition):
            condition, positive = condition.arg(0), not positive
        self._kept.append(condition)
        self._known[condition.get_id()] = positive

    def require(self, condition: Any, rule: Rule) -> None:
        """Read a `requires`. Raises Refused on the path where it is false."""
        if rule.name == self.dropped:
            return
        if not self.fork_refusals:
            self.assume(condition)
        elif not self.decide(condition):
            raise Refused(rule)

    def oblige(self, goal: Any, says: str) -> None:
        """Note that the goal must hold here."""
        self.obligations.append(Obligation(says, tuple(self.assumptions), goal))

    def mention(self, expr: Any) -> None:
        """Let the solvers know of an expression, so that they look at what holds of it."""
        self.assumptions.append(self.fresh("mentioned", expr.sort()) == expr)

    def fresh(self, name: str, sort: Any) -> Any:
        """Return a constant that nothing is known about."""
        self._fresh += 1
        return z3.Const(f"{name}!{self._fresh}", sort)

    @property
    def label(self) -> str:
        """The decisions as letters: T for the true branch, F for the false one."""
        return "".join("T" if taken else "F" for taken in self.decisions) or "-"


_current: list[Path] = []


def current() -> Path:
    """Return the path that is being run. Raises LookupError outside of `explore`."""
    if not _current:
        raise LookupError("a symbolic condition was decided outside of a transition")
    return _current[-1]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one path: a result, the rule that refused it, or what it raised."""

    path: Path
    result: T | None
    refused: Rule | None = None
    raised: Exception | None = None


def explore(
    run: Callable[[], T], fork_refusals: bool = True, dropped: str = ""
) -> Iterator[Outcome[T]]:
    """Run `run` along every path. Raises Exploded when there are too many of them."""
    waiting: list[tuple[bool, ...]] = [()]
    count = 0
    while waiting:
        path = Path(waiting.pop(), fork_refusals, dropped)
        count += 1
        if count > MAX_PATHS:
            raise Exploded(f"there are more than {MAX_PATHS} paths")
        _current.append(path)
        try:
            outcome = Outcome(path, run())
        except Refused as refusal:
            outcome = Outcome(path, None, refused=refusal.rule)
        except Exploded:
            raise
        except Exception as error:
            outcome = Outcome(path, None, raised=error)
        finally:
            _current.pop()
        waiting.extend(
            (*path.decisions[:place], False)
            for place in range(len(path.given), len(path.decisions))
        )
        yield outcome
