"""Seeded defects: copies of our implementation, each with one thing wrong.

They answer the question who tests the tests: a fuzzer that is worth its time finds each of
them. A defect is an edit of the implementation's source text. The edited text is compiled
into modules of its own; the implementation that is imported stays as it is.
"""

import inspect
from functools import cache, partial
from types import ModuleType

from kvproof.fuzz import defects_of_blocks, defects_of_corners, defects_of_keys
from kvproof.fuzz.defect import Defect
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.target import PoolFactory
from kvproof.impl import block_pool, free_queue, hash_map

MODULES = (free_queue, hash_map, block_pool)
"""The implementation's modules, those that are imported before those that import them."""

DEFECTS: dict[str, Defect] = {
    defect.name: defect
    for module in (defects_of_blocks, defects_of_keys, defects_of_corners)
    for defect in module.DEFECTS
}
"""Every seeded defect, by name."""


class DefectError(ValueError):
    """There is no such defect, or its edits no longer fit the implementation."""


def load_defect(name: str) -> PoolFactory:
    """Return what builds pools that have the defect.

    Raises DefectError when there is no defect of this name, or when a text that it replaces
    does not occur exactly once in the implementation.
    """
    if name not in DEFECTS:
        raise DefectError(f"no defect {name!r}; known: {', '.join(DEFECTS)}")
    pool = edited_module(DEFECTS[name], MODULES).__dict__["BlockPool"]
    return partial(ImplPool, pool_type=pool)


@cache
def edited_module(defect: Defect, modules: tuple[ModuleType, ...]) -> ModuleType:
    """Return a copy of the last of the modules, with the edits made in it and in copies of the
    others that it uses. Raises DefectError.
    """
    texts = edited_sources(defect, modules)
    compiled: list[ModuleType] = []
    for module in modules:
        copy = ModuleType(module.__name__, module.__doc__)
        copy.__file__ = module.__file__
        exec(compile(texts[module.__name__], f"<{defect.name}>", "exec"), copy.__dict__)
        for imported in compiled:
            _rebind(copy, imported)
        compiled.append(copy)
    return compiled[-1]


def _rebind(module: ModuleType, imported: ModuleType) -> None:
    """Let the module use what the copy defines where it imported it from the original."""
    for name, value in list(module.__dict__.items()):
        if getattr(value, "__module__", None) == imported.__name__ and name in imported.__dict__:
            setattr(module, name, imported.__dict__[name])


def edited_sources(defect: Defect, modules: tuple[ModuleType, ...] = MODULES) -> dict[str, str]:
    """Return the text of each of the modules, with the edits made.

    Raises DefectError when a text to replace does not occur exactly once.
    """
    texts = {module.__name__: inspect.getsource(module) for module in modules}
    for old, new in defect.edits:
        places = [name for name, text in texts.items() for _ in range(text.count(old))]
        if len(places) != 1:
            raise DefectError(
                f"defect {defect.name}: the text must occur once in kvproof.impl, not"
                f" {len(places)} times; change the edit to fit:\n{old}"
            )
        texts[places[0]] = texts[places[0]].replace(old, new)
    return texts
