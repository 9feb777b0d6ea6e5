"""Small ghost states as data: out of a model, into a file, and back into the concrete reading."""

from typing import Any

import z3

from kvproof.proofs.ghost_readings import GROUP, REQUEST, TOKENS, BoundedGhostReading
from kvproof.proofs.ghost_world import GhostCall, GhostWorld
from kvproof.proofs.readings import BLOCK, KEY
from kvproof.proofs.snapshots import Snapshot, key_of_text, key_text
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import Term, lift
from kvproof.spec.attention import Full, SlidingWindow
from kvproof.spec.ghost_concrete import POISON, Shape

_OF_BLOCKS = ("block_key", "in_flight")
_OF_SLOTS = ("content", "promise", "promised_by", "promised_in", "promised_for")
_OF_REQUESTS = ("live", "running", "tokens", "num_known", "num_computed")
_OF_ROWS = ("num_entries", "num_scheduled", "num_written")


def content_text(content: Any) -> str:
    """Write a prefix, 'no key' or the poison."""
    return "poison" if content == POISON else key_text(content)


def content_of_text(text: str) -> Any:
    """Read what `content_text` wrote."""
    return POISON if text == "poison" else key_of_text(text)


class GhostDecoder:
    """Reads a model of a bounded world."""

    def __init__(self, model: Any, world: GhostWorld) -> None:
        self.model = model
        self.world = world
        reading = world.reading
        assert isinstance(reading, BoundedGhostReading)
        self.reading = reading
        self._values = {
            element.decl().name(): value
            for sort in (BLOCK, KEY, REQUEST, GROUP, TOKENS)
            for value, element in zip(
                self.reading.values[sort], self.reading.elements[sort], strict=True
            )
        }

    def value(self, term: Any) -> Any:
        """Return a value that JSON can hold."""
        expr = self.model.eval(lift(term), model_completion=True)
        if z3.is_int_value(expr):
            return expr.as_long()
        if z3.is_true(expr) or z3.is_false(expr):
            return bool(z3.is_true(expr))
        value = self._values[expr.decl().name()]
        if expr.sort() == self.reading.sort(KEY):
            return content_text(value)
        return list(value) if expr.sort() == self.reading.sort(TOKENS) else value

    def arguments(self, call: GhostCall) -> dict[str, Any]:
        """Return the arguments of a transition."""
        return {name: self.value(term) for name, term in self.world.arguments(call).items()}

    def state(self, state: Any = None) -> Snapshot:
        """Return the snapshot of a symbolic state: the one before when none is given."""
        state, scope = state or self.world.state(), self.reading.ghost_scope
        blocks, requests, groups = (
            [Term(element) for element in self.reading.elements[sort]]
            for sort in (BLOCK, REQUEST, GROUP)
        )
        offsets = range(max(shape.block_size for shape in scope.shapes))
        snapshot: Snapshot = {
            "num_blocks": scope.num_blocks,
            "num_requests": scope.num_requests,
            "shapes": [_shape_data(shape) for shape in scope.shapes],
            "sequences": [list(tokens) for tokens in scope.sequences],
        }
        for name in _OF_REQUESTS:
            snapshot[name] = [self.value(getattr(state, name)[one]) for one in requests]
        for name in _OF_ROWS:
            rows = getattr(state, name)
            snapshot[name] = [[self.value(rows[one, g]) for g in groups] for one in requests]
        snapshot["table"] = [
            [
                [self.value(state.table[one, g, i]) for i in range(self.value(n))]
                for g, n in ((g, state.num_entries[one, g]) for g in groups)
            ]
            for one in requests
        ]
        for name in _OF_BLOCKS:
            snapshot[name] = [self.value(getattr(state, name)[block]) for block in blocks]
        for name in _OF_SLOTS:
            slots = getattr(state, name)
            snapshot[name] = [[self.value(slots[b, o]) for o in offsets] for b in blocks]
        return snapshot


def ghost_state(specification: Specification, snapshot: Snapshot) -> Any:
    """Return the concrete state that a snapshot describes."""
    universe = specification.ghost_concrete.ConcreteGhostUniverse(
        snapshot["num_blocks"],
        snapshot["num_requests"],
        [_shape_of(data) for data in snapshot["shapes"]],
        [tuple(tokens) for tokens in snapshot["sequences"]],
    )
    state = specification.ghost_state.GhostState(universe)
    for name in _OF_REQUESTS:
        for request, value in enumerate(snapshot[name]):
            getattr(state, name)[request] = tuple(value) if name == "tokens" else value
    for name in (*_OF_ROWS, "table"):
        for request, row in enumerate(snapshot[name]):
            for group, value in enumerate(row):
                if name == "table":
                    for index, block in enumerate(value):
                        state.table[request, group, index] = block
                else:
                    getattr(state, name)[request, group] = value
    for block, key in enumerate(snapshot["block_key"]):
        state.block_key[block] = content_of_text(key)
        state.in_flight[block] = snapshot["in_flight"][block]
    for name in _OF_SLOTS:
        for block, values in enumerate(snapshot[name]):
            for offset, value in enumerate(values):
                is_text = isinstance(value, str)
                getattr(state, name)[block, offset] = content_of_text(value) if is_text else value
    return state


def described(state: Any) -> Snapshot:
    """Return the snapshot of a concrete state."""
    u = state.universe
    offsets = range(max(shape.block_size for shape in u.shapes))
    found: Snapshot = {
        "num_blocks": len(u.blocks.values),
        "num_requests": len(u.requests.values),
        "shapes": [_shape_data(shape) for shape in u.shapes],
        "sequences": [list(tokens) for tokens in u.known],
    }
    for name in _OF_REQUESTS:
        found[name] = [_data(getattr(state, name)[request]) for request in u.requests]
    for name in _OF_ROWS:
        rows = getattr(state, name)
        found[name] = [[rows[request, group] for group in u.groups] for request in u.requests]
    found["table"] = [
        [
            [state.table[request, group, index] for index in range(entries)]
            for group, entries in enumerate(row)
        ]
        for request, row in enumerate(found["num_entries"])
    ]
    for name in _OF_BLOCKS:
        found[name] = [_data(getattr(state, name)[block]) for block in u.blocks]
    for name in _OF_SLOTS:
        slots = getattr(state, name)
        found[name] = [[_data(slots[block, offset]) for offset in offsets] for block in u.blocks]
    return found


def argument_of(parameter: str, value: Any) -> Any:
    """Return an argument of the concrete reading."""
    return tuple(value) if parameter == "tokens" else value


def _data(value: Any) -> Any:
    if isinstance(value, tuple):
        return content_text(value) if hasattr(value, "block_hash") else list(value)
    return value


def _shape_data(shape: Any) -> dict[str, int]:
    window = getattr(shape.attention, "window", None)
    return {"block_size": shape.block_size} | ({} if window is None else {"window": window})


def _shape_of(data: dict[str, int]) -> Shape:
    attention = SlidingWindow(data["window"]) if "window" in data else Full()
    return Shape(data["block_size"], attention)
