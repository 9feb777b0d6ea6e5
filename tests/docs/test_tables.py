"""The tables of the documents that are made from the registries are up to date.

`python tests/docs/test_tables.py` writes them anew.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvproof.cli.abilities import NEEDS, SHOWS
from kvproof.cli.command import main
from kvproof.cli.disputes import DISPUTES
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.levels import LEVELS
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.manager_target import GroupConfig
from kvproof.fuzz.properties import PROPERTIES
from kvproof.proofs import theorems
from kvproof.spec import full_attention
from kvproof.spec.hashing import HASHING_PROPERTIES
from kvproof.spec.manager_properties import MANAGER_PROPERTIES
from kvproof.spec.properties import Class, Property
from kvproof.spec.steps import STEP_STATEMENTS

ROOT = Path(__file__).resolve().parents[2]
ERRATA = ROOT / "docs/errata/vllm-0.25.1"

FLAG = {Class.SAFETY: "by default", Class.QUALITY: "`--quality`"}
FLAG |= {klass: f"`--{klass.value}`" for klass in (Class.POLICY, Class.MISUSE)}
CI = {
    Class.SAFETY: "every engine",
    Class.POLICY: "a stand-in for vLLM",
    Class.QUALITY: "an engine that is tuned",
    Class.MISUSE: "an engine that refuses wrong calls",
}


def properties_table() -> str:
    """Return the table: property, class, where it is stated, proved and fuzzed, in whose CI."""
    rows = ["| property | class | stated in `kvproof.spec` | proved | fuzzed | in the CI of |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for name, entry in sorted(PROPERTIES.items(), key=_by_class):
        proofs = [f"`{one.name}`" for one in theorems() if one.property == name]
        cells = [f"`{name}`", entry.klass.value, _stated(entry), ", ".join(proofs) or "no"]
        rows.append(_row(*cells, FLAG[entry.klass], CI[entry.klass]))
    return "\n".join(rows)


def abilities_table(level: str) -> str:
    """Return the table: property, and what a target must have or show for it to be judged."""
    rows = ["| property | is judged when the target |", "| --- | --- |"]
    needs = NEEDS[level]
    for name, _ in sorted(LEVELS[level].properties.items(), key=_by_class):
        if name in needs:
            rows.append(_row(f"`{name}`", f"has `{needs[name]}`"))
        elif name in SHOWS:
            fields = " or ".join(f"`{field}`" for field in SHOWS[name])
            rows.append(_row(f"`{name}`", f"shows {fields}"))
    rows.append(_row("all others", "has any operation"))
    return "\n".join(rows)


def layouts_table() -> str:
    """Return the table of the layouts."""
    rows = ["| layout | what it is | hash unit | block sizes |", "| --- | --- | --- | --- |"]
    for name, layout in LAYOUTS.items():
        sizes = ", ".join(str(size) for size in layout.block_sizes.values())
        rows.append(_row(f"`{name}`", layout.says, str(layout.hash_block_size), sizes))
    return "\n".join(rows)


def manager_layouts_table() -> str:
    """Return the table of the layouts at manager level."""
    rows = ["| layout | what it is | groups: one choice is drawn for each run |"]
    rows.append("| --- | --- | --- |")
    for name, layout in MANAGER_LAYOUTS.items():
        choices = ["; ".join(map(_group, groups)) or "none" for groups in layout.choices]
        rows.append(_row(f"`{name}`", layout.says, ", ".join(dict.fromkeys(choices))))
    return "\n".join(rows)


def _group(group: GroupConfig) -> str:
    reach = f" of {group.reach}" if group.reach else ""
    return f"{group.kind}{reach}, blocks of {group.block_size}"


def errata_table() -> str:
    """Return the table of the replay files of the errata."""
    rows = ["| file | signature | calls |", "| --- | --- | --- |"]
    for path in sorted(ERRATA.glob("*.json")):
        saved = json.loads(path.read_text(encoding="utf-8"))
        link = f"[{path.stem}]({ERRATA.relative_to(ROOT / 'docs')}/{path.name})"
        rows.append(_row(link, f"`{saved['signature']}`", str(len(saved["operations"]))))
    return "\n".join(rows)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _by_class(item: tuple[str, Property]) -> int:
    return list(Class).index(item[1].klass)


_HOMES = {
    "decision-equal": "`block_pool`",
    **dict.fromkeys(MANAGER_PROPERTIES, "`manager_properties`"),
    **dict.fromkeys(("hit-longest", "mask-covers-lookup", "bound-tight"), "`attention`"),
    **dict.fromkeys(HASHING_PROPERTIES, "`hashing`"),
}
"""Where a property is stated that has no function of its own."""


def _stated(entry: Property) -> str:
    statement: Any = entry.statement or STEP_STATEMENTS.get(entry.name)
    if entry.name == full_attention.NO_STRANDED_SUFFIX.name:
        statement = full_attention.no_stranded_suffix
    if statement is None:
        return _HOMES.get(entry.name, "`rules`")
    return f"`{statement.__module__.removeprefix('kvproof.spec.')}.{statement.__name__}`"


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "properties": (ROOT / "README.md", properties_table),
    "abilities": (ROOT / "docs/your-own-pool.md", partial(abilities_table, "pool")),
    "manager abilities": (ROOT / "docs/your-own-manager.md", partial(abilities_table, "manager")),
    "manager layouts": (ROOT / "docs/your-own-manager.md", manager_layouts_table),
    "layouts": (ROOT / "docs/your-own-pool.md", layouts_table),
    "errata": (ROOT / "docs/errata-vllm-0.25.1.md", errata_table),
}


def with_table(name: str) -> tuple[str, str]:
    """Return a document's text as it is, and with the table as it should be."""
    document, table = TABLES[name]
    text = document.read_text(encoding="utf-8")
    begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
    between = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    assert len(between.findall(text)) == 1, f"{document.name} has no place for {name}"
    return text, between.sub(lambda _: begin + table() + "\n" + end, text)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_up_to_date(name: str) -> None:
    text, fresh = with_table(name)
    assert text == fresh, "run: python tests/docs/test_tables.py"


