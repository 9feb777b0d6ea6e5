"""Ghost contents: which prefix each slot of each block holds, without a GPU or a model.

A step writes, for each token that it computes, the token's whole prefix into the token's slot;
when all are written, each token reads every slot that its attention may read. What is read must
be the request's own prefix, and what is written must be what everybody expects there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvproof.fuzz.chains import EMPTY, Chains
from kvproof.fuzz.manager_model import spec_of
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.view import WireKey
from kvproof.fuzz.world import Work
from kvproof.spec.kv_cache_coordinator import attention_of

Tables = dict[str, list[list[int]]]
Expectations = dict[str, list[int]]


@dataclass(frozen=True)
class Wrong:
    """A property that a step breaks, and what shows it."""

    property: str
    says: str
    expected: str
    actual: str


@dataclass(frozen=True)
class _Piece:
    """Positions `start` to `end` of a request, all in one block; `first` is their first slot."""

    block: int
    first: int
    start: int
    end: int


class Contents:
    """The contents of all blocks, in each group: a number for each slot (`Chains`)."""

    def __init__(self, config: ManagerConfig, chains: Chains) -> None:
        self.chains = chains
        self.sizes = [group.block_size for group in config.groups]
        self.attentions = [attention_of(spec_of(group)) for group in config.groups]
        self.slots = [[[EMPTY] * size for _ in range(config.num_blocks)] for size in self.sizes]

    def run(
        self,
        works: list[Work],
        tables: Tables,
        keys: list[list[WireKey]] | None,
        expects: Expectations,
    ) -> Wrong | None:
        """Write what a step writes, then let its tokens read. Return what is wrong first.

        `keys` are those that each block carries, as far as they are shown; `expects` says what
        each request expects in its slots, by position.
        """
        for work in works:
            wrong = self._written(work, tables, keys, expects)
            if wrong is not None:
                return wrong
        for work in works:
            wrong = self._read(work, tables)
            if wrong is not None:
                return wrong
        return None

    def _written(
        self,
        work: Work,
        tables: Tables,
        keys: list[list[WireKey]] | None,
        expects: Expectations,
    ) -> Wrong | None:
        end = work.start + len(work.contents)
        for group, size in enumerate(self.sizes):
            row = _row(tables, work.request, group)
            for piece in _pieces(row, size, work.start, end):
                if piece.block == 0:
                    if not work.readers:
                        continue  # what was loaded, and no token reads
                    says = (
                        f"token {piece.start} of {work.request} is written to no block of its own"
                    )
                    gone = piece.start // size < len(row)
                    name = "window-kept" if gone else "writes-exclusive"
                    return Wrong(name, says, "a block in its table", f"{row}")
                new = work.contents[piece.start - work.start : piece.end - work.start]
                wrong = self._disturbs(work.request, group, piece, new, tables, expects)
                if wrong is None and keys is not None and not work.void:
                    wrong = self._belies(work.request, group, piece, new, keys[piece.block])
                if wrong is not None:
                    return wrong
                last = piece.first + len(new)
                self.slots[group][piece.block][piece.first : last] = new
        return None

    def _disturbs(
        self,
        request: str,
        group: int,
        piece: _Piece,
        new: list[int],
        tables: Tables,
        expects: Expectations,
    ) -> Wrong | None:
        """Somebody else holds the block, and expects something else there."""
        for other, rows in tables.items():
            for index, row in enumerate(rows):
                if piece.block not in row or (other == request and index == group):
                    continue
                start = row.index(piece.block) * self.sizes[index] + piece.first
                due = expects.get(other, [])[start : start + len(new)]
                if due != new[: len(due)]:
                    says = (
                        f"{request} writes its tokens {piece.start} to {piece.end - 1} into block"
                        f" {piece.block}, where {other} has its tokens from {start} on"
                    )
                    return Wrong("writes-exclusive", says, "a block of its own", f"{tables}")
        return None

    def _belies(
        self, request: str, group: int, piece: _Piece, new: list[int], keys: Sequence[WireKey]
    ) -> Wrong | None:
        """The block is keyed for something else."""
        for block_hash, keyed_group in keys:
            chain = self.chains.of_key(block_hash)
            start = (len(chain) - 1) // self.sizes[group] * self.sizes[group] + piece.first
            due = chain[start : start + len(new)]
            if keyed_group != group or due != new[: len(due)]:
                says = (
                    f"{request} writes its tokens {piece.start} to {piece.end - 1} into block"
                    f" {piece.block}, which is keyed for another prefix"
                )
                return Wrong("writes-exclusive", says, "no such key", f"{block_hash}")
        return None

    def _read(self, work: Work, tables: Tables) -> Wrong | None:
        """Every position that one of the readers reads is looked at once: together they read all
        from the first one's first on.
        """
        if not work.readers:
            return None
        for group, size in enumerate(self.sizes):
            first = self.attentions[group].first_read(work.readers.start)
            row = _row(tables, work.request, group)
            for piece in _pieces(row, size, first, work.readers.stop):
                read = f"{work.request} reads its tokens {piece.start} to {piece.end - 1}"
                if piece.block == 0:
                    says = f"{read}, whose block is gone"
                    return Wrong("window-kept", says, "a block in its table", f"{row}")
                there = self.slots[group][piece.block][piece.first :][: piece.end - piece.start]
                if there != work.own[piece.start : piece.end]:
                    says = f"{read} in block {piece.block}, which does not hold them"
                    wanted = "its own prefix"
                    return Wrong("reads-own-prefix", says, wanted, self._shown(there))
        return None

    def _shown(self, there: list[int]) -> str:
        return ", ".join(
            "never written" if one == EMPTY else "void" if one < 0 else self.chains.shown(one)
            for one in there
        )


def _row(tables: Tables, request: str, group: int) -> list[int]:
    rows = tables.get(request)
    return [] if rows is None else rows[group]


def _pieces(row: list[int], size: int, start: int, end: int) -> Iterator[_Piece]:
    """Cut positions into those of one block each. Block 0 stands for none, too."""
    while start < end:
        index, first = divmod(start, size)
        stop = min((index + 1) * size, end)
        yield _Piece(row[index] if index < len(row) else 0, first, start, stop)
        start = stop
