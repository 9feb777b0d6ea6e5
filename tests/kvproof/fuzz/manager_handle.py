"""A manager as a run calls it: whatever it does comes back as an `Outcome`.

It gets lists of its own, and what it returns is copied.
"""

import copy

from kvproof.fuzz.calls import Call, Outcome
from kvproof.fuzz.handle import raised
from kvproof.fuzz.manager_target import ManagerConfig, ManagerFactory, ManagerObservation
from kvproof.fuzz.target import NotExpressible, TargetBroken

NEEDED = (
    "new_request",
    "append_tokens",
    "get_computed_blocks",
    "allocate_slots",
    "free",
    "observe",
)
"""What a manager must have."""

OPTIONAL = (
    "unschedule",
    "cache_blocks",
    "pop_blocks_for_free",
    "free_blocks",
    "remove_skipped_blocks",
    "evict_blocks",
    "reset_prefix_cache",
    "get_num_common_prefix_blocks",
    "take_events",
    "take_new_block_ids",
    "block_hashes",
    "fresh_block_hashes",
)
"""What it may lack."""

_OURS = (NotExpressible, TargetBroken, KeyboardInterrupt)


class ManagerHandle:
    """Builds a manager, and calls it. Raises TargetBroken when it cannot be built or does not
    keep the protocol; NotExpressible when it cannot be given the call.
    """

    def __init__(self, factory: ManagerFactory, config: ManagerConfig) -> None:
        self._num_groups = len(config.groups)
        try:
            self.target = factory(config)
        except _OURS:
            raise
        except BaseException as error:
            raise TargetBroken(f"the target cannot build a manager: {raised(error)}") from None
        lacks = [name for name in NEEDED if not callable(getattr(self.target, name, None))]
        if lacks:
            raise TargetBroken(f"a manager must have {', '.join(lacks)}")

    def has(self, operation: str) -> bool:
        """The manager has the operation."""
        return callable(getattr(self.target, operation, None))

    def first_look(self) -> ManagerObservation:
        """Return what a new manager shows. Raises TargetBroken also when it raises instead."""
        seen = self.observe()
        if isinstance(seen, Outcome):
            raise TargetBroken(f"the target cannot observe a new manager: {seen.error}")
        return seen

    def make(self, call: Call) -> Outcome:
        """Make a call. Raises NotExpressible when the manager does not have it."""
        operation = getattr(self.target, call.name, None)
        if operation is None:
            raise NotExpressible(f"the target has no {call.name}")
        try:
            value = operation(**copy.deepcopy(call.args))
        except _OURS:
            raise
        except BaseException as error:
            return Outcome(error=raised(error))
        return Outcome(copy.deepcopy(value))

    def observe(self) -> ManagerObservation | Outcome:
        """Return what the manager shows; an `Outcome` when it raises instead."""
        try:
            seen = self.target.observe()
        except _OURS:
            raise
        except BaseException as error:
            return Outcome(error=raised(error))
        if type(seen) is not ManagerObservation:
            kind = type(seen).__name__
            raise TargetBroken(f"observe must return a ManagerObservation, not {kind}")
        if not self._are_tables(seen.tables):
            raise TargetBroken(
                "observe: tables must have, for each request by name, one list of block ids for"
                f" each group, not {seen.tables!r:.100}"
            )
        return seen

    def _are_tables(self, tables: object) -> bool:
        return isinstance(tables, dict) and all(
            isinstance(rows, list)
            and len(rows) == self._num_groups
            and all(isinstance(row, list) and all(type(b) is int for b in row) for row in rows)
            for rows in tables.values()
        )
