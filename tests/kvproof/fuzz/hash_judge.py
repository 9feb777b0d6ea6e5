"""Judges the block hashes of requests: what a target shows of them, in whatever form.

One hash stands for one prefix, whichever requests have it, for as long as the run lasts. That
one prefix has one hash is not judged here: where it has two, only a hit is lost, and the hit
that falls short is judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvproof.fuzz.elements import RequestContent, specified
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.spec.hashing import (
    INCREMENTAL_EQUALS_FRESH,
    KEY_INJECTIVE,
    ExtraKey,
    Unit,
    block_hashes,
    extra_keys,
    incremental_equals_fresh,
)

ShownHash = str | bytes | int
"""A block hash as a target shows it. It says nothing but whether two are equal."""

_NO_CHAIN = 0
"""The chain of no unit."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A request when it was last judged: its hashes, and the chain that the last one is for."""

    content: RequestContent
    hashes: list[ShownHash]
    chain: int


class HashJudge:
    """Remembers the hashes of all requests of a run, and what they stand for."""

    def __init__(self, config: ManagerConfig) -> None:
        self._unit, self._must_hash = config.hash_block_size, config.enable_caching
        self._numbers: dict[tuple[int, Unit], int] = {}
        self._links: list[tuple[int, Unit]] = [(_NO_CHAIN, Unit((), ()))]
        self._means: dict[ShownHash, tuple[int, str]] = {}
        self._judged: dict[str, _Judged] = {}

    def judge(
        self,
        name: str,
        content: RequestContent,
        given: Sequence[ShownHash] | None,
        fresh: Sequence[ShownHash] | None,
    ) -> Finding | None:
        """Judge the hashes of a request, one for each full unit of its known tokens.

        `given` has come about step by step, and `fresh` is computed at once for an equal
        request; None is what a target does not show. Raises RequestContentError for a content
        that can be in no request.
        """
        for shown in (given, fresh):
            if shown is not None and not _are_hashes(shown):
                wanted = "a list of texts, bytes or integers"
                return Finding("legal-accepted", "these are no hashes", wanted, f"{shown!r:.200}")
        hashes = fresh if given is None else given
        if hashes is None or not (hashes or self._must_hash):
            return None
        finding = self._complete(name, content, hashes)
        if finding is None and fresh is not None and not incremental_equals_fresh(hashes, fresh):
            finding = self._stale(name, content, hashes, fresh)
        return finding or self._injective(name, content, list(hashes))

    def _complete(
        self, name: str, content: RequestContent, hashes: Sequence[ShownHash]
    ) -> Finding | None:
        num_units = len(content.tokens) // self._unit
        if len(hashes) == num_units:
            return None
        return Finding(
            INCREMENTAL_EQUALS_FRESH.name,
            f"{name} has {len(content.tokens)} tokens, and not one hash for each full unit",
            f"{num_units} hashes",
            f"{len(hashes)} hashes",
        )

    def _stale(
        self,
        name: str,
        content: RequestContent,
        hashes: Sequence[ShownHash],
        fresh: Sequence[ShownHash],
    ) -> Finding:
        """Say what the first hash that differs is for. Never show it: its seed may be random."""
        pairs = enumerate(zip(hashes, fresh, strict=False))
        place = next((place for place, (one, other) in pairs if one != other), len(fresh))
        if len(fresh) != len(hashes):
            wanted, found = f"{len(fresh)} hashes, as at once", f"{len(hashes)} hashes"
        else:
            meant = block_hashes(specified(content), self._unit)[place]
            known = self._means.get(hashes[place])
            wanted = f"the hash of {' '.join(map(_unit_text, meant))}"
            found = "another hash" if known is None else f"the hash of {self._text(known[0])}"
        says = f"from unit {place} on, the hashes of {name} are not those of an equal request"
        return Finding(INCREMENTAL_EQUALS_FRESH.name, says, wanted, found)

    def _injective(
        self, name: str, content: RequestContent, hashes: list[ShownHash]
    ) -> Finding | None:
        before = self._judged.get(name)
        known = before if before is not None and _continues(before, content, hashes) else None
        done, chain = (0, _NO_CHAIN) if known is None else (len(known.hashes), known.chain)
        request = specified(content)
        for start, shown in enumerate(hashes[done:], done):
            first, end = start * self._unit, (start + 1) * self._unit
            chain = self._number(
                chain, Unit(request.tokens[first:end], extra_keys(request, first, end))
            )
            other, owner = self._means.setdefault(shown, (chain, name))
            if other != chain:
                return Finding(
                    KEY_INJECTIVE.name,
                    f"unit {start} of {name} has the hash of another prefix, known from {owner}",
                    f"the hash of {self._text(chain)}",
                    f"the hash of {self._text(other)}",
                )
        self._judged[name] = _Judged(content, hashes, chain)
        return None

    def _number(self, parent: int, unit: Unit) -> int:
        """Number a chain: two are equal exactly when their numbers are."""
        number = self._numbers.setdefault((parent, unit), len(self._links))
        if number == len(self._links):
            self._links.append((parent, unit))
        return number

    def _text(self, chain: int) -> str:
        """Write a chain, unit by unit."""
        units = []
        while chain != _NO_CHAIN:
            chain, unit = self._links[chain]
            units.append(_unit_text(unit))
        return " ".join(reversed(units))


def _are_hashes(shown: object) -> bool:
    return (
        isinstance(shown, Sequence)
        and not isinstance(shown, str | bytes)
        and all(isinstance(one, ShownHash) for one in shown)
    )


def _continues(before: _Judged, content: RequestContent, hashes: list[ShownHash]) -> bool:
    """Nothing of what was judged has changed: there may only be more of it."""
    return (
        content.tokens[: len(before.content.tokens)] == before.content.tokens
        and content.extra == before.content.extra
        and hashes[: len(before.hashes)] == before.hashes
    )


def _unit_text(unit: Unit) -> str:
    tokens = ".".join(map(str, unit.tokens))
    return f"[{', '.join([tokens, *map(_key_text, unit.extra_keys)])}]"


def _key_text(key: ExtraKey) -> str:
    return f"{key.kind} {' '.join(map(repr, key[:-1]))}"
