"""The closing report of `kvproof fuzz`, and the verdict."""

from dataclasses import dataclass
from typing import Any

from kvproof.cli.output import Table, counted, note, say, say_list
from kvproof.cli.plan import Plan
from kvproof.cli.records import Result
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.run import PROPERTIES
from kvproof.fuzz.session import Session
from kvproof.spec.full_attention import NO_STRANDED_SUFFIX
from kvproof.spec.properties import Class

NEEDS = {
    "hit-backed": "get_cached_block",
    "first-inserted": "get_cached_block",
    "events-mirror-cache": "take_events",
}
"""Properties that say nothing of a target without this operation."""

SHOWS = {
    "refs-nonnegative": ("ref_cnt",),
    "refs-exact": ("ref_cnt",),
    "queue-is-a-set": ("free",),
    "index-agrees": ("index", "keys"),
    "one-chain-per-block": ("keys",),
    "retired-stays-retired": ("index", "keys"),
}
"""Properties that say nothing of a target that shows none of these fields."""


@dataclass(frozen=True)
class Ability:
    """The operations that a target lacks, and the fields that it does not show."""

    lacks: list[str]
    hidden: list[str]


def summarise(
    plan: Plan,
    session: Session,
    found: dict[str, Failure],
    ability: Ability,
    seconds: float,
    result: Result,
) -> int:
    """Print the report, fill in the result, and return the exit status."""
    _print_operations(session, ability.lacks)
    _print_weakness(session, ability.lacks)
    if plan.flags.misuse:
        _print_misuses(session)
    _print_counts(plan, session, seconds)
    statuses = judged(plan, session, found, ability)
    _print_properties(statuses, found)
    _print_failures(plan, session, found)
    new, vanished = _against_expectation(plan, session, found)
    result.records = _records(plan, statuses, found, vanished, seconds)
    fails = bool(new or vanished)
    result.verdict = "fails" if fails else "holds"
    say(_verdict(plan, statuses, found, new, vanished), "bold red" if fails else "bold green")
    return int(fails)


def judged(
    plan: Plan, session: Session, found: dict[str, Failure], ability: Ability
) -> dict[str, str]:
    """Return for each property `holds`, `violated`, or why it was not judged."""
    violated = {failure.property for failure in found.values()}
    statuses = {}
    for name, entry in PROPERTIES.items():
        if plan.properties and name not in plan.properties:
            continue
        if name in violated:
            statuses[name] = "violated"
        elif entry.klass is Class.POLICY and not plan.flags.policy:
            statuses[name] = "needs --policy"
        elif entry.klass is Class.MISUSE and not plan.flags.misuse:
            statuses[name] = "needs --misuse"
        elif set(SHOWS.get(name, "?")) <= set(ability.hidden):
            statuses[name] = f"the target does not show {' or '.join(SHOWS[name])}"
        elif NEEDS.get(name) in ability.lacks:
            statuses[name] = f"the target has no {NEEDS[name]}"
        elif name == NO_STRANDED_SUFFIX.name and not any(one.protocol for one in plan.layouts):
            statuses[name] = "needs the layout full"
        elif name.startswith("retired") and "cache_partial_block" in ability.lacks:
            statuses[name] = "the target has no cache_partial_block"
        else:
            statuses[name] = "holds"
    known = {signature.partition(":")[0] for signature in session.known_seen}
    return {
        name: "holds but for known failures" if status == "holds" and name in known else status
        for name, status in statuses.items()
    }


def _print_operations(session: Session, lacks: list[str]) -> None:
    table = Table("operation", "calls", "branches that legal calls took", right=["calls"])
    for operation, names in BRANCHES.items():
        if operation in lacks:
            continue
        taken = [f"{name} {session.branches[operation, name]}" for name in names]
        table.add(operation, str(session.operations[operation]), ", ".join(taken))
    table.show()


def _print_weakness(session: Session, lacks: list[str]) -> None:
    missed = [name for name in session.never_taken() if name.partition(":")[0] not in lacks]
    if missed:
        say_list("never taken", missed)
        say("This run is weak: what it never did, it cannot have judged. Run it for longer.")
    say()


def _print_misuses(session: Session) -> None:
    tried = [f"{kind} {session.misuses[kind]}" for kind in MISUSES if session.misuses[kind]]
    say_list("misuse tried", tried)
    missed = [kind for kind in MISUSES if not session.misuses[kind]]
    if missed:
        say_list("misuse never tried", missed)
    say()


def _print_counts(plan: Plan, session: Session, seconds: float) -> None:
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


def _print_failures(plan: Plan, session: Session, found: dict[str, Failure]) -> None:
    if found:
        table = Table("distinct failures", "seen", "saved to", right=["seen"])
        for failure in found.values():
            table.add(failure.signature, str(failure.seen), failure.file or "")
        table.show()
        say()
    others = [one for name, one in session.failures.items() if name not in found]
    if others:
        names = sorted({failure.property for failure in others})
        say(f"not reported, as --property asks: failures of {', '.join(names)}")
        say()
    if plan.known:
        for name in sorted(session.known_seen):
            say(f"known, and seen {counted(session.known_seen[name], 'time')}: {name}")
        for name in sorted(set(plan.known) - set(session.known_seen)):
            say(f"known, and not seen: {name}")
        say()


def _against_expectation(
    plan: Plan, session: Session, found: dict[str, Failure]
) -> tuple[list[str], list[str]]:
    """Return the signatures that are new, and those that have vanished."""
    expected = [
        name
        for name in dict.fromkeys(plan.expected or [])
        if not plan.properties or name.partition(":")[0] in plan.properties
    ]
    new = [name for name in found if name not in expected]
    gone = [name for name in expected if name not in found and name not in session.known_seen]
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
                "operations": [call.as_json() for call in failure.calls],
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
