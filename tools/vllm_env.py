"""Build an environment with the real vLLM of one release, on a machine without a GPU.

``python tools/vllm_env.py 0.25.1`` makes ``.venv-vllm-0.25.1`` in the repository root: the
packages pinned in ``tools/vllm/requirements-0.25.1.txt``, the CPU build of torch where the package
index offers one, the vllm wheel without its dependencies, and kvproof itself, editable. It ends by
importing the core of vLLM there. A finished environment is only checked again.

Exit status: 0 ready; 1 a step failed; 2 wrong arguments or a release without a requirements file;
3 something could not be downloaded (CI prints this as a skip).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "tools" / "vllm"
MARKER = ".kvproof-vllm-env"

FAILED, USAGE, NO_DOWNLOAD = 1, 2, 3  # exit statuses

PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")

# What pip prints when the index cannot be reached or a transfer broke off. "from versions: none"
# is how it reports a project of which the index showed nothing at all.
UNREACHABLE = re.compile(
    r"Retrying \(Retry\(|NewConnectionError|NameResolutionError|Max retries exceeded"
    r"|Time-?out ?Error|timed out|Connection broken|Connection aborted|ConnectionResetError"
    r"|ProxyError|SSLError|IncompleteRead|ProtocolError|Could not fetch URL"
    r"|HTTP error [45]\d\d|[45]\d\d (?:Client|Server) Error|from versions: none"
)
# The index answered: whatever else went wrong, it was not the download.
ANSWERED = re.compile(r"from versions: (?!none)|No space left on device")
# The index has no such build for this Python and platform.
NO_SUCH_BUILD = re.compile(r"No matching distribution found|ResolutionImpossible")

# register_all_kvcache_specs takes the VllmConfig and only hands it to the platform's hook for
# further specs; without an accelerator that hook ignores it, so None will do.
CHECK = """
import importlib.metadata, platform, sys
import vllm.v1.core.block_pool
import vllm.v1.core.kv_cache_coordinator
import vllm.v1.core.kv_cache_manager
import vllm.v1.core.sched.scheduler
import vllm.v1.core.single_type_kv_cache_manager
import vllm.v1.request
vllm.v1.core.single_type_kv_cache_manager.register_all_kvcache_specs(None)
for name in sys.argv[2:]:
    __import__(name)
found = importlib.metadata.version("vllm")
if found != sys.argv[1]:
    sys.exit(f"expected vllm {sys.argv[1]}, found {found}")
torch = sys.modules["torch"].__version__
print(f"vllm {found}, torch {torch}, python {platform.python_version()}")
"""
CHECK_ENV = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "CRITICAL"}


class StepError(Exception):
    """A step failed: the exit status that says how, and all that its command printed."""

    def __init__(self, status: int, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


def command_failed(command: Sequence[str], output: str) -> StepError:
    """Tell a failed download, in one line, from other failures, with the end of the output."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()] or ["(no output)"]
    if "pip" in command and UNREACHABLE.search(output) and not ANSWERED.search(output):
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        return StepError(NO_DOWNLOAD, f"download failed (index unreachable?): {errors[-1]}", output)
    tail = "\n  ".join(lines[-12:])
    return StepError(FAILED, f"failed: {shlex.join(command)}\n  {tail}", output)


def say(text: str) -> None:
    """Print one line of progress at once."""
    print(f"vllm_env: {text}", flush=True)


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its standard output; raise StepError if it fails."""
    full = {**os.environ, **(env or {})}
    done = subprocess.run(command, env=full, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise command_failed(command, done.stdout + done.stderr)
    return done.stdout


def known_versions() -> list[str]:
    """The releases that have a requirements file, oldest first."""
    names = [path.stem.removeprefix("requirements-") for path in REQUIREMENTS.glob("*.txt")]
    return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])


def read_pins(path: Path) -> dict[str, str]:
    """Map each package of a requirements file to its ``name==version`` line."""
    pins: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        pin = line.partition("#")[0].strip()
        if not pin:
            continue
        name = re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower()
        if not PIN.fullmatch(pin) or name in pins:
            raise StepError(FAILED, f"{path.name}:{number}: not a single name==version: {line}")
        pins[name] = pin
    if "torch" not in pins:
        raise StepError(FAILED, f"{path.name}: pins no torch")
    return pins


def digest(*parts: str) -> str:
    """A hash over texts, none of which can run into the next."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_marker(directory: Path) -> dict[str, str] | None:
    """What has been finished in an environment; None if this tool did not make it."""
    try:
        lines = (directory / MARKER).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return dict(line.split(" ", 1) for line in lines if " " in line)


