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
from kvproof.fuzz.levels import LEVELS
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.run import Flags
from kvproof.fuzz.targets import levels_of
from kvproof.spec.properties import Class

SECONDS = 60.0
"""How long a campaign lasts when nothing is said."""


SWITCHES = ("policy", "quality", "misuse")
"""The classes of properties that are judged when asked for."""


@dataclass(frozen=True)
class Plan:
    """Everything that the options say, checked. `layouts` are those of each level that is fuzzed,
    in this order; `limits` are for each level.
    """

    target: str
    level: str
    layouts: dict[str, list[Any]]
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
        flags = [f"--level {self.level}"] if self.level != "all" else []
        flags += [f"--{name}" for name in SWITCHES if getattr(self.flags, name)]
        names = [layout.name for layouts in self.layouts.values() for layout in layouts]
        if len(names) < sum(len(LEVELS[level].layouts) for level in self.layouts):
            flags += [f"--layout {name}" for name in dict.fromkeys(names)]
        target = shlex.quote(self.target)
        return " ".join(["kvproof fuzz", target, *flags, f"--seed {seed}"])


def plan_from(target: str, seed: int, options: dict[str, Any]) -> Plan:
    """Check the options. Raises Stop."""
    seconds, examples = options["seconds"], options["examples"]
    if seconds is not None and examples is not None:
        raise Stop("give --seconds or --examples, not both")
    if seconds is not None and not 0 < seconds < 1e9:
        raise Stop(f"--seconds must be a positive number, not {seconds}")
    if seconds is None and examples is None:
        seconds = SECONDS
    level = options["level"]
    levels = levels_of(target) if level == "all" else [level]
    properties = choose("property", options["properties"], _names(levels, "properties"))
    layouts = _layouts(levels, options["layouts"], properties)
    classes = {PROPERTIES[name].klass for name in properties}
    flags = Flags(
        options["policy"] or Class.POLICY in classes,
        options["misuse"] or Class.MISUSE in classes,
        options["quality"] or Class.QUALITY in classes,
    )
    known = read_signatures(options["known"]) if options["known"] else []
    expected = read_signatures(options["expect"]) if options["expect"] else None
    save = Path(options["save"])
    check_folder(save)
    _hints(target, flags, layouts, options)
    return Plan(
        target,
        level,
        layouts,
        properties,
        flags,
        Limits(None if seconds is None else seconds / len(layouts), examples),
        seed,
        options["jobs"],
        known,
        expected,
        save,
    )


def _names(levels: list[str], kind: str) -> list[str]:
    return list(dict.fromkeys(name for level in levels for name in getattr(LEVELS[level], kind)))


def _layouts(
    levels: list[str], asked: tuple[str, ...], properties: list[str]
) -> dict[str, list[Any]]:
    """Return the layouts of each level that has some of those asked for, and some property."""
    names = choose("layout", asked, _names(levels, "layouts")) or _names(levels, "layouts")
    found = {
        level: [shape for name, shape in LEVELS[level].layouts.items() if name in names]
        for level in levels
        if not properties or set(properties) & set(LEVELS[level].properties)
    }
    found = {level: shapes for level, shapes in found.items() if shapes}
    if not found:
        raise Stop("no level has both the layouts and the properties that are asked for")
    return found


def _hints(
    target: str, flags: Flags, layouts: dict[str, list[Any]], options: dict[str, Any]
) -> None:
    if target == "impl" and not flags.policy:
        note("hint: impl promises vLLM's own choices too; add --policy to judge them")
    if options["quality"] and list(layouts) == ["pool"]:
        note("--quality: no property of the block pool is of this class")
    if options["misuse"] and list(layouts) == ["manager"]:
        note("--misuse: calls that break a rule are made at pool level only")
    for name in SWITCHES:
        if getattr(flags, name) and not options[name]:
            note(f"--property asks for a property of class {name}: judged as with --{name}")
