"""The blocks that a manager announces are those that leave the free queue, for any sizes.

The functions of `kvproof.spec.single_type_manager` and of the coordinator above it are run on
block lists of unknown lengths, in the order in which `allocate_slots` calls them: announce, begin
a table with a hit, take blocks for external tokens, take blocks for the new ones. The pool counts
what leaves its queue.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import z3

from kvproof.proofs.arithmetic import EVERY, Played, Setting, products_grow
from kvproof.proofs.attention import NOTHING, Refutation, numbers_of
from kvproof.proofs.exploration import Run
from kvproof.proofs.induction import Candidate, Laboratory
from kvproof.proofs.paths import explore
from kvproof.proofs.solvers import Bundle, model_of
from kvproof.proofs.specification import EditError
from kvproof.proofs.terms import Term, conjunction, lift, negation
from kvproof.proofs.theorem import Theorem, place_of
from kvproof.spec import attention as attention_text
from kvproof.spec import single_type_manager as own_text
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.kv_cache_coordinator import KVCacheCoordinator
from kvproof.spec.logic import ite
from kvproof.spec.quantities import GroupId, NumTokens, TokenId

HIT, NEW, RUNNING = "hit", "new", "running"
CASES = (HIT, NEW, RUNNING)
"""A first step with a hit or external tokens, or with neither; a later step."""

_QUEUED = z3.Function("queued", z3.IntSort(), z3.IntSort(), z3.IntSort())


@dataclass(frozen=True)
class Row:
    """A list of blocks of unknown length: entries of a hit from `start` on, or others."""

    length: Any
    start: Any = 0

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def __getitem__(self, rest: slice) -> "Row":
        skipped = ite(rest.start < self.length, rest.start, self.length)
        return Row(self.length - skipped, self.start + skipped)

    def __add__(self, more: Any) -> "Row":
        return Row(self.length + _len(more))

    def __radd__(self, before: Any) -> "Row":
        return Row(_len(before) + self.length)

    @property
    def num_queued(self) -> Any:
        """How many of these entries of a hit nobody holds: any number up to all of them."""
        queued = Term(_QUEUED(lift(self.start), lift(self.length)))
        return ite((queued >= 0) & (queued <= self.length), queued, 0)


@dataclass
class CountingPool:
    """A pool that counts what leaves its queue. `short`: more was asked for than there was."""

    num_free: Any
    left: Any = 0
    enough: list[Any] = field(default_factory=list)

    def touch(self, blocks: Any) -> None:
        """See `kvproof.spec.block_pool.BlockPool`."""
        self._leave(blocks.num_queued)

    def get_new_blocks(self, count: Any) -> Row:
        """See `kvproof.spec.block_pool.BlockPool`."""
        self._leave(count)
        return Row(count)

    def _leave(self, count: Any) -> None:
        self.left = self.left + count
        self.enough.append((count >= 0) & (self.left <= self.num_free))


def manager_of(text: Any, pool: Any, size: Any, attention: Any) -> Any:
    """Return a manager of that text whose lists are rows."""

    class OfRows(text.SingleTypeKVCacheManager):  # type: ignore[misc]
        def _num_queued(self, blocks: Any) -> Any:
            return _row(blocks).num_queued

        def _nulls(self, count: Any) -> Row:
            return Row(count)

    return OfRows(pool, 0, size, attention, size)


def announced_and_left(it: Setting, text: Any, case: str) -> tuple[Any, Any]:
    """What is announced leaves the queue, it is never negative, and when there are that many
    blocks no call asks for more than there are.
    """
    attention, size = it.attention(), it.block_size()
    hits, next_token, computed, slots, free = it.numbers(
        "hits", "next_token", "computed", "slots", "free"
    )
    pool = CountingPool(free)
    manager = manager_of(text, pool, size, attention)
    coordinator = KVCacheCoordinator.__new__(KVCacheCoordinator)
    coordinator.single_type_managers = (manager,)
    row: Any = Row(hits if case == HIT else 0)
    given = (hits * size <= next_token) & (next_token <= computed) & (computed <= slots)
    if case == NEW:
        given = given & (computed == 0)
    if case == RUNNING:
        (entries,) = it.numbers("entries")
        given = given & (entries >= 1)
        manager.req_to_blocks["r"] = Row(entries)

    name: Any = "r"
    announced = coordinator.get_num_blocks_to_allocate(name, slots, (row,), next_token)
    if case == HIT:
        external = computed - hits * size
        given = given & ((external > 0) | (next_token == computed))
        coordinator.allocate_new_computed_blocks(name, (row,), next_token, hits * size, external)
    (new,) = coordinator.allocate_new_blocks(name, slots)
    table = manager.req_to_blocks["r"]
    room = (_len(table) * size >= slots) & (_len(new) >= 0)
    enough = conjunction(map(lift, pool.enough))
    fits = (announced <= free).implies(Term(enough))
    return given, (announced == pool.left) & (announced >= 0) & fits & room


@dataclass(frozen=True)
class Predictions:
    """The statement above, for each type of attention and case, along every path."""

    def bundles(self, laboratory: Laboratory) -> Iterator[Bundle]:
        """See `kvproof.proofs.induction.Proof`."""
        fewer, more, size = z3.Ints("fewer more size")
        goals = [("products-grow", products_grow(fewer, more, size))]
        yield Bundle("products-grow", NOTHING, goals=goals)
        for bundle, given, goal in _paths(laboratory):
            bundle.assumed.append(given)
            bundle.goals.append(("announced-is-left", goal))
            yield bundle

    def complaints(self, laboratory: Laboratory) -> list[str]:
        """See `Proof`: each case comes about, and what follows can be false in it."""
        found = {f"{kind}/{case}: it never comes about" for kind in EVERY for case in CASES}
        for bundle, given, goal in _paths(laboratory):
            label = bundle.label.rsplit("/", 1)[0]
            if model_of([*bundle.assumed, given], 20) is not None:
                found.discard(f"{label}: it never comes about")
            if model_of([negation(goal)], 20) is None:
                found.add(f"{label}: what follows cannot be false")
        return sorted(found)

    def refutations(self, laboratory: Laboratory) -> Iterator[Refutation]:
        """Look for numbers for which it is false, and play them on the manager itself."""
        for bundle, given, goal in _paths(laboratory):
            model = model_of([*bundle.assumed, given, negation(goal)], 20)
            if model is not None:
                numbers = numbers_of(model)
                kind, case, _ = bundle.label.split("/")
                played = holds_of_numbers(manager_text(laboratory), kind, case, numbers)
                yield Refutation(case, kind, numbers, not played)

    def candidates(self, laboratory: Laboratory, failing: str) -> Iterator[Candidate]:
        """See `Proof`: no state of a pool breaks it; see `refutations`."""
        return iter(())

    def holds(self, run: Run) -> bool:
        """See `Proof`: it says nothing about pools. Raises ValueError."""
        raise ValueError("a manager's announcement is not judged by what a pool does")

    holds_of = holds


def _paths(laboratory: Laboratory) -> Iterator[tuple[Bundle, Any, Any]]:
    text = _with_rows(manager_text(laboratory))
    for kind in EVERY:
        for case in CASES:

            def run(kind: str = kind, case: str = case) -> tuple[Setting, Any, Any]:
                it = Setting(attention_text, kind)
                given, goal = announced_and_left(it, text, case)
                return it, lift(given), lift(goal)

            for outcome in explore(run, fork_refusals=False):
                if outcome.result is None:
                    raise outcome.raised or ValueError(f"{kind}/{case} was refused")
                it, given, goal = outcome.result
                known = [conjunction(map(lift, it.known)), *it.arithmetic.facts]
                assumed = [*known, *outcome.path.assumptions]
                label = f"{kind}/{case}/{outcome.path.label}"
                yield Bundle(label, NOTHING, assumed), given, goal


def holds_of_numbers(source: str, kind: str, case: str, numbers: dict[str, int]) -> bool:
    """Play a case with these numbers on the manager of that text and on a pool, once with the
    blocks of the hit in the queue and once with all of them held. Raises what it raises.
    """
    return all(_played(source, kind, case, numbers, held) for held in (False, True))


def _played(source: str, kind: str, case: str, numbers: dict[str, int], held: bool) -> bool:
    it = Played(attention_text, kind, numbers)
    size, slots, next_token = it.value("block_size"), it.value("slots"), it.value("next_token")
    hits, entries = numbers.get("hits", 0), numbers.get("entries", 0)
    most = hits + entries + 4 * attention_text.blocks_for(slots, size) + 2
    group, unit = GroupId(0), NumTokens(size)
    pool = BlockPool(most, True, unit, {group: unit})
    module = _module(source)
    manager = module.SingleTypeKVCacheManager(pool, group, unit, it.attention(), unit)
    hit = pool.get_new_blocks(hits) if case == HIT else []
    tokens = tuple(map(TokenId, range(len(hit) * size)))
    pool.cache_full_blocks(tokens, hit, 0, len(hit), unit, group, None)
    if not held:
        pool.free_blocks(reversed(hit))
    if case == RUNNING:
        manager.req_to_blocks["r"] = pool.get_new_blocks(entries)

    before = pool.get_num_free_blocks()
    announced = manager.get_num_blocks_to_allocate("r", slots, hit, next_token)
    if case == HIT:
        manager.add_local_computed_blocks("r", hit, next_token)
        if it.value("computed") > hits * size:
            manager.allocate_external_computed_blocks("r", next_token, it.value("computed"))
    manager.allocate_new_blocks("r", slots)
    return bool(announced == before - pool.get_num_free_blocks())


def manager_text(laboratory: Laboratory) -> str:
    """Return the manager's text, with the edits of the laboratory."""
    text = Path(own_text.__file__ or "").read_text(encoding="utf-8")
    for edit in laboratory.specification.edits:
        if edit.module == "single_type_manager":
            if text.count(edit.old) != 1:
                raise EditError(f"{edit.module}: not there exactly once: {edit.old!r}")
            text = text.replace(edit.old, edit.new)
    return text


def _module(source: str) -> ModuleType:
    module = ModuleType(own_text.__name__)
    exec(compile(source, str(own_text.__file__), "exec"), module.__dict__)
    return module


def _with_rows(source: str) -> ModuleType:
    """Return the module, in which `len`, `max` and `list` answer for rows and terms, too."""
    module = _module(source)
    module.__dict__.update(len=_len, max=_max, list=_row)
    return module


def _len(blocks: Any) -> Any:
    return blocks.length if isinstance(blocks, Row) else len(blocks)


def _max(one: Any, other: Any) -> Any:
    return ite(one < other, other, one)


def _row(blocks: Any) -> Row:
    return blocks if isinstance(blocks, Row) else Row(len(blocks))


PREDICTION_THEOREMS: tuple[Theorem, ...] = (
    Theorem(
        "prediction-arithmetic",
        "for any block size, window, chunk, hit, external tokens and table, the blocks that are"
        " announced are those that leave the free queue, never fewer than none; when so many are"
        " there, no call asks for more than there are, and the table has room for every slot",
        "prediction-exact",
        True,
        place_of(own_text.SingleTypeKVCacheManager.get_num_blocks_to_allocate),
        Predictions(),
    ),
)
