"""`kvproof explain`: settle an argument about a name, or answer a question."""

import re
from collections.abc import Sequence

import click

from kvproof.cli.entries import KINDS, PLURALS, Entry, all_entries
from kvproof.cli.errors import Stop, plain, unknown
from kvproof.cli.explain_search import alike, nearest, ranked
from kvproof.cli.glossary import ALIASES
from kvproof.cli.output import WIDTH, say, say_wrapped

NEAR = 6
"""How many other entries are named under an answer, at most."""


@click.command()
@click.argument("name", nargs=-1)
def explain(name: tuple[str, ...]) -> int:
    """Explain a name: a property, rule, operation, transition, term, layout, branch or defect.

    Without a name, list everything. A question gets the entry that answers it best:
    kvproof explain who is evicted first.
    """
    entries = all_entries()
    asked = " ".join(name)
    if not asked.strip():
        _list(entries)
        return 0
    answers = named(asked, entries) or [_best(asked, entries)]
    for entry in answers:
        _print(entry)
    near = _near(asked, answers, entries)
    if near:
        say(f"see also: {', '.join(f'{one.name} ({one.kind})' for one in near)}")
    return 0


def named(asked: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of this name."""
    other = {plain(alias): plain(name) for alias, name in ALIASES.items()}
    wanted = plain(asked)
    for meant in (wanted, other.get(wanted, wanted)):
        found = [one for one in entries if meant in (plain(one.name), plain(one.name).rstrip("s"))]
        if found:
            return found
    return [one for one in entries if wanted == plain(one.name).partition(":")[2]]


def _best(asked: str, entries: Sequence[Entry]) -> Entry:
    """Return the entry that answers a question. Raises Stop when none or several do."""
    equal = alike(asked, entries)
    if equal:
        raise Stop(f"{asked!r} is in {len(equal)} names: {_some(equal)}; ask for one, or say more")
    found = ranked(asked, entries)
    if found:
        return found[0]
    if len(asked.split()) == 1:
        raise Stop(unknown("name", asked, [one.name for one in entries]))
    shown = asked if len(asked) <= 80 else asked[:77] + "..."
    near = _some(nearest(asked, entries)[:3])
    also = f"the nearest are {near}" if near else "kvproof explain lists what there is"
    raise Stop(f"nothing answers {shown!r}; {also}")


def _some(entries: Sequence[Entry]) -> str:
    names = [one.name for one in entries[:NEAR]]
    return ", ".join(names if len(entries) <= NEAR else [*names, "..."])


def _near(asked: str, answers: list[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Return what goes with the answers, and then what fits the question next best."""
    by_name = {one.name: one for one in reversed(entries)}
    linked = [by_name[name] for answer in answers for name in answer.see if name in by_name]
    near = dict.fromkeys([*linked, *ranked(asked, entries)])
    return [one for one in near if one not in answers][:NEAR]


def _print(entry: Entry) -> None:
    say(f"{entry.name} ({entry.kind})", "bold")
    for line in entry.lines():
        if len(line) <= WIDTH - 2 or line.startswith(" "):
            say(f"  {line}".rstrip())
        else:
            labelled = re.match(r"\S+( \S+)? {2,}", line)
            say_wrapped(line, "  ", " " * (2 + (labelled.end() if labelled else 0)))
    say()


def _list(entries: Sequence[Entry]) -> None:
    for kind in KINDS:
        some = [one for one in entries if one.kind == kind]
        if not some:
            continue
        say(PLURALS[kind], "bold")
        width = max(len(one.name) for one in some)
        for one in some:
            short = one.says if len(one.says) <= 90 else one.says[:87].rsplit(" ", 1)[0] + " ..."
            say(f"  {one.name:<{width}}  {short}")
        say()
    say("kvproof explain NAME says more; a question will do, too")
