"""What the tests of the fuzz kit share: random sequences of calls, without Hypothesis."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.fuzz.calls import Call
from kvproof.fuzz.impl_target import factory
from kvproof.fuzz.layouts import LAYOUTS, Layout
from kvproof.fuzz.moves import Moves
from kvproof.fuzz.picks import RandomPick
from kvproof.fuzz.run import Flags, Run
from kvproof.fuzz.session import Session

Drawn = Callable[..., list[Call]]


class Recording(Session):
    """A session that keeps the calls it made."""

    def __init__(self, layout: Layout, flags: Flags) -> None:
        super().__init__(factory, "impl", flags, [layout])
        self.made: list[Call] = []

    def call(self, run: Run, call: Call, careful: bool, kind: str | None = None) -> Any:
        self.made.append(call)
        return super().call(run, call, careful, kind)


def draw(layout: str, seed: int, length: int, num_blocks: int = 6, misuse: bool = False) -> Any:
    """Return calls that our implementation answers as the specification says."""
    session = Recording(LAYOUTS[layout], Flags(policy=True, misuse=misuse))
    run = session.start(LAYOUTS[layout].config(num_blocks), LAYOUTS[layout], drain=True)
    moves, pick = Moves(session, run, LAYOUTS[layout], careful=False), RandomPick(bytes([seed]))
    while len(session.made) < length:
        moves.make(pick.one(moves.possible()), pick)
    assert not session.failures
    return session.made[:length]


@pytest.fixture
def drawn() -> Drawn:
    """Draw calls: `drawn(layout, seed, length, num_blocks=6, misuse=False)`."""
    return draw
