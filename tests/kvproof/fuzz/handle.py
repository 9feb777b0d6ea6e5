"""The target as a run calls it: whatever it does comes back as an `Outcome`.

A target gets lists of its own, and what it returns is copied: it may change what it was given,
and return what it goes on to change.
"""

from typing import Any

from kvproof.fuzz.calls import Call, Outcome, request_view
from kvproof.fuzz.target import NotExpressible, Observation, PoolTarget, TargetBroken

_OURS = (NotExpressible, TargetBroken, KeyboardInterrupt)
"""What is not the target's own way to refuse."""


class Handle:
    """Calls a target. Raises TargetBroken when it does not keep the protocol, NotExpressible
    when it cannot be given the call. Anything else that it raises, SystemExit too, refuses.
    """

    def __init__(self, target: PoolTarget, hash_block_size: int) -> None:
        self.target = target
        self._hash_block_size = hash_block_size
        self._operations = {name: getattr(target, name) for name in target.operations}

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


def raised(error: BaseException) -> str:
    """Write what a target raised on one line, also when the error cannot say it itself."""
    name = type(error).__name__
    try:
        says = str(error)
    except Exception as another:
        says = f"its message cannot be read: {type(another).__name__}"
    return f"{name}: {says}".splitlines()[0][:200]
