"""`kvproof explain`: settle an argument about a name, or answer a phrase."""

import difflib
import math
import re

import click

from kvproof.cli.entries import KINDS, PLURALS, Entry, all_entries
from kvproof.cli.errors import Stop, plain, unknown
from kvproof.cli.glossary import ALIASES
from kvproof.cli.output import WIDTH, say, say_wrapped

BEST = 5
"""How many answers a phrase gets, at most."""

_STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the is are was be been it its this that these those of in on at to for by with and"
        " or not no what who whom which when where why how does do did if then there has have had"
        " can may must i you we they about happens happen tell me mean means",
    )
)


@click.command()
@click.argument("name", nargs=-1)
def explain(name: tuple[str, ...]) -> int:
    """Explain a name: a property, rule, operation, transition, term, layout, branch or defect.

    Without a name, list everything. A phrase gets the entries that fit it best:
    kvproof explain "who is evicted first".
    """
    entries = all_entries()
    asked = " ".join(name)
    if not asked.strip():
        _list(entries)
        return 0
    exact = named(asked, entries)
    if exact:
        for entry in exact:
            _print(entry)
        near = [one for one in search(asked, entries) if one not in exact]
        if near:
            say(f"see also: {', '.join(f'{one.name} ({one.kind})' for one in near[:BEST])}")
        return 0
    close = _close(asked, entries)
    found = search(asked, entries)
    if not found or (close and len(asked.split()) == 1):
        raise Stop(unknown("name", asked, [one.name for one in entries]))
    for entry in found[:BEST]:
        say(f"{entry.name} ({entry.kind})", "bold")
        say_wrapped(entry.says, "  ", "  ")
    say()
    say(f"more: kvproof explain {found[0].name}")
    return 0


def named(asked: str, entries: list[Entry]) -> list[Entry]:
    """Return the entries of this name."""
    wanted = plain(asked)
    wanted = {plain(alias): plain(name) for alias, name in ALIASES.items()}.get(wanted, wanted)
    found = [one for one in entries if wanted in (plain(one.name), plain(one.name).rstrip("s"))]
    found = found or [one for one in entries if wanted == plain(one.name).partition(":")[2]]
    return found


def search(asked: str, entries: list[Entry]) -> list[Entry]:
    """Return the entries that fit a phrase, the best first.

    Entries with more of its words come first; of these, those with the rarer words. A word in
    a name counts more, the shorter the name is. What is wrong or merely tried (seeded defects,
    kinds of misuse, branches) comes behind all that is so.
    """
    wanted = set(_words(asked))
    texts = [(set(_words(one.name)), set(_words(f"{one.says} {one.words}"))) for one in entries]
    weight = {
        word: math.log(1 + len(entries) / (1 + sum(word in a or word in b for a, b in texts)))
        for word in wanted
    }
    scored: list[tuple[bool, int, float, int, Entry]] = []
    for entry, (name, text) in zip(entries, texts, strict=True):
        share = 1 + 2 * len(wanted & name) / max(len(name), 1)
        hits = [weight[w] * (share if w in name else 1) for w in sorted(wanted) if w in name | text]
        if hits and len(hits) * 2 >= len(wanted):
            length = 1 + math.log(1 + len(name | text)) / 10
            favoured = 1.5 if KINDS.index(entry.kind) < KINDS.index("layout") else 1.0
            tried = entry.kind in ("defect", "misuse", "branch")
            rank = -sum(hits) * favoured / length
            scored.append((tried, -len(hits), rank, len(scored), entry))
    return [entry for *_, entry in sorted(scored)]


def _words(text: str) -> list[str]:
    """Return the stems of the words that mean something."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [_stem(word) for word in found if word not in _STOPWORDS]


def _stem(word: str) -> str:
    """Cut the ending off a word, so that its forms are one.

    >>> [_stem(word) for word in ('evicted', 'eviction', 'evict', 'freeing', 'freed', 'twice')]
    ['evict', 'evict', 'evict', 'fre', 'fre', 'twic']
    """
    word = {"second": "twice", "double": "twice", "again": "twice", "refcount": "count"}.get(
        word, word
    )
    for ending in ("ions", "ings", "ion", "ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word.removesuffix("e") if len(word) > 3 else word


def _close(asked: str, entries: list[Entry]) -> bool:
    names = [plain(one.name) for one in entries]
    return bool(difflib.get_close_matches(plain(asked)[:200], names, n=1, cutoff=0.8))


def _print(entry: Entry) -> None:
    say(f"{entry.name} ({entry.kind})", "bold")
    for line in entry.lines():
        if len(line) <= WIDTH - 2 or line.startswith(" "):
            say(f"  {line}".rstrip())
        else:
            labelled = re.match(r"\S+( \S+)? {2,}", line)
            say_wrapped(line, "  ", " " * (2 + (labelled.end() if labelled else 0)))
    say()


def _list(entries: list[Entry]) -> None:
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
    say("kvproof explain NAME says more; a phrase will do, too")
