"""`kvproof prove`: prove the specification."""

import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from time import monotonic
from typing import Any

import click

from kvproof.cli import interrupt
from kvproof.cli.counterexample import render, save
from kvproof.cli.errors import Stop, choose
from kvproof.cli.output import Progress, counted, say, say_wrapped
from kvproof.cli.records import VERSION, Result, reason, recorded
from kvproof.proofs.runner import Verdict, prove_all
from kvproof.proofs.theorem import Theorem
from kvproof.proofs.theorems import theorems

SAVE = Path(".kvproof")
"""Where counterexamples are saved."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="List the theorems, and prove nothing.")
@click.option("--core", is_flag=True, help="Only the theorems that stand for all in a short check.")
@click.option("--solver", type=click.Choice(["z3", "cvc5", "all"]), default="all")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes (all cores).")
@click.option("--timeout", type=float, default=10.0, metavar="S", help="For one condition (10).")
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON.")
def prove(names: tuple[str, ...], json_file: str | None, **options: Any) -> int:
    """Prove the specification, for any number of blocks.

    Exit status 0 when every theorem is proved by every solver, 1 when one is not: refuted,
    unknown and timeout all count as not proved.
    """
    with recorded(json_file, Result("prove")) as result:
        chosen = _chosen(names, options["core"])
        if options["listing"]:
            if json_file is not None:
                raise Stop("give --list or --json, not both: a list is no result")
            _list(chosen)
            return 0
        if not 0 < options["timeout"] < 1e9:
            raise Stop(f"--timeout must be a positive number, not {options['timeout']}")
        solver = options["solver"]
        solvers = ("z3", "cvc5") if solver == "all" else (solver,)
        jobs = options["jobs"] or cores()
        return _Proofs(chosen).run(solvers, jobs, options["timeout"], result)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _chosen(names: tuple[str, ...], core: bool) -> list[Theorem]:
    if names and core:
        raise Stop("give names or --core, not both")
    known = {theorem.name: theorem for theorem in theorems()}
    if names:
        return [known[name] for name in choose("theorem", names, list(known))]
    return [theorem for theorem in known.values() if theorem.core or not core]


def _list(chosen: list[Theorem]) -> None:
    width = max(len(theorem.name) for theorem in chosen)
    for theorem in chosen:
        core = "core" if theorem.core else "    "
        say(f"{theorem.name:<{width}}  {core}  {theorem.where}")
        say_wrapped(theorem.says, "    ", "    ")
    say(f"{len(chosen)} theorems")


class _Proofs:
    def __init__(self, chosen: list[Theorem]) -> None:
        self.theorems = chosen
        self.done: list[Verdict] = []
        self.files: dict[str, str] = {}
        self.width = max(len(theorem.name) for theorem in chosen)
        self.began = monotonic()
        self.progress = Progress(self._line)

    def run(self, solvers: tuple[str, ...], jobs: int, timeout: float, result: Result) -> int:
        many = counted(len(self.theorems), "theorem")
        say(f"kvproof {VERSION} proves {many} with {' and '.join(solvers)}")
        with self.progress:
            try:
                verdicts = prove_all(
                    [theorem.name for theorem in self.theorems],
                    solvers=solvers,
                    jobs=jobs,
                    timeout_s=timeout,
                    on_result=self._report,
                )
            except BrokenProcessPool:
                raise Stop("a process of the prover was ended from outside") from None
        failed = [verdict for verdict in verdicts if verdict.status != "proved"]
        says = {theorem.name: theorem.says for theorem in self.theorems}
        result.records = [
            _record(verdict, says, self.files.get(verdict.theorem)) for verdict in verdicts
        ]
        result.verdict = "fails" if failed else "holds"
        conditions = sum(verdict.conditions for verdict in verdicts)
        done = f"{len(verdicts) - len(failed)} of {len(verdicts)} theorems proved"
        done += f", {conditions:,} conditions, {monotonic() - self.began:.1f} s"
        if failed:
            names = ", ".join(f"{verdict.theorem} ({verdict.status})" for verdict in failed)
            say(f"FAILS: {done}; not proved: {names}", "bold red")
        else:
            say(f"HOLDS: {done}", "bold green")
        return int(bool(failed))

    def _line(self) -> str:
        return (
            f"{monotonic() - self.began:.0f} s, {len(self.done)} of {len(self.theorems)} theorems"
        )

    def _report(self, theorem: Theorem, verdict: Verdict) -> None:
        interrupt.check()
        self.done.append(verdict)
        proved = verdict.status == "proved"
        with self.progress.paused():
            say(
                f"{verdict.status:<8} {theorem.name:<{self.width}} {verdict.seconds:6.2f} s"
                f" {verdict.conditions:6,} conditions",
                None if proved else "bold red",
            )
            if not proved:
                self._explain(theorem, verdict)

    def _explain(self, theorem: Theorem, verdict: Verdict) -> None:
        say_wrapped(theorem.says, "  ", "  ")
        say(f"  stated in {theorem.where}")
        for line in verdict.detail:
            say(f"  {line}")
        found = verdict.counterexample
        if found is not None:
            say(render(found))
            try:
                path = str(save(found, SAVE))
            except OSError as error:
                say(f"  not saved: cannot write to {SAVE}: {reason(error)}")
                return
            self.files[verdict.theorem] = path
            say(f"  saved to {path}: kvproof replay {path}")


def _record(verdict: Verdict, says: dict[str, str], file: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": verdict.theorem,
        "status": verdict.status,
        "seconds": round(verdict.seconds, 3),
        "says": says[verdict.theorem],
        "conditions": verdict.conditions,
    }
    if verdict.detail:
        record["reason"] = "; ".join(verdict.detail)
    found = verdict.counterexample
    if found is not None:
        record.update(
            operations=[{"op": one["call"], **one["arguments"]} for one in found.operations],
            expected=says[verdict.theorem],
            actual=f"{found.outcome}; broken: {', '.join(found.broken) or verdict.theorem}",
            file=file,
        )
    return record
