"""Where a command writes: reports to stdout, progress to stderr."""

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from kvproof.cli.errors import PipeClosed

WIDTH = 100
EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def counted(number: int, noun: str) -> str:
    """Say how many there are.

    >>> counted(1, 'failure'), counted(2000, 'failure')
    ('1 failure', '2,000 failures')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def say_list(label: str, items: Sequence[str]) -> None:
    """Write a label and a list, in lines that fit a page."""
    say_wrapped(f"{label}: {', '.join(items) or 'none'}", "", "  ")


def say_wrapped(text: str, first: str, others: str) -> None:
    """Write a text in lines that fit a page, with an indent for the first and the others."""
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    say("\n".join(lines))


class Plain(Console):
    """A console that leaves a closed pipe to the command."""

    def on_broken_pipe(self) -> None:
        """Nobody reads what is written."""
        raise PipeClosed


def say(text: str = "", style: str | None = None) -> None:
    """Write a text to stdout as it is, unwrapped; the style is for terminals."""
    Plain(file=sys.stdout).print(Text(text, style=style or ""), soft_wrap=True)


def note(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr, flush=True)


class Table:
    """Columns of text: as wide as their longest entry, the last one as it comes.

    `right` names the columns of numbers.
    """

    def __init__(self, *names: str, right: Sequence[str] = ()) -> None:
        self.names, self.right = names, right
        self.rows: list[tuple[tuple[str, ...], str | None]] = [(names, "bold")]

    def add(self, *cells: str, style: str | None = None) -> None:
        """Add a row."""
        self.rows.append((cells, style))

    def show(self) -> None:
        """Write the table to stdout."""
        widths = [max(len(cells[i]) for cells, _ in self.rows) for i in range(len(self.names))]
        for cells, style in self.rows:
            padded = [
                cell.rjust(width) if name in self.right else cell.ljust(width)
                for name, cell, width in zip(self.names, cells, widths, strict=True)
            ]
            say("  ".join(padded).rstrip(), style)


class Progress:
    """One line of progress: live on a terminal, else a plain line every ten seconds.

    `line` says how far things are; `tick` is to be called now and then.
    """

    def __init__(self, line: Callable[[], str]) -> None:
        self.line = line
        self._last = monotonic()
        self._live: Live | None = None
        if sys.stderr.isatty():
            stderr = Console(stderr=True, highlight=False, emoji=False)
            self._live = Live(
                console=stderr,
                get_renderable=self._text,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def _text(self) -> RenderableType:
        return Text(self.line(), overflow="ellipsis", no_wrap=True, style="dim")

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live is not None:
            self._live.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take the live line away while something is printed."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def tick(self) -> None:
        """Write a plain line when it is time."""
        if self._live is None and monotonic() - self._last >= EVERY:
            self._last = monotonic()
            note(self.line())
