"""Ghost contents: which prefix each slot of each block holds, without a GPU or a model.

A step writes, for each token that it computes, the token's prefix into the token's slot, and
then reads every slot that the token's attention may read. What is read must be the request's
own prefix; the null block is read by nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvproof.spec.attention import Attention

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Wrong:
    """A property that a step breaks, and what shows it."""

    property: str
    says: str


class Contents:
    """The contents of one group's blocks, of `block_size` slots each."""

    def __init__(self, attention: Attention, block_size: int) -> None:
        self.attention, self.block_size = attention, block_size
        self.slots: dict[tuple[int, int], Prefix] = {}

    def write(self, table: list[int], tokens: list[int], positions: Iterable[int]) -> Wrong | None:
        """Write the tokens at these positions, where the table says."""
        for position in positions:
            index, offset = divmod(position, self.block_size)
            if index >= len(table) or table[index] == 0:
                where = "no block" if index >= len(table) else "the null block"
                return Wrong("writes-exclusive", f"the token at {position} is written to {where}")
            self.slots[table[index], offset] = tuple(tokens[: position + 1])
        return None

    def read(self, table: list[int], tokens: list[int], reader: int) -> Wrong | None:
        """Let the token at `reader` read what its attention lets it read."""
        for position in range(self.attention.first_read(reader), reader + 1):
            index, offset = divmod(position, self.block_size)
            block = table[index] if index < len(table) else 0
            if block == 0:
                says = f"the token at {reader} may read position {position}, whose block is gone"
                return Wrong("window-kept", says)
            own, there = tuple(tokens[: position + 1]), self.slots.get((block, offset))
            if there != own:
                says = (
                    f"the token at {reader} reads position {position} in block {block}: {there},"
                    f" not {own}"
                )
                return Wrong("reads-own-prefix", says)
        return None
