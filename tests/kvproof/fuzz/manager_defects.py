"""Seeded defects at manager level: copies of our manager, each with one thing wrong."""

from functools import partial

from kvproof.fuzz import defects_of_managers
from kvproof.fuzz.defect import Defect
from kvproof.fuzz.defects import MODULES, DefectError, edited_module
from kvproof.fuzz.impl_manager import ImplManager
from kvproof.fuzz.manager_target import ManagerFactory
from kvproof.impl import kv_cache_manager, reach

MANAGER_MODULES = (*MODULES, reach, kv_cache_manager)
"""The implementation's modules, those that are imported before those that import them."""

MANAGER_DEFECTS: dict[str, Defect] = {defect.name: defect for defect in defects_of_managers.DEFECTS}
"""Every seeded defect of a manager, by name."""


def load_manager_defect(name: str) -> ManagerFactory:
    """Return what builds managers that have the defect. Raises DefectError."""
    if name not in MANAGER_DEFECTS:
        raise DefectError(f"no defect {name!r}; known: {', '.join(MANAGER_DEFECTS)}")
    module = edited_module(MANAGER_DEFECTS[name], MANAGER_MODULES)
    return partial(ImplManager, manager_type=module.__dict__["KVCacheManager"])
