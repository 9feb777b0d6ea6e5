"""Small states as data: out of a model, into a file, and back into the concrete reading.

A snapshot is a dict that JSON can hold. Keys are written as tokens joined by dots, `@` and
the group; 'no key' is `-`.
"""

from collections.abc import Callable
from typing import Any

import z3

from kvproof.proofs.readings import BLOCK, KEY, SLOT, BoundedReading
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import Term, lift
from kvproof.spec.quantities import NO_KEY, GroupId, Key, hash_from_text, hash_text

Snapshot = dict[str, Any]


def key_text(key: Any) -> str:
    """Write a key."""
    return "-" if key == NO_KEY else f"{hash_text(key.block_hash)}@{key.group}"


def key_of_text(text: str) -> Key:
    """Read a key. Raises ValueError when it is none."""
    if text == "-":
        return NO_KEY
    tokens, _, group = text.partition("@")
    return Key(hash_from_text(tokens), GroupId(int(group)))


class Decoder:
    """Reads a model of the bounded reading."""

    def __init__(self, model: Any, universe: Any) -> None:
        self.model = model
        self.universe = universe
        reading = universe.reading
        assert isinstance(reading, BoundedReading)
        self.reading = reading
        self.keys = [key_text(key) for key in reading.scope.keys]
        self._names = {
            element.decl().name(): place
            for sort in (BLOCK, KEY, SLOT)
            for place, element in enumerate(reading.elements[sort])
        }

    def value(self, term: Any) -> Any:
        """Return the value of a term: an int, a bool, or the text of a key."""
        expr = self.model.eval(lift(term), model_completion=True)
        if z3.is_int_value(expr):
            return expr.as_long()
        if z3.is_true(expr) or z3.is_false(expr):
            return bool(z3.is_true(expr))
        place = self._names[expr.decl().name()]
        return self.keys[place] if expr.sort() == self.reading.sort(KEY) else place

    def state(self, state: Any) -> Snapshot:
        """Return the snapshot of a symbolic state."""
        u, scope = self.universe, self.reading.scope
        blocks, keys, slots = (
            [Term(element) for element in self.reading.elements[sort]]
            for sort in (BLOCK, KEY, SLOT)
        )
        texts = dict(zip(self.keys, keys, strict=True))
        real = {text: key for text, key in texts.items() if text != "-"}

        def chosen(predicate: Callable[[Any], Any]) -> list[str]:
            return [text for text, key in real.items() if self.value(predicate(key))]

        def in_order(member: Callable[[Any], Any], stamp: Callable[[Any], Any]) -> list[int]:
            found = [i for i, b in enumerate(blocks) if self.value(member(b))]
            return sorted(found, key=lambda i: int(self.value(stamp(blocks[i]))))

        counts = range(len(slots) + 3)
        snapshot: Snapshot = {
            "num_blocks": scope.num_blocks,
            "enable_caching": self.value(u.enable_caching),
            "block_sizes": {str(group): size for group, size in scope.block_sizes},
            "keys": list(real),
            "ref_cnt": [self.value(state.ref_cnt[b]) for b in blocks],
            "free_queue": in_order(state.free_queue.has, lambda b: state.free_queue.stamp[b]),
            "num_free_blocks": self.value(state.num_free_blocks),
            "block_hash": [self.value(state.block_hash[b]) for b in blocks],
            "partial_keys": [chosen(state.partial_keys[b].has) for b in blocks],
            "retired": [chosen(state.retired[b].has) for b in blocks],
            "cached": {
                text: listed
                for text, key in real.items()
                if (
                    listed := in_order(
                        lambda b, key=key: state.cached.contain(key, b),  # type: ignore[misc]
                        lambda b, key=key: state.cached.stamp[key, b],  # type: ignore[misc]
                    )
                )
            },
            "believed": chosen(state.events.believed),
            "held": [self.value(state.held[s]) for s in slots],
            "table": [self.value(state.table[s]) for s in slots],
            "rank": [self.value(state.rank[s]) for s in slots],
            "holder": [[self.value(state.holder[b, n]) for n in counts] for b in blocks],
            "place": [self.value(state.place[b]) for b in blocks],
            "block_at": [self.value(state.block_at[n]) for n in range(len(blocks))],
        }
        if hasattr(state, "published"):
            snapshot["published"] = [self.value(state.published[s]) for s in slots]
            snapshot["previous"] = [self.value(u.previous(s)) for s in slots]
            snapshot["key_of"] = [self.value(u.key_of(s)) for s in slots]
        return snapshot


