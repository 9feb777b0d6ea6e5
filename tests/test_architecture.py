"""Imports go one way, the specification needs nothing, and the packaging holds together."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = {
    "spec": ROOT / "spec/kvproof/spec",
    "proofs": ROOT / "proofs/kvproof/proofs",
    "impl": ROOT / "impl/kvproof/impl",
    "fuzz": ROOT / "tests/kvproof/fuzz",
    "cli": ROOT / "tests/kvproof/cli",
}
MAY_IMPORT = {
    "spec": {"spec"},
    "proofs": {"spec", "proofs"},
    "impl": {"spec", "impl"},
    "fuzz": {"spec", "impl", "fuzz"},
    "cli": {"spec", "proofs", "impl", "fuzz", "cli"},
}


def imported(module: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("part", PARTS)
def test_imports_go_one_way(part: str) -> None:
    modules = sorted(PARTS[part].rglob("*.py"))
    assert modules
    for module in modules:
        parts = {name.split(".")[1] for name in imported(module) if name.startswith("kvproof.")}
        assert parts <= MAY_IMPORT[part], f"{module.relative_to(ROOT)} imports {parts}"


def test_impl_takes_only_types_and_errors_from_the_specification() -> None:
    allowed = (
        "kvproof.spec.rules",
        "kvproof.spec.manager_rules",
        "kvproof.spec.quantities",
        "kvproof.impl",
    )
    for module in PARTS["impl"].rglob("*.py"):
        ours = {name for name in imported(module) if name.startswith("kvproof.")}
        assert all(name.startswith(allowed) for name in ours - {"kvproof.spec"}), module


def test_the_specification_needs_only_the_standard_library() -> None:
    for module in PARTS["spec"].rglob("*.py"):
        roots = {name.split(".")[0] for name in imported(module)} - {"kvproof", ""}
        assert roots <= set(sys.stdlib_module_names), module


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_a_typed_package_of_one_namespace(part: str) -> None:
    assert (PARTS[part] / "__init__.py").exists()
    assert (PARTS[part] / "py.typed").exists()
    assert not (PARTS[part].parent / "__init__.py").exists()


@pytest.mark.parametrize("part", PARTS)
def test_modules_hold_one_idea(part: str) -> None:
    for module in PARTS[part].rglob("*.py"):
        lines = len(module.read_text(encoding="utf-8").splitlines())
        assert lines <= 440, f"{module.relative_to(ROOT)} has {lines} lines"


@pytest.mark.slow
def test_the_wheel_holds_every_part(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    for part in PARTS:
        assert f"kvproof/{part}/__init__.py" in names
        assert f"kvproof/{part}/py.typed" in names
    assert "kvproof/__init__.py" not in names
    assert not [name for name in names if "test_" in name]
