"""What an entry of `kvproof explain` is, and what the files that make entries share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A name, its sentence, more words by which it is found, and its lines.

    `asks` are the words in which people ask for it, `words` all others that belong to it; `see`
    are names of entries that go with it.
    """

    kind: str
    name: str
    says: str
    words: str
    lines: Callable[[], list[str]]
    asks: str = ""
    see: tuple[str, ...] = ()


def place_of(function: Callable[..., Any]) -> str:
    """Return the file and the line where a function is written, from the package on."""
    function = inspect.unwrap(function)
    file = inspect.getsourcefile(function) or "?"
    parts = Path(file).parts
    start = len(parts) - 1 - parts[::-1].index("kvproof") if "kvproof" in parts else 0
    start -= start > 0 and parts[start - 1] in ("spec", "proofs", "impl", "tests")
    return f"{'/'.join(parts[start:])}:{inspect.getsourcelines(function)[1]}"


def first_sentence(thing: Any) -> str:
    """Return the first paragraph of a docstring on one line, without its full stop."""
    first = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(first.split()).rstrip(".")
