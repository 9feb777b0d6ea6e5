"""Everything that `kvproof explain` knows: one entry for each name.

Entries are made from the registries themselves, so that they cannot drift from them.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from kvproof.cli.disputes import DISPUTES, Dispute
from kvproof.cli.glossary import BRANCHES as BRANCH_SAYS
from kvproof.cli.glossary import TERMS
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.defects import DEFECTS
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.run import PROPERTIES, Run
from kvproof.fuzz.target import OPERATIONS
from kvproof.spec import full_attention, logic, pool_properties, steps, transitions
from kvproof.spec.attention import BOUND_TIGHT, HIT_LONGEST, MASK_COVERS_LOOKUP
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.hashing import HASHING_PROPERTIES, RequestContent, extend, kept
from kvproof.spec.kv_cache_coordinator import KVCacheCoordinator, get_kv_cache_coordinator
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.manager_properties import MANAGER_PROPERTIES
from kvproof.spec.manager_rules import MANAGER_RULES
from kvproof.spec.properties import Class, Property
from kvproof.spec.rules import RULES, Rule
from kvproof.spec.single_type_manager import SingleTypeKVCacheManager

KINDS = (
    "dispute",
    "property",
    "rule",
    "operation",
    "transition",
    "theorem",
    "term",
    "layout",
    "branch",
    "misuse",
    "defect",
)
"""The kinds of entries, in the order in which they are listed and preferred."""

PLURALS = {kind: kind + "s" for kind in KINDS} | {
    "property": "properties",
    "branch": "branches",
    "misuse": "kinds of misuse",
    "defect": "seeded defects",
    "term": "terms",
}

DOOR = (
    "get_computed_blocks",
    "allocate_slots",
    "cache_blocks",
    "free",
    "pop_blocks_for_free",
    "remove_skipped_blocks",
    "get_num_common_prefix_blocks",
    "take_new_block_ids",
    "make_prefix_cache_stats",
)
"""The operations of `kvproof.spec.kv_cache_manager` that the pool does not have."""

ALL_RULES = {**RULES, **MANAGER_RULES}

ABOVE = {
    **MANAGER_PROPERTIES,
    **HASHING_PROPERTIES,
    **{one.name: one for one in (HIT_LONGEST, MASK_COVERS_LOOKUP, BOUND_TIGHT)},
}
"""The properties of the layer above the pool."""

HOMES = (BlockPool, KVCacheManager, KVCacheCoordinator, SingleTypeKVCacheManager)
"""The classes whose methods a rule may be required in."""

PROTOCOL = ("append", "hit", "cache", "free_last")
"""The transitions of `kvproof.spec.full_attention`."""


@dataclass(frozen=True)
class Entry:
    """A name, its sentence, more words by which it is found, and its lines."""

    kind: str
    name: str
    says: str
    words: str
    lines: Callable[[], list[str]]


def all_entries() -> list[Entry]:
    """Return every entry, kind by kind."""
    return [
        *(_dispute(dispute) for dispute in DISPUTES),
        *(_property(entry) for entry in PROPERTIES.values()),
        *(_manager_property(entry) for entry in ABOVE.values()),
        *(_rule(rule) for rule in ALL_RULES.values()),
        *(_operation(name) for name in OPERATIONS),
        *(_function("operation", name, getattr(KVCacheManager, name)) for name in DOOR),
        *(_transition(name, transitions) for name in transitions.__all__),
        *(_transition(name, full_attention) for name in PROTOCOL),
        *_theorems(),
        *(_term(name) for name in TERMS),
        *(_layout(name) for name in LAYOUTS),
        *(_branch(op, name) for op, names in BRANCHES.items() for name in names),
        *(_misuse(name) for name in MISUSES),
        *(_defect(name) for name in DEFECTS),
    ]


def place_of(function: Callable[..., Any]) -> str:
    """Return the file and the line where a function is written, from the package on."""
    function = inspect.unwrap(function)
    file = inspect.getsourcefile(function) or "?"
    parts = Path(file).parts
    start = len(parts) - 1 - parts[::-1].index("kvproof") if "kvproof" in parts else 0
    start -= start > 0 and parts[start - 1] in ("spec", "proofs", "impl", "tests")
    return f"{'/'.join(parts[start:])}:{inspect.getsourcelines(function)[1]}"


def rules_of(function: Callable[..., Any]) -> list[Rule]:
    """Return the rules that a function of the specification requires, itself or by calls."""
    found: dict[str, Rule] = {}
    seen: set[Any] = set()

    def visit(one: Callable[..., Any]) -> None:
        if one in seen:
            return
        seen.add(one)
        text = inspect.getsource(one)
        by_constant = {_constant(rule): rule for rule in ALL_RULES.values()}
        for constant in re.findall(r"\b(?:manager_)?rules\.([A-Z_]+)\b", text):
            rule = by_constant[constant]
            found[rule.name] = rule
        names = one.__globals__ if isinstance(one, FunctionType) else {}
        for called in re.findall(r"\b(\w+)\(", text):
            for other in (names.get(called), *(getattr(home, called, None) for home in HOMES)):
                spec = getattr(other, "__module__", "").startswith("kvproof.spec")
                if isinstance(other, FunctionType) and spec and other.__module__ != logic.__name__:
                    visit(other)

    visit(function)
    return list(found.values())


def _constant(rule: Rule) -> str:
    return rule.name.replace("-", "_").upper()


def theorems_of(name: str) -> list[Any]:
    """Return the theorems that prove a property; none when the solvers are not installed."""
    return [one for one in _all_theorems() if name in (one.name, one.property)]


def _all_theorems() -> list[Any]:
    try:
        proofs = importlib.import_module("kvproof.proofs.theorems")
    except ImportError:
        return []
    return list(proofs.theorems())


def _dispute(dispute: Dispute) -> Entry:
    return Entry(
        "dispute",
        dispute.question,
        dispute.answer,
        "",
        lambda: [
            dispute.answer,
            f"settled by   {', '.join(dispute.settled_by)}",
            f"see          kvproof explain {dispute.see}",
        ],
    )


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
        flags = {Class.POLICY: " with --policy", Class.MISUSE: " with --misuse"}
        text.append(f"fuzzed       after every call{flags.get(entry.klass, ', by default')}")
        caught = [defect.name for defect in DEFECTS.values() if defect.breaks == entry.name]
        if caught:
            text.append(f"defects      {', '.join(caught)}")
        return text

    words = f"{entry.because} {entry.consequence.value} {entry.klass.value}"
    return Entry("property", entry.name, entry.says, words, lines)


def _manager_property(entry: Property) -> Entry:
    words = f"{entry.because} {entry.consequence.value} {entry.klass.value}"
    hashed = entry.name in HASHING_PROPERTIES
    by = "tests/spec/test_hashing.py" if hashed else "the tests with kvproof.fuzz.scheduler"
    return Entry(
        "property",
        entry.name,
        entry.says,
        words,
        lambda: [
            f"class        {entry.klass.value}: {_CLASS[entry.klass]}",
            f"says         {entry.says}",
            f"consequence  {entry.consequence.value}: {entry.because}",
            f"source       {entry.source}",
            f"speaks of    every step of the {'hashes' if hashed else 'managers'}",
            f"checked      by {by}; kvproof fuzz judges pools only",
        ],
    )


_CLASS = {
    Class.SAFETY: "every correct engine keeps it, whatever its policy",
    Class.POLICY: "vLLM's own choice; judged with --policy",
    Class.QUALITY: "nothing breaks, but a hit or capacity is lost; judged with --quality",
    Class.MISUSE: "what happens on calls that the rules forbid; judged with --misuse",
}


def _stated(entry: Property) -> str:
    statement: Any = entry.statement or steps.STEP_STATEMENTS.get(entry.name)
    if entry.name == full_attention.NO_STRANDED_SUFFIX.name:
        statement = full_attention.no_stranded_suffix
    if statement is None:
        return f"{place_of(Run.step)} (by comparison with the specification's own pool)"
    return place_of(statement)


def _rule(rule: Rule) -> Entry:
    def lines() -> list[str]:
        bases = [b.__name__ for b in rule.error.__mro__[1:] if b.__name__ not in _PLUMBING]
        return [
            f"says         {rule.says}",
            f"argument     {rule.argument}",
            f"advice       {rule.advice}",
            f"error        {rule.error.__name__} ({', '.join(bases)}): {_doc(rule.error)}",
            f"consequence  when it is not refused: {rule.consequence}",
            f"required by  {', '.join(_requiring(rule)) or 'the pool itself'}",
        ]

    words = f"{rule.advice} {rule.consequence} {rule.error.__name__} {_doc(rule.error)}"
    return Entry("rule", rule.name, rule.says, words, lines)


_PLUMBING = ("Exception", "BaseException", "object", "LookupError")


def _requiring(rule: Rule) -> list[str]:
    functions = {name: getattr(transitions, name) for name in transitions.__all__}
    functions.update({name: getattr(full_attention, name) for name in PROTOCOL})
    functions.update({name: getattr(BlockPool, name) for name in OPERATIONS})
    functions.update({name: getattr(KVCacheManager, name) for name in DOOR})
    functions.update({one.__name__: one for one in (extend, kept, get_kv_cache_coordinator)})
    functions["RequestContent"] = RequestContent.__post_init__
    functions["KVCacheManager"] = KVCacheManager.__init__
    functions["KVCacheCoordinator"] = KVCacheCoordinator.__init__
    return [name for name, function in functions.items() if rule in rules_of(function)]


def _operation(name: str) -> Entry:
    function = getattr(BlockPool, name)
    text = _function("operation", name, function)
    branches = ", ".join(BRANCHES.get(name, ()))
    return Entry(
        "operation",
        name,
        text.says,
        text.words,
        lambda: [*text.lines(), "", f"branches     {branches}"],
    )


def _transition(name: str, module: Any) -> Entry:
    return _function("transition", name, getattr(module, name))


def _function(kind: str, name: str, function: Callable[..., Any]) -> Entry:
    doc = inspect.getdoc(function) or ""

    def lines() -> list[str]:
        rules = [f"requires     {rule.name}: {rule.says}" for rule in rules_of(function)]
        source = inspect.getsource(function).rstrip().splitlines()
        indent = len(source[0]) - len(source[0].lstrip())
        return [
            *doc.splitlines(),
            "",
            *(rules or ["requires     nothing"]),
            f"stated in    {place_of(function)}",
            "",
            *(line[indent:] for line in source),
        ]

    return Entry(kind, name, _doc(function), doc, lines)


def _theorems() -> list[Entry]:
    def entry(one: Any) -> Entry:
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

    return [entry(one) for one in _all_theorems() if one.name not in PROPERTIES]


def _term(name: str) -> Entry:
    return Entry("term", name, TERMS[name], "", lambda: [TERMS[name]])


def _layout(name: str) -> Entry:
    layout = LAYOUTS[name]
    sizes = ", ".join(f"group {g}: {size}" for g, size in layout.block_sizes.items())
    return Entry(
        "layout",
        name,
        layout.says,
        "",
        lambda: [
            layout.says,
            f"hash unit    {layout.hash_block_size} tokens",
            f"block sizes  {sizes}",
            f"caching      {'on' if layout.enable_caching else 'off'}",
            f"fuzzed       kvproof fuzz TARGET --layout {name}",
        ],
    )


def _branch(operation: str, name: str) -> Entry:
    full = f"{operation}:{name}"
    says = BRANCH_SAYS.get(full, f"one of the ways that {operation} can go")
    return Entry("branch", full, says, "", lambda: [says, f"a branch of {operation}"])


def _misuse(name: str) -> Entry:
    says = _doc(MISUSES[name])
    return Entry(
        "misuse",
        name,
        says,
        "",
        lambda: [says, "tried with   kvproof fuzz TARGET --misuse", "judged as    misuse-refused"],
    )


def _defect(name: str) -> Entry:
    defect = DEFECTS[name]
    flags = "".join(f" --{flag}" for flag in defect.flags)
    return Entry(
        "defect",
        name,
        defect.says,
        "",
        lambda: [
            defect.says,
            f"breaks       {defect.breaks}",
            f"see it       kvproof fuzz defect:{name}{flags}",
        ],
    )


def _doc(thing: Any) -> str:
    """Return the first sentence of a docstring, without its full stop."""
    first = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(first.split()).rstrip(".")


STATEMENTS = {**pool_properties.INVARIANT, **steps.STEP_STATEMENTS}
"""The statement function of each property that has one, and of each support."""
