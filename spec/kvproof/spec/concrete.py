"""The concrete reading: the universe whose values are ints and tuples, for running.

Domains can be narrowed with `focus`, so that a statement is checked again only for the
blocks, keys and slots that a call changed. `kvproof.fuzz` says when that is enough.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product, starmap
from typing import Any, Generic, TypeVar

from kvproof.spec.logic import Bool, Domain
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key, Slot
from kvproof.spec.universe import Events, Index, KeySet, Map, Queue

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class ConcreteDomain(Generic[T]):
    """Something to iterate over. The others of a quantifier are concrete domains, too."""

    def __init__(self, values: Iterable[T]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[T]:
        return iter(self.values)

    def forall(self, others: tuple[Domain, ...], body: Callable[..., Bool]) -> Bool:
        """See `Domain`."""
        if not others:
            return all(map(body, self.values))
        return all(starmap(body, self._choices(others)))

    def exists(self, others: tuple[Domain, ...], body: Callable[..., Bool]) -> Bool:
        """See `Domain`."""
        if not others:
            return any(map(body, self.values))
        return any(starmap(body, self._choices(others)))

    def _choices(self, others: tuple[Domain, ...]) -> Iterable[tuple[Any, ...]]:
        return product(self.values, *(other.values for other in others))  # type: ignore[attr-defined]


class ConcreteMap(dict[K, V]):
    """A dict with a default (see `Map`)."""

    __slots__ = ("default",)

    def __init__(self, default: V) -> None:
        super().__init__()
        self.default = default

    def __missing__(self, key: K) -> V:
        return self.default

    def clear(self, value: V) -> None:  # type: ignore[override]
        """See `Map`."""
        super().clear()
        self.default = value


class ConcreteKeySet:
    """An immutable set of keys that remembers the order of addition (see `KeySet`)."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[Key, ...] = ()) -> None:
        self.members = members

    def __iter__(self) -> Iterator[Key]:
        return iter(self.members)

    def has(self, key: Key) -> Bool:
        """See `KeySet`."""
        return key in self.members

    def add(self, key: Key) -> "ConcreteKeySet":
        """See `KeySet`."""
        if key == NO_KEY or key in self.members:
            return self
        return ConcreteKeySet((*self.members, key))

    def union(self, other: KeySet) -> "ConcreteKeySet":
        """See `KeySet`."""
        assert isinstance(other, ConcreteKeySet)
        return ConcreteKeySet(tuple(dict.fromkeys((*self.members, *other))))

    def where(self, predicate: Callable[[Key], Bool]) -> "ConcreteKeySet":
        """See `KeySet`."""
        return ConcreteKeySet(tuple(filter(predicate, self.members)))


EMPTY = ConcreteKeySet()


class ConcreteQueue:
    """A dict in order of insertion, with a second one for what was prepended (see `Queue`).

    The queue reads: `_front` backwards, then `_back`. A queue that was read off an engine
    may name a block twice; that is remembered, and the queue is not well formed.
    """

    __slots__ = ("_back", "_front", "repeated")

    def __init__(self, blocks: Iterable[BlockId]) -> None:
        blocks = list(blocks)
        self._front: dict[BlockId, None] = {}
        self._back = dict.fromkeys(blocks)
        self.repeated = len(blocks) - len(self._back)

    def __iter__(self) -> Iterator[BlockId]:
        yield from reversed(self._front)
        yield from self._back

    def as_list(self) -> list[BlockId]:
        """Return the queued blocks, the front first."""
        return [*reversed(self._front), *self._back] if self._front else list(self._back)

    def has(self, block: BlockId) -> Bool:
        """See `Queue`."""
        return block in self._back or block in self._front

    def nonempty(self) -> Bool:
        """See `Queue`."""
        return bool(self._back) or bool(self._front)

    def before(self, first: BlockId, second: BlockId) -> Bool:
        """See `Queue`."""
        order = self.as_list()
        if first not in order or second not in order:
            return False
        return order.index(first) < order.index(second)

    def popleft(self) -> BlockId:
        """See `Queue`."""
        if self._front:
            return self._front.popitem()[0]
        block = next(iter(self._back))
        del self._back[block]
        return block

    def prepend(self, block: BlockId) -> None:
        """See `Queue`."""
        self._front[block] = None

    def append(self, block: BlockId) -> None:
        """See `Queue`."""
        self._back[block] = None

    def remove(self, block: BlockId) -> None:
        """See `Queue`."""
        if block in self._back:
            del self._back[block]
        else:
            del self._front[block]

    def well_formed(self) -> Bool:
        """See `Queue`: no block was named twice."""
        return self.repeated == 0


