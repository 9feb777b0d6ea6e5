"""Finding the entry that answers a question: by its words, the rarer ones counting for more.

Deterministic, and small: names, the words by which people ask, sentences and the rest are
fields of different weight (as in BM25). A question is answered when its words, weighed by how
rare they are, are mostly in the entry; words that are nearly right are corrected first.
"""

import difflib
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

from kvproof.cli.entry import Entry
from kvproof.cli.explain_words import words_of

NEEDED = 0.4
"""The share of a question, by weight of its words, that an answer must have in it."""

LEAST = 1.0
"""The score that an answer must have."""

NAMED = ("property", "rule", "operation", "transition", "theorem", "term")
"""The kinds of entries that have a name to be asked for by one word of it."""

FIELDS = (("name", 3.0), ("asks", 2.5), ("says", 1.5), ("words", 0.8))

FAVOUR = {
    "dispute": 1.2,
    "term": 1.1,
    "operation": 1.0,
    "property": 1.0,
    "rule": 1.0,
    "transition": 0.85,
    "theorem": 0.75,
    "layout": 0.6,
    "branch": 0.5,
    "misuse": 0.55,
    "defect": 0.45,
}
"""How much an entry of each kind counts: what is so comes before what is merely tried."""


class Catalogue:
    """The entries, with their words counted."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.bags = [
            [(Counter(words_of(getattr(entry, field))), weight) for field, weight in FIELDS]
            for entry in entries
        ]
        self.names = [_simple(words_of(entry.name)) for entry in entries]
        found = Counter(
            word for fields in self.bags for word in {w for bag, _ in fields for w in bag}
        )
        self.rarity = {word: math.log(1 + len(entries) / count) for word, count in found.items()}

    @cached_property
    def vocabulary(self) -> list[str]:
        """All words, for finding those that are nearly right."""
        return sorted(self.rarity)

    def understood(self, question: str) -> list[str]:
        """Return the words of a question, misspelt ones corrected, each once."""
        words = []
        for word in words_of(question[:500]):
            near = [word]
            if word not in self.rarity and len(word) > 4:
                near = difflib.get_close_matches(word, self.vocabulary, n=1, cutoff=0.84) or near
            words += near
        return list(dict.fromkeys(words))

    def scored(self, question: str, needed: float = 0.0) -> list[tuple[float, Entry]]:
        """Return each entry that has the needed share of the question in it, the best first."""
        words = self.understood(question)
        unknown = math.log(1 + len(self.entries)) / 2
        weights = {word: self.rarity.get(word, unknown) for word in words}
        whole = sum(weights.values())
        found = []
        for number, (entry, fields) in enumerate(zip(self.entries, self.bags, strict=True)):
            score = matched = 0.0
            for word, weight in weights.items():
                strength = sum(
                    share * min(bag[word], 2) / (1 + 0.12 * len(bag)) for bag, share in fields
                )
                score += weight * strength / (strength + 0.8)
                matched += weight * (strength > 0)
            if matched and matched >= needed * whole:
                score *= FAVOUR[entry.kind] * matched / whole
                score *= 1.5 if self.names[number] == _simple(words) else 1.0
                found.append((-score, number, entry))
        best = sorted(found, key=lambda one: one[:2])
        return [(-score, entry) for score, _, entry in best]

    def ranked(self, question: str) -> list[tuple[float, Entry]]:
        """Return the entries that answer the question, the best first."""
        return [one for one in self.scored(question, NEEDED) if one[0] >= LEAST]


def _simple(words: list[str]) -> set[str]:
    """Leave out names of several parts: their parts stand beside them."""
    return {word for word in words if "_" not in word}


@lru_cache(maxsize=4)
def _catalogue(entries: tuple[Entry, ...]) -> Catalogue:
    return Catalogue(entries)


def ranked(question: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that answer a question, the best first."""
    return [entry for _, entry in _catalogue(tuple(entries)).ranked(question)]


def nearest(question: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return what has most of a question in it, be it ever so little."""
    return [entry for _, entry in _catalogue(tuple(entries)).scored(question)]


def alike(question: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries between which a question of one word does not decide: all that have it
    in their names. Empty when it is a whole name, or the question is longer.
    """
    catalogue = _catalogue(tuple(entries))
    words = set(catalogue.understood(question))
    if len(words) != 1 or words in catalogue.names:
        return []
    named = zip(entries, catalogue.names, strict=True)
    found = [entry for entry, name in named if entry.kind in NAMED and words <= name]
    return found if len(found) > 1 else []
