"""Unit tests of tools/vllm_env.py; they start no process and use no network."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.25.1"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vllm_env", ROOT / "tools" / "vllm_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load()

UNREACHABLE = """\
WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)': /simple/
ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)
ERROR: No matching distribution found for x==1
"""
NO_SUCH_BUILD = """\
ERROR: Could not find a version that satisfies the requirement x==1 (from versions: 0.9, 2.0)
ERROR: No matching distribution found for x==1
"""
CONFLICT = """\
ERROR: Cannot install x==1 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit the documentation
"""


class Commands:
    """Stands for ``run``: records each command, and fails those that ``fail`` names."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.fail: dict[str, str] = {}

    def __call__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        self.ran.append(list(command))
        for word, output in self.fail.items():
            if word in command:
                raise tool.command_failed(command, output)
        return "noise\nvllm 0, torch 0, python 0\n" if env else ""

    def installs(self) -> list[str]:
        """The last word of each pip command."""
        return [command[-1] for command in self.ran if "pip" in command]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    fake = Commands()
    monkeypatch.setattr(tool, "run", fake)
    return fake


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., int]:
    def call(*more: str) -> int:
        status: int = tool.main([VERSION, "--dir", str(tmp_path / "env"), *more])
        return status

    return call


def test_arguments() -> None:
    options = tool.parse([VERSION])
    assert (options.version, options.dir, options.without_kvproof) == (VERSION, None, False)
    options = tool.parse([VERSION, "--dir", "x", "--without-kvproof"])
    assert (options.dir, options.without_kvproof) == (Path("x"), True)


def test_no_version_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as caught:
        tool.parse([])
    assert caught.value.code == 2


@pytest.mark.parametrize("version", ["9.9.9", "../0.25.1", ""])
def test_unknown_version(
    version: str, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([version]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert VERSION in error
    assert commands.ran == []


def test_versions_are_sorted_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0.10.0", "0.9.2", "0.25.1"):
        (tmp_path / f"requirements-{name}.txt").touch()
    monkeypatch.setattr(tool, "REQUIREMENTS", tmp_path)
    assert tool.known_versions() == ["0.9.2", "0.10.0", "0.25.1"]


@pytest.mark.parametrize("version", tool.known_versions())
def test_requirements_are_pinned(version: str) -> None:
    path = ROOT / "tools" / "vllm" / f"requirements-{version}.txt"
    pins = tool.read_pins(path)
    assert path.read_text(encoding="utf-8").startswith("#")
    assert "torch" in pins
    assert "vllm" not in pins
    assert "+" not in "".join(pins.values())
    assert not any(name.startswith("nvidia") for name in pins)


@pytest.mark.parametrize(
    "line",
    ["numpy", "numpy>=2", "numpy==2.*", "numpy==2; python_version>'3'", "-e .", "x @ file:y.whl"],
)
def test_other_requirements_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements-1.txt"
    path.write_text(f"torch==1  # fine\n\n{line}\n", encoding="utf-8")
    with pytest.raises(tool.StepError, match=r"requirements-1\.txt:3"):
        tool.read_pins(path)


def test_a_package_is_pinned_once_and_torch_must_be(tmp_path: Path) -> None:
    path = tmp_path / "requirements-1.txt"
    path.write_text("torch==1\na-b==1\nA_b==2\n", encoding="utf-8")
    with pytest.raises(tool.StepError, match=r"requirements-1\.txt:3"):
        tool.read_pins(path)
    path.write_text("a-b==1\n", encoding="utf-8")
    with pytest.raises(tool.StepError, match="pins no torch"):
        tool.read_pins(path)


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (UNREACHABLE, 3),
        ("ERROR: HTTP error 403 while getting x\n", 3),
        ("ReadTimeoutError: Read timed out.\n", 3),
        (NO_SUCH_BUILD, 1),
        (CONFLICT, 1),
        ("ERROR: [Errno 28] No space left on device\nConnection broken\n", 1),
        ("", 1),
    ],
)
def test_failed_downloads_are_told_apart(output: str, status: int) -> None:
    error = tool.command_failed(["pip", "install", "x y"], output)
    assert error.status == status
    assert ("pip install 'x y'" in str(error)) == (status == 1)
    assert ("\n" in str(error)) == (status == 1)