@pytest.mark.parametrize("path", sorted(ERRATA.glob("*.json")), ids=lambda path: path.stem)
def test_our_own_pool_has_none_of_the_errata(path: Path) -> None:
    result = CliRunner().invoke(main, ["replay", str(path), "--target", "impl"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", sorted(ERRATA.glob("*.json")), ids=lambda path: path.stem)
def test_each_erratum_is_described_and_prints_a_program_for_the_engine(path: Path) -> None:
    described = (ROOT / "docs/errata-vllm-0.25.1.md").read_text(encoding="utf-8")
    assert f"`{path.stem}`" in described
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert len(saved["operations"]) <= (5 if saved["kvproof"] == "pool-failure" else 10)
    result = CliRunner().invoke(main, ["replay", str(path), "--script"])
    assert result.exit_code == 0
    assert "from vllm" in result.output
    assert "import kvproof" not in result.output
    assert "from kvproof" not in result.output


def test_the_disputes_are_those_that_explain_knows() -> None:
    text = " ".join((ROOT / "docs/reading-the-spec.md").read_text(encoding="utf-8").split())
    for dispute in DISPUTES:
        where = ", ".join(f"`{name}`" for name in dispute.settled_by)
        see = f"`kvproof explain {dispute.see}`"
        assert f"**{dispute.question}** {where}. {dispute.answer} {see}" in text
    assert text.count("?** `kvproof.spec") == len(DISPUTES)


def main_() -> None:
    """Write all tables anew."""
    for name, (document, _) in TABLES.items():
        document.write_text(with_table(name)[1], encoding="utf-8")


if __name__ == "__main__":
    main_()
