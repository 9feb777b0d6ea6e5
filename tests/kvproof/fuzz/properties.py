"""The properties that are judged at each level, by name."""

from kvproof.spec.attention import HIT_LONGEST, MASK_COVERS_LOOKUP
from kvproof.spec.full_attention import NO_STRANDED_SUFFIX
from kvproof.spec.hashing import HASHING_PROPERTIES
from kvproof.spec.manager_properties import MANAGER_PROPERTIES
from kvproof.spec.pool_properties import STATE_PROPERTIES
from kvproof.spec.properties import Property
from kvproof.spec.steps import STEP_PROPERTIES

POOL_LEVEL: dict[str, Property] = {
    **STEP_PROPERTIES,
    **STATE_PROPERTIES,
    NO_STRANDED_SUFFIX.name: NO_STRANDED_SUFFIX,
}
"""Every property of the block pool."""

_POOL_ONLY = {"misuse-refused", "retired-stays-retired", NO_STRANDED_SUFFIX.name}

MANAGER_LEVEL: dict[str, Property] = {
    **{name: found for name, found in POOL_LEVEL.items() if name not in _POOL_ONLY},
    **MANAGER_PROPERTIES,
    **HASHING_PROPERTIES,
    HIT_LONGEST.name: HIT_LONGEST,
    MASK_COVERS_LOOKUP.name: MASK_COVERS_LOOKUP,
}
"""Every property that a manager's calls can break."""

PROPERTIES: dict[str, Property] = {**POOL_LEVEL, **MANAGER_LEVEL}
"""The properties of all levels."""
