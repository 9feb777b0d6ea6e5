"""What the documents name is there: links, modules and functions, names that are explained."""

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvproof.cli.command import main
from kvproof.proofs import theorems

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

LINK = re.compile(r"\[[^\]\n]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
DOTTED = re.compile(r"`(kvproof(?:\.\w+)+)`")
EXPLAINED = re.compile(r"`kvproof explain ([^`\[\]]+)`")
PROVED = re.compile(r"`kvproof prove ([a-z-]+)`")
PATHS = re.compile(r"`((?:spec|proofs|impl|tests|tools|docs|\.ci)/[\w./-]*)`")

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def prose(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(prose(document)):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{document.name} links {path}"
        assert not anchor or anchor in anchors(target), f"{document.name} links {path}#{anchor}"


@each_document
def test_paths_exist(document: Path) -> None:
    for path in PATHS.findall(prose(document)):
        assert (ROOT / path).exists(), f"{document.name} names {path}"


@each_document
def test_dotted_names_can_be_imported(document: Path) -> None:
    for name in DOTTED.findall(prose(document)):
        assert found(name), f"{document.name} names {name}"


def found(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            value = getattr(value, part, None)
        return value is not None
    return False


@each_document
def test_names_are_explained_and_proved(document: Path) -> None:
    known = {theorem.name for theorem in theorems()}
    for name in EXPLAINED.findall(prose(document)):
        if name != "NAME":
            result = CliRunner().invoke(main, ["explain", *name.replace('"', "").split()])
            assert result.exit_code == 0, f"{document.name}: kvproof explain {name}"
    for name in PROVED.findall(prose(document)):
        assert name in known, f"{document.name}: kvproof prove {name}"


def test_every_document_is_on_the_map() -> None:
    linked = {path for path, _ in LINK.findall(prose(ROOT / "docs/index.md"))}
    for document in (ROOT / "docs").glob("*.md"):
        assert document.name in linked | {"index.md"}, document.name


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"].get("optional-dependencies", {}).values():
        needed += extra
    reasons = prose(ROOT / "docs/design-decisions.md")
    for requirement in needed:
        name = re.split(r"[\[<>=!~; ]", requirement)[0]
        assert f"`{name}`" in reasons, f"why is {name} needed?"
