"""Examples: small states and steps that each statement accepts, and others that it rejects.

A statement that was weakened by mistake is still proved; no solver can tell that it says
less than it should. The examples can: each was chosen because some slip in the statement (a
part left out, a comparison turned round) would judge it otherwise. `kvproof prove` judges
them all again before it proves anything.

They are in `examples.json`; `tests/proofs/make_examples.py` writes that file.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from kvproof.proofs.calls import CALLS, Answer
from kvproof.proofs.exploration import Run
from kvproof.proofs.snapshots import Snapshot, concrete_state, key_of_text
from kvproof.proofs.specification import Specification


@dataclass(frozen=True)
class Example:
    """A state, or with `after` a step, and whether the property holds of it."""

    property: str
    holds: bool
    before: Snapshot
    after: Snapshot | None = None
    call: str = ""
    arguments: dict[str, Any] | None = None
    result: Any = None
    refused: bool = False

    def run(self, specification: Specification) -> Run:
        """Return the example on the concrete specification."""
        call = CALLS.get(self.call, CALLS["reset"])
        before = concrete_state(specification, self.before)
        after = concrete_state(specification, self.after or self.before)
        arguments = {
            name: _value(specification, value) for name, value in (self.arguments or {}).items()
        }
        answer = Answer(arguments, self.result, self.refused)
        return Run(specification, call, before, after, answer)


@lru_cache(maxsize=1)
def examples() -> tuple[Example, ...]:
    """Return all examples."""
    text = files("kvproof.proofs").joinpath("examples.json").read_text(encoding="utf-8")
    return tuple(Example(**entry) for entry in json.loads(text))


def misjudged(name: str, claim: Callable[[Run], Any], specification: Specification) -> list[str]:
    """Say which examples of a property a claim judges otherwise than it should."""
    found = []
    for number, example in enumerate(one for one in examples() if one.property == name):
        holds = bool(claim(example.run(specification)))
        if holds is not example.holds:
            does, must = ("accepts", "reject") if holds else ("rejects", "accept")
            what = f"the {example.call} step" if example.call else "the state"
            found.append(f"the statement {does} {what} of example {number}, and must {must} it")
    return found


def _value(specification: Specification, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return specification.quantities.Key(*key_of_text(value))
