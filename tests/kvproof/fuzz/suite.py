"""The fuzzer inside anyone's pytest suite.

    from kvproof.fuzz import ManagerMachine, PoolMachine
    from my_engine import MyManager, MyPool

    class TestMyPool(PoolMachine):
        target = MyPool

    class TestMyManager(ManagerMachine):
        target = MyManager

`MyPool` takes a `PoolConfig` and keeps the protocol `PoolTarget`; `MyManager` takes a
`ManagerConfig` and keeps `ManagerTarget`. The test draws sequences of calls, judges each, and
fails with the shrunk failures.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.levels import LEVELS
from kvproof.fuzz.report import render
from kvproof.fuzz.run import Flags
from kvproof.fuzz.targets import Target, TargetError, checked_for, resolve_for


class _Machine:
    """What is common to the levels."""

    level: ClassVar[str]
    target: ClassVar[Any]
    policy: ClassVar[bool] = False
    quality: ClassVar[bool] = False
    misuse: ClassVar[bool] = False
    examples: ClassVar[int] = 100
    seed: ClassVar[int] = 0
    layouts: ClassVar[Sequence[str]] = ()
    known: ClassVar[Sequence[str]] = ()

    def _judge(self) -> None:
        target = self._target()
        try:
            session = run_campaign(
                target.factory,
                target.name,
                Flags(self.policy, self.misuse, self.quality),
                Limits(examples=self.examples),
                [LEVELS[self.level].layouts[name] for name in self.layouts],
                self.known,
                self.seed,
                level=self.level,
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
            return resolve_for(self.level, found)
        factory: Callable[[Any], Any] = found.__func__ if isinstance(found, staticmethod) else found
        name = getattr(factory, "__qualname__", type(factory).__qualname__)  # a partial has none
        return checked_for(self.level, Target(f"{factory.__module__}:{name}", factory, ""))


class PoolMachine(_Machine):
    """Subclass me, and set `target`: a factory of pools, or a target's name as on the command
    line.

    `policy` and `misuse` judge those classes of properties, too. `examples` is the number of
    sequences, `seed` picks them. `layouts` (all when empty) and `known` are as on the command
    line.
    """

    level: ClassVar[str] = "pool"

    def test_pool(self) -> None:
        """No property is broken."""
        self._judge()


class ManagerMachine(_Machine):
    """Subclass me, and set `target`: a factory of managers, or a target's name. The rest is as
    for `PoolMachine`; `quality` judges lost hits, too.
    """

    level: ClassVar[str] = "manager"

    def test_manager(self) -> None:
        """No property is broken."""
        self._judge()
