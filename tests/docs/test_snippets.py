"""Every snippet of the README and of docs/ that can run is run.

A fenced block is run when its info string begins with

* `python`: a program, run in an empty folder; with `file=NAME` it is saved there instead;
* `console`: each line that begins with `$ ` is a command, run by a shell in that folder. It
  ends with status 0, or N with `exit=N`. The lines below it occur in its output, in this order;
  a line `...` stands for any number of others, and `...` in a line for any text.

Both are left alone with `norun="REASON"`. The blocks of one document share one folder, in which
`tests` and `docs` are those of the repository.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INDENTED = {"command.md", "defects.md", "proofs.md", "replay-format.md"}
"""Documents whose snippets are indented, and are tested with what they describe."""

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A fenced block: its language, its options, its text, and the line where it begins."""

    language: str
    options: dict[str, str]
    text: str
    line: int


def snippets(document: Path) -> list[Snippet]:
    """Return the fenced blocks of a document."""
    source = document.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(source):
        language, *options = shlex.split(match["info"]) or [""]
        line = source.count("\n", 0, match.start()) + 1
        pairs = dict(option.partition("=")[::2] for option in options)
        found.append(Snippet(language, pairs, match["text"], line))
    return found


def run(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command in a folder; return its status and all that it printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip() not in ("", "..."):
            assert found, f"output before the first command: {line}"
            found[-1][1].append(" ".join(line.split()))
    return found


def assert_printed(expected: list[str], printed: str, place: str) -> None:
    """Assert that the lines occur in the output, in this order."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for wanted in expected:
        form = re.compile(".*".join(map(re.escape, wanted.split("..."))))
        assert any(map(form.fullmatch, lines)), f"{place}: no line {wanted!r} in\n{printed}"


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if d.name not in INDENTED], ids=lambda path: path.name
)
def test_snippets_run(document: Path, tmp_path: Path) -> None:
    for name in ("tests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    for snippet in snippets(document):
        place = f"{document.name}:{snippet.line}"
        if "norun" in snippet.options:
            assert snippet.options["norun"], f"{place}: say why it is not run"
        elif snippet.language == "python" and "file" in snippet.options:
            (tmp_path / snippet.options["file"]).write_text(snippet.text, encoding="utf-8")
        elif snippet.language == "python":
            status, printed = run([sys.executable, "-c", snippet.text], tmp_path)
            assert status == 0, f"{place}: {printed}"
        elif snippet.language == "console":
            for command, expected in commands(snippet.text):
                status, printed = run(["bash", "-c", command], tmp_path)
                wanted = int(snippet.options.get("exit", "0"))
                assert status == wanted, f"{place}: {command}: status {status}\n{printed}"
                assert_printed(expected, printed, place)


def test_the_runner_sees_blocks_options_and_output(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text('a\n```console exit=1 norun="too long"\n$ x\nout\n...\n$ y\n```\n')
    (found,) = snippets(document)
    assert (found.language, found.line) == ("console", 2)
    assert found.options == {"exit": "1", "norun": "too long"}
    assert commands(found.text) == [("x", ["out"]), ("y", [])]
    assert_printed(["b", "d ... f"], "a\nb\nc\nd   e f\n", "here")
    with pytest.raises(AssertionError, match="no line 'a'"):
        assert_printed(["b", "a"], "a\nb\n", "here")
