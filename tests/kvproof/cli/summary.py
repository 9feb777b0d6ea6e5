"""The closing report of `kvproof fuzz`, and the verdict."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kvproof.cli.abilities import Ability
from kvproof.cli.output import Table, counted, note, say, say_list
from kvproof.cli.plan import SWITCHES, Plan
from kvproof.cli.records import Result
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.failure import Failure, operations
from kvproof.fuzz.levels import LEVELS
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.tally import Tally
from kvproof.spec.full_attention import NO_STRANDED_SUFFIX


@dataclass(frozen=True)
class Fuzzed:
    """One level that was fuzzed, and how long that took."""

    session: Tally
    ability: Ability
    seconds: float


def summarise(
    plan: Plan, fuzzed: dict[str, Fuzzed], found: dict[str, Failure], result: Result
) -> int:
    """Print the report, fill in the result, and return the exit status."""
    for level, one in fuzzed.items():
        if len(fuzzed) > 1:
            say(f"-- {level} level " + "-" * 60)
        _print_operations(level, one)
        _print_weakness(one)
        if plan.flags.misuse and level == "pool":
            _print_misuses(one.session)
        _print_counts(plan, one)
    statuses = judged(plan, fuzzed, found)
    _print_properties(statuses, found)
    _print_failures(plan, fuzzed, found)
    new, vanished = _against_expectation(plan, fuzzed, found)
    seconds = sum(one.seconds for one in fuzzed.values())
    result.records = _records(plan, statuses, found, vanished, seconds)
    fails = bool(new or vanished)
    result.verdict = "fails" if fails else "holds"
    say(_verdict(plan, statuses, found, new, vanished), "bold red" if fails else "bold green")
    return int(fails)


def judged(plan: Plan, fuzzed: dict[str, Fuzzed], found: dict[str, Failure]) -> dict[str, str]:
    """Return for each property `holds`, `violated`, or why it was not judged at any level."""
    violated = {failure.property for failure in found.values()}
    known = {name.partition(":")[0] for one in fuzzed.values() for name in one.session.known_seen}
    statuses: dict[str, str] = {}
    for level, one in fuzzed.items():
        for name in LEVELS[level].properties:
            if plan.properties and name not in plan.properties:
                continue
            why = _not_judged(plan, level, one.ability, name)
            if name in violated:
                statuses[name] = "violated"
            elif why is None:
                statuses[name] = "holds but for known failures" if name in known else "holds"
            else:
                statuses.setdefault(name, why)
    return statuses


def _not_judged(plan: Plan, level: str, ability: Ability, name: str) -> str | None:
    """Say why a property was not judged at a level, if it was not."""
    klass = PROPERTIES[name].klass.value
    if klass in SWITCHES and not getattr(plan.flags, klass):
        return f"needs --{klass}"
    if name == NO_STRANDED_SUFFIX.name and not any(one.protocol for one in plan.layouts[level]):
        return "needs the layout full"
    return ability.lacking(level, name)


def _print_operations(level: str, one: Fuzzed) -> None:
    session = one.session
    if level == "manager":
        table = Table("operation", "calls", right=["calls"])
        for operation, count in sorted(session.operations.items()):
            table.add(operation, str(count))
        table.show()
        came = [f"{name} {n}" for (_, name), n in sorted(session.branches.items())]
        say_list("situations", came)
        return
    table = Table("operation", "calls", "branches that legal calls took", right=["calls"])
    for operation, names in BRANCHES.items():
        if operation in one.ability.lacks:
            continue
        taken = [f"{name} {session.branches[operation, name]}" for name in names]
        table.add(operation, str(session.operations[operation]), ", ".join(taken))
    table.show()


def _print_weakness(one: Fuzzed) -> None:
    lacks = one.ability.lacks
    missed = [name for name in one.session.never_taken() if name.partition(":")[0] not in lacks]
    if missed:
        say_list("never taken", missed)
        say("This run is weak: what it never did, it cannot have judged. Run it for longer.")
    say()


def _print_misuses(session: Tally) -> None:
    tried = [f"{kind} {session.misuses[kind]}" for kind in MISUSES if session.misuses[kind]]
    say_list("misuse tried", tried)
    missed = [kind for kind in MISUSES if not session.misuses[kind]]
    if missed:
        say_list("misuse never tried", missed)
    say()


def _print_counts(plan: Plan, one: Fuzzed) -> None:
    session, seconds = one.session, one.seconds
    calls = sum(session.operations.values())
    rate = (
        f"{calls / max(seconds - session.seconds_shrinking, 0.001):,.0f} operations a second"
        f" ({seconds:.1f} s, of these {session.seconds_shrinking:.1f} s shrinking failures)"
    )
    say(
        f"{counted(session.runs, 'sequence')}, {session.runs_over:,} of them ended early by a"
        f" failure; {counted(calls, 'operation')}"
    )
    if plan.limits.examples is None:
        say(rate)
    else:
        note(rate)
    say()


def _print_properties(statuses: dict[str, str], found: dict[str, Failure]) -> None:
    table = Table("property", "class", "verdict")
    for name, status in statuses.items():
        count = sum(failure.property == name for failure in found.values())
        many = f" in {count} ways" if count > 1 else ""
        skipped = not status.startswith(("holds", "violated"))
        shown = f"not judged: {status}" if skipped else status + many
        style = "red" if status == "violated" else "dim" if skipped else None
        table.add(name, PROPERTIES[name].klass.value, shown, style=style)
    table.show()
    say()


def _print_failures(plan: Plan, fuzzed: dict[str, Fuzzed], found: dict[str, Failure]) -> None:
    if found:
        table = Table("distinct failures", "seen", "saved to", right=["seen"])
        for failure in found.values():
            table.add(failure.signature, str(failure.seen), failure.file or "")
        table.show()
        say()
    sessions = [one.session for one in fuzzed.values()]
    seen = sum((one.known_seen for one in sessions), Counter[str]())
    others = [
        failure for one in sessions for name, failure in one.failures.items() if name not in found
    ]
    if others:
        names = sorted({failure.property for failure in others})
        say(f"not reported, as --property asks: failures of {', '.join(names)}")
        say()
    if plan.known:
        for name in sorted(seen):
            say(f"known, and seen {counted(seen[name], 'time')}: {name}")
        for name in sorted(set(plan.known) - set(seen)):
            say(f"known, and not seen: {name}")
        say()


def _against_expectation(
    plan: Plan, fuzzed: dict[str, Fuzzed], found: dict[str, Failure]
) -> tuple[list[str], list[str]]:
    """Return the signatures that are new, and those that have vanished."""
    expected = [
        name
        for name in dict.fromkeys(plan.expected or [])
        if not plan.properties or name.partition(":")[0] in plan.properties
    ]
    new = [name for name in found if name not in expected]
    seen = {name for one in fuzzed.values() for name in one.session.known_seen}
    gone = [name for name in expected if name not in found and name not in seen]
    for name in new if plan.expected is not None else []:
        say(f"new, and not expected: {name}", "red")
    for name in gone:
        say(f"expected, and not seen: {name}", "red")
    if plan.expected is not None and (new or gone):
        say()
    return new, gone


def _records(
    plan: Plan,
    statuses: dict[str, str],
    found: dict[str, Failure],
    vanished: list[str],
    seconds: float,
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for name, status in statuses.items():
        if status == "violated":
            continue
        record: dict[str, Any] = {"name": name, "status": "holds", "seconds": round(seconds, 3)}
        if not status.startswith("holds"):
            record.update(status="skipped", reason=status)
        records.append(record)
    for failure in found.values():
        entry = PROPERTIES[failure.property]
        records.append(
            {
                "name": failure.property,
                "status": "violated",
                "seconds": round(seconds, 3),
                "class": entry.klass.value,
                "says": entry.says,
                "consequence": entry.consequence.value,
                "signature": failure.signature,
                "expected_by_file": failure.signature in (plan.expected or ()),
                "seen": failure.seen,
                "layout": failure.layout,
                "operations": operations(failure),
                "expected": failure.finding.expected,
                "actual": failure.finding.actual,
                "seed": failure.seed,
                "file": failure.file,
            }
        )
    for name in vanished:
        records.append(
            {
                "name": name.partition(":")[0],
                "status": "skipped",
                "seconds": round(seconds, 3),
                "signature": name,
                "reason": "this failure was expected, and not seen",
            }
        )
    return records


def _verdict(
    plan: Plan,
    statuses: dict[str, str],
    found: dict[str, Failure],
    new: list[str],
    vanished: list[str],
) -> str:
    held = sum(status.startswith("holds") for status in statuses.values())
    if plan.expected is not None:
        if new or vanished:
            return (
                f"FAILS: {counted(len(new), 'new failure')}, {len(vanished)} expected but not seen"
            )
        return f"HOLDS: exactly what was expected: {counted(len(found), 'failure')}"
    if found:
        broken = list(dict.fromkeys(failure.property for failure in found.values()))
        return f"FAILS: {counted(len(found), 'distinct failure')}; violated: {', '.join(broken)}"
    judged = "1 property" if held == 1 else f"{held} properties"
    return f"HOLDS: no failure; {judged} judged"