def write_marker(directory: Path, done: Mapping[str, str]) -> None:
    """Record the finished parts, each with the hash of what it was made from."""
    text = "".join(f"{part} {value}\n" for part, value in done.items())
    (directory / MARKER).write_text(text, encoding="utf-8")


def make_venv(directory: Path) -> None:
    """Make an empty virtual environment, replacing only one that this tool made."""
    if read_marker(directory) is not None:
        shutil.rmtree(directory)
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise StepError(FAILED, f"{directory} exists and was not made by this tool; not touched")
    directory.mkdir(parents=True, exist_ok=True)
    write_marker(directory, {})  # first, so that an interrupted build can be made anew
    run([sys.executable, "-I", "-m", "venv", str(directory)])


def pip(directory: Path, *arguments: str) -> None:
    """Run ``pip install`` of the environment."""
    python = str(directory / "bin" / "python")
    options = ["--quiet", "--no-input", "--disable-pip-version-check"]
    run([python, "-I", "-m", "pip", "install", *options, *arguments])


def install_torch(directory: Path, pin: str, constraints: Path) -> None:
    """Install the CPU build, whose dependencies are pinned; else the index's default build.

    The default build for Linux on x86-64 does not import without its GPU libraries, so it comes
    with all its dependencies. Elsewhere the default build may be a CPU build already.
    """
    say(f"installing {pin}+cpu")
    try:
        pip(directory, "--no-deps", "--only-binary=:all:", f"{pin}+cpu")
    except StepError as error:
        if error.status == NO_DOWNLOAD or not NO_SUCH_BUILD.search(error.output):
            raise
        size = " (several GB)" if (sys.platform, platform.machine()) == ("linux", "x86_64") else ""
        say(f"the index has no such build; installing {pin} with its dependencies{size}")
        pip(directory, "--only-binary=:all:", "--constraint", str(constraints), pin)


def check(directory: Path, version: str, *more: str) -> str:
    """Import the core of vLLM, and the modules named, there; return the line of versions."""
    say("importing the core of vLLM")
    try:
        python = str(directory / "bin" / "python")
        return run([python, "-I", "-c", CHECK, version, *more], CHECK_ENV).splitlines()[-1]
    except (StepError, OSError):
        write_marker(directory, {})  # so that the next run makes the environment anew
        raise


def build(version: str, directory: Path, *, with_kvproof: bool) -> None:
    """Bring the environment up to date, then check it."""
    start = time.monotonic()
    requirements = REQUIREMENTS / f"requirements-{version}.txt"
    pins = read_pins(requirements)
    base = digest(version, requirements.read_text(encoding="utf-8"), platform.python_version())
    done = read_marker(directory) or {}
    if done.get("vllm") != base:
        say(f"making {directory}")
        make_venv(directory)
        torch = pins.pop("torch")
        say(f"installing {len(pins)} pinned packages")
        pip(directory, "--no-deps", "--only-binary=:all:", *pins.values())
        install_torch(directory, torch, requirements)
        say(f"installing vllm=={version} without its dependencies")
        pip(directory, "--no-deps", "--only-binary=:all:", f"vllm=={version}")
        done = {"vllm": base}
        write_marker(directory, done)
    if with_kvproof:
        own = digest(str(ROOT), (ROOT / "pyproject.toml").read_text(encoding="utf-8"), "pytest")
        if done.get("kvproof") != own:
            say("installing kvproof, editable, and pytest")
            pip(directory, "--constraint", str(requirements), "pytest", "--editable", str(ROOT))
            write_marker(directory, {**done, "kvproof": own})
    versions = check(directory, version, *(["kvproof"] if with_kvproof else []))
    say(f"ready: {versions} in {directory} ({time.monotonic() - start:.0f} s)")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Build an environment with the real vLLM.")
    parser.add_argument("version", metavar="VERSION", help="release of vLLM, such as 0.25.1")
    parser.add_argument("--dir", type=Path, help="where (default: .venv-vllm-VERSION in the root)")
    parser.add_argument("--without-kvproof", action="store_true", help="leave kvproof itself out")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit status."""
    options = parse(arguments)
    known = known_versions()
    try:
        if options.version not in known:
            names = ", ".join(known)
            raise StepError(USAGE, f"vllm {options.version} is not known; known: {names}")
        directory = options.dir or ROOT / f".venv-vllm-{options.version}"
        build(options.version, directory.absolute(), with_kvproof=not options.without_kvproof)
    except StepError as error:
        failure = error
    except OSError as error:
        failure = StepError(FAILED, f"failed: {error}")
    else:
        return 0
    print(f"vllm_env: {failure}", file=sys.stderr)
    return failure.status


if __name__ == "__main__":
    sys.exit(main())
