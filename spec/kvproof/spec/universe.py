"""What the specification asks of the values it runs on.

A `Universe` makes the containers and knows the keys. The concrete one
(`kvproof.spec.concrete`) holds dicts and lists; the symbolic one, in
`kvproof.proofs`, holds solver terms. The specification cannot tell them apart.

The containers are named after what they stand for in vLLM 0.25.1:

| here | vLLM |
| --- | --- |
| `Queue` | `FreeKVCacheBlockQueue` |
| `Index` | `BlockHashToBlockMap` |
| `KeySet` | the keys of one block: `_block_hash` and `cached_block_hashes_by_block` |
| `Events` | `kv_event_queue` |
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from kvproof.spec.logic import Bool, Domain
from kvproof.spec.quantities import BlockId, GroupId, Key, Slot

K = TypeVar("K", contravariant=True)
V = TypeVar("V")


class Map(Protocol[K, V]):
    """A total map: every key has a value, at first the default."""

    def __getitem__(self, key: K, /) -> V: ...

    def __setitem__(self, key: K, value: V, /) -> None: ...

    def clear(self, value: V) -> None:
        """Give every key this value."""
        ...


class KeySet(Protocol):
    """A finite set of keys. `NO_KEY` is never a member, and adding it adds nothing."""

    def has(self, key: Key) -> Bool:
        """`key` is a member."""
        ...

    def add(self, key: Key) -> "KeySet":
        """Return this set and `key`."""
        ...

    def union(self, other: "KeySet") -> "KeySet":
        """Return the keys of this set and of the other."""
        ...

    def where(self, predicate: Callable[[Key], Bool]) -> "KeySet":
        """Return the members that satisfy the predicate."""
        ...


class Queue(Protocol):
    """An order of blocks. A block is in it once, or not at all."""

    def has(self, block: BlockId) -> Bool:
        """`block` is queued."""
        ...

    def nonempty(self) -> Bool:
        """Some block is queued."""
        ...

    def before(self, first: BlockId, second: BlockId) -> Bool:
        """Both are queued, `first` nearer to the front."""
        ...

    def popleft(self) -> BlockId:
        """Take the block at the front. The queue must not be empty."""
        ...

    def prepend(self, block: BlockId) -> None:
        """Put a block that is not queued at the front."""
        ...

    def append(self, block: BlockId) -> None:
        """Put a block that is not queued at the back."""
        ...

    def remove(self, block: BlockId) -> None:
        """Take a queued block out of the middle."""
        ...

    def well_formed(self) -> Bool:
        """Whatever the container needs of its own representation."""
        ...


class Index(Protocol):
    """For each key, the blocks that are listed under it, in the order of insertion."""

    def contain(self, key: Key, block: BlockId) -> Bool:
        """`block` is listed under `key`."""
        ...

    def lists(self, key: Key) -> Bool:
        """Some block is listed under `key`."""
        ...

    def before(self, key: Key, first: BlockId, second: BlockId) -> Bool:
        """Both are listed under `key`, `first` earlier."""
        ...

    def get_one_block(self, key: Key) -> BlockId:
        """The block that was listed under `key` first. Some block must be listed."""
        ...

    def insert(self, key: Key, block: BlockId) -> None:
        """List a block that is not listed under `key`, as its last."""
        ...

    def pop(self, keys: KeySet, block: BlockId) -> None:
        """List `block` under none of these keys any more."""
        ...

    def clear(self) -> None:
        """List nothing."""
        ...

    def well_formed(self) -> Bool:
        """Whatever the container needs of its own representation; no list is empty."""
        ...


class Events(Protocol):
    """The event stream, and what a consumer that folds all of it believes is cached."""

    def stored(self, key: Key) -> None:
        """Tell that `key` has become resident, or is resident in one block more."""
        ...

    def removed(self, keys: KeySet) -> None:
        """Tell that these keys are resident in no block any more."""
        ...

    def cleared(self) -> None:
        """Tell that nothing is resident any more."""
        ...

    def believed(self, key: Key) -> Bool:
        """A consumer that folded the whole stream takes `key` for resident."""
        ...


class Universe(Protocol):
    """The values of one reading, and the containers that hold them."""

    null: BlockId
    no_key: Key
    num_blocks: int
    enable_caching: Bool

    @property
    def blocks(self) -> Domain:
        """All blocks, the null block among them."""
        ...

    @property
    def keys(self) -> Domain:
        """All keys."""
        ...

    @property
    def slots(self) -> Domain:
        """All slots."""
        ...

    def below(self, bound: int) -> Domain:
        """The integers 0 .. bound - 1."""
        ...

    def is_prefix(self, first: Key, second: Key) -> Bool:
        """Both are in one group, and `first` hashes a prefix of what `second` hashes."""
        ...

    def same_block(self, first: Key, second: Key) -> Bool:
        """Both prefixes end in a block of the same index of their group's block table."""
        ...

    def is_full(self, key: Key) -> Bool:
        """The prefix ends on a block boundary of the key's group."""
        ...

    def group(self, key: Key) -> GroupId:
        """The group that qualifies the key."""
        ...

    def parent(self, key: Key) -> Key:
        """The key of the prefix that ends one block earlier, or `no_key`."""
        ...

    def counts(self, name: str) -> Map[BlockId, int]:
        """Make a map from blocks to numbers, all 0."""
        ...

    def ranks(self, name: str) -> Map[Slot, int]:
        """Make a map from slots to numbers, all 0."""
        ...

    def flags(self, name: str) -> Map[Slot, Bool]:
        """Make a map from slots to truth values, all false."""
        ...

    def block_keys(self, name: str) -> Map[BlockId, Key]:
        """Make a map from blocks to keys, all `no_key`."""
        ...

    def block_key_sets(self, name: str) -> Map[BlockId, KeySet]:
        """Make a map from blocks to sets of keys, all empty."""
        ...

    def slot_blocks(self, name: str) -> Map[Slot, BlockId]:
        """Make a map from slots to blocks, all null."""
        ...

    def block_slots(self, name: str) -> Map[tuple[BlockId, int], Slot]:
        """Make a map from (block, number) to slots."""
        ...

    def places(self, name: str) -> Map[BlockId, int]:
        """Make a one-to-one map from blocks to 0 .. num_blocks - 1, the null block last."""
        ...

    def placed(self, name: str) -> Map[int, BlockId]:
        """Make the inverse of `places`."""
        ...

    def number(self, name: str, initial: int) -> int:
        """Make a number."""
        ...

    def no_keys(self) -> KeySet:
        """Return the empty set of keys."""
        ...

    def free_queue(self, name: str) -> Queue:
        """Make a queue that holds every block but the null block, in order of id."""
        ...

    def index(self, name: str) -> Index:
        """Make an empty index."""
        ...

    def events(self, name: str) -> Events:
        """Make an empty event stream."""
        ...
