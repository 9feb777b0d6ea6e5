"""How the command ends: exit statuses, one line for what is wrong, no tracebacks."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from kvproof.cli import command
from kvproof.cli.errors import Stop

Run = Callable[..., Result]
KVPROOF = [sys.executable, "-c", "from kvproof.cli import main; main()"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "nonsense"),
        (["--nonsense"], "--nonsense"),
        (["fuzz"], "TARGET"),
        (["fuzz", "impl", "more"], "more"),
        (["fuzz", "nonsense"], "unknown target 'nonsense'"),
        (["fuzz", "no_such_module:factory"], "cannot import 'no_such_module'"),
        (["fuzz", "defect:nonsense"], "unknown defect"),
        (["fuzz", "exec:'"], "exec"),
        (["fuzz", "exec:"], "exec"),
        (["fuzz", "exec:/no/such/program"], "cannot run '/no/such/program'"),
        (["fuzz", "exec:true"], "exec:true"),
        (["fuzz", "exec:cat"], "exec:cat"),
        (["fuzz", "exec:cat", "--level", "manager"], "use --level pool"),
        (["fuzz", "impl", "--level", "manager", "--layout", "partial"], "unknown layout"),
        (["fuzz", "defect:whole-prompt", "--level", "pool"], "use --level manager"),
        (["fuzz", "impl", "--level", "high"], "--level"),
        (["fuzz", "impl", "--layout", "parital"], "do you mean partial?"),
        (["fuzz", "impl", "--property", "refs-exatc"], "do you mean refs-exact"),
        (["fuzz", "impl", "--seconds", "1", "--examples", "1"], "not both"),
        (["fuzz", "impl", "--seconds", "0"], "--seconds"),
        (["fuzz", "impl", "--seconds", "-3"], "--seconds"),
        (["fuzz", "impl", "--seconds", "nan"], "--seconds"),
        (["fuzz", "impl", "--seconds", "soon"], "--seconds"),
        (["fuzz", "impl", "--examples", "0"], "--examples"),
        (["fuzz", "impl", "--seed", "-1"], "--seed"),
        (["fuzz", "impl", "--jobs", "0"], "--jobs"),
        (["fuzz", "impl", "--known", "missing.txt"], "missing.txt: No such file"),
        (["fuzz", "impl", "--expect", "."], "cannot read"),
        (["fuzz", "impl", "--json", "missing/out.json"], "cannot write missing/out.json"),
        (["fuzz", "impl", "--json", "."], "cannot write"),
        (["fuzz", "impl", "--save", "/dev/null/folder"], "cannot write to /dev/null/folder"),
        (["prove", "refs-exatc"], "do you mean refs-exact"),
        (["prove", "refs-exact", "--core"], "not both"),
        (["prove", "--list", "--json", "out.json"], "not both"),
        (["prove", "--timeout", "0"], "--timeout"),
        (["prove", "--solver", "minisat"], "--solver"),
        (["replay"], "FILE"),
        (["replay", "missing.json"], "missing.json: No such file"),
        (["replay", "."], "not a file"),
        (["explain", "refs-exatc"], "do you mean refs-exact"),
        (["explain", "qwertyuiop"], "unknown name"),
    ],
)
def test_wrong_use_gives_one_line_and_status_2(run: Run, arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]


def test_a_message_is_one_printable_line(run: Run) -> None:
    result = run("fuzz", "impl", "--layout", "two\nlines\x07")
    assert result.stderr.count("\n") == 1
    assert "\x07" not in result.stderr


def test_help_and_version(run: Run) -> None:
    assert "fuzz" in run().stdout
    for name in command.COMMANDS:
        assert name in run("--help").stdout
        assert run(name, "--help").exit_code == 0
    assert "0." in run("--version").stdout


def _with(monkeypatch: pytest.MonkeyPatch, raises: BaseException) -> Result:
    @click.command()
    def fails() -> None:
        raise raises

    monkeypatch.setattr(command.Kvproof, "get_command", lambda *_: fails)
    return CliRunner().invoke(command.main, ["fuzz"])


def test_a_stop_is_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _with(monkeypatch, Stop("no such thing"))
    assert (result.exit_code, result.stderr) == (2, "kvproof: no such thing\n")


def test_an_interrupt_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _with(monkeypatch, KeyboardInterrupt())
    assert (result.exit_code, result.stderr) == (130, "\nkvproof: stopped\n")


def test_a_bug_of_kvproof_shows_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _with(monkeypatch, ZeroDivisionError())
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr
    assert "bug of kvproof" in result.stderr


def test_a_missing_dependency_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kvproof.cli.prove", raising=False)
    monkeypatch.setitem(sys.modules, "kvproof.proofs.runner", None)
    result = run("prove")
    assert result.exit_code == 2
    assert "not installed" in result.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    process: subprocess.Popen[Any] = subprocess.Popen(
        [*KVPROOF, "explain"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 2


def test_the_documentation_names_every_option() -> None:
    text = (Path(__file__).parents[2] / "docs" / "command.md").read_text()
    context = click.Context(command.main)
    for name in command.COMMANDS:
        assert f"kvproof {name}" in text
        found = command.main.get_command(context, name)
        assert found is not None
        for parameter in found.params:
            for option in parameter.opts:
                assert not option.startswith("--") or f"`{option}" in text, option


@pytest.mark.parametrize(
    ("closed", "arguments", "says"),
    [
        (">&-", "explain --help", "stdout is closed"),
        (">/dev/full", "explain --help", "cannot write the output"),
        (">/dev/full", "fuzz impl --examples 1 --seed 1", "cannot write the output"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(
    closed: str, arguments: str, says: str, tmp_path: Path
) -> None:
    command = f"exec {shlex.join([*KVPROOF, *arguments.split()])} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert says in done.stderr.splitlines()[-1]


def test_a_closed_stderr_hides_no_verdict(tmp_path: Path) -> None:
    command = (
        f"exec {shlex.join([*KVPROOF, *['fuzz', 'impl', '--examples', '1', '--seed', '1']])} 2>&-"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    assert "HOLDS" in done.stdout
