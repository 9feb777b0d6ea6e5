"""The levels that are fuzzed: a session, a state machine, layouts and properties for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.manager_machine import ManagerRules
from kvproof.fuzz.manager_session import ManagerSession
from kvproof.fuzz.pool_machine import PoolRules
from kvproof.fuzz.properties import MANAGER_LEVEL, POOL_LEVEL
from kvproof.fuzz.session import Session
from kvproof.spec.properties import Property


@dataclass(frozen=True)
class Level:
    """`session` is built as `Session` is; `rules` is a state machine with a `session`, of whose
    rules a sequence has `length` at most.
    """

    name: str
    layouts: Mapping[str, Any]
    properties: Mapping[str, Property]
    session: type[Any]
    rules: type[Any]
    length: int


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level("pool", LAYOUTS, POOL_LEVEL, Session, PoolRules, 40),
        Level("manager", MANAGER_LAYOUTS, MANAGER_LEVEL, ManagerSession, ManagerRules, 8),
    )
}
"""Each level, by name."""
