"""The fuzzer inside anyone's pytest suite.

    from kvproof.fuzz import PoolMachine
    from my_engine import MyPool

    class TestMyPool(PoolMachine):
        target = MyPool

`MyPool` takes a `PoolConfig` and keeps the protocol `PoolTarget`. The test draws sequences of
calls, judges each, and fails with the shrunk failures.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.report import render
from kvproof.fuzz.run import Flags
from kvproof.fuzz.targets import Target, TargetError, checked, resolve


class PoolMachine:
    """Subclass me, and set `target`: a factory, or a target's name as on the command line.

    `policy` and `misuse` judge those classes of properties, too. `examples` is the number of
    sequences, `seed` picks them. `layouts` and `known` are as on the command line.
    """

    target: ClassVar[Any]
    policy: ClassVar[bool] = False
    misuse: ClassVar[bool] = False
    examples: ClassVar[int] = 100
    seed: ClassVar[int] = 0
    layouts: ClassVar[Sequence[str]] = tuple(LAYOUTS)
    known: ClassVar[Sequence[str]] = ()

    def test_pool(self) -> None:
        """No property is broken."""
        target = self._target()
        try:
            session = run_campaign(
                target.factory,
                target.name,
                Flags(self.policy, self.misuse),
                Limits(examples=self.examples),
                [LAYOUTS[name] for name in self.layouts],
                self.known,
                self.seed,
            )
        finally:
            target.close()
        reports = [render(failure) for failure in session.failures.values()]
        assert not reports, "\n\n".join(["", *reports])

    def _target(self) -> Target:
        found = vars(type(self)).get("target", getattr(type(self), "target", None))
        if found is None:
            raise TargetError(f"{type(self).__name__} needs a target: a factory, or a name")
        if isinstance(found, str):
            return resolve(found)
        factory = found.__func__ if isinstance(found, staticmethod) else found
        name = getattr(factory, "__qualname__", type(factory).__qualname__)  # a partial has none
        return checked(Target(f"{factory.__module__}:{name}", factory, ""))
