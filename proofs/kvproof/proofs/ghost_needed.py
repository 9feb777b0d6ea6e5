"""That each protocol rule is needed, and that the proofs about the ghost contents speak of
something.

Take a rule out of the specification's own text, and from some small state of the invariant one
transition breaks it. With the rule, that transition is refused.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvproof.proofs.counterexamples import Counterexample
from kvproof.proofs.ghost_induction import (
    ACCESSES,
    AccessRight,
    ContentsKept,
    GhostProof,
    in_range,
)
from kvproof.proofs.ghost_world import GHOST_CALLS, GHOST_SCOPES, any_contents, small_contents
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.solvers import model_of
from kvproof.proofs.specification import Edit, Specification
from kvproof.spec import ghost_transitions

NEEDED = {
    "acquire-unheld": ("append", "holders-agree"),
    "acquire-retracts": ("append", "held-keys-are-own"),
    "hit-key": ("hit", "entries-are-promised"),
    "hit-below-known": ("hit", "held-keys-are-own"),
    "publish-scheduled": ("publish", "keys-are-promised"),
    "publish-known": ("publish", "held-keys-are-own"),
    "writes-before-reads": ("read", "reads-own-prefix"),
    "ready-complete": ("start", "running-is-complete"),
    "pad-invisible": ("pad", "nulls-are-unread"),
    "skip-invisible": ("skip", "nulls-are-unread"),
    "skip-written": ("skip", "differences-are-pending"),
    "accepted-agree": ("accept", "entries-are-promised"),
    "known-fixed": ("accept", "held-keys-are-own"),
    "no-rollback-below-skip": ("accept", "nulls-are-unread"),
    "free-no-promise": ("free_last", "differences-are-pending"),
    "unpromise-unkeyed": ("unschedule", "keys-are-promised"),
    "unpromise-unshared": ("unschedule", "entries-are-promised"),
    "unpromise-not-ready": ("unschedule", "running-is-complete"),
    "rollback-window": ("fall_back", "nulls-are-unread"),
    "load-not-inflight": ("load", "entries-are-promised"),
}
"""For each protocol rule, a transition, and what it breaks without the rule."""


class GhostChecks:
    """Theorems that consist of single findings."""

    def findings(self, laboratory: Laboratory) -> Iterator[tuple[str, str]]:
        """For each finding, its label and what is wrong ("" when nothing is)."""
        raise NotImplementedError


@dataclass(frozen=True)
class RulesNeeded(GhostChecks):
    """Each protocol rule is needed."""

    def findings(self, laboratory: Laboratory) -> Iterator[tuple[str, str]]:
        """See `GhostChecks`."""
        for name in laboratory.specification.protocol_rules.PROTOCOL_RULES:
            found = without(name, laboratory)
            if found is None or not found.replayed:
                yield name, f"no small state shows that {name} is needed"
            elif not _is_refused(found, name, laboratory.specification):
                yield name, f"{name} does not refuse what it is needed for"
            else:
                yield name, ""


@dataclass(frozen=True)
class ContentsReachable(GhostChecks):
    """Every transition can be made, and a new state is initial and keeps the invariant."""

    def findings(self, laboratory: Laboratory) -> Iterator[tuple[str, str]]:
        """See `GhostChecks`."""
        for call in GHOST_CALLS.values():
            worlds = small_contents(laboratory)
            paths = len(any_contents(laboratory).runs(call))
            possible = sum(
                any(
                    model_of([*world.known, *in_range(world, run), *run.assumptions], 20)
                    for world in worlds
                    for run in world.runs(call)[place : place + 1]
                )
                for place in range(paths)
            )
            yield call.name, "" if possible == paths else f"{call.name} is never made"
        yield "the first state", self._initial(laboratory.specification)

    def _initial(self, specification: Specification) -> str:
        for scope in GHOST_SCOPES:
            universe = scope.universe(specification.ghost_concrete)
            state = specification.ghost_state.GhostState(universe)
            if not specification.ghost_state.is_initial(state):
                return "a new state is not initial"
            for name, holds in specification.ghost_properties.CONTENTS_INVARIANT.items():
                if not holds(state):
                    return f"a new state breaks {name}"
        return ""


def without(name: str, laboratory: Laboratory) -> Counterexample | None:
    """Take a rule out, and return what breaks then: a small state, a transition, what is
    broken. None when nothing is found.
    """
    transition, part = NEEDED[name]
    call = GHOST_CALLS[transition]
    proof: GhostProof = AccessRight(part) if part in ACCESSES else ContentsKept(part)
    says = f"without {name} the ghost contents go wrong"
    for world in small_contents(laboratory):
        for operations, before in proof.candidates_of(world, call, name):
            made = Counterexample("protocol-rules-needed", says, name, operations, before)
            edits = (*laboratory.specification.edits, rule_removed(name))
            return proof.replay(made, Specification(edits))
    return None


def rule_removed(name: str) -> Edit:
    """Return the edit that takes a rule's `requires` out of the transitions."""
    path = ghost_transitions.__file__
    text = Path(path).read_text(encoding="utf-8")
    constant = name.upper().replace("-", "_")
    found = [
        ast.get_source_segment(text, node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "requires"
        and ast.unparse(node.args[1]) == f"rules.{constant}"
    ]
    if len(found) != 1:
        raise ValueError(f"{name} is required {len(found)} times")
    return Edit("ghost_transitions", str(found[0]), "pass")


def _is_refused(found: Counterexample, name: str, specification: Specification) -> bool:
    again = ContentsKept().replay(found, specification)
    return again.outcome == f"refused: {name}"
