"""What each type of attention needs, as closed formulas and scans.

`kvproof.spec.attention` says what they must come to.

Source: vLLM 0.25.1, single_type_kv_cache_manager.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, NoReturn

from kvproof.spec import manager_rules
from kvproof.spec.rules import Rule

Find = Callable[[int], int | None]
"""The block that is listed under the hash of block `i` of a request, None for a miss."""

KINDS = ("full", "mla", "sliding-window", "chunked-local")


class GroupSpec(NamedTuple):
    """A group of layers: its kind, its block size, and its window or chunk, in tokens."""

    kind: str
    block_size: int
    reach: int = 0


@dataclass(frozen=True)
class Reach:
    """Full attention: nothing is forgotten, and a hit goes on to the first miss."""

    block_size: int
    reach: int = 0

    def skipped_blocks(self, num_computed_tokens: int) -> int:
        """Return how many leading blocks no token from `num_computed_tokens` on reads."""
        return 0

    def last_reader(self, block: int) -> float:
        """Return the last position for which `block` is the first one that is not skipped."""
        return inf

    def peak(self, alone: Sequence[bool], computed: int, slots: int, step: int) -> int:
        """Return the most blocks that a request holds alone on its way from `computed` tokens to
        `slots` slots; `alone` says so of the entries that it has.

        What is held with the same first block grows to the last step that begins there, and is
        no more later on when nothing is shared any more.
        """
        last, most = max(slots - 1, computed), 0
        while True:
            first = self.skipped_blocks(computed)
            start = int(min(self.last_reader(first), last))
            end = -(-min(start + step, slots) // self.block_size)
            held = sum(alone[first:end]) + max(end - max(first, len(alone)), 0)
            most = max(most, held)
            if first >= len(alone) or start == last:
                return most
            computed = start + 1

    def hit(self, num_blocks: int, find: Find, null_block: int) -> list[int]:
        """Return the entries of the longest hit of at most `num_blocks` blocks."""
        entries: list[int] = []
        for index in range(num_blocks):
            block = find(index)
            if block is None:
                break
            entries.append(block)
        return entries

    def mask(
        self, first: int, last: int, interval: int | None, num_prompt_tokens: int
    ) -> Sequence[bool] | None:
        """Say which blocks from `first` to `last` are published; None: all of them."""
        return None


class Window(Reach):
    """The last `reach` tokens: a hit needs the blocks that they lie in."""

    def skipped_blocks(self, num_computed_tokens: int) -> int:
        """See `Reach`."""
        return max(num_computed_tokens - self.reach + 1, 0) // self.block_size

    def last_reader(self, block: int) -> float:
        """See `Reach`."""
        return (block + 1) * self.block_size + self.reach - 2

    def hit(self, num_blocks: int, find: Find, null_block: int) -> list[int]:
        """See `Reach`. From the right: a miss at `i` ends every hit that needs `i`, so the scan
        goes on below it.
        """
        needed = self._needed
        end = num_blocks
        run: list[int] = []
        while end > 0:
            index = end - len(run) - 1
            block = None if index < 0 else find(index)
            if block is not None:
                run.append(block)
            if index < 0 or len(run) >= needed:
                break
            if block is None:
                end, run = index, []
        return [null_block] * (end - len(run)) + run[::-1]

    def mask(
        self, first: int, last: int, interval: int | None, num_prompt_tokens: int
    ) -> Sequence[bool] | None:
        """See `Reach`. A boundary needs the blocks before it."""
        if interval is None:
            return None
        size, needed = self.block_size, self._needed
        step = interval // size
        replay = (num_prompt_tokens - 1) // size

        def is_kept(index: int) -> bool:
            if replay - needed <= index < replay:
                return True
            return step > 0 and (needed >= step or index % step >= step - needed)

        return [is_kept(index) for index in range(first, last)]

    @property
    def _needed(self) -> int:
        return -(-(self.reach - 1) // self.block_size)


class Chunk(Reach):
    """The chunk of `reach` tokens that a token lies in: a hit needs nothing before it."""

    def skipped_blocks(self, num_computed_tokens: int) -> int:
        """See `Reach`."""
        return num_computed_tokens // self.reach * self.reach // self.block_size

    def last_reader(self, block: int) -> float:
        """See `Reach`."""
        return (block * self.block_size // self.reach + 1) * self.reach - 1

    def hit(self, num_blocks: int, find: Find, null_block: int) -> list[int]:
        """See `Reach`."""
        per_chunk = self.reach // self.block_size
        start = num_blocks // per_chunk * per_chunk
        return [null_block] * start + super().hit(
            num_blocks - start, lambda index: find(start + index), null_block
        )


def reach_of(spec: GroupSpec) -> Reach:
    """Return what a group reads. Raises ConfigError."""
    size, reach = spec.block_size, spec.reach
    if spec.kind not in KINDS or size <= 0:
        refuse(manager_rules.CONFIG_FITS, spec)
    if spec.kind == "sliding-window":
        return Window(size, reach)
    if spec.kind == "chunked-local":
        if reach <= 0 or reach % size:
            refuse(manager_rules.CONFIG_FITS, spec)
        return Chunk(size, reach)
    return Reach(size)


def refuse(rule: Rule, subject: object) -> NoReturn:
    """Raise the rule's error."""
    raise rule.error(rule, subject)
