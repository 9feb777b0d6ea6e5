"""The two solvers. A condition is proved when its negation is unsatisfiable, for each.

z3 first tries without model-based instantiation, which is quick and gives up quickly, and
then with it. cvc5 reads the same conditions as SMT-LIB 2 text, in a process-wide parser of
its own: nothing but that text is shared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cvc5
import z3

UNSAT, SAT, UNKNOWN = "unsat", "sat", "unknown"


@dataclass(slots=True)
class Bundle:
    """Goals that share their hypotheses: one path of one transition, or a base case."""

    label: str
    hypotheses: list[Any]
    goals: list[tuple[str, Any]] = field(default_factory=list)
    kept: int = 0
    """Goals that are among the hypotheses: nothing that they speak of has changed."""


def z3_answers(bundle: Bundle, seed: int, timeout_s: float) -> Iterator[str]:
    """Say for each goal whether z3 refutes its negation."""
    solver = z3.SimpleSolver()
    solver.set("random_seed", seed)
    solver.set("timeout", int(timeout_s * 1000))
    solver.set("mbqi", False)
    solver.add(*bundle.hypotheses)
    for _, goal in bundle.goals:
        solver.push()
        solver.add(z3.Not(goal))
        answer = str(solver.check())
        solver.pop()
        if answer != UNSAT:
            again = z3.Solver()
            again.set("random_seed", seed)
            again.set("timeout", int(timeout_s * 1000))
            again.add(*bundle.hypotheses, z3.Not(goal))
            answer = str(again.check())
        yield answer


def cvc5_answers(bundle: Bundle, timeout_s: float) -> Iterator[str]:
    """Say for each goal whether cvc5 refutes its negation."""
    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("tlimit-per", str(int(timeout_s * 1000)))
    solver.setOption("incremental", "true")
    solver.setOption("fresh-binders", "true")
    solver.setLogic("ALL")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, smt_lib(bundle), bundle.label)
    symbols = parser.getSymbolManager()
    while not (command := parser.nextCommand()).isNull():
        answer = str(command.invoke(solver, symbols)).strip()
        if str(command).startswith("(check-sat"):
            yield answer if answer in (UNSAT, SAT) else UNKNOWN


def smt_lib(bundle: Bundle) -> str:
    """Write a bundle as SMT-LIB 2: one `check-sat-assuming` for each goal."""
    solver = z3.Solver()
    solver.add(*bundle.hypotheses)
    for place, (_, goal) in enumerate(bundle.goals):
        solver.add(z3.Implies(z3.Bool(_mark(place)), z3.Not(goal)))
    text = solver.to_smt2().replace("(check-sat)", "")
    checks = (f"(check-sat-assuming ({_mark(place)}))" for place in range(len(bundle.goals)))
    return text + "\n".join(checks) + "\n"


def model_of(conditions: list[Any], timeout_s: float) -> Any:
    """Return a model of quantifier-free conditions, or None."""
    solver = z3.Solver()
    solver.set("timeout", int(timeout_s * 1000))
    solver.add(*conditions)
    return solver.model() if str(solver.check()) == SAT else None


def _mark(place: int) -> str:
    return f"goal.{place}"
