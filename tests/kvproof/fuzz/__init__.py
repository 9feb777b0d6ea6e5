"""The model-based test kit: machines, targets, judges and reports.

`PoolMachine`, and what a pool of one's own needs, can be imported from here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.fuzz.suite import PoolMachine
    from kvproof.fuzz.target import Observation, PoolConfig, PoolTarget, RequestView

_HOMES = {
    "Observation": "kvproof.fuzz.target",
    "PoolConfig": "kvproof.fuzz.target",
    "PoolMachine": "kvproof.fuzz.suite",
    "PoolTarget": "kvproof.fuzz.target",
    "RequestView": "kvproof.fuzz.target",
}

__all__ = ["Observation", "PoolConfig", "PoolMachine", "PoolTarget", "RequestView"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: the modules below import this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
