"""Theorems of the ghost contents: every token reads its own prefix, and what that rests on."""

from typing import Any

from kvproof.proofs.arithmetic import Setting
from kvproof.proofs.attention import AttentionArithmetic, Claim
from kvproof.proofs.ghost_induction import AccessRight, ContentsKept
from kvproof.proofs.ghost_lists import ListsDone
from kvproof.proofs.ghost_needed import ContentsReachable, RulesNeeded
from kvproof.proofs.theorem import Theorem, place_of
from kvproof.spec import attention, ghost_properties, ghost_transitions


def forgets_for_ever(it: Setting) -> tuple[Any, Any]:
    """What a token does not read, no later one reads, but for itself."""
    kind = it.attention()
    reader, later, position = it.numbers("reader", "later", "position")
    given = (position <= reader) & (reader <= later)
    read_later = kind.reads(later, position) | (position == later)
    return given & read_later, kind.reads(reader, position) | (position == reader)


VISIBILITY_ARITHMETIC = AttentionArithmetic((Claim(forgets_for_ever),))

_PROPERTY = "reads-own-prefix"
_UNDER_RULES = "for any number of blocks, requests and groups, of an engine that keeps the rules"

GHOST_THEOREMS: tuple[Theorem, ...] = (
    Theorem(
        "contents-promised",
        f"{_UNDER_RULES}: initially and after every transition, every slot below a request's"
        " scheduled tokens is promised the request's own prefix, every slot of a keyed block what"
        " its key says, and a promise is unkept only while its write is scheduled",
        _PROPERTY,
        True,
        place_of(ghost_properties.entries_are_promised),
        ContentsKept(),
    ),
    Theorem(
        "reads-own-prefix",
        f"{_UNDER_RULES}: what a token reads in any block is its own request's prefix",
        _PROPERTY,
        True,
        place_of(ghost_properties.reads_own_prefix),
        AccessRight("reads-own-prefix"),
    ),
    Theorem(
        "writes-exclusive",
        f"{_UNDER_RULES}: what a token writes is what the block's key, and every other table that"
        " names the block, expect there",
        "writes-exclusive",
        True,
        place_of(ghost_properties.writes_exclusive),
        AccessRight("writes-exclusive"),
    ),
    Theorem(
        "protocol-lists",
        "hits, null entries, scheduled, published, written, skipped and freed blocks or tokens"
        " come in lists of any length: no rule refuses an element when the caller did as the"
        " statement before the first one says (by induction over the list)",
        _PROPERTY,
        False,
        place_of(ghost_transitions.free_last),
        ListsDone(),
    ),
    Theorem(
        "visibility-arithmetic",
        "full, sliding-window and chunked attention of any size forget for ever: what a token"
        " does not read no later one reads",
        "window-kept",
        False,
        place_of(attention.SlidingWindow.reads),
        VISIBILITY_ARITHMETIC,
    ),
    Theorem(
        "protocol-rules-needed",
        "each protocol rule is needed: without it, a transition from some small state of the"
        " invariant breaks what is read, or the invariant; with it that transition is refused",
        _PROPERTY,
        False,
        place_of(RulesNeeded.findings),
        RulesNeeded(),
    ),
    Theorem(
        "contents-not-vacuous",
        "every transition of the ghost contents can be made from some small state of the"
        " invariant; a new state is initial",
        "not-vacuous",
        False,
        place_of(ContentsReachable.findings),
        ContentsReachable(),
    ),
)
