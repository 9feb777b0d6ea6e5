"""`kvproof explain`: an entry for every name, and answers to phrases."""

import importlib
from collections.abc import Callable

import pytest
from click.testing import Result

from kvproof.cli.concepts import CONCEPTS
from kvproof.cli.entries import KINDS, all_entries
from kvproof.cli.entries_of_operations import BELOW, HASHING
from kvproof.cli.entries_of_properties import ALL_PROPERTIES
from kvproof.cli.entries_of_rules import ALL_RULES, DOOR, GHOST, PROTOCOL
from kvproof.cli.explain import named
from kvproof.cli.glossary import ALIASES, TERMS
from kvproof.cli.glossary import BRANCHES as SAID
from kvproof.cli.glossary import SITUATIONS as SITUATIONS_SAID
from kvproof.cli.sources_of_rules import SOURCES
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.defects import DEFECTS
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.manager_defects import MANAGER_DEFECTS
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.scheduler import BRANCHES as SITUATIONS
from kvproof.fuzz.target import OPERATIONS
from kvproof.proofs.theorems import theorems
from kvproof.spec import transitions
from kvproof.spec.protocol_rules import PROTOCOL_RULES, RELEASES

Run = Callable[..., Result]
ENTRIES = all_entries()

REGISTRIES = {
    "property": list(ALL_PROPERTIES),
    "rule": list(ALL_RULES),
    "operation": [*OPERATIONS, *DOOR, *BELOW, *HASHING],
    "transition": [*transitions.__all__, *PROTOCOL, *(f"ghost:{name}" for name in GHOST)],
    "term": [*TERMS, *CONCEPTS],
    "layout": [*LAYOUTS, *MANAGER_LAYOUTS],
    "misuse": list(MISUSES),
    "defect": [*DEFECTS, *MANAGER_DEFECTS],
    "branch": [
        *(f"{op}:{name}" for op, names in BRANCHES.items() for name in names),
        *(f"scheduler:{name}" for name in SITUATIONS),
    ],
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_name_of_every_registry_has_an_entry(kind: str) -> None:
    for name in REGISTRIES[kind]:
        found = [one for one in named(name, ENTRIES) if one.kind == kind]
        assert len(found) == 1, name
        assert found[0].says
        assert all(isinstance(line, str) for line in found[0].lines())


def test_every_theorem_is_found() -> None:
    for theorem in theorems():
        assert named(theorem.name, ENTRIES), theorem.name


def test_every_branch_is_put_into_words() -> None:
    said = {*SAID, *(f"scheduler:{name}" for name in SITUATIONS_SAID)}
    assert said == set(REGISTRIES["branch"])


def test_a_situation_is_found_as_reports_print_it(run: Run) -> None:
    assert "not known which of its" in run("explain", "scheduled-with-drafts-in-flight").stdout


def test_aliases_lead_somewhere() -> None:
    for alias in ALIASES:
        assert named(alias, ENTRIES), alias


def test_everything_is_listed(run: Run) -> None:
    text = run("explain").stdout
    for names in REGISTRIES.values():
        for name in names:
            assert name in text


def test_a_property_says_everything(run: Run) -> None:
    text = run("explain", "index-agrees").stdout
    for part in (
        "safety",
        "wrong data",
        "a stale entry returns a block",
        "BlockHashToBlockMap",
        "kvproof/spec/pool_properties.py:",
        "kvproof prove index-agrees",
        "by default",
        "stale-key",
    ):
        assert part in text
    assert "--misuse" in run("explain", "misuse-refused").stdout
    assert "--policy" in run("explain", "no-stranded-suffix").stdout


def test_every_property_is_stated_somewhere() -> None:
    for name in PROPERTIES:
        (entry,) = [one for one in named(name, ENTRIES) if one.kind == "property"]
        assert any(line.startswith("stated in") and ".py:" in line for line in entry.lines())


def test_an_operation_shows_its_rules_and_its_text(run: Run) -> None:
    text = run("explain", "get_new_blocks").stdout
    assert "enough-free: no more blocks may be taken than are free" in text
    assert "count-nonnegative" in text
    assert "acquire(self.state" in text
    text = run("explain", "publish").stdout
    for rule in ("caching-on", "real-block", "publish-held", "full-on-boundary", "one-chain"):
        assert rule in text


def test_a_rule_says_everything(run: Run) -> None:
    text = run("explain", "release-held").stdout
    for part in ("UnheldBlockError", "AssertionError", "free each block once", "free_blocks"):
        assert part in text


@pytest.mark.parametrize("name", ["REFS_EXACT", "refs exact", "Refs-Exact", " refs-exact "])
def test_spelling_does_not_matter(run: Run, name: str) -> None:
    assert "refs-exact (property)" in run("explain", name).stdout


def test_words_need_no_quotes(run: Run) -> None:
    assert "null block (term)" in run("explain", "null", "block").stdout


def test_every_rule_names_its_source_and_no_other_does(run: Run) -> None:
    assert set(SOURCES) == set(ALL_RULES)
    assert "block_pool.py: free_blocks, not checked" in run("explain", "release-held").stdout


def test_a_rule_of_the_protocol_says_whether_the_release_keeps_it(run: Run) -> None:
    for name in PROTOCOL_RULES:
        text = " ".join(run("explain", name).stdout.split())
        practice = RELEASES["0.25.1"][name]
        assert ("vLLM 0.25.1 keeps it:" if practice.keeps else "does not keep it:") in text
        assert practice.evidence in text


def test_a_concept_says_why_and_where(run: Run) -> None:
    text = run("explain", "sliding window").stdout
    for label in ("says", "because", "source", "specified", "proved", "checked as", "see also:"):
        assert label in text
    assert "window-arithmetic" in text
    assert "specified    not yet" in run("explain", "R-SWA").stdout


def test_what_a_concept_names_is_there() -> None:
    for concept in CONCEPTS.values():
        for name in concept.specified:
            assert found_in("kvproof.spec", name), f"{concept.name}: {name}"
        for name in concept.checked:
            assert name in {*ALL_PROPERTIES, *(one.name for one in theorems())}, name
        for name in concept.see:
            assert named(name, ENTRIES), f"{concept.name}: {name}"


def found_in(package: str, name: str) -> bool:
    module, _, rest = name.partition(".")
    value: object = importlib.import_module(f"{package}.{module}")
    for part in rest.split("."):
        value = getattr(value, part, None)
    return value is not None


def test_an_operation_names_its_layers(run: Run) -> None:
    text = run("explain", "allocate_new_computed_blocks").stdout
    assert "vLLM 0.25.1, kv_cache_coordinator.py: KVCacheCoordinator" in text
    assert "hits-come-first" in text
    assert "no such call in vLLM 0.25.1" in run("explain", "unschedule").stdout


def test_kinds() -> None:
    assert {one.kind for one in ENTRIES} == set(KINDS)
