"""What ends a command early, with one line and exit status 2."""

import difflib
from collections.abc import Iterable, Sequence


class Stop(Exception):
    """The command cannot go on; the message says why, in one line."""


class PipeClosed(Exception):
    """Nobody reads the output any more."""


def one_line(text: str) -> str:
    r"""Put a text on one line, and show what cannot be printed as an escape.

    >>> one_line('two\nlines, and a bell \x07')
    'two lines, and a bell \\x07'
    """
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in joined)


def plain(name: str) -> str:
    """Write a name the way names are compared: lower case, words joined by dashes.

    >>> plain(' Refs_Exact ')
    'refs-exact'
    """
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def choose(kind: str, names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the known names that are meant. Raises Stop with the closest ones."""
    spelled = {plain(name): name for name in known}
    chosen = []
    for name in names:
        if plain(name) not in spelled:
            raise Stop(unknown(kind, name, known))
        if spelled[plain(name)] not in chosen:
            chosen.append(spelled[plain(name)])
    return chosen


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Say that a name is unknown, and which are close to it.

    >>> unknown('layout', 'partail', ['partial', 'full'])
    "unknown layout 'partail'; do you mean partial?"
    """
    spelled = {plain(one): one for one in known}
    close = difflib.get_close_matches(plain(name)[:200], list(spelled), n=3, cutoff=0.5)
    shown = name if len(name) <= 80 else name[:77] + "..."
    if close:
        return f"unknown {kind} {shown!r}; do you mean {' or '.join(spelled[c] for c in close)}?"
    listed = ", ".join(known) if len(known) <= 40 else "kvproof explain lists them"
    return f"unknown {kind} {shown!r}; known: {listed}"