def test_a_failed_import_is_never_a_failed_download() -> None:
    assert tool.command_failed(["python", "-c", "import vllm"], "timed out").status == 1


def test_marker(tmp_path: Path) -> None:
    assert tool.read_marker(tmp_path) is None
    tool.write_marker(tmp_path, {})
    assert tool.read_marker(tmp_path) == {}
    done = {"vllm": tool.digest("a", "b"), "kvproof": tool.digest("ab")}
    tool.write_marker(tmp_path, done)
    assert tool.read_marker(tmp_path) == done
    assert len(set(done.values())) == 2


def test_a_foreign_directory_is_not_touched(
    tmp_path: Path, commands: Commands, build: Callable[..., int]
) -> None:
    file = tmp_path / "env" / "precious"
    file.parent.mkdir()
    file.touch()
    assert build() == 1
    assert file.exists()
    assert commands.ran == []


def test_fresh_build_then_only_a_check(
    commands: Commands, build: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert build() == 0
    torch, vllm, kvproof = commands.installs()[-3:]
    assert torch.startswith("torch==")
    assert torch.endswith("+cpu")
    assert (vllm, kvproof) == (f"vllm=={VERSION}", str(ROOT))
    assert "vllm 0, torch 0, python 0" in capsys.readouterr().out
    commands.ran.clear()
    assert build() == 0
    assert len(commands.ran) == 1
    assert commands.installs() == []


def test_kvproof_is_added_to_a_finished_environment(
    commands: Commands, build: Callable[..., int]
) -> None:
    assert build("--without-kvproof") == 0
    assert str(ROOT) not in commands.installs()
    commands.ran.clear()
    assert build() == 0
    assert commands.installs() == [str(ROOT)]


def test_changed_requirements_make_it_anew(
    tmp_path: Path, commands: Commands, build: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"requirements-{VERSION}.txt"
    path.write_text("torch==1\na==1\n", encoding="utf-8")
    monkeypatch.setattr(tool, "REQUIREMENTS", tmp_path)
    assert build("--without-kvproof") == 0
    (tmp_path / "env" / "stale").touch()
    commands.ran.clear()
    path.write_text("torch==1\na==2\n", encoding="utf-8")
    assert build("--without-kvproof") == 0
    assert commands.installs() == ["a==2", "torch==1+cpu", f"vllm=={VERSION}"]
    assert not (tmp_path / "env" / "stale").exists()


@pytest.mark.parametrize("output", [NO_SUCH_BUILD, CONFLICT])
def test_torch_falls_back_to_the_default_build(
    tmp_path: Path, commands: Commands, output: str
) -> None:
    commands.fail["torch==1+cpu"] = output
    tool.install_torch(tmp_path, "torch==1", tmp_path / "pins.txt")
    assert commands.installs() == ["torch==1+cpu", "torch==1"]
    assert "--no-deps" in commands.ran[0]
    assert "--no-deps" not in commands.ran[1]


@pytest.mark.parametrize(("output", "status"), [(UNREACHABLE, 3), ("killed", 1)])
def test_torch_does_not_fall_back_on_other_failures(
    tmp_path: Path, commands: Commands, output: str, status: int
) -> None:
    commands.fail["torch==1+cpu"] = output
    with pytest.raises(tool.StepError) as caught:
        tool.install_torch(tmp_path, "torch==1", tmp_path / "pins.txt")
    assert caught.value.status == status
    assert commands.installs() == ["torch==1+cpu"]


def test_failed_download_is_status_3_and_resumes(
    commands: Commands, build: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    commands.fail[f"vllm=={VERSION}"] = UNREACHABLE
    assert build() == 3
    assert capsys.readouterr().err.count("\n") == 1
    commands.fail.clear()
    assert build() == 0


def test_failed_import_makes_it_anew_next_time(
    commands: Commands, build: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert build() == 0
    commands.fail["-c"] = "ModuleNotFoundError: No module named 'a'"
    assert build() == 1
    assert "No module named 'a'" in capsys.readouterr().err
    commands.fail.clear()
    commands.ran.clear()
    assert build() == 0
    assert f"vllm=={VERSION}" in commands.installs()
