"""`kvproof explain`: an entry for every name, and answers to phrases."""

from collections.abc import Callable

import pytest
from click.testing import Result

from kvproof.cli.entries import KINDS, all_entries
from kvproof.cli.explain import named, search
from kvproof.cli.glossary import ALIASES, TERMS
from kvproof.cli.glossary import BRANCHES as SAID
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.defects import DEFECTS
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.run import PROPERTIES
from kvproof.fuzz.target import OPERATIONS
from kvproof.proofs.theorems import theorems
from kvproof.spec import transitions
from kvproof.spec.rules import RULES

Run = Callable[..., Result]
ENTRIES = all_entries()

REGISTRIES = {
    "property": list(PROPERTIES),
    "rule": list(RULES),
    "operation": list(OPERATIONS),
    "transition": list(transitions.__all__),
    "term": list(TERMS),
    "layout": list(LAYOUTS),
    "misuse": list(MISUSES),
    "defect": list(DEFECTS),
    "branch": [f"{op}:{name}" for op, names in BRANCHES.items() for name in names],
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
    assert set(SAID) == set(REGISTRIES["branch"])


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


@pytest.mark.parametrize(
    ("phrase", "answer"),
    [
        ("double free", "double free"),
        ("freeing twice", "double free"),
        ("what happens when a block is freed twice", "double free"),
        ("who is evicted first", "free queue"),
        ("negative number of blocks", "count-nonnegative"),
        ("out of range id", "id-in-range"),
        ("how are events folded", "events-mirror-cache"),
        ("null block handed out", "null-inert"),
    ],
)
def test_phrases(run: Run, phrase: str, answer: str) -> None:
    result = run("explain", phrase)
    assert result.exit_code == 0
    assert answer in result.stdout
    assert answer in [one.name for one in search(phrase, ENTRIES)[:5]]


def test_kinds() -> None:
    assert {one.kind for one in ENTRIES} == set(KINDS)
