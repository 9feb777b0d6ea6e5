"""The entries of properties and theorems: what holds, where it is stated, proved and fuzzed."""

import importlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from kvproof.cli.entry import Entry, place_of
from kvproof.fuzz.defects import DEFECTS
from kvproof.fuzz.manager_defects import MANAGER_DEFECTS
from kvproof.fuzz.properties import MANAGER_LEVEL, POOL_LEVEL, PROPERTIES
from kvproof.fuzz.run import Run
from kvproof.spec import (
    attention,
    full_attention,
    ghost_properties,
    hashing,
    pool_properties,
    steps,
)
from kvproof.spec.attention import BOUND_TIGHT, HIT_LONGEST, MASK_COVERS_LOOKUP
from kvproof.spec.hashing import HASHING_PROPERTIES
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.manager_properties import MANAGER_PROPERTIES
from kvproof.spec.properties import Class, Property
from kvproof.spec.single_type_manager import SingleTypeKVCacheManager

STATEMENTS = {**pool_properties.INVARIANT, **steps.STEP_STATEMENTS}
"""The statement function of each property that has one, and of each support."""

ALL_PROPERTIES = {
    **PROPERTIES,
    **MANAGER_PROPERTIES,
    **HASHING_PROPERTIES,
    **{one.name: one for one in (HIT_LONGEST, MASK_COVERS_LOOKUP, BOUND_TIGHT)},
}

_CLASS = {
    Class.SAFETY: "every correct engine keeps it, whatever its policy",
    Class.POLICY: "vLLM's own choice; judged with --policy",
    Class.QUALITY: "nothing breaks, but a hit or capacity is lost; judged with --quality",
    Class.MISUSE: "what happens on calls that the rules forbid; judged with --misuse",
}

_STATED: dict[str, Any] = {
    "no-stranded-suffix": full_attention.no_stranded_suffix,
    "reads-own-prefix": ghost_properties.reads_own_prefix,
    "writes-exclusive": ghost_properties.writes_exclusive,
    "hit-aligned": attention.longest_hit,
    "hit-below-prompt": KVCacheManager.get_computed_blocks,
    "window-kept": attention.skipped_tokens,
    "hit-longest": attention.longest_hit,
    "mask-covers-lookup": attention.wanted_blocks,
    "bound-covers-peak": attention.peak_blocks,
    "bound-tight": attention.peak_blocks,
    "common-prefix-true": SingleTypeKVCacheManager.get_num_common_prefix_blocks,
    "deferral-neutral": KVCacheManager.pop_blocks_for_free,
    "key-injective": hashing.key_injective,
    "incremental-equals-fresh": hashing.incremental_equals_fresh,
}
"""Where properties are stated that carry no statement themselves."""


def theorems_of(name: str) -> list[Any]:
    """Return the theorems that prove a property; none when the solvers are not installed."""
    return [one for one in all_theorems() if name in (one.name, one.property)]


@cache
def all_theorems() -> tuple[Any, ...]:
    """Return all theorems; none when the solvers are not installed."""
    try:
        proofs = importlib.import_module("kvproof.proofs.theorems")
    except ImportError:
        return ()
    return tuple(proofs.theorems())


def property_entries() -> list[Entry]:
    """Return the entry of each property."""
    return [_property(entry) for entry in ALL_PROPERTIES.values()]


def _property(entry: Property) -> Entry:
    def lines() -> list[str]:
        text = [
            f"class        {entry.klass.value}: {_CLASS[entry.klass]}",
            f"says         {entry.says}",
            f"consequence  {entry.consequence.value}: {entry.because}",
            f"source       {entry.source}",
            f"speaks of    every {'reachable state' if entry.kind.value == 'state' else 'step'}",
            f"stated in    {_stated(entry)}",
        ]
        proofs = theorems_of(entry.name)
        text += [f"proved by    kvproof prove {one.name} ({one.where})" for one in proofs]
        if not proofs:
            text.append("proved by    no theorem: judged by the fuzzer only")
        text.append(f"fuzzed       {_fuzzed(entry)}")
        caught = [*_caught(entry, DEFECTS.values()), *_caught(entry, MANAGER_DEFECTS.values())]
        if caught:
            text.append(f"defects      {', '.join(caught)}")
        return text

    words = f"{entry.because} {entry.consequence.value} {entry.klass.value} {entry.source}"
    return Entry("property", entry.name, entry.says, words, lines)


def _fuzzed(entry: Property) -> str:
    named = {"pool": POOL_LEVEL, "manager": MANAGER_LEVEL}
    levels = [level for level, names in named.items() if entry.name in names]
    if not levels:
        return "no: tests/spec compares it with brute force"
    flag = "by default" if entry.klass is Class.SAFETY else f"with --{entry.klass.value}"
    return f"after every call, {flag}; level {' and '.join(levels)}"


def _caught(entry: Property, defects: Iterable[Any]) -> list[str]:
    return [defect.name for defect in defects if defect.breaks == entry.name]


def _stated(entry: Property) -> str:
    statement: Any = entry.statement or steps.STEP_STATEMENTS.get(entry.name)
    statement = statement or _STATED.get(entry.name)
    if statement is not None:
        return place_of(statement)
    return f"{place_of(Run.step)} (by comparison with the specification's own pool)"


def theorem_entries() -> list[Entry]:
    """Return the entry of each theorem that is not a property of the same name."""
    return [_theorem(one) for one in all_theorems() if one.name not in ALL_PROPERTIES]


def _theorem(one: Any) -> Entry:
    return Entry(
        "theorem",
        one.name,
        one.says,
        "",
        lambda: [
            f"says         {one.says}",
            f"stated in    {one.where}",
            f"prove it     kvproof prove {one.name}",
            f"core         {'yes: part of --core' if one.core else 'no'}",
        ],
    )
