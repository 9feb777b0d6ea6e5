"""Every way through every transition, from an arbitrary state that satisfies the invariant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvproof.proofs.calls import SORT_OF, Answer, Call
from kvproof.proofs.lemmas import LEMMAS
from kvproof.proofs.paths import Obligation, explore
from kvproof.proofs.readings import Reading
from kvproof.proofs.specification import Specification
from kvproof.proofs.terms import conjuncts, lift
from kvproof.proofs.universe import SymbolicTableUniverse, SymbolicUniverse, facts

Statement = Callable[[Any], Any]

COROLLARIES = frozenset({"all-returned"})
"""Properties that follow from the rest of the invariant in each state, without a step."""


@dataclass(frozen=True)
class Run:
    """One call: the states before and after, and the answer. `rule` names the rule that
    refused it. On the concrete reading this is what happened; on the symbolic ones it is one
    path, with what was assumed and what must hold on the way.
    """

    specification: Specification
    call: Call
    before: Any
    after: Any
    answer: Answer
    rule: str = ""
    raised: str = ""
    branches: str = ""
    assumptions: tuple[Any, ...] = ()
    obligations: tuple[Obligation, ...] = ()

    @property
    def label(self) -> str:
        """The transition and the branches taken."""
        return f"{self.call.name}/{self.branches}"

    @cached_property
    def step(self) -> Any:
        """The `Step` that the specification's statements speak about."""
        return self.call.step(self.specification, self.before, self.after, self.answer)


class World:
    """A specification under a reading: the arbitrary state, what is known of it, the runs.

    `tables` chooses the full-attention state, with `more` invariants besides the pool's.
    """

    def __init__(
        self,
        specification: Specification,
        reading: Reading,
        tables: bool = False,
        more: Mapping[str, Statement] | None = None,
        lemmas: Mapping[str, Statement] = LEMMAS,
    ) -> None:
        self.specification = specification
        self.reading = reading
        self.tables = tables
        self.universe: Any = (SymbolicTableUniverse if tables else SymbolicUniverse)(reading)
        self.invariant: dict[str, Statement] = {
            name: statement
            for name, statement in specification.pool_properties.INVARIANT.items()
            if name not in COROLLARIES
        } | dict(more or {})
        self.lemmas = lemmas
        self._runs: dict[tuple[str, ...], list[Run]] = {}

    def state(self, prefix: str = "") -> Any:
        """Return an arbitrary state; the same prefix gives the same unknowns."""
        with self.universe.named(prefix):
            if self.tables:
                return self.specification.full_attention.FullAttentionState(self.universe)
            return self.specification.state.PoolState(self.universe)

    @cached_property
    def known(self) -> list[Any]:
        """What is known of the state before a transition: the premises and what follows."""
        lemmas = [lift(lemma(self.state())) for lemma in self.lemmas.values()]
        return self.premises + lemmas

    @cached_property
    def premises(self) -> list[Any]:
        """The axioms and the invariant."""
        return self.axioms + self.invariant_of(self.state())

    @cached_property
    def known_ids(self) -> frozenset[int]:
        """The identities of what is known: a goal among these needs no proof."""
        return frozenset(part.get_id() for part in self.known)

    @cached_property
    def axioms(self) -> list[Any]:
        """What is known of keys and tables; on the bounded reading, all about them."""
        scope = self.reading.scope
        if scope is None:
            return [part for axiom in self.universe.axioms() for part in conjuncts(axiom)]
        concrete = self.specification.concrete.ConcreteUniverse(
            scope.num_blocks, True, dict(scope.block_sizes)
        )
        return facts(self.universe, concrete)

    def invariant_of(self, state: Any) -> list[Any]:
        """Return the parts of the invariant, said of this state."""
        return [
            part
            for statement in self.invariant.values()
            for part in conjuncts(lift(statement(state)))
        ]

    def runs(self, *calls: Call) -> list[Run]:
        """Return the runs of a transition, or of several in a row. They are computed once.

        In a row, the arguments of the later ones are numbered: `slot2`, `key2`.
        """
        names = tuple(call.name for call in calls)
        if names not in self._runs:
            self._runs[names] = self._explore(calls)
        return self._runs[names]

    def arguments(self, call: Call, number: int = 0) -> dict[str, Any]:
        """Return arbitrary arguments for a call."""
        mark = str(number + 1) if number else ""
        return {
            name: self.universe.constant(name + mark, SORT_OF[name]) for name in call.parameters
        }

    def _explore(self, calls: tuple[Call, ...]) -> list[Run]:
        found = []
        state: Any = None
        arguments = [self.arguments(call, number) for number, call in enumerate(calls)]

        def run() -> Any:
            nonlocal state
            state, result = self.state(), None
            for call, given in zip(calls, arguments, strict=True):
                result = call.function(self.specification)(state, *given.values())
            return result

        for outcome in explore(run):
            raised = outcome.raised
            refused = outcome.refused
            found.append(
                Run(
                    self.specification,
                    calls[-1],
                    self.state(),
                    state,
                    Answer(arguments[-1], outcome.result, refused is not None),
                    refused.name if refused is not None else "",
                    "" if raised is None else f"{type(raised).__name__}: {raised}",
                    outcome.path.label,
                    tuple(outcome.path.assumptions),
                    tuple(outcome.path.obligations),
                )
            )
        return found
