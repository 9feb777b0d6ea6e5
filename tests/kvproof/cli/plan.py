"""What the options of `kvproof fuzz` say, checked."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvproof.cli.errors import Stop, choose
from kvproof.cli.folders import check_folder
from kvproof.cli.output import note
from kvproof.cli.signatures import read_signatures
from kvproof.fuzz.campaign import Limits
from kvproof.fuzz.layouts import LAYOUTS, Layout
from kvproof.fuzz.run import PROPERTIES, Flags
from kvproof.spec.properties import Class

SECONDS = 60.0
"""How long a campaign lasts when nothing is said."""


@dataclass(frozen=True)
class Plan:
    """Everything that the options say, checked."""

    target: str
    layouts: list[Layout]
    properties: list[str]
    flags: Flags
    limits: Limits
    seed: int
    jobs: int
    known: list[str]
    expected: list[str] | None
    save: Path

    def command(self, seed: int) -> str:
        """Return the command line that makes the same sequences with this seed."""
        flags = [f"--{name}" for name in ("policy", "misuse") if getattr(self.flags, name)]
        if len(self.layouts) < len(LAYOUTS):
            flags += [f"--layout {layout.name}" for layout in self.layouts]
        target = shlex.quote(self.target)
        return " ".join(["kvproof fuzz", target, *flags, f"--seed {seed}"])


def plan_from(target: str, seed: int, options: dict[str, Any]) -> Plan:
    """Check the options. Raises Stop."""
    if options["level"] == "manager":
        raise Stop("the manager level is not in this release; use --level pool")
    seconds, examples = options["seconds"], options["examples"]
    if seconds is not None and examples is not None:
        raise Stop("give --seconds or --examples, not both")
    if seconds is not None and not 0 < seconds < 1e9:
        raise Stop(f"--seconds must be a positive number, not {seconds}")
    if seconds is None and examples is None:
        seconds = SECONDS
    layouts = choose("layout", options["layouts"], list(LAYOUTS)) or list(LAYOUTS)
    properties = choose("property", options["properties"], list(PROPERTIES))
    classes = {PROPERTIES[name].klass for name in properties}
    flags = Flags(
        options["policy"] or Class.POLICY in classes,
        options["misuse"] or Class.MISUSE in classes,
    )
    known = read_signatures(options["known"]) if options["known"] else []
    expected = read_signatures(options["expect"]) if options["expect"] else None
    save = Path(options["save"])
    check_folder(save)
    _hints(target, flags, options)
    return Plan(
        target,
        [LAYOUTS[name] for name in layouts],
        properties,
        flags,
        Limits(seconds, examples),
        seed,
        options["jobs"],
        known,
        expected,
        save,
    )


def _hints(target: str, flags: Flags, options: dict[str, Any]) -> None:
    if target == "impl" and not flags.policy:
        note("hint: impl promises vLLM's own choices too; add --policy to judge them")
    if options["quality"]:
        note("--quality: no property of the block pool is of this class")
    for name in ("policy", "misuse"):
        if getattr(flags, name) and not options[name]:
            note(f"--property asks for a property of class {name}: judged as with --{name}")
