"""Who chooses, when a move leaves something open: Hypothesis, or a seeded generator.

Hypothesis explores with care, and costs about a millisecond for each move. A burst takes its
choices from `random.Random`, seeded by Hypothesis, and costs a tenth of that.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Pick(Protocol):
    """Makes choices."""

    def number(self, low: int, high: int) -> int:
        """Choose from low .. high."""
        ...

    def one(self, options: Sequence[T]) -> T:
        """Choose one of the options."""
        ...

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Choose options at different positions, in any order."""
        ...

    def flag(self) -> bool:
        """Choose yes or no."""
        ...


class HypothesisPick:
    """Hypothesis chooses."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, low: int, high: int) -> int:
        """See `Pick`."""
        return self._data.draw(st.integers(low, high))

    def one(self, options: Sequence[T]) -> T:
        """See `Pick`."""
        return self._data.draw(st.sampled_from(options))

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """See `Pick`."""
        positions = st.sampled_from(range(len(options)))
        most = min(most, len(options))
        chosen = st.lists(positions, min_size=min(least, most), max_size=most, unique=True)
        return [options[position] for position in self._data.draw(chosen)]

    def flag(self) -> bool:
        """See `Pick`."""
        return self._data.draw(st.booleans())


class RandomPick:
    """A seeded generator chooses."""

    def __init__(self, seed: bytes) -> None:
        self._random = Random(seed)

    def number(self, low: int, high: int) -> int:
        """See `Pick`."""
        return self._random.randint(low, high)

    def one(self, options: Sequence[T]) -> T:
        """See `Pick`."""
        return self._random.choice(options)

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """See `Pick`."""
        most = min(most, len(options))
        return self._random.sample(options, self._random.randint(min(least, most), most))

    def flag(self) -> bool:
        """See `Pick`."""
        return self._random.random() < 0.5
