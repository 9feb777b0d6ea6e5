"""Prove theorems: one at a time, or all of them in several processes."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from kvproof.proofs.calls import CALLS, Call
from kvproof.proofs.counterexamples import INITIAL, Counterexample, completed, observe
from kvproof.proofs.exploration import Run
from kvproof.proofs.induction import Laboratory, broken_by
from kvproof.proofs.paths import Exploded
from kvproof.proofs.reachability import Reachability
from kvproof.proofs.solvers import UNKNOWN, UNSAT, Bundle, z3_answers
from kvproof.proofs.specification import Edit, Specification
from kvproof.proofs.stranded import ProtocolNeeded
from kvproof.proofs.theorems import Theorem, theorems

SOLVERS = ("z3", "cvc5")
KNOWN_CALLS = {**CALLS, INITIAL: Call(INITIAL, ())}


@dataclass(frozen=True)
class Verdict:
    """What became of a theorem.

    `status` is `proved`, `refuted` (with a counterexample), `unknown` (no proof and no
    counterexample) or `error` (the proof would mean nothing, or the prover failed). Only the
    first is a success. `conditions` were given to the solvers; `kept` more are hypotheses
    themselves, as nothing that they speak of changes.
    """

    theorem: str
    status: str
    seconds: float
    conditions: int = 0
    kept: int = 0
    detail: list[str] = field(default_factory=list)
    counterexample: Counterexample | None = None


def prove(
    theorem: Theorem | str,
    *,
    solvers: Iterable[str] = SOLVERS,
    timeout_s: float = 10.0,
    seeds: int = 3,
    laboratory: Laboratory | None = None,
) -> Verdict:
    """Prove one theorem: every condition by z3 under each seed, and by cvc5."""
    started = time.perf_counter()
    laboratory = laboratory or Laboratory()
    solvers = tuple(solvers)
    _validate(solvers, timeout_s, seeds)
    theorem = _find(theorem, laboratory.specification) if isinstance(theorem, str) else theorem
    try:
        verdict = _attempt(theorem, solvers, timeout_s, seeds, laboratory)
    except Exploded as error:
        verdict = Verdict(theorem.name, "unknown", 0, detail=[str(error)])
    except Exception as error:
        verdict = Verdict(theorem.name, "error", 0, detail=[f"{type(error).__name__}: {error}"])
    seconds = time.perf_counter() - started
    return replace(verdict, seconds=seconds)


def prove_all(
    names: Iterable[str] | None = None,
    *,
    solvers: Iterable[str] = SOLVERS,
    jobs: int = 1,
    timeout_s: float = 10.0,
    seeds: int = 3,
    on_result: Callable[[Theorem, Verdict], None] | None = None,
    edits: tuple[Edit, ...] = (),
) -> list[Verdict]:
    """Prove the named theorems, or all. `on_result` is called for each in the given order.

    Raises ValueError for an unknown name, solver, or number.
    """
    solvers = tuple(solvers)
    _validate(solvers, timeout_s, seeds)
    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more, not {jobs}")
    laboratory = Laboratory(Specification(edits))
    known = {theorem.name: theorem for theorem in theorems(laboratory.specification)}
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        _find(name, laboratory.specification)
    verdicts = []
    if jobs == 1 or len(chosen) < 2:
        for name in chosen:
            verdict = prove(
                known[name],
                solvers=solvers,
                timeout_s=timeout_s,
                seeds=seeds,
                laboratory=laboratory,
            )
            verdicts.append(verdict)
            if on_result is not None:
                on_result(known[name], verdict)
        return verdicts
    context = get_context("spawn")
    workers = min(jobs, len(chosen))
    with ProcessPoolExecutor(workers, context, _start_worker, (edits,)) as pool:
        waiting: dict[str, Future[Verdict]] = {
            name: pool.submit(_work, name, solvers, timeout_s, seeds)
            for name in sorted(chosen, key=_heaviest_first)
        }
        for name in chosen:
            verdict = waiting[name].result()
            verdicts.append(verdict)
            if on_result is not None:
                on_result(known[name], verdict)
    return verdicts


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
    proof = _find(found.theorem, specification).proof
    if isinstance(proof, Reachability):
        raise ValueError(f"{found.theorem} has no counterexamples to replay")
    operations = [one for one in found.operations if one["call"] != INITIAL]
    run = observe(specification, operations, found.before, KNOWN_CALLS)
    if len(operations) < len(found.operations):
        run = Run(specification, KNOWN_CALLS[INITIAL], run.before, run.after, run.answer)
    return completed(found, run, broken_by(run), proof.holds(run))


def _attempt(
    theorem: Theorem, solvers: tuple[str, ...], timeout_s: float, seeds: int, laboratory: Laboratory
) -> Verdict:
    proof = theorem.proof
    if isinstance(proof, ProtocolNeeded):
        return _shown(theorem, proof, laboratory)
    if isinstance(proof, Reachability):
        return _reached(theorem, proof, laboratory)
    complaints = proof.complaints(laboratory)
    if complaints:
        return Verdict(theorem.name, "error", 0, detail=[f"vacuous: {one}" for one in complaints])
    conditions = kept = 0
    for bundle in proof.bundles(laboratory):
        conditions += len(bundle.goals)
        kept += bundle.kept
        failure = _first_failure(bundle, solvers, timeout_s, seeds, laboratory)
        if failure:
            return _refuted(theorem, bundle, failure, conditions, kept, laboratory)
    if not conditions + kept:
        return Verdict(theorem.name, "error", 0, 0, kept, ["vacuous: nothing is to be proved"])
    return Verdict(theorem.name, "proved", 0, conditions, kept)


def _first_failure(
    bundle: Bundle,
    solvers: tuple[str, ...],
    timeout_s: float,
    seeds: int,
    laboratory: Laboratory,
) -> str:
    if not bundle.goals:
        return ""
    answers = {}
    if "z3" in solvers:
        for seed in range(seeds):
            answers[f"z3 with seed {seed}"] = z3_answers(bundle, seed, timeout_s)
    if "cvc5" in solvers:
        answers["cvc5"] = laboratory.cvc5(bundle.known, timeout_s).answers(bundle)
    for name, found in answers.items():
        for place, (says, _) in enumerate(bundle.goals):
            answer = next(found, UNKNOWN)
            if answer != UNSAT:
                return f"{bundle.label}: {name} says {answer} ({says}, part {place + 1})"
    return ""


def _refuted(
    theorem: Theorem,
    bundle: Bundle,
    failure: str,
    conditions: int,
    kept: int,
    laboratory: Laboratory,
) -> Verdict:
    assert not isinstance(theorem.proof, ProtocolNeeded | Reachability)
    lost = 0
    for operations, before in theorem.proof.candidates(laboratory, bundle.label):
        candidate = Counterexample(theorem.name, theorem.says, theorem.where, operations, before)
        found = replay(candidate, laboratory.specification)
        if found.replayed:
            return Verdict(theorem.name, "refuted", 0, conditions, kept, [failure], found)
        lost += 1
    if lost:
        detail = [failure, f"{lost} counterexamples do not replay: the prover is wrong"]
        return Verdict(theorem.name, "error", 0, conditions, kept, detail)
    return Verdict(theorem.name, "unknown", 0, conditions, kept, [failure])


def _shown(theorem: Theorem, proof: ProtocolNeeded, laboratory: Laboratory) -> Verdict:
    """Judge a theorem that consists of counterexamples to a bolder one."""
    detail = []
    found: Counterexample | None = None
    for says, examples in proof.shown(laboratory):
        found = None
        for operations, before in examples:
            made = Counterexample(theorem.name, says, theorem.where, operations, before)
            found = replay(made, laboratory.specification)
            break
        if found is None or not found.replayed:
            detail.append(f"no counterexample that replays: {says}")
            return Verdict(theorem.name, "unknown", 0, len(detail), detail=detail)
        detail.append(f"{says}: {[operation['call'] for operation in found.operations]}")
    return Verdict(theorem.name, "proved", 0, len(detail), detail=detail, counterexample=found)


def _reached(theorem: Theorem, proof: Reachability, laboratory: Laboratory) -> Verdict:
    findings = list(proof.findings(laboratory))
    wrong = [f"vacuous: {says}" for _, says in findings if says]
    status = "error" if wrong else "proved"
    return Verdict(theorem.name, status, 0, len(findings), detail=wrong)


def _find(name: str, specification: Specification) -> Theorem:
    for theorem in theorems(specification):
        if theorem.name == name:
            return theorem
    raise ValueError(f"there is no theorem {name!r}")


def _validate(solvers: tuple[str, ...], timeout_s: float, seeds: int) -> None:
    if not solvers or not set(solvers) <= set(SOLVERS):
        raise ValueError(f"solvers must be among {', '.join(SOLVERS)}, not {solvers}")
    if timeout_s <= 0:
        raise ValueError(f"timeout_s must be positive, not {timeout_s}")
    if seeds < 1:
        raise ValueError(f"seeds must be 1 or more, not {seeds}")


def _heaviest_first(name: str) -> int:
    return HEAVY.index(name) if name in HEAVY else len(HEAVY)


HEAVY = ("no-stranded-suffix", "effects-exact", "lazy-eviction")
"""Theorems that take longest: several processes start with these."""

_laboratory: list[Laboratory] = []


def _start_worker(edits: tuple[Edit, ...]) -> None:
    _laboratory.append(Laboratory(Specification(edits)))


def _work(name: str, solvers: tuple[str, ...], timeout_s: float, seeds: int) -> Verdict:
    return prove(
        name, solvers=solvers, timeout_s=timeout_s, seeds=seeds, laboratory=_laboratory[-1]
    )
