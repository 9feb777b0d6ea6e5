"""The transitions that are proved, and how each is called.

The functions themselves are those of `kvproof.spec.transitions` and
`kvproof.spec.full_attention`; here are only their names, their parameters and what a
`Step` has to know about each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.proofs.readings import BLOCK, BOOL, KEY, SLOT
from kvproof.proofs.specification import Specification

SORT_OF = {"slot": SLOT, "block": BLOCK, "key": KEY}


@dataclass(frozen=True)
class Call:
    """One transition. `about` says which block it is about: the one that it returns, the
    argument, or the one that the slot names before; `result` the sort of what it returns.
    """

    name: str
    parameters: tuple[str, ...]
    about: str = "nothing"
    module: str = "transitions"
    primitive: str = ""
    result: str = ""

    def function(self, specification: Specification) -> Callable[..., Any]:
        """Return the transition's function."""
        found: Callable[..., Any] = getattr(specification.modules[self.module], self.name)
        return found

    def step(self, specification: Specification, before: Any, after: Any, call: "Answer") -> Any:
        """Return the `Step` that the specification's statements speak about."""
        u = before.universe
        block = u.null
        if self.about == "result" and not call.refused:
            block = call.result
        elif self.about == "block":
            block = call.arguments["block"]
        elif self.about == "slot":
            block = before.table[call.arguments["slot"]]
        key = call.arguments.get("key", u.no_key)
        name = self.primitive or self.name
        return specification.steps.Step(before, after, name, block, key, call.refused)


@dataclass(frozen=True)
class Answer:
    """A call's arguments and what it answered."""

    arguments: dict[str, Any]
    result: Any
    refused: bool


POOL_CALLS = (
    Call("acquire", ("slot",), "result", result=BLOCK),
    Call("share", ("slot", "block"), "block"),
    Call("release", ("slot",), "slot"),
    Call("skip", ("slot",), "slot"),
    Call("pad", ("slot",)),
    Call("publish", ("block", "key"), "block"),
    Call("publish_partial", ("block", "key"), "block", result=BOOL),
    Call("retract", ("block",), "block"),
    Call("reset", ()),
    Call("lookup", ("key",), "result", result=BLOCK),
)
"""The primitive transitions of the pool."""

TABLE_CALLS = (
    Call("append", ("slot",), "result", "full_attention", "acquire", BLOCK),
    Call("hit", ("slot",), "nothing", "full_attention", "share"),
    Call("cache", ("slot",), "slot", "full_attention", "publish"),
    Call("free_last", ("slot",), "slot", "full_attention", "release"),
    Call("reset", ()),
    Call("lookup", ("key",), "result", result=BLOCK),
)
"""What a full-attention manager does with it."""


CALLS = {call.name: call for call in (*TABLE_CALLS, *POOL_CALLS)}
"""All calls by name."""
