"""That the proofs speak of something: every path can be taken, and the pool can start.

A theorem about a path that no state takes is true and worthless. For each path the bounded
reading finds a state of the invariant that takes it; those that none takes are listed here,
with the reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kvproof.proofs.calls import POOL_CALLS, TABLE_CALLS
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.readings import SCOPES
from kvproof.proofs.solvers import model_of

UNREACHABLE: dict[str, str] = {
    "tables: hit/TTTF": "no key lists the null block",
    "tables: hit/TTTTF": "a block that a key lists is keyed",
    "tables: cache/TTTF": "no entry names the null block",
    "tables: cache/TTTTF": "a filled entry's block is held",
    "tables: cache/TTTTTF": "an entry's key is a full one",
    "tables: cache/TTTTTTF": "an unpublished entry's block has no key",
    "tables: cache/TTTTTTTF": "an unpublished entry's block has no key",
    "tables: cache/TTTTTTTTT": "an unpublished entry's block has no key to retire",
    "tables: free_last/TTT": "no entry names the null block",
}
"""Paths that no state of the invariant takes, and why each is there at all."""


@dataclass(frozen=True)
class Reachability:
    """Every path is reachable or explained, and the first state is initial."""

    def findings(self, laboratory: Laboratory) -> Iterator[tuple[str, str]]:
        """For each path, its label and what is wrong ("" when nothing is)."""
        for tables in (False, True):
            for call in TABLE_CALLS if tables else POOL_CALLS:
                waiting = {run.label for run in laboratory.world(tables).runs(call)}
                for label in sorted(waiting):
                    name = f"tables: {label}" if tables else label
                    found = self._reached(laboratory, tables, call, label)
                    yield name, _judged(name, found)
        yield "the first state", self._initial(laboratory)

    def _reached(self, laboratory: Laboratory, tables: bool, call: object, label: str) -> bool:
        for world in laboratory.small_worlds(tables):
            for run in world.runs(call):  # type: ignore[arg-type]
                if run.label == label and model_of([*world.known, *run.assumptions], 20):
                    return True
        return False

    def _initial(self, laboratory: Laboratory) -> str:
        specification = laboratory.specification
        for num_blocks in (1, 2, 5):
            universe = specification.concrete.ConcreteUniverse(num_blocks, True, {0: 2, 1: 2})
            universe.known_keys.update(dict.fromkeys(SCOPES[-1].keys))
            universe.known_slots.update(dict.fromkeys(range(3)))
            if not specification.state.is_initial(specification.state.PoolState(universe)):
                return f"a new pool of {num_blocks} blocks is not initial"
        return ""


def _judged(name: str, reached: bool) -> str:
    if reached and name in UNREACHABLE:
        return f"{name} is listed as unreachable and is reachable"
    if not reached and name not in UNREACHABLE:
        return f"{name} is reached from no small state: what is proved of it may mean nothing"
    return ""
