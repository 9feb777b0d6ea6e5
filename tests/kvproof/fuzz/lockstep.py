"""A manager and the specification's, given the same calls, and compared after each.

What a target is known to do otherwise is named, and then not compared.
"""

import copy
from typing import Any

from kvproof.fuzz import judge
from kvproof.fuzz.ledger import told_each
from kvproof.fuzz.manager_model import SpecManager
from kvproof.fuzz.manager_target import ManagerConfig, ManagerTarget

EVENTS = "removed is told for each block of a key"
COMMON = "references that wait to be freed are taken for requests"
ERRATA = {EVENTS, COMMON}
"""What can be known of a target (docs/errata-vllm-0.25.1.md)."""


class Differs(AssertionError):
    """The two managers have come to different things."""


class Lockstep:
    """Makes each call on the specification and on a target. `errata` are some of `ERRATA`;
    `calls` counts.
    """

    def __init__(
        self, config: ManagerConfig, target: ManagerTarget, errata: frozenset[str] = frozenset()
    ) -> None:
        self.spec, self.target, self.errata = SpecManager(config), target, errata
        self.calls = 0
        self._waiting = 0

    def make(self, name: str, **args: Any) -> Any:
        """Make a call on both; return the answer. Raises Differs."""
        self.calls += 1
        called = f"{name} {args}"
        wanted = getattr(self.spec, name)(**copy.deepcopy(args))
        try:
            got = getattr(self.target, name)(**copy.deepcopy(args))
        except Exception as error:  # whatever it raises, the specification did not
            raise Differs(f"{called}: {error!r}") from error
        self._waiting += (name == "pop_blocks_for_free") - (name == "free_blocks")
        known = name == "get_num_common_prefix_blocks" and COMMON in self.errata and self._waiting
        if got != wanted and not known:
            raise Differs(f"{called}: {got}, not {wanted}")
        self._compare(called)
        return wanted

    def _compare(self, called: str) -> None:
        view, seen = self.spec.observe(), self.target.observe()
        if judge.differences(view.pool, seen.pool):
            raise Differs(f"{called}: {judge.describe(view.pool, seen.pool)}")
        if view.tables != seen.tables:
            raise Differs(f"{called}: tables {seen.tables}, not {view.tables}")
        due, told = (
            sorted(told_each(one.take_events()), key=str) for one in (self.spec, self.target)
        )
        if told != due and EVENTS not in self.errata:
            raise Differs(f"{called}: told {told}, not {due}")
