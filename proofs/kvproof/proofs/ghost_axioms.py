"""What the proofs take for granted about blocks, prefixes and attention.

On the unbounded reading these are the only facts about them that the solvers get. Each is
written in the words of the specification, so that the tests evaluate the same text on the
concrete universe. That the types of attention keep the last three is proved
(`visibility-arithmetic`).
"""

from collections.abc import Callable
from typing import Any

from kvproof.proofs.axioms import Axiom
from kvproof.proofs.readings import triggered
from kvproof.spec.logic import forall, implies


def _about(u: Any, body: Callable[..., Any], *domains: Any, when: Callable[..., Any]) -> Any:
    """State something of all choices; a solver looks at it when it talks of these terms."""
    return forall((triggered(domains[0], when), *domains[1:]), body)


def _block_sizes(u: Any) -> Any:
    return forall(u.groups, lambda group: (u.block_size(group) >= 1) & (u.start(group, 0) == 0))


def _starts(u: Any) -> Any:
    return _about(
        u,
        lambda group, index: u.start(group, index) >= 0,
        u.groups,
        u.numbers,
        when=lambda group, index: (u.start(group, index),),
    )


def _starts_grow(u: Any) -> Any:
    return _about(
        u,
        lambda group, one, other: implies(
            one < other,
            (u.start(group, one) + u.block_size(group) <= u.start(group, other))
            & implies(
                other == one + 1,
                u.start(group, other) == u.start(group, one) + u.block_size(group),
            ),
        ),
        u.groups,
        u.numbers,
        u.numbers,
        when=lambda group, one, other: (u.start(group, one), u.start(group, other)),
    )


def _lasts(u: Any) -> Any:
    return _about(
        u,
        lambda group, index: (
            (u.last(group, index) == u.start(group, index) + u.block_size(group) - 1)
            & (u.index(group, u.last(group, index)) == index)
        ),
        u.groups,
        u.numbers,
        when=lambda group, index: (u.last(group, index),),
    )


def _positions_in_blocks(u: Any) -> Any:
    return _about(
        u,
        lambda group, position: (
            (u.index(group, position) >= 0)
            & (u.start(group, u.index(group, position)) <= position)
            & (position < u.start(group, u.index(group, position)) + u.block_size(group))
        ),
        u.groups,
        u.numbers,
        when=lambda group, position: (u.index(group, position),),
    )


def _positions_of_blocks(u: Any) -> Any:
    return _about(
        u,
        lambda group, index, position: implies(
            (u.start(group, index) <= position)
            & (position < u.start(group, index) + u.block_size(group)),
            u.index(group, position) == index,
        ),
        u.groups,
        u.numbers,
        u.numbers,
        when=lambda group, index, position: (u.start(group, index), u.index(group, position)),
    )


def _prefixes(u: Any) -> Any:
    def apart(group: Any, tokens: Any, position: Any) -> Any:
        prefix = u.prefix(group, tokens, position)
        is_own = (u.position(prefix) == position) & (u.group(prefix) == group)
        return is_own & (prefix != u.no_key) & (prefix != u.poison)

    return _about(
        u,
        apart,
        u.groups,
        u.sequences,
        u.numbers,
        when=lambda group, tokens, position: (u.prefix(group, tokens, position),),
    )


def _slots_of_keys(u: Any) -> Any:
    def said(group: Any, tokens: Any, index: Any, offset: Any) -> Any:
        return u.content_at(u.prefix(group, tokens, u.last(group, index)), offset)

    return _about(
        u,
        lambda group, tokens, index, offset: implies(
            offset < u.block_size(group),
            said(group, tokens, index, offset)
            == u.prefix(group, tokens, u.start(group, index) + offset),
        ),
        u.groups,
        u.sequences,
        u.numbers,
        u.numbers,
        when=lambda *of: (said(*of),),
    )


def _poison_apart(u: Any) -> Any:
    return u.poison != u.no_key


def _reads_backwards(u: Any) -> Any:
    return forall(
        (u.requests, u.groups, u.numbers, u.numbers),
        lambda request, group, reader, position: implies(
            u.reads(request, group, reader, position), position <= reader
        ),
    )


def _reads_itself(u: Any) -> Any:
    return forall(
        (u.requests, u.groups, u.numbers),
        lambda request, group, position: u.reads(request, group, position, position),
    )


def _forgets_for_ever(u: Any) -> Any:
    return forall(
        (u.requests, u.groups, u.numbers, u.numbers, u.numbers),
        lambda request, group, reader, later, position: implies(
            u.reads(request, group, later, position) & (position <= reader) & (reader <= later),
            u.reads(request, group, reader, position),
        ),
    )


GHOST_AXIOMS = (
    Axiom("block-sizes", "a block holds a token or more; the first starts at 0", _block_sizes),
    Axiom("starts", "no block starts below 0", _starts),
    Axiom("starts-grow", "a block starts where the one before it ends", _starts_grow),
    Axiom("lasts", "a block's last position is one before its end, and lies in it", _lasts),
    Axiom("positions-in-blocks", "a position lies in the block of its index", _positions_in_blocks),
    Axiom("positions-of-blocks", "what lies in a block has its index", _positions_of_blocks),
    Axiom("prefixes", "a prefix knows its group and its end; it is a real one", _prefixes),
    Axiom("slots-of-keys", "a full key says for each slot the prefix up to there", _slots_of_keys),
    Axiom("poison-apart", "the poison is a content, no key at all is none", _poison_apart),
    Axiom("reads-backwards", "no token reads a later one", _reads_backwards),
    Axiom("reads-itself", "a token reads itself", _reads_itself),
    Axiom("forgets-for-ever", "what a token does not read, no later one reads", _forgets_for_ever),
)