def concrete_universe(specification: Specification, snapshot: Snapshot) -> Any:
    """Return the concrete universe in which a snapshot lives."""
    concrete = specification.concrete
    sizes = {GroupId(int(group)): size for group, size in snapshot["block_sizes"].items()}
    make = table_universe(specification) if "published" in snapshot else concrete.ConcreteUniverse
    universe = make(snapshot["num_blocks"], snapshot["enable_caching"], sizes)
    for text in snapshot["keys"]:
        universe.known_keys[_key(specification, text)] = None
    for slot in range(len(snapshot["held"])):
        universe.known_slots[slot] = None
    if "published" in snapshot:
        universe.previous_of = dict(enumerate(snapshot["previous"]))
        universe.key_of_slot = {
            slot: _key(specification, text) for slot, text in enumerate(snapshot["key_of"])
        }
    return universe


def concrete_state(specification: Specification, snapshot: Snapshot) -> Any:
    """Return the concrete state that a snapshot describes."""
    u = concrete_universe(specification, snapshot)
    if "published" in snapshot:
        state = specification.full_attention.FullAttentionState(u)
        state.published.update(enumerate(snapshot["published"]))
    else:
        state = specification.state.PoolState(u)
    concrete = specification.concrete

    def keys(texts: list[str]) -> Any:
        return concrete.ConcreteKeySet(tuple(_key(specification, text) for text in texts))

    state.free_queue = concrete.ConcreteQueue(snapshot["free_queue"])
    state.num_free_blocks = snapshot["num_free_blocks"]
    for block in range(snapshot["num_blocks"]):
        state.ref_cnt[block] = snapshot["ref_cnt"][block]
        state.block_hash[block] = _key(specification, snapshot["block_hash"][block])
        state.partial_keys[block] = keys(snapshot["partial_keys"][block])
        state.retired[block] = keys(snapshot["retired"][block])
        state.place[block] = snapshot["place"][block]
        state.block_at[block] = snapshot["block_at"][block]
        for count, slot in enumerate(snapshot["holder"][block]):
            state.holder[block, count] = slot
    for text, listed in snapshot["cached"].items():
        for block in listed:
            state.cached.insert(_key(specification, text), block)
    for text in snapshot["believed"]:
        state.events.folded[_key(specification, text)] = None
    for slot, held in enumerate(snapshot["held"]):
        state.held[slot] = held
        state.table[slot] = snapshot["table"][slot]
        state.rank[slot] = snapshot["rank"][slot]
    return state


def describe(state: Any) -> Snapshot:
    """Return the snapshot of a concrete state."""
    u = state.universe
    blocks, slots = list(u.blocks), list(u.known_slots)
    counts = range(len(slots) + 3)
    snapshot: Snapshot = {
        "num_blocks": u.num_blocks,
        "enable_caching": u.enable_caching,
        "block_sizes": {
            str(group): size for group, size in u.block_sizes.items() if group != NO_KEY.group
        },
        "keys": [key_text(key) for key in u.known_keys],
        "ref_cnt": [state.ref_cnt[b] for b in blocks],
        "free_queue": state.free_queue.as_list(),
        "num_free_blocks": state.num_free_blocks,
        "block_hash": [key_text(state.block_hash[b]) for b in blocks],
        "partial_keys": [[key_text(key) for key in state.partial_keys[b]] for b in blocks],
        "retired": [[key_text(key) for key in state.retired[b]] for b in blocks],
        "cached": {key_text(key): list(listed) for key, listed in state.cached.lists_of.items()},
        "believed": [key_text(key) for key in state.events.folded],
        "held": [state.held[s] for s in slots],
        "table": [state.table[s] for s in slots],
        "rank": [state.rank[s] for s in slots],
        "holder": [[state.holder[b, n] for n in counts] for b in blocks],
        "place": [state.place[b] for b in blocks],
        "block_at": [state.block_at[n] for n in blocks],
    }
    if hasattr(state, "published"):
        snapshot["published"] = [state.published[s] for s in slots]
        snapshot["previous"] = [u.previous(s) for s in slots]
        snapshot["key_of"] = [key_text(u.key_of(s)) for s in slots]
    return snapshot


def table_universe(specification: Specification) -> Any:
    """Return the concrete universe whose slots are table entries, as a class."""

    class ConcreteTableUniverse(specification.concrete.ConcreteUniverse):  # type: ignore[name-defined,misc]
        """See `kvproof.spec.full_attention.TableUniverse`."""

        previous_of: dict[int, int]
        key_of_slot: dict[int, Any]

        def is_first(self, slot: int) -> bool:
            """The slot is the first entry of its table."""
            return self.previous_of[slot] == slot

        def previous(self, slot: int) -> int:
            """Return the entry before this one."""
            return self.previous_of[slot]

        def key_of(self, slot: int) -> Any:
            """Return the full key of the prefix that ends with this entry's block."""
            return self.key_of_slot[slot]

    return ConcreteTableUniverse


def _key(specification: Specification, text: str) -> Any:
    """Read a key as the specification's own type, which an edited copy has for itself."""
    key = key_of_text(text)
    return specification.quantities.NO_KEY if text == "-" else specification.quantities.Key(*key)
