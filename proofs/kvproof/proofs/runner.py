"""Prove theorems: one at a time, or all of them in several processes."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from kvproof.proofs.attempts import SOLVERS, Attempt, Verdict, replay
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.paths import Exploded
from kvproof.proofs.specification import Edit, Specification
from kvproof.proofs.theorem import Theorem
from kvproof.proofs.theorems import theorem_named, theorems


def prove(
    theorem: Theorem | str,
    *,
    solvers: Iterable[str] = SOLVERS,
    timeout_s: float = 10.0,
    seeds: int = 3,
    laboratory: Laboratory | None = None,
) -> Verdict:
    """Prove one theorem: every condition by z3 under each seed, and by cvc5.

    Raises ValueError for an unknown name, solver, or number.
    """
    started = time.perf_counter()
    laboratory = laboratory or Laboratory()
    solvers = tuple(solvers)
    _validate(solvers, timeout_s, seeds)
    if isinstance(theorem, str):
        theorem = theorem_named(theorem, laboratory.specification)
    try:
        verdict = Attempt(theorem, laboratory, solvers, timeout_s, seeds).run()
    except Exploded as error:
        verdict = Verdict(theorem.name, "unknown", 0, detail=[str(error)])
    except Exception as error:
        verdict = Verdict(theorem.name, "error", 0, detail=[f"{type(error).__name__}: {error}"])
    return replace(verdict, seconds=time.perf_counter() - started)


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
        theorem_named(name, laboratory.specification)
    report = on_result or (lambda theorem, verdict: None)
    verdicts = []
    if jobs == 1 or len(chosen) < 2:
        for name in chosen:
            verdicts.append(
                prove(
                    known[name],
                    solvers=solvers,
                    timeout_s=timeout_s,
                    seeds=seeds,
                    laboratory=laboratory,
                )
            )
            report(known[name], verdicts[-1])
        return verdicts
    context = get_context("spawn")
    workers = min(jobs, len(chosen))
    with ProcessPoolExecutor(workers, context, _start_worker, (edits,)) as pool:
        waiting: dict[str, Future[Verdict]] = {
            name: pool.submit(_work, name, solvers, timeout_s, seeds)
            for name in dict.fromkeys((*(one for one in HEAVY if one in chosen), *chosen))
        }
        for name in chosen:
            verdicts.append(waiting[name].result())
            report(known[name], verdicts[-1])
    return verdicts


def _validate(solvers: tuple[str, ...], timeout_s: float, seeds: int) -> None:
    if not solvers or not set(solvers) <= set(SOLVERS):
        raise ValueError(f"solvers must be among {', '.join(SOLVERS)}, not {solvers}")
    if timeout_s <= 0:
        raise ValueError(f"timeout_s must be positive, not {timeout_s}")
    if seeds < 1:
        raise ValueError(f"seeds must be 1 or more, not {seeds}")


HEAVY = ("contents-promised", "no-stranded-suffix", "protocol-rules-needed")
"""Theorems that take longest: several processes start with these."""

_laboratory: list[Laboratory] = []


def _start_worker(edits: tuple[Edit, ...]) -> None:
    _laboratory.append(Laboratory(Specification(edits)))


def _work(name: str, solvers: tuple[str, ...], timeout_s: float, seeds: int) -> Verdict:
    return prove(
        name, solvers=solvers, timeout_s=timeout_s, seeds=seeds, laboratory=_laboratory[-1]
    )


__all__ = ["Verdict", "prove", "prove_all", "replay", "theorems"]
