"""The target as a run calls it: whatever it does comes back as an `Outcome`.

A target gets lists of its own, and what it returns is copied: it may change what it was given,
and return what it goes on to change.
"""

from collections.abc import Collection
from typing import Any

from kvproof.fuzz.calls import Call, Outcome, request_view
from kvproof.fuzz.target import (
    OPERATIONS,
    NotExpressible,
    Observation,
    PoolConfig,
    PoolFactory,
    TargetBroken,
)

_OURS = (NotExpressible, TargetBroken, KeyboardInterrupt)
"""What is not the target's own way to refuse."""


class Handle:
    """Builds a target, and calls it. Raises TargetBroken when it cannot be built, or does not
    keep the protocol; NotExpressible when it cannot be given the call. Anything else that it
    raises, SystemExit too, refuses the call.
    """

    def __init__(self, factory: PoolFactory, config: PoolConfig) -> None:
        self._hash_block_size = config.hash_block_size
        try:
            self.target = factory(config)
            operations = _known(self.target.operations)
            self._operations = {name: getattr(self.target, name) for name in operations}
        except _OURS:
            raise
        except BaseException as error:
            raise TargetBroken(f"the target cannot build a pool: {raised(error)}") from None

    def first_look(self) -> Observation:
        """Return what a new pool shows. Raises TargetBroken also when it raises instead."""
        seen = self.observe()
        if isinstance(seen, Outcome):
            raise TargetBroken(f"the target cannot observe a new pool: {seen.error}")
        return seen

    def make(self, call: Call) -> Outcome:
        """Make a call."""
        try:
            value = self._operations[call.name](**self._own(call.args))
        except _OURS:
            raise
        except BaseException as error:
            return Outcome(error=raised(error))
        return Outcome(value.copy() if type(value) is list else value)

    def _own(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of the target's own."""
        own = args.copy()
        for name, value in args.items():
            if type(value) is list:
                own[name] = value.copy()
            elif name == "request":
                own[name] = request_view(value["tokens"], self._hash_block_size)
        return own

    def observe(self) -> Observation | Outcome:
        """Return what the target shows; an `Outcome` when it raises instead."""
        try:
            seen = self.target.observe()
        except _OURS:
            raise
        except BaseException as error:
            return Outcome(error=raised(error))
        if type(seen) is not Observation:
            raise TargetBroken(f"observe must return an Observation, not {type(seen).__name__}")
        return seen


def _known(operations: object) -> Collection[str]:
    if not isinstance(operations, Collection) or isinstance(operations, str) or not operations:
        raise TargetBroken(f"operations must be names, such as ('touch',), not {operations!r}")
    for name in operations:
        if name not in OPERATIONS:
            raise TargetBroken(f"operations names {name!r}; known: {', '.join(OPERATIONS)}")
    return operations


def raised(error: BaseException) -> str:
    """Write what a target raised on one line, also when the error cannot say it itself."""
    name = type(error).__name__
    try:
        says = str(error)
    except Exception as another:
        says = f"its message cannot be read: {type(another).__name__}"
    return f"{name}: {says}".splitlines()[0][:200]
