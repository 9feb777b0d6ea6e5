"""The concrete reading of the ghost contents: ints and tuples, for running."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvproof.spec.attention import Attention
from kvproof.spec.concrete import ConcreteDomain, ConcreteMap
from kvproof.spec.ghost_state import RequestId, Rows, Sort, Tokens
from kvproof.spec.logic import Bool
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key, TokenId

POISON = Key((), GroupId(-2))
"""What a slot holds when nobody knows what it holds."""


@dataclass(frozen=True)
class Shape:
    """A group: its block size and its attention."""

    block_size: int
    attention: Attention


class ConcreteRows(ConcreteMap[tuple[RequestId, GroupId], int]):
    """See `kvproof.spec.ghost_state.Rows`."""

    __slots__ = ("groups",)

    def __init__(self, groups: Iterable[GroupId]) -> None:
        super().__init__(0)
        self.groups = tuple(groups)

    def fill(self, request: RequestId, value: int) -> None:
        """See `Rows`."""
        for group in self.groups:
            self[request, group] = value


class ConcreteGhostUniverse:
    """Blocks `0 .. num_blocks - 1`, requests `0 .. num_requests - 1`, some sequences of tokens
    that are all as long (see `GhostUniverse`).
    """

    null = BlockId(0)
    no_key = NO_KEY
    poison = POISON

    def __init__(
        self,
        num_blocks: int,
        num_requests: int,
        shapes: Iterable[Shape],
        sequences: Iterable[Tokens],
    ) -> None:
        self.shapes = tuple(shapes)
        self.known = tuple(sequences)
        self.length = min(len(tokens) for tokens in self.known)
        self.blocks = ConcreteDomain([BlockId(block) for block in range(num_blocks)])
        self.requests = ConcreteDomain([RequestId(request) for request in range(num_requests)])
        self.groups = ConcreteDomain([GroupId(group) for group in range(len(self.shapes))])
        self.sequences = ConcreteDomain(self.known)
        self.numbers = ConcreteDomain(range(self.length))

    @property
    def keys(self) -> ConcreteDomain[Key]:
        """See `GhostUniverse`."""
        prefixes = {
            self.prefix(group, tokens, position): None
            for group in self.groups
            for tokens in self.known
            for position in self.numbers
        }
        return ConcreteDomain([NO_KEY, POISON, *prefixes])

    def block_size(self, group: GroupId) -> int:
        """See `GhostUniverse`."""
        return self.shapes[group].block_size if 0 <= group < len(self.shapes) else 1

    def start(self, group: GroupId, index: int) -> int:
        """See `GhostUniverse`."""
        return index * self.block_size(group)

    def last(self, group: GroupId, index: int) -> int:
        """See `GhostUniverse`."""
        return (index + 1) * self.block_size(group) - 1

    def index(self, group: GroupId, position: int) -> int:
        """See `GhostUniverse`."""
        return position // self.block_size(group)

    def prefix(self, group: GroupId, tokens: Tokens, position: int) -> Key:
        """See `GhostUniverse`."""
        return Key(tuple(TokenId(token) for token in tokens[: position + 1]), group)

    def content_at(self, key: Key, offset: int) -> Key:
        """See `GhostUniverse`."""
        behind = self.block_size(key.group) - 1 - offset
        return Key(key.block_hash[: max(len(key.block_hash) - behind, 0)], key.group)

    def position(self, key: Key) -> int:
        """See `GhostUniverse`."""
        return len(key.block_hash) - 1

    def group(self, key: Key) -> GroupId:
        """See `GhostUniverse`."""
        return key.group

    def reads(self, request: RequestId, group: GroupId, reader: int, position: int) -> Bool:
        """See `GhostUniverse`."""
        reads = self.shapes[group].attention.reads(reader, position)
        return (position >= 0) & (reads | (position == reader))

    def map(
        self, name: str, domain: tuple[Sort, ...], codomain: Sort, default: object
    ) -> ConcreteMap[Any, Any]:
        """See `GhostUniverse`."""
        return ConcreteMap(default)

    def rows(self, name: str) -> Rows:
        """See `GhostUniverse`."""
        return ConcreteRows(self.groups)
