"""The specification as a value: the modules of `kvproof.spec`, or an edited copy of them.

The prover and the replay take their transitions, statements and containers from a
`Specification`, so that a seeded defect is an edit of the specification's own text.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = "kvproof.spec"
_MODULES = (
    "quantities",
    "rules",
    "logic",
    "universe",
    "concrete",
    "state",
    "ghosts",
    "transitions",
    "properties",
    "pool_properties",
    "steps",
    "full_attention",
    "manager_properties",
    "attention",
    "protocol_rules",
    "ghost_state",
    "ghost_properties",
    "ghost_transitions",
    "ghost_concrete",
)


@dataclass(frozen=True)
class Edit:
    """Replace a piece of a module's text, which must occur in it exactly once."""

    module: str
    old: str
    new: str


class EditError(ValueError):
    """The text that an edit replaces is not there, or is there twice."""


class Specification:
    """The modules of `kvproof.spec` by name. With edits: a copy of its own."""

    def __init__(self, edits: tuple[Edit, ...] = ()) -> None:
        self.edits = edits
        if edits:
            with _edited(edits):
                self.modules = _import_all()
        else:
            self.modules = _import_all()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["modules"][name]
        except KeyError:
            raise AttributeError(name) from None


def _import_all() -> dict[str, ModuleType]:
    return {name: importlib.import_module(f"{_PACKAGE}.{name}") for name in _MODULES}


class _EditedSource(MetaPathFinder, Loader):
    """Imports the specification from its files, with edits."""

    def __init__(self, files: dict[str, Path], edits: tuple[Edit, ...]) -> None:
        self.files = files
        self.edits = edits

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        if fullname not in self.files:
            return None
        return ModuleSpec(fullname, self, is_package=fullname == _PACKAGE)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        file = self.files[module.__name__]
        text = file.read_text(encoding="utf-8")
        for edit in self.edits:
            if f"{_PACKAGE}.{edit.module}" == module.__name__:
                if text.count(edit.old) != 1:
                    raise EditError(
                        f"{edit.module}: the text occurs {text.count(edit.old)} times: {edit.old!r}"
                    )
                text = text.replace(edit.old, edit.new)
        module.__file__ = str(file)
        exec(compile(text, str(file), "exec"), module.__dict__)


@contextmanager
def _edited(edits: tuple[Edit, ...]) -> Iterator[None]:
    files = {}
    for name in (_PACKAGE, *(f"{_PACKAGE}.{module}" for module in _MODULES)):
        found = find_spec(name)
        if found is None or found.origin is None:
            raise EditError(f"{name} has no source file")
        files[name] = Path(found.origin)
    importlib.import_module(_PACKAGE)
    own = {name: module for name, module in sys.modules.items() if _is_spec(name)}
    finder = _EditedSource(files, edits)
    for name in own:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_spec(name)]:
            del sys.modules[name]
        sys.modules.update(own)
        sys.modules["kvproof"].spec = own[_PACKAGE]  # type: ignore[attr-defined]


def _is_spec(name: str) -> bool:
    return name == _PACKAGE or name.startswith(_PACKAGE + ".")