class ConcreteIndex:
    """A dict of dicts in order of insertion (see `Index`). `version` counts the changes."""

    __slots__ = ("lists_of", "version")

    def __init__(self) -> None:
        self.lists_of: dict[Key, dict[BlockId, None]] = {}
        self.version = 0

    def contain(self, key: Key, block: BlockId) -> Bool:
        """See `Index`."""
        return block in self.lists_of.get(key, ())

    def lists(self, key: Key) -> Bool:
        """See `Index`."""
        return key in self.lists_of

    def before(self, key: Key, first: BlockId, second: BlockId) -> Bool:
        """See `Index`."""
        order = list(self.lists_of.get(key, ()))
        if first not in order or second not in order:
            return False
        return order.index(first) < order.index(second)

    def get_one_block(self, key: Key) -> BlockId:
        """See `Index`."""
        return next(iter(self.lists_of[key]))

    def insert(self, key: Key, block: BlockId) -> None:
        """See `Index`."""
        self.version += 1
        self.lists_of.setdefault(key, {})[block] = None

    def pop(self, keys: KeySet, block: BlockId) -> None:
        """See `Index`."""
        assert isinstance(keys, ConcreteKeySet)
        for key in keys.members:
            blocks = self.lists_of.get(key)
            if blocks is not None:
                self.version += 1
                blocks.pop(block, None)
                if not blocks:
                    del self.lists_of[key]

    def clear(self) -> None:
        """See `Index`."""
        self.version += 1
        self.lists_of.clear()

    def well_formed(self) -> Bool:
        """See `Index`."""
        return all(self.lists_of.values())


class ConcreteEvents:
    """A log of events, and its fold (see `Events`).

    An entry of `log` is `("stored", key)`, `("removed", key)` or `("cleared", None)`.
    """

    __slots__ = ("folded", "log")

    def __init__(self) -> None:
        self.log: list[tuple[str, Key | None]] = []
        self.folded: dict[Key, None] = {}

    def stored(self, key: Key) -> None:
        """See `Events`."""
        self.log.append(("stored", key))
        self.folded[key] = None

    def removed(self, keys: KeySet) -> None:
        """See `Events`."""
        assert isinstance(keys, ConcreteKeySet)
        for key in keys.members:
            self.log.append(("removed", key))
            self.folded.pop(key, None)

    def cleared(self) -> None:
        """See `Events`."""
        self.log.append(("cleared", None))
        self.folded.clear()

    def believed(self, key: Key) -> Bool:
        """See `Events`."""
        return key in self.folded


class Focus:
    """Narrows the domains of a universe inside a `with`."""

    __slots__ = ("_other", "_universe")

    def __init__(
        self,
        universe: "ConcreteUniverse",
        blocks: ConcreteDomain[BlockId],
        keys: ConcreteDomain[Key],
        slots: ConcreteDomain[Slot],
    ) -> None:
        self._universe = universe
        self._other = blocks, keys, slots

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        u = self._universe
        mine = u.blocks, u.keys, u.slots
        u.blocks, u.keys, u.slots = self._other
        self._other = mine


