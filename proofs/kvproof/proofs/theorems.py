"""The theorems: for each a name, a sentence, and how it is proved.

A property has the same name here as everywhere else. Where a theorem is not itself a
property of the catalogue, its name says what it is about.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from kvproof.proofs.attention import ATTENTION_THEOREMS
from kvproof.proofs.effects import effects_exact
from kvproof.proofs.exploration import Run, Statement
from kvproof.proofs.ghost_theorems import GHOST_THEOREMS
from kvproof.proofs.induction import Corollary, Induction, Proof
from kvproof.proofs.lemmas import LEMMAS
from kvproof.proofs.lists import FoldOfReleases
from kvproof.proofs.misuse import misuses_of
from kvproof.proofs.prediction import PREDICTION_THEOREMS
from kvproof.proofs.protocol import PROTOCOL_LEMMAS
from kvproof.proofs.reachability import Reachability
from kvproof.proofs.specification import Specification
from kvproof.proofs.stranded import NoStrandedSuffix, ProtocolNeeded
from kvproof.proofs.theorem import Theorem, place_of
from kvproof.spec.logic import neg


def theorems(specification: Specification | None = None) -> list[Theorem]:
    """Return all theorems about a specification, in the order of the catalogue."""
    spec = specification or Specification()
    return [
        *_state_theorems(spec),
        *_lemma_theorems(),
        *_step_theorems(spec),
        *_call_theorems(),
        Theorem(
            "free-blocks-fold",
            "freeing a list of any length, as a fold of single releases, puts the blocks without"
            " a key at the front and those with one at the back, each in call order, and keeps"
            " the order of the others (by induction over the list)",
            "order-rule",
            False,
            place_of(FoldOfReleases.bundles),
            FoldOfReleases(spec),
        ),
        *_table_theorems(spec),
        *ATTENTION_THEOREMS,
        *PREDICTION_THEOREMS,
        *GHOST_THEOREMS,
        Theorem(
            "not-vacuous",
            "every path of every transition is taken from some state of the invariant, or is"
            " listed with the reason why not; a new pool is initial",
            "not-vacuous",
            False,
            place_of(Reachability.findings),
            Reachability(),
        ),
    ]


def theorem_named(name: str, specification: Specification | None = None) -> Theorem:
    """Return a theorem by its name. Raises ValueError when there is none."""
    for theorem in theorems(specification):
        if theorem.name == name:
            return theorem
    raise ValueError(f"there is no theorem {name!r}")


def _state_theorems(spec: Specification) -> list[Theorem]:
    found = []
    for name, entry in spec.pool_properties.STATE_PROPERTIES.items():
        statement: Statement = entry.statement
        if name in COROLLARY_NAMES:
            says = f"in every state that satisfies the invariant, {entry.says}"
            proof: Proof = Corollary(statement)
        else:
            says = f"initially and after every transition, {entry.says}"
            proof = Induction(_after(statement), statement)
        found.append(Theorem(name, says, name, True, place_of(statement), proof))
    for name, statement in spec.pool_properties.SUPPORT.items():
        says = f"initially and after every transition, {_sentence(statement)}"
        proof = Induction(_after(statement), statement)
        found.append(Theorem(name, says, name, True, place_of(statement), proof))
    return found


def _lemma_theorems() -> list[Theorem]:
    return [
        Theorem(
            name,
            f"in every state that satisfies the invariant, {_sentence(statement)}",
            name,
            True,
            place_of(statement),
            Corollary(statement, is_lemma=True),
        )
        for name, statement in LEMMAS.items()
    ]


def _step_theorems(spec: Specification) -> list[Theorem]:
    found = []
    for name, statement in spec.steps.STEP_STATEMENTS.items():
        entry = spec.steps.STEP_PROPERTIES[name]
        proof = Induction(_of_step(statement), trivial=_TRIVIAL.get(name, _never))
        says = f"for every transition from every state of the invariant, {entry.says}"
        found.append(Theorem(name, says, name, False, place_of(statement), proof))
    return found


def _call_theorems() -> list[Theorem]:
    return [
        Theorem(
            "misuse-refused",
            "every forbidden call of a transition is refused",
            "misuse-refused",
            False,
            place_of(_misuse_refused),
            Induction(
                _misuse_refused, trivial=lambda call, refused: refused or not misuses_of(call)
            ),
        ),
        Theorem(
            "legal-accepted",
            "a call that is not forbidden is not refused, meets every check, and asks of the"
            " containers only what they allow",
            "legal-accepted",
            False,
            place_of(_legal_accepted),
            Induction(_legal_accepted, obligations=True, trivial=lambda call, refused: True),
        ),
        Theorem(
            "effects-exact",
            "every transition changes what it says it changes, and nothing else",
            "effects-exact",
            False,
            place_of(effects_exact),
            Induction(effects_exact, trivial=lambda call, refused: refused),
        ),
    ]


def _table_theorems(spec: Specification) -> list[Theorem]:
    statement = spec.full_attention.no_stranded_suffix
    needed = "each rule of the full-attention protocol is needed: without it a suffix is stranded"
    return [
        Theorem(
            name,
            f"in every state of a full-attention manager's pool, {_sentence(lemma)}",
            "no-stranded-suffix",
            False,
            place_of(lemma),
            Corollary(lemma, tables=True, is_lemma=True),
        )
        for name, lemma in PROTOCOL_LEMMAS.items()
    ] + [
        Theorem(
            "no-stranded-suffix",
            "in every state that a full-attention manager reaches, " + _sentence(statement),
            "no-stranded-suffix",
            False,
            place_of(statement),
            NoStrandedSuffix(spec),
        ),
        Theorem(
            "protocol-needed",
            needed,
            "no-stranded-suffix",
            False,
            place_of(statement),
            ProtocolNeeded(spec),
        ),
    ]


def _misuse_refused(run: Run) -> Any:
    """A call that was not refused is none of the forbidden ones."""
    if run.answer.refused:
        return True
    return _all(
        neg(misuse.condition(run.before, **run.answer.arguments))
        for misuse in misuses_of(run.call.name)
    )


def _legal_accepted(run: Run) -> Any:
    """A call that was refused by a rule is forbidden by that rule."""
    if not run.answer.refused:
        return True
    return _any(
        misuse.condition(run.before, **run.answer.arguments)
        for misuse in misuses_of(run.call.name)
        if misuse.rule == run.rule
    )


def _never(call: str, refused: bool) -> bool:
    return False


_TRIVIAL: dict[str, Callable[[str, bool], bool]] = {
    "hit-backed": lambda call, refused: call != "lookup",
    "lazy-eviction": lambda call, refused: call == "reset" and not refused,
    "failed-is-noop": lambda call, refused: not refused,
}
"""Which transitions a property of steps says nothing about."""

COROLLARY_NAMES = frozenset({"all-returned"})


def _after(statement: Statement) -> Callable[[Run], Any]:
    return lambda run: statement(run.after)


def _of_step(statement: Callable[[Any], Any]) -> Callable[[Run], Any]:
    return lambda run: statement(run.step)


def _all(conditions: Any) -> Any:
    return reduce(lambda one, other: one & other, conditions, True)


def _any(conditions: Any) -> Any:
    return reduce(lambda one, other: one | other, conditions, False)


def _sentence(statement: Statement) -> str:
    text = " ".join((statement.__doc__ or "").split())
    text = text.removeprefix("Support: ").rstrip(".")
    return text[:1].lower() + text[1:]
