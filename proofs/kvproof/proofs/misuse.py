"""The forbidden calls, said once more and in other words than the `requires` of the transitions.

Two theorems rest on this list: each of these calls is refused, and nothing else is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.spec.logic import exists, forall, neg


@dataclass(frozen=True)
class Misuse:
    """One kind of forbidden call: the transition, the rule that it breaks, and when it does."""

    says: str
    transition: str
    rule: str
    condition: Callable[..., Any]


def _is_filled(state: Any, slot: Any, **_: Any) -> Any:
    return state.held[slot]


def _is_empty(state: Any, slot: Any) -> Any:
    return neg(state.held[slot])


def _names_null(state: Any, slot: Any) -> Any:
    return state.held[slot] & (state.table[slot] == state.universe.null)


def _is_null(state: Any, block: Any, **_: Any) -> Any:
    return block == state.universe.null


def _nothing_is_free(state: Any, slot: Any) -> Any:
    u = state.universe
    return forall(u.blocks, lambda block: (block == u.null) | (state.ref_cnt[block] > 0))


def _means_nothing(state: Any, slot: Any, block: Any) -> Any:
    return (state.ref_cnt[block] == 0) & forall(
        state.universe.keys, lambda key: neg(state.cached.contain(key, block))
    )


def _caching_is_off(state: Any, block: Any, key: Any) -> Any:
    return neg(state.universe.enable_caching)


def _is_queued(state: Any, block: Any, key: Any) -> Any:
    return state.free_queue.has(block)


def _is_not_full(state: Any, block: Any, key: Any) -> Any:
    u = state.universe
    return (key == u.no_key) | neg(u.is_full(key))


def _is_full_or_none(state: Any, block: Any, key: Any) -> Any:
    u = state.universe
    return (key == u.no_key) | u.is_full(key)


def _has_full_key(state: Any, block: Any, key: Any) -> Any:
    u = state.universe
    return exists(u.keys, lambda other: state.cached.contain(other, block) & u.is_full(other))


def _is_of_another_chain(state: Any, block: Any, key: Any) -> Any:
    u = state.universe
    return exists(
        u.keys,
        lambda other: (
            state.cached.contain(other, block)
            & neg((u.is_prefix(key, other) | u.is_prefix(other, key)) & u.same_block(key, other))
        ),
    )


def _something_is_held(state: Any) -> Any:
    u = state.universe
    return exists(u.slots, lambda slot: state.held[slot] & (state.table[slot] != u.null))


MISUSES = (
    Misuse("take a block for a filled slot", "acquire", "slot-empty", _is_filled),
    Misuse("take a block when none is free", "acquire", "enough-free", _nothing_is_free),
    Misuse("share a block with a filled slot", "share", "slot-empty", _is_filled),
    Misuse("share the null block", "share", "real-block", _is_null),
    Misuse("share a block without meaning", "share", "share-readable", _means_nothing),
    Misuse("release a slot twice", "release", "release-held", _is_empty),
    Misuse("skip an empty slot", "skip", "release-held", _is_empty),
    Misuse("skip a null entry", "skip", "real-block", _names_null),
    Misuse("pad a filled slot", "pad", "slot-empty", _is_filled),
    Misuse("publish with caching off", "publish", "caching-on", _caching_is_off),
    Misuse("key the null block", "publish", "real-block", _is_null),
    Misuse("key a queued block", "publish", "publish-held", _is_queued),
    Misuse("publish a partial key as a full one", "publish", "full-on-boundary", _is_not_full),
    Misuse("give a block a second full key", "publish", "publish-once", _has_full_key),
    Misuse("give a block a key of another chain", "publish", "one-chain", _is_of_another_chain),
    Misuse("publish partially with caching off", "publish_partial", "caching-on", _caching_is_off),
    Misuse("key the null block partially", "publish_partial", "real-block", _is_null),
    Misuse("key a queued block partially", "publish_partial", "publish-held", _is_queued),
    Misuse(
        "publish a full key as a partial one", "publish_partial", "partial-inside", _is_full_or_none
    ),
    Misuse(
        "give a block a partial key of another chain",
        "publish_partial",
        "one-chain",
        _is_of_another_chain,
    ),
    Misuse("reset while a block is held", "reset", "reset-unused", _something_is_held),
)


def misuses_of(transition: str) -> tuple[Misuse, ...]:
    """Return the forbidden ways to call a transition."""
    return tuple(misuse for misuse in MISUSES if misuse.transition == transition)