class ConcreteUniverse:
    """A pool of `num_blocks` blocks. `block_sizes` gives each group's block size in tokens."""

    def __init__(
        self,
        num_blocks: int,
        enable_caching: bool = True,
        block_sizes: dict[GroupId, int] | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.block_sizes = {NO_KEY.group: 1, **(block_sizes or {})}
        self.null = BlockId(0)
        self.no_key = NO_KEY
        self.known_keys: dict[Key, None] = {}
        self.known_slots: dict[Slot, None] = {}
        self.blocks: ConcreteDomain[BlockId] = ConcreteDomain(
            [BlockId(block) for block in range(num_blocks)]
        )
        self.keys: ConcreteDomain[Key] = ConcreteDomain(self.known_keys)
        self.slots: ConcreteDomain[Slot] = ConcreteDomain(self.known_slots)

    def focus(
        self, blocks: Iterable[BlockId], keys: Iterable[Key], slots: Iterable[Slot]
    ) -> "Focus":
        """Let the quantifiers range over these blocks, keys and slots only, inside a `with`."""
        return Focus(self, ConcreteDomain(blocks), ConcreteDomain(keys), ConcreteDomain(slots))

    def below(self, bound: int) -> ConcreteDomain[int]:
        """See `Universe`."""
        return ConcreteDomain(range(bound))

    def is_prefix(self, first: Key, second: Key) -> Bool:
        """See `Universe`."""
        length = len(first.block_hash)
        return first.group == second.group and second.block_hash[:length] == first.block_hash

    def same_block(self, first: Key, second: Key) -> Bool:
        """See `Universe`."""
        return self._index(first) == self._index(second)

    def is_full(self, key: Key) -> Bool:
        """See `Universe`."""
        return len(key.block_hash) % self.block_sizes[key.group] == 0

    def group(self, key: Key) -> GroupId:
        """See `Universe`."""
        return key.group

    def parent(self, key: Key) -> Key:
        """Return the key of the prefix that ends one block earlier, or `NO_KEY`."""
        length = self._index(key) * self.block_sizes[key.group] - self.block_sizes[key.group]
        return Key(key.block_hash[:length], key.group) if length else NO_KEY

    def counts(self, name: str) -> Map[BlockId, int]:
        """See `Universe`."""
        return ConcreteMap(0)

    def ranks(self, name: str) -> Map[Slot, int]:
        """See `Universe`."""
        return ConcreteMap(0)

    def flags(self, name: str) -> Map[Slot, Bool]:
        """See `Universe`."""
        return ConcreteMap(False)

    def block_keys(self, name: str) -> Map[BlockId, Key]:
        """See `Universe`."""
        return ConcreteMap(NO_KEY)

    def block_key_sets(self, name: str) -> Map[BlockId, KeySet]:
        """See `Universe`."""
        return ConcreteMap(EMPTY)

    def slot_blocks(self, name: str) -> Map[Slot, BlockId]:
        """See `Universe`."""
        return ConcreteMap(self.null)

    def block_slots(self, name: str) -> Map[tuple[BlockId, int], Slot]:
        """See `Universe`."""
        return ConcreteMap(Slot(-1))

    def places(self, name: str) -> Map[BlockId, int]:
        """See `Universe`."""
        places: ConcreteMap[BlockId, int] = ConcreteMap(0)
        places.update({block: (block - 1) % self.num_blocks for block in self.blocks})
        return places

    def placed(self, name: str) -> Map[int, BlockId]:
        """See `Universe`."""
        placed: ConcreteMap[int, BlockId] = ConcreteMap(self.null)
        placed.update({(block - 1) % self.num_blocks: block for block in self.blocks})
        return placed

    def number(self, name: str, initial: int) -> int:
        """See `Universe`."""
        return initial

    def no_keys(self) -> KeySet:
        """See `Universe`."""
        return EMPTY

    def free_queue(self, name: str) -> Queue:
        """See `Universe`."""
        return ConcreteQueue(block for block in self.blocks if block != self.null)

    def index(self, name: str) -> Index:
        """See `Universe`."""
        return ConcreteIndex()

    def events(self, name: str) -> Events:
        """See `Universe`."""
        return ConcreteEvents()

    def _index(self, key: Key) -> int:
        return -(-len(key.block_hash) // self.block_sizes[key.group])
