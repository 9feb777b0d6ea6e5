"""Write `examples.json`: for each slip that can be made in a statement, what tells it apart.

Run it after a statement was changed on purpose: python tests/proofs/make_examples.py
"""

import ast
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import kvproof.proofs
from kvproof.proofs.calls import POOL_CALLS, Answer, Call
from kvproof.proofs.counterexamples import in_range
from kvproof.proofs.examples import Example
from kvproof.proofs.exploration import Run, World
from kvproof.proofs.induction import Laboratory, unrelated
from kvproof.proofs.snapshots import Decoder
from kvproof.proofs.solvers import model_of
from kvproof.proofs.specification import Edit, Specification
from kvproof.proofs.terms import equal, lift, negation

FILE = Path(kvproof.proofs.__file__).parent / "examples.json"

HELPERS = {"_holds": "refs-exact", "same_state": "failed-is-noop"}

Claim = Callable[[Run], Any]


def slips(text: str) -> Iterator[tuple[str, str]]:
    """Yield (function, module text) for each small mistake in a function that says something."""
    tree = ast.parse(text)
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name.startswith("_state"):
            continue
        nodes = [node for node in ast.walk(function) if isinstance(node, ast.expr)]
        for number, node in enumerate(nodes):
            for change in range(len(list(_changed(copy.deepcopy(node))))):
                again = ast.parse(text)
                twin = next(
                    one
                    for one in again.body
                    if isinstance(one, ast.FunctionDef) and one.name == function.name
                )
                old = [one for one in ast.walk(twin) if isinstance(one, ast.expr)][number]
                new = list(_changed(copy.deepcopy(old)))[change]
                _Replace(old, new).visit(twin)
                yield function.name, ast.unparse(again)


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left, ast.BitAnd() | ast.BitOr(), right):
            yield left
            yield right
            swapped = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
            yield ast.BinOp(left, swapped, right)
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            yield left
        case ast.Compare(left, [op], right):
            others: dict[type[ast.cmpop], list[ast.cmpop]] = {
                ast.Eq: [ast.NotEq()],
                ast.NotEq: [ast.Eq()],
                ast.Lt: [ast.LtE()],
                ast.LtE: [ast.Lt()],
                ast.Gt: [ast.GtE()],
                ast.GtE: [ast.Gt()],
            }
            for other in others.get(type(op), []):
                yield ast.Compare(left, [other], right)
        case ast.Call(ast.Name("implies"), [one, other]):
            yield other
            yield _call("implies", other, one)
        case ast.Call(ast.Name("iff"), [one, other]):
            yield _call("implies", one, other)
            yield _call("implies", other, one)
        case ast.Call(ast.Name("neg"), [one]):
            yield one
        case ast.Call(ast.Name("ite"), [condition, then, otherwise]):
            yield _call("ite", condition, otherwise, then)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else super().generic_visit(node)


def claims(specification: Specification) -> dict[str, tuple[str, Claim]]:
    """Return, for each property, the kind of example and the claim."""
    found: dict[str, tuple[str, Claim]] = {}
    for name, statement in specification.pool_properties.INVARIANT.items():
        found[name] = "state", lambda run, s=statement: s(run.after)  # type: ignore[misc]
    for name, statement in specification.steps.STEP_STATEMENTS.items():
        found[name] = "step", lambda run, s=statement: s(run.step)  # type: ignore[misc]
    stranded = specification.full_attention.no_stranded_suffix
    found["no-stranded-suffix"] = "table", lambda run: stranded(run.after)
    return found


class Maker:
    """Collects examples."""

    def __init__(self) -> None:
        self.laboratory = Laboratory()
        self.own = claims(self.laboratory.specification)
        self.found: list[Example] = []
        self.silent = 0

    def tell_apart(self, name: str, slip: Claim) -> None:
        """Find an example that a property and a slip of it judge differently."""
        kind, claim = self.own[name]
        for example in self.found:
            if example.property == name:
                run = example.run(self.laboratory.specification)
                try:
                    if bool(slip(run)) is not example.holds:
                        return
                except Exception:
                    return
        for world in self.laboratory.small_worlds(kind == "table"):
            for run in self._runs(world, kind):
                try:
                    differ = negation(equal(lift(claim(run)), lift(slip(run))))
                except Exception:
                    return
                if self._add(world, name, kind, run, differ, slip):
                    return
        self.silent += 1

    def _runs(self, world: World, kind: str) -> Iterator[Run]:
        if kind != "step":
            yield Run(
                world.specification,
                Call("", ()),
                world.state(),
                world.state(),
                Answer({}, None, False),
            )
            return
        for call in POOL_CALLS:
            for refused in (False, True):
                yield unrelated(world, call, refused)

    def _add(self, world: World, name: str, kind: str, run: Run, differ: Any, slip: Claim) -> bool:
        base = [*world.axioms, *in_range(world, run.before), differ]
        if kind == "step":
            base += in_range(world, run.after)
        likely = [*base, *world.invariant_of(run.before)] if kind == "step" else base
        model = model_of(likely, 20) or model_of(base, 20)
        if model is None:
            return False
        decoder = Decoder(model, world.universe)
        example = Example(
            name,
            True,
            decoder.state(run.before),
            decoder.state(run.after) if kind == "step" else None,
            run.call.name,
            {key: decoder.value(value) for key, value in run.answer.arguments.items()},
            None if run.answer.result is None else decoder.value(run.answer.result),
            run.answer.refused,
        )
        concrete = example.run(self.laboratory.specification)
        holds = bool(self.own[name][1](concrete))
        if bool(slip(concrete)) is holds:
            return False
        self.found.append(Example(**{**asdict(example), "holds": holds}))
        return True


def make() -> list[Example]:
    """Return an example for each slip that some small state tells apart."""
    maker = Maker()
    modules = maker.laboratory.specification.modules
    for module in ("pool_properties", "steps", "full_attention"):
        text = Path(str(modules[module].__file__)).read_text(encoding="utf-8")
        for function, slipped in slips(text):
            name = HELPERS.get(function, function.replace("_", "-"))
            if name in maker.own:
                edited = claims(Specification((Edit(module, text, slipped),)))
                maker.tell_apart(name, edited[name][1])
    print(f"{maker.silent} slips are told apart by no small state")
    return maker.found


if __name__ == "__main__":
    made = make()
    FILE.write_text(json.dumps([asdict(one) for one in made], separators=(",", ":")) + "\n")
    print(f"{len(made)} examples in {FILE}")
