"""Numbers for what a slot may hold: a prefix has one, and poison another one each time."""

from collections.abc import Sequence
from functools import lru_cache

from kvproof.fuzz.calls import from_wire
from kvproof.fuzz.target import Hash

EMPTY = 0
"""The prefix of no token."""


class Chains:
    """Numbers prefixes: two are equal exactly when their numbers are. Poison is negative."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}
        self._elements: list[tuple[int, ...]] = [()]
        self._poisoned = 0
        self.of = lru_cache(maxsize=512)(self._of)

    def of_key(self, block_hash: Hash) -> list[int]:
        """Return what the slots of a prefix hold that a key names, by position."""
        return self.of(tuple(from_wire(block_hash)))

    def shown(self, prefix: int) -> str:
        """Write a prefix as its tokens, joined by dots."""
        return ".".join(map(str, self._elements[prefix]))

    def poison(self) -> int:
        """Return what was never held before."""
        self._poisoned -= 1
        return self._poisoned

    def _of(self, elements: Sequence[int]) -> list[int]:
        """Return what the slots of these elements hold: at each position, its whole prefix."""
        found, prefix = [], EMPTY
        for element in elements:
            step = prefix, element
            if step not in self._next:
                self._next[step] = len(self._elements)
                self._elements.append((*self._elements[prefix], element))
            prefix = self._next[step]
            found.append(prefix)
        return found
