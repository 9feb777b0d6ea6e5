"""What a target can do and show, and which properties then say nothing of it."""

from dataclasses import dataclass

from kvproof.fuzz.handle import Handle
from kvproof.fuzz.manager_handle import OPTIONAL, ManagerHandle
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.target import OPERATIONS, Observation, PoolConfig
from kvproof.fuzz.targets import Target

NEEDS: dict[str, dict[str, str]] = {
    "pool": {
        "hit-backed": "get_cached_block",
        "first-inserted": "get_cached_block",
        "events-mirror-cache": "take_events",
        "retired-stays-retired": "cache_partial_block",
    },
    "manager": {
        "events-mirror-cache": "take_events",
        "all-returned": "reset_prefix_cache",
        "common-prefix-true": "get_num_common_prefix_blocks",
        "deferral-neutral": "pop_blocks_for_free",
        "key-injective": "block_hashes",
        "incremental-equals-fresh": "fresh_block_hashes",
    },
}
"""For each level, properties that say nothing of a target without this operation."""

SHOWS = {
    "refs-nonnegative": ("ref_cnt",),
    "refs-exact": ("ref_cnt",),
    "queue-is-a-set": ("free",),
    "index-agrees": ("index", "keys"),
    "one-chain-per-block": ("keys",),
    "retired-stays-retired": ("index", "keys"),
    "hit-longest": ("index",),
    "mask-covers-lookup": ("index",),
}
"""Properties that say nothing of a target that shows none of these fields."""


@dataclass(frozen=True)
class Ability:
    """The operations that a target lacks, and the fields that it does not show."""

    lacks: list[str]
    hidden: list[str]

    def lacking(self, level: str, name: str) -> str | None:
        """Say why a property cannot be judged, if it cannot."""
        if set(SHOWS.get(name, "?")) <= set(self.hidden):
            return f"the target does not show {' or '.join(SHOWS[name])}"
        needed = NEEDS[level].get(name)
        return f"the target has no {needed}" if needed in self.lacks else None


def ability_of(level: str, target: Target) -> Ability:
    """Build one, and look. Raises TargetBroken."""
    if level == "manager":
        managed = ManagerHandle(target.factory, ManagerConfig(4, (GroupConfig("full", 4),)))
        lacks = [name for name in OPTIONAL if not managed.has(name)]
        hidden = _hidden(managed.first_look().pool)
        return Ability(lacks, [name for name in hidden if name != "hooks"])
    handle = Handle(target.factory, PoolConfig(num_gpu_blocks=4))
    lacks = [name for name in OPERATIONS if name not in handle.target.operations]
    return Ability(lacks, _hidden(handle.first_look()))


def _hidden(seen: Observation) -> list[str]:
    return [name for name in seen.__slots__ if getattr(seen, name) is None]
