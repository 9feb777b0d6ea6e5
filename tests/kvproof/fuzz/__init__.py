"""The model-based test kit: machines, targets, judges and reports.

`PoolMachine` and `ManagerMachine`, and what a pool or a manager of one's own needs, can be
imported from here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.fuzz.manager_target import (
        GroupConfig,
        ManagerConfig,
        ManagerObservation,
        ManagerTarget,
    )
    from kvproof.fuzz.suite import ManagerMachine, PoolMachine
    from kvproof.fuzz.target import Observation, PoolConfig, PoolTarget, RequestView

_HOMES = {
    "GroupConfig": "kvproof.fuzz.manager_target",
    "ManagerConfig": "kvproof.fuzz.manager_target",
    "ManagerMachine": "kvproof.fuzz.suite",
    "ManagerObservation": "kvproof.fuzz.manager_target",
    "ManagerTarget": "kvproof.fuzz.manager_target",
    "Observation": "kvproof.fuzz.target",
    "PoolConfig": "kvproof.fuzz.target",
    "PoolMachine": "kvproof.fuzz.suite",
    "PoolTarget": "kvproof.fuzz.target",
    "RequestView": "kvproof.fuzz.target",
}

__all__ = [
    "GroupConfig",
    "ManagerConfig",
    "ManagerMachine",
    "ManagerObservation",
    "ManagerTarget",
    "Observation",
    "PoolConfig",
    "PoolMachine",
    "PoolTarget",
    "RequestView",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: the modules below import this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
