"""One attempt at one theorem: prove it, or find out why not.

The quick part of z3 goes first. What it cannot prove is searched for a counterexample, and
only when there is none do the patient solvers get their time.
"""

from dataclasses import dataclass, field

from kvproof.proofs.calls import CALLS, Call
from kvproof.proofs.counterexamples import INITIAL, Counterexample, completed, observe
from kvproof.proofs.examples import misjudged
from kvproof.proofs.exploration import Run
from kvproof.proofs.ghost_induction import GhostProof
from kvproof.proofs.ghost_needed import GhostChecks
from kvproof.proofs.induction import Laboratory, Proof, broken_by
from kvproof.proofs.reachability import Reachability
from kvproof.proofs.solvers import UNSAT, Bundle, patient_answer, quick_answers
from kvproof.proofs.specification import Specification
from kvproof.proofs.stranded import ProtocolNeeded
from kvproof.proofs.theorem import Theorem
from kvproof.proofs.theorems import theorem_named

SOLVERS = ("z3", "cvc5")
_KNOWN_CALLS = {**CALLS, INITIAL: Call(INITIAL, ())}


@dataclass(frozen=True)
class Verdict:
    """What became of a theorem.

    `status` is `proved`, `refuted` (with a counterexample), `unknown` (no proof and no
    counterexample) or `error` (the proof would mean nothing, or the prover failed). Only the
    first is a success. `conditions` were given to the solvers; `kept` more are known
    themselves, as nothing that they speak of changes.
    """

    theorem: str
    status: str
    seconds: float
    conditions: int = 0
    kept: int = 0
    detail: list[str] = field(default_factory=list)
    counterexample: Counterexample | None = None


@dataclass
class Attempt:
    """What is attempted, with which solvers, and how far it got."""

    theorem: Theorem
    laboratory: Laboratory
    solvers: tuple[str, ...] = SOLVERS
    timeout_s: float = 10.0
    seeds: int = 3
    conditions: int = 0
    kept: int = 0
    searched: set[str] = field(default_factory=set)

    def run(self) -> Verdict:
        """Make the attempt."""
        proof = self.theorem.proof
        if isinstance(proof, ProtocolNeeded):
            return self._shown(proof)
        if isinstance(proof, Reachability | GhostChecks):
            return self._reached(proof)
        complaints = proof.complaints(self.laboratory)
        if complaints:
            return self._verdict("error", *(f"vacuous: {says}" for says in complaints))
        for bundle in proof.bundles(self.laboratory):
            self.conditions += len(bundle.goals)
            self.kept += bundle.kept
            failed = self._prove(proof, bundle)
            if failed is not None:
                return failed
        if not self.conditions + self.kept:
            return self._verdict("error", "vacuous: nothing is to be proved")
        wrong = misjudged(self.theorem.name, proof.holds_of, self.laboratory.specification)
        return self._verdict("error" if wrong else "proved", *wrong)

    def _prove(self, proof: Proof, bundle: Bundle) -> Verdict | None:
        """Prove a bundle. Returns the verdict when that ends the attempt."""
        if not bundle.goals:
            return None
        for seed in range(self.seeds if "z3" in self.solvers else 0):
            for place, answer in enumerate(quick_answers(bundle, seed, self.timeout_s)):
                if answer == UNSAT:
                    continue
                failure = _failure(bundle, place, f"z3 with seed {seed}", answer)
                refuted = self._search(proof, bundle, failure)
                if refuted is not None:
                    return refuted
                answer = patient_answer(bundle, place, seed, self.timeout_s)
                if answer != UNSAT:
                    failure = _failure(bundle, place, f"z3 with seed {seed}", answer)
                    return self._verdict("unknown", failure)
        if "cvc5" in self.solvers:
            unproved = self.laboratory.cvc5(bundle.known, self.timeout_s).first_unproved(bundle)
            if unproved is not None:
                failure = _failure(bundle, unproved[0], "cvc5", unproved[1])
                refuted = self._search(proof, bundle, failure)
                return refuted or self._verdict("unknown", failure)
        return None

    def _search(self, proof: Proof, bundle: Bundle, failure: str) -> Verdict | None:
        """Look for a counterexample to a bundle, once for each transition."""
        name = bundle.label.partition("/")[0]
        if name in self.searched:
            return None
        self.searched.add(name)
        lost = 0
        for operations, before in proof.candidates(self.laboratory, bundle.label):
            found = self._replayed(self.theorem.says, operations, before)
            if found.replayed:
                return self._verdict("refuted", failure, counterexample=found)
            lost += 1
        if lost:
            says = f"{lost} counterexamples do not replay: the prover is wrong"
            return self._verdict("error", failure, says)
        return None

    def _shown(self, proof: ProtocolNeeded) -> Verdict:
        """Judge a theorem that consists of counterexamples to a bolder one."""
        detail = []
        for says, examples in proof.shown(self.laboratory):
            self.conditions += 1
            found = None
            for operations, before in examples:
                found = self._replayed(says, operations, before)
                break
            if found is None or not found.replayed:
                return self._verdict("unknown", f"no counterexample that replays: {says}")
            detail.append(f"{says}: {', '.join(one['call'] for one in found.operations)}")
        return self._verdict("proved", *detail)

    def _reached(self, proof: Reachability | GhostChecks) -> Verdict:
        findings = list(proof.findings(self.laboratory))
        self.conditions = len(findings)
        wrong = [f"vacuous: {says}" for _, says in findings if says]
        return self._verdict("error" if wrong else "proved", *wrong)

    def _replayed(
        self, says: str, operations: list[dict[str, object]], before: dict[str, object]
    ) -> Counterexample:
        theorem = self.theorem
        made = Counterexample(theorem.name, says, theorem.where, operations, before)
        return replay(made, self.laboratory.specification)

    def _verdict(
        self, status: str, *detail: str, counterexample: Counterexample | None = None
    ) -> Verdict:
        name, counts = self.theorem.name, (self.conditions, self.kept)
        return Verdict(name, status, 0.0, *counts, list(detail), counterexample)


def replay(
    counterexample: Counterexample | str, specification: Specification | None = None
) -> Counterexample:
    """Run a counterexample, or its JSON, on the concrete specification.

    The result says what happened and which properties broke; `replayed` is true when the
    theorem's claim is false of it.
    """
    found = (
        Counterexample.from_json(counterexample)
        if isinstance(counterexample, str)
        else counterexample
    )
    specification = specification or Specification()
    proof = theorem_named(found.theorem, specification).proof
    if isinstance(proof, GhostProof):
        return proof.replay(found, specification)
    if isinstance(proof, Reachability | GhostChecks):
        raise ValueError(f"{found.theorem} has no counterexamples to replay")
    operations = [one for one in found.operations if one["call"] != INITIAL]
    run = observe(specification, operations, found.before, _KNOWN_CALLS)
    if len(operations) < len(found.operations):
        run = Run(specification, _KNOWN_CALLS[INITIAL], run.before, run.after, run.answer)
    return completed(found, run, broken_by(run), proof.holds(run))


def _failure(bundle: Bundle, place: int, solver: str, answer: str) -> str:
    says, _ = bundle.goals[place]
    return f"{bundle.label}: {solver} says {answer} ({says}, part {place + 1})"
