"""The two solvers. A condition is proved when its negation is unsatisfiable, for each.

z3 first tries without model-based instantiation, which is quick and gives up quickly, and
then with it. cvc5 reads the same conditions as SMT-LIB 2 text and shares nothing else with
z3. It is told what is known once, and then one bundle of goals after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cvc5
import z3

UNSAT, SAT, UNKNOWN = "unsat", "sat", "unknown"


@dataclass(slots=True)
class Bundle:
    """Goals that share what is known and what is assumed: one path of one transition."""

    label: str
    known: list[Any]
    assumed: list[Any] = field(default_factory=list)
    goals: list[tuple[str, Any]] = field(default_factory=list)
    kept: int = 0
    """Goals that are known themselves: nothing that they speak of has changed."""


def quick_answers(bundle: Bundle, seed: int, timeout_s: float) -> Iterator[str]:
    """Say for each goal whether z3 refutes its negation, without trying hard."""
    solver = z3.SimpleSolver()
    solver.set("mbqi", False)
    _limit(solver, timeout_s, seed)
    solver.add(*bundle.known, *bundle.assumed)
    for _, goal in bundle.goals:
        solver.push()
        solver.add(z3.Not(goal))
        yield str(solver.check())
        solver.pop()


def patient_answer(bundle: Bundle, place: int, seed: int, timeout_s: float) -> str:
    """Say whether z3 refutes one goal's negation, with all that it can do."""
    solver = z3.Solver()
    _limit(solver, timeout_s, seed)
    solver.add(*bundle.known, *bundle.assumed, z3.Not(bundle.goals[place][1]))
    return str(solver.check())


class Cvc5:
    """A cvc5 that knows something, and is asked about bundles that share it."""

    def __init__(self, known: list[Any], timeout_s: float) -> None:
        self.known = known
        self.timeout_s = timeout_s
        self._declared: set[str] = set()
        self._solver = cvc5.Solver(cvc5.TermManager())
        self._solver.setOption("tlimit-per", str(int(timeout_s * 1000)))
        self._solver.setOption("incremental", "true")
        self._solver.setOption("fresh-binders", "true")
        self._solver.setLogic("ALL")
        self._parser = cvc5.InputParser(self._solver)
        self._run([*self._declare(known), *_assertions(known)])

    def first_unproved(self, bundle: Bundle) -> tuple[int, str] | None:
        """Return the first goal whose negation cvc5 does not refute, and its answer."""
        marks = [z3.Bool(f"goal.{place}") for place in range(len(bundle.goals))]
        expressions = bundle.assumed + [
            z3.Implies(mark, z3.Not(goal))
            for mark, (_, goal) in zip(marks, bundle.goals, strict=True)
        ]
        self._run([*self._declare(expressions), "(push 1)", *_assertions(expressions)])
        try:
            for place, mark in enumerate(marks):
                answer = self._run([f"(check-sat-assuming ({mark}))"])
                if answer != [UNSAT]:
                    return place, answer[0] if answer else UNKNOWN
        finally:
            self._run(["(pop 1)"])
        return None

    def _declare(self, expressions: list[Any]) -> list[str]:
        lines = [line for line in _text(expressions) if line.startswith("(declare-")]
        new = [line for line in lines if line not in self._declared]
        self._declared.update(new)
        return new

    def _run(self, lines: list[str]) -> list[str]:
        """Run the commands, and say what each `check-sat` answers."""
        text = "\n".join(lines) + "\n"
        self._parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "conditions")
        symbols = self._parser.getSymbolManager()
        answers = []
        while not (command := self._parser.nextCommand()).isNull():
            answer = str(command.invoke(self._solver, symbols)).strip()
            if str(command).startswith("(check-sat"):
                answers.append(answer if answer in (UNSAT, SAT) else UNKNOWN)
            elif answer:
                raise ValueError(f"cvc5 answers {answer!r} to {command}")
        return answers


def model_of(conditions: list[Any], timeout_s: float) -> Any:
    """Return a model of quantifier-free conditions, or None."""
    solver = z3.Solver()
    _limit(solver, timeout_s, 0)
    solver.add(*conditions)
    return solver.model() if str(solver.check()) == SAT else None


def _limit(solver: Any, timeout_s: float, seed: int) -> None:
    solver.set("random_seed", seed)
    solver.set("timeout", int(timeout_s * 1000))


def _text(expressions: list[Any]) -> list[str]:
    """Write expressions as SMT-LIB 2: declarations, assertions, and a `check-sat`."""
    solver = z3.Solver()
    solver.add(*expressions)
    lines: list[str] = solver.to_smt2().splitlines()
    return lines


def _assertions(expressions: list[Any]) -> list[str]:
    return [
        line
        for line in _text(expressions)
        if not line.startswith(("(declare-", "(check-sat)", ";", "(set-"))
    ]
