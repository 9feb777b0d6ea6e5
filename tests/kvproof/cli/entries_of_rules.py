"""The entries of rules: what a caller, a scheduler and an engine must keep."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

from kvproof.cli.entries_of_properties import theorems_of
from kvproof.cli.entry import Entry, first_sentence
from kvproof.cli.sources_of_rules import SOURCES
from kvproof.fuzz.legality import Legality
from kvproof.fuzz.target import OPERATIONS
from kvproof.spec import full_attention, ghost_transitions, logic, transitions
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.hashing import RequestContent, extend, kept
from kvproof.spec.kv_cache_coordinator import KVCacheCoordinator, get_kv_cache_coordinator
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.manager_rules import MANAGER_RULES
from kvproof.spec.protocol_rules import PROTOCOL_RULES, RELEASES
from kvproof.spec.rules import RULES, Rule
from kvproof.spec.scheduling_rules import SCHEDULING_RULES
from kvproof.spec.single_type_manager import SingleTypeKVCacheManager

DOOR = (
    "get_computed_blocks",
    "allocate_slots",
    "unschedule",
    "cache_blocks",
    "free",
    "pop_blocks_for_free",
    "remove_skipped_blocks",
    "get_num_common_prefix_blocks",
    "take_new_block_ids",
    "make_prefix_cache_stats",
    "get_block_ids",
)
"""The operations of `kvproof.spec.kv_cache_manager` that the pool does not have."""

PROTOCOL = ("append", "hit", "cache", "free_last")
"""The transitions of `kvproof.spec.full_attention`."""

GHOST_RULES = {
    rule.name: rule for rule in (ghost_transitions.REQUEST_PHASE, ghost_transitions.SLOT_THERE)
}
"""The rules that say how the transitions of the ghost contents are meant."""

ALL_RULES = {**RULES, **MANAGER_RULES, **SCHEDULING_RULES, **PROTOCOL_RULES, **GHOST_RULES}

GHOST = {
    name: function
    for name, function in vars(ghost_transitions).items()
    if isinstance(function, FunctionType)
    and function.__module__ == ghost_transitions.__name__
    and not name.startswith("_")
}
"""The transitions of the ghost contents."""

HOMES = (BlockPool, KVCacheManager, KVCacheCoordinator, SingleTypeKVCacheManager)
"""The classes whose methods a rule may be required in."""

_WHOSE = {
    **dict.fromkeys(RULES, "what a caller of the pool must keep"),
    **dict.fromkeys(MANAGER_RULES, "what a caller of a manager, or of hashing, must keep"),
    **dict.fromkeys(GHOST_RULES, "how the transitions of the ghost contents are meant"),
    **dict.fromkeys(SCHEDULING_RULES, "what a scheduler must keep: the order and counts of calls"),
    **dict.fromkeys(
        PROTOCOL_RULES, "what an engine must keep so that tokens read their own prefix"
    ),
}

_ASKS = {
    "enough-free": "pool is exhausted out of memory exceeds free block count",
    "release-held": "double free freed twice",
    "publish-known": "draft token published rejected",
    "reset-unused": "clear cache requests are running",
}
_PLUMBING = ("Exception", "BaseException", "object", "LookupError")
_NAMED = re.compile(r"\b[A-Z][A-Z_]+\b")


@cache
def rules_of(function: Callable[..., Any]) -> tuple[Rule, ...]:
    """Return the rules that a function of the specification requires, itself or by calls."""
    found: dict[str, Rule] = {}
    seen: set[Any] = set()

    def visit(one: Callable[..., Any]) -> None:
        if one in seen:
            return
        seen.add(one)
        text = inspect.getsource(one)
        found.update((rule.name, rule) for rule in _named_in(text))
        names = one.__globals__ if isinstance(one, FunctionType) else {}
        for called in re.findall(r"\b(\w+)\(", text):
            for other in (names.get(called), *(getattr(home, called, None) for home in HOMES)):
                spec = getattr(other, "__module__", "").startswith("kvproof.spec")
                if isinstance(other, FunctionType) and spec and other.__module__ != logic.__name__:
                    visit(other)

    visit(function)
    return tuple(found.values())


def _named_in(text: str) -> Iterator[Rule]:
    by_constant = {name.replace("-", "_").upper(): rule for name, rule in ALL_RULES.items()}
    return (by_constant[name] for name in _NAMED.findall(text) if name in by_constant)


def rule_entries() -> list[Entry]:
    """Return the entry of each rule."""
    return [_rule(rule) for rule in ALL_RULES.values()]


def _rule(rule: Rule) -> Entry:
    source = SOURCES.get(rule.name, "")

    def lines() -> list[str]:
        bases = [b.__name__ for b in rule.error.__mro__[1:] if b.__name__ not in _PLUMBING]
        error = f"{rule.error.__name__} ({', '.join(bases)}): {first_sentence(rule.error)}"
        return [
            f"says         {rule.says}",
            f"it is        {_WHOSE[rule.name]}",
            f"argument     {rule.argument}",
            f"advice       {rule.advice}",
            f"error        {error}",
            f"consequence  when it is not kept: {rule.consequence}",
            f"source       {source}",
            f"specified    {_home(rule)}",
            *_required(rule),
            *_checked(rule),
            *_practice(rule),
        ]

    asks = f"{first_sentence(rule.error)} {_ASKS.get(rule.name, '')}"
    words = f"{rule.advice} {rule.consequence} {rule.error.__name__} {rule.argument} {source}"
    words = " ".join([words, *_practice(rule)])
    return Entry("rule", rule.name, rule.says, words, lines, asks)


def _home(rule: Rule) -> str:
    for module, rules in (
        ("rules", RULES),
        ("manager_rules", MANAGER_RULES),
        ("scheduling_rules", SCHEDULING_RULES),
        ("protocol_rules", PROTOCOL_RULES),
    ):
        if rule.name in rules:
            return f"kvproof.spec.{module}.{rule.name.replace('-', '_').upper()}"
    return f"kvproof.spec.ghost_transitions.{rule.name.replace('-', '_').upper()}"


def _required(rule: Rule) -> list[str]:
    names = [name for name, function in _functions().items() if rule in rules_of(function)]
    return [f"required by  {', '.join(names)}"] if names else []


def _functions() -> dict[str, Callable[..., Any]]:
    functions = {name: getattr(transitions, name) for name in transitions.__all__}
    functions.update({name: getattr(full_attention, name) for name in PROTOCOL})
    functions.update({name: getattr(BlockPool, name) for name in OPERATIONS})
    functions.update({name: getattr(KVCacheManager, name) for name in DOOR})
    functions.update({one.__name__: one for one in (extend, kept, get_kv_cache_coordinator)})
    functions.update({f"ghost:{name}": function for name, function in GHOST.items()})
    functions["RequestContent"] = RequestContent.__post_init__
    functions["KVCacheManager"] = KVCacheManager.__init__
    functions["KVCacheCoordinator"] = KVCacheCoordinator.__init__
    return functions


def _checked(rule: Rule) -> list[str]:
    if rule.name in RULES:
        return [
            "proved       kvproof prove misuse-refused, for the transitions that require it",
            "fuzzed       kvproof fuzz TARGET --misuse, where there is a kind of misuse for it",
        ]
    lines = []
    if rule.name in PROTOCOL_RULES:
        proofs = [*theorems_of("reads-own-prefix"), *theorems_of("writes-exclusive")]
        resting = ", ".join(dict.fromkeys(one.name for one in proofs))
        lines.append(f"proved       {resting + ' rest on it' if resting else 'not yet'}")
    if rule in _named_in(inspect.getsource(Legality)):
        lines.append("fuzzed       every call at manager level keeps it (kvproof.fuzz.legality)")
    return lines


def _practice(rule: Rule) -> list[str]:
    found = [
        f"vLLM {release:<7} {'keeps it' if kept[rule.name].keeps else 'does not keep it'}:"
        f" {kept[rule.name].evidence}"
        for release, kept in RELEASES.items()
        if rule.name in kept
    ]
    return found
