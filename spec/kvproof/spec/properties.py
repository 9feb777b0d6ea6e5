"""What a property is. The properties themselves are in `pool_properties` and `steps`.

A property's name is the same everywhere: here, as a theorem, as a verdict of the fuzzer,
in `kvproof explain`, in the documentation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kvproof.spec.logic import Bool
from kvproof.spec.state import PoolState


class Class(Enum):
    """Who must keep a property, and when it is judged."""

    SAFETY = "safety"
    """Every correct engine, whatever its policy. Judged by default."""
    POLICY = "policy"
    """vLLM's own choices. Judged for our implementation and with `--policy`."""
    QUALITY = "quality"
    """Nothing breaks, but a hit or capacity is lost. Judged with `--quality`."""
    MISUSE = "misuse"
    """What happens on calls that the rules forbid. Judged with `--misuse`."""


class Consequence(Enum):
    """What users of an engine see when a property is broken."""

    WRONG_DATA = "wrong data"
    CRASH = "crash"
    LEAK = "leak"
    DEADLOCK = "deadlock"
    LOST_HIT = "lost hit"
    DIVERGENCE = "other decisions than vLLM's"


class Kind(Enum):
    """What a property speaks about."""

    STATE = "state"
    """Every reachable state."""
    STEP = "step"
    """Every step: the state before a call, the call, its outcome, the state after."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property of the layer.

    `statement` is there for properties of states; those of steps are stated in
    `kvproof.spec.steps`. `source` names where the property comes from.
    """

    name: str
    klass: Class
    kind: Kind
    says: str
    consequence: Consequence
    because: str
    source: str
    statement: Callable[[PoolState], Bool] | None = None
