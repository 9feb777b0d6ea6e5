"""The symbolic containers do what the concrete ones do.

A random reachable state is reached concretely, and the symbolic state pinned to it. Every
transition is then run both ways: exactly one symbolic path may be feasible, with the same
answer, and no state after it may differ from the concrete one.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import z3

from kvproof.proofs.calls import CALLS, POOL_CALLS, Call
from kvproof.proofs.containers import (
    SymbolicEvents,
    SymbolicIndex,
    SymbolicKeySet,
    SymbolicQueue,
)
from kvproof.proofs.exploration import World
from kvproof.proofs.paths import current
from kvproof.proofs.readings import BLOCK, KEY, SLOT, BoundedReading, Scope
from kvproof.proofs.snapshots import (
    Snapshot,
    concrete_state,
    concrete_universe,
    describe,
    key_of_text,
    key_text,
)
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import Term, conjunction, lift, negation
from kvproof.spec.quantities import NO_KEY, GroupId
from kvproof.spec.rules import KVCacheError
from kvproof.spec.state import PoolState

KEYS = tuple(map(key_of_text, ("0@0", "0.0@0", "0.1@0", "0.0@1")))
SCOPE = Scope(4, 3, (NO_KEY, *KEYS), ((GroupId(0), 2), (GroupId(1), 2)))
EMPTY: Snapshot = {
    "num_blocks": 4,
    "enable_caching": True,
    "block_sizes": {"0": 2, "1": 2},
    "keys": [key_text(key) for key in KEYS],
    "held": [False] * 3,
}


def arguments(call: Call, rng: random.Random) -> dict[str, Any]:
    choices = {"slot": range(3), "block": range(4), "key": KEYS}
    return {name: rng.choice(choices[name]) for name in call.parameters}


def walk(rng: random.Random, steps: int) -> PoolState:
    """Go to a random reachable state in which caches fill up and duplicates occur."""
    state = PoolState(concrete_universe(Specification(), EMPTY))
    names = ["acquire", "publish", "publish_partial"] * 4 + ["share", "release"] * 3
    for name in rng.choices([*names, "skip", "pad", "retract"], k=steps):
        for _ in range(8):
            if not attempt(state, CALLS[name], arguments(CALLS[name], rng))[0]:
                break
    return state


def attempt(state: PoolState, call: Call, given: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "", call.function(Specification())(state, *given.values())
    except KVCacheError as error:
        return error.rule.name, None


def likely_legal(state: PoolState, call: Call, rng: random.Random) -> dict[str, Any]:
    """Choose arguments; mostly, when there are any, such that the call is not refused."""
    given = arguments(call, rng)
    for _ in range(rng.choice((0, 12, 12))):
        copy = concrete_state(Specification(), describe(state))
        if not attempt(copy, call, given)[0]:
            break
        given = arguments(call, rng)
    return given


class Pins:
    """Equations between a symbolic state and a concrete one."""

    def __init__(self, world: World) -> None:
        reading = world.reading
        self.blocks, self.keys, self.slots = (
            [Term(element) for element in reading.elements[sort]] for sort in (BLOCK, KEY, SLOT)
        )
        self.key_terms = dict(zip(SCOPE.keys, self.keys, strict=True))

    def value(self, kind: str, value: Any) -> Any:
        return {"block": self.blocks, "slot": self.slots, "key": self.key_terms}[kind][value]  # type: ignore[index]

    def state(self, symbolic: Any, concrete: PoolState) -> list[Any]:
        return [lift(equation) for equation in self._equations(symbolic, concrete)]

    def _equations(self, symbolic: Any, concrete: Any) -> Iterator[Any]:
        yield symbolic.num_free_blocks == concrete.num_free_blocks
        for i, block in enumerate(self.blocks):
            yield symbolic.ref_cnt[block] == concrete.ref_cnt[i]
            yield symbolic.block_hash[block] == self.key_terms[concrete.block_hash[i]]
            yield symbolic.free_queue.has(block).iff(concrete.free_queue.has(i))
            yield symbolic.place[block] == concrete.place[i]
            yield symbolic.block_at[i] == self.blocks[concrete.block_at[i]]
            for j, other in enumerate(self.blocks):
                before = concrete.free_queue.before(i, j)
                yield symbolic.free_queue.before(block, other).iff(before)
            for count in range(concrete.ref_cnt[i]):
                yield symbolic.holder[block, count] == self.slots[concrete.holder[i, count]]
            for key, term in self.key_terms.items():
                yield symbolic.partial_keys[block].has(term).iff(concrete.partial_keys[i].has(key))
                yield symbolic.retired[block].has(term).iff(concrete.retired[i].has(key))
                yield symbolic.cached.contain(term, block).iff(concrete.cached.contain(key, i))
                for j, other in enumerate(self.blocks):
                    before = concrete.cached.before(key, i, j)
                    yield symbolic.cached.before(term, block, other).iff(before)
        for key, term in self.key_terms.items():
            yield symbolic.events.believed(term).iff(concrete.events.believed(key))
            yield symbolic.cached.lists(term).iff(concrete.cached.lists(key))
        for i, slot in enumerate(self.slots):
            yield symbolic.held[slot].iff(concrete.held[i])
            if concrete.held[i]:
                yield symbolic.table[slot] == self.blocks[concrete.table[i]]
                if concrete.table[i]:
                    yield symbolic.rank[slot] == concrete.rank[i]


def disagreement(world: World, call: Call, rng: random.Random) -> str:
    """Run a call from a random state on both readings. Returns how they differ."""
    state = walk(rng, rng.randrange(16))
    given = likely_legal(state, call, rng)
    pins = Pins(world)
    start = world.state()
    known = [
        *world.axioms,
        lift(world.universe.enable_caching),
        lift(start.free_queue.well_formed()),
        lift(start.cached.well_formed()),
        *pins.state(start, state),
        *(
            lift(term == pins.value(name, given[name]))
            for name, term in world.arguments(call).items()
        ),
    ]
    solver = z3.SimpleSolver()
    solver.add(*known)

    def satisfiable(*more: Any) -> bool:
        solver.push()
        solver.add(*more)
        answer = solver.check()
        solver.pop()
        assert answer != z3.unknown
        return bool(answer == z3.sat)

    assert satisfiable()
    rule, result = attempt(state, call, given)
    feasible = [run for run in world.runs(call) if satisfiable(*run.assumptions)]
    if len(feasible) != 1:
        return f"{call.name}: {len(feasible)} paths are feasible"
    run = feasible[0]
    if run.rule != rule or run.raised:
        return f"{call.name}: {run.rule or run.raised} instead of {rule}"
    same = pins.state(run.after, state)
    if isinstance(run.answer.result, Term):
        same.append(lift(run.answer.result == pins.blocks[result]))
    elif run.answer.result is not None and run.answer.result != result:
        return f"{call.name}: another answer"
    if satisfiable(*run.assumptions, negation(conjunction(same))):
        return f"{call.name}: the states after it differ"
    for one in run.obligations:
        if satisfiable(*one.assumptions, negation(one.goal)):
            return f"{call.name}: {one.says}"
    return ""


def test_the_readings_agree() -> None:
    world = World(Specification(), BoundedReading(SCOPE))
    rng = random.Random(20)
    for call in POOL_CALLS * 8:
        assert disagreement(world, call, rng) == ""


def appended_at_the_front(self: SymbolicQueue, block: Any) -> None:
    self.append(block)


def removed_not_at_all(self: SymbolicQueue, block: Any) -> None:
    return


def any_queued_block(self: SymbolicQueue) -> Any:
    front = Term(current().fresh("front", self.reading.sort(BLOCK)))
    current().assume(lift(self.member[front]))
    self.member[front] = False
    return front


def any_listed_block(self: SymbolicIndex, key: Any) -> Any:
    found = Term(current().fresh("found", self.reading.sort(BLOCK)))
    current().assume(lift(self.member[key, found]))
    return found


def inserted_at_the_front(self: SymbolicIndex, key: Any, block: Any) -> None:
    self.stamp[key, block] = -1
    self.member[key, block] = True


def popped_not_at_all(self: SymbolicIndex, keys: Any, block: Any) -> None:
    return


def stored_not_at_all(self: SymbolicEvents, key: Any) -> None:
    return


def removed_all(self: SymbolicEvents, keys: Any) -> None:
    self.cleared()


def all_keys(self: SymbolicKeySet, predicate: Any) -> Any:
    return self


@pytest.mark.parametrize(
    ("container", "method", "defect", "call"),
    [
        (SymbolicQueue, "prepend", appended_at_the_front, "release"),
        (SymbolicQueue, "remove", removed_not_at_all, "share"),
        (SymbolicQueue, "popleft", any_queued_block, "acquire"),
        (SymbolicIndex, "get_one_block", any_listed_block, "lookup"),
        (SymbolicIndex, "insert", inserted_at_the_front, "publish"),
        (SymbolicIndex, "pop", popped_not_at_all, "retract"),
        (SymbolicEvents, "stored", stored_not_at_all, "publish"),
        (SymbolicEvents, "removed", removed_all, "retract"),
        (SymbolicKeySet, "where", all_keys, "retract"),
    ],
)
def test_a_defective_container_disagrees(
    monkeypatch: pytest.MonkeyPatch, container: type, method: str, defect: Any, call: str
) -> None:
    monkeypatch.setattr(container, method, defect)
    world = World(Specification(), BoundedReading(SCOPE))
    rng = random.Random(20)
    assert any(disagreement(world, CALLS[call], rng) for _ in range(80))


def test_a_snapshot_survives_the_way_back() -> None:
    rng = random.Random(1)
    for _ in range(20):
        snapshot = describe(walk(rng, 12))
        assert describe(concrete_state(Specification(), snapshot)) == snapshot
        assert [key_text(key_of_text(text)) for text in snapshot["keys"]] == snapshot["keys"]
