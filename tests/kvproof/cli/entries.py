"""Everything that `kvproof explain` knows: one entry for each name.

Entries are made from the registries themselves, so that they cannot drift from them.
"""

from functools import cache

from kvproof.cli.concept import Concept
from kvproof.cli.concepts import CONCEPTS
from kvproof.cli.disputes import DISPUTES
from kvproof.cli.disputes_of_seeds import Dispute
from kvproof.cli.entries_of_operations import operation_entries, transition_entries
from kvproof.cli.entries_of_properties import property_entries, theorem_entries, theorems_of
from kvproof.cli.entries_of_rules import rule_entries
from kvproof.cli.entry import Entry, first_sentence
from kvproof.cli.glossary import BRANCHES as BRANCH_SAYS
from kvproof.cli.glossary import SITUATIONS, TERMS
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.defect import Defect
from kvproof.fuzz.defects import DEFECTS
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.manager_defects import MANAGER_DEFECTS
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.misuse import MISUSES

__all__ = ["KINDS", "PLURALS", "Entry", "all_entries"]

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


@cache
def all_entries() -> tuple[Entry, ...]:
    """Return every entry, kind by kind."""
    return (
        *(_dispute(dispute) for dispute in DISPUTES),
        *property_entries(),
        *rule_entries(),
        *operation_entries(),
        *transition_entries(),
        *theorem_entries(),
        *(_concept(concept) for concept in CONCEPTS.values()),
        *(_term(name) for name in TERMS),
        *(_layout(name) for name in dict.fromkeys([*LAYOUTS, *MANAGER_LAYOUTS])),
        *(_branch(op, name) for op, names in BRANCHES.items() for name in names),
        *(_situation(name) for name in SITUATIONS),
        *(_misuse(name) for name in MISUSES),
        *(_defect(defect, "pool") for defect in DEFECTS.values()),
        *(_defect(defect, "manager") for defect in MANAGER_DEFECTS.values()),
    )


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
        asks=dispute.asks,
        see=(dispute.see,),
    )


def _concept(concept: Concept) -> Entry:
    def lines() -> list[str]:
        specified = ", ".join(f"kvproof.spec.{name}" for name in concept.specified)
        theorems = dict.fromkeys(one.name for name in concept.checked for one in theorems_of(name))
        return [
            f"says         {concept.says}",
            f"because      {concept.because}",
            f"source       {concept.source}",
            f"specified    {specified or 'not yet'}",
            f"proved       {', '.join(theorems) or 'not yet'}",
            f"checked as   {', '.join(concept.checked) or 'not yet'}",
        ]

    return Entry(
        "term",
        concept.name,
        concept.says,
        f"{concept.because} {concept.source}",
        lines,
        concept.asks,
        concept.see,
    )


def _term(name: str) -> Entry:
    return Entry("term", name, TERMS[name], "", lambda: [TERMS[name]])


def _layout(name: str) -> Entry:
    pool, manager = LAYOUTS.get(name), MANAGER_LAYOUTS.get(name)
    lines: list[str] = []
    if pool is not None:
        sizes = ", ".join(f"group {g}: {size}" for g, size in pool.block_sizes.items())
        lines += [
            f"pool         {pool.says}",
            f"hash unit    {pool.hash_block_size} tokens",
            f"block sizes  {sizes}",
            f"caching      {'on' if pool.enable_caching else 'off'}",
        ]
    if manager is not None:
        lines += [
            f"manager      {manager.says}",
            f"caching      {'on' if manager.enable_caching else 'off'}",
        ]
    levels = [level for level, there in (("pool", pool), ("manager", manager)) if there]
    lines += [f"fuzzed       kvproof fuzz TARGET --level {one} --layout {name}" for one in levels]
    says = "; ".join(dict.fromkeys(one.says for one in (pool, manager) if one is not None))
    return Entry("layout", name, says, "", lambda: lines)


def _branch(operation: str, name: str) -> Entry:
    full = f"{operation}:{name}"
    says = BRANCH_SAYS.get(full, f"one of the ways that {operation} can go")
    return Entry("branch", full, says, "", lambda: [says, f"a branch of {operation}"])


def _situation(name: str) -> Entry:
    says = SITUATIONS[name]
    return Entry("branch", f"scheduler:{name}", says, "", lambda: [says, "a situation of a run"])


def _misuse(name: str) -> Entry:
    says = first_sentence(MISUSES[name])
    return Entry(
        "misuse",
        name,
        says,
        "",
        lambda: [says, "tried with   kvproof fuzz TARGET --misuse", "judged as    misuse-refused"],
    )


def _defect(defect: Defect, level: str) -> Entry:
    flags = "".join(f" --{flag}" for flag in defect.flags)
    return Entry(
        "defect",
        defect.name,
        defect.says,
        "",
        lambda: [
            defect.says,
            f"breaks       {defect.breaks}",
            f"see it       kvproof fuzz defect:{defect.name} --level {level}{flags}",
        ],
    )
