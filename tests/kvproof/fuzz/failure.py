"""A failure: a property broken by a short sequence of calls, and how to tell it from others."""

from dataclasses import dataclass, field
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.manager_calls import shown_args
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.run import Flags, Verdict
from kvproof.fuzz.target import PoolConfig


@dataclass(frozen=True)
class Signature:
    """What makes two failures distinct: the property, the operation, the branch path of the
    specification, and features of the layout. For a call that breaks a rule the path is the
    rule, and whether the call was accepted or refused half-done.
    """

    property: str
    operation: str
    path: frozenset[str]
    features: frozenset[str] = frozenset()

    def __str__(self) -> str:
        parts = [self.property, self.operation, "+".join(sorted(self.path))]
        return ":".join([*parts, "+".join(sorted(self.features))]).rstrip(":")


def signature(verdict: Verdict, config: PoolConfig) -> Signature:
    """Return the signature of a verdict that has a finding."""
    assert verdict.finding is not None
    name, operation = verdict.finding.property, verdict.call.name
    if verdict.rule is not None:
        done = "half-done" if verdict.answer.refused else "accepted"
        return Signature(name, operation, frozenset({verdict.rule.name, done}))
    features = frozenset() if config.enable_caching else frozenset({"caching-off"})
    return Signature(name, operation, verdict.branches, features)


@dataclass
class Failure:
    """One distinct failure, shrunk. `calls` end with the one that breaks the property."""

    signature: str
    finding: Finding
    layout: str
    config: PoolConfig | ManagerConfig
    flags: Flags
    calls: list[Call]
    target: str
    seed: int
    protocol: bool = False
    seen: int = 1
    file: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def level(self) -> str:
        """`pool` or `manager`."""
        return "pool" if isinstance(self.config, PoolConfig) else "manager"

    @property
    def property(self) -> str:
        """The name of the broken property."""
        return self.finding.property

    def as_json(self) -> dict[str, Any]:
        """Return the failure as a replay file holds it (see docs/replay-format.md)."""
        return {
            "kvproof": f"{self.level}-failure",
            "format": 1,
            "signature": self.signature,
            "property": self.property,
            "class": PROPERTIES[self.property].klass.value,
            "says": PROPERTIES[self.property].says,
            "consequence": PROPERTIES[self.property].consequence.value,
            "finding": self.finding.says,
            "expected": self.finding.expected,
            "actual": self.finding.actual,
            "target": self.target,
            "seed": self.seed,
            "layout": self.layout,
            "protocol": self.protocol,
            "flags": {name: getattr(self.flags, name) for name in ("policy", "quality", "misuse")},
            self.level: _config_as_json(self.config),
            "operations": operations(self),
        }


def operations(failure: Failure) -> list[dict[str, Any]]:
    """Return the calls as JSON objects, without what goes without saying."""
    if failure.level == "pool":
        return [call.as_json() for call in failure.calls]
    return [{"op": call.name, **shown_args(call)} for call in failure.calls]


def _config_as_json(config: PoolConfig | ManagerConfig) -> dict[str, Any]:
    if isinstance(config, ManagerConfig):
        return config.as_json()
    return {
        "num_gpu_blocks": config.num_gpu_blocks,
        "enable_caching": config.enable_caching,
        "hash_block_size": config.hash_block_size,
        "block_sizes": {str(group): size for group, size in config.block_sizes.items()},
        "enable_kv_cache_events": config.enable_kv_cache_events,
    }
