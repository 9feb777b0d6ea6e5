"""The properties of steps: what one transition may and may not do.

A `Step` is the state before, the transition and what it was about, and the state after.
`STEP_STATEMENTS` gives each property's statement; `kvproof prove` proves it for every
transition from every state that satisfies the invariant.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.spec.logic import Bool, forall, iff, implies, ite, neg
from kvproof.spec.properties import Class, Consequence, Kind, Property
from kvproof.spec.quantities import BlockId, Key
from kvproof.spec.state import PoolState, keys_of

_POOL = "vLLM 0.25.1, block_pool.py: "


@dataclass(frozen=True, slots=True)
class Step:
    """One transition. `block` is the block that it is about: the one handed out, shared,
    released, keyed, retracted or found. `key` is the key published or looked up. `refused`
    says that the transition raised.
    """

    before: PoolState
    after: PoolState
    transition: str
    block: BlockId
    key: Key
    refused: bool = False


def order_rule(step: Step) -> Bool:
    """A released block goes to the front without a key and to the back with one; a block
    that is handed out was at the front; nothing else changes the order.
    """
    u, before, after, block = step.before.universe, step.before, step.after, step.block
    kept = forall(
        (u.blocks, u.blocks),
        lambda first, second: implies(
            (first != block)
            & (second != block)
            & before.free_queue.has(first)
            & before.free_queue.has(second),
            iff(before.free_queue.before(first, second), after.free_queue.before(first, second)),
        ),
    )
    if step.refused:
        return kept
    if step.transition == "acquire":
        return kept & forall(
            u.blocks,
            lambda other: implies(
                before.free_queue.has(other) & (other != block),
                before.free_queue.before(block, other),
            ),
        )
    if step.transition in ("release", "skip"):
        keyless = after.block_hash[block] == u.no_key
        return kept & forall(
            u.blocks,
            lambda other: implies(
                after.free_queue.has(block) & after.free_queue.has(other) & (other != block),
                ite(
                    keyless,
                    after.free_queue.before(block, other),
                    after.free_queue.before(other, block),
                ),
            ),
        )
    return kept


def lazy_eviction(step: Step) -> Bool:
    """A key leaves a block only when the block is handed out, or the key is retired by a
    longer one, retracted or reset.
    """
    u, before, after = step.before.universe, step.before, step.after

    def may_leave(key: Key, block: BlockId) -> Bool:
        if step.refused:
            return False
        if step.transition == "reset":
            return True
        if step.transition in ("acquire", "retract"):
            return block == step.block
        if step.transition in ("publish", "publish_partial"):
            return (block == step.block) & after.retired[block].has(key)
        return False

    return forall(
        (u.keys, u.blocks),
        lambda key, block: implies(
            before.cached.contain(key, block) & neg(may_leave(key, block)),
            after.cached.contain(key, block),
        ),
    )


def first_inserted(step: Step) -> Bool:
    """Lookup finds the block that was listed first; a block is listed behind the others."""
    u, before, after, found = step.before.universe, step.before, step.after, step.block
    kept = forall(
        (u.keys, u.blocks, u.blocks),
        lambda key, first, second: implies(
            before.cached.before(key, first, second)
            & after.cached.contain(key, first)
            & after.cached.contain(key, second),
            after.cached.before(key, first, second),
        ),
    )
    if step.transition == "lookup":
        return kept & forall(
            u.blocks,
            lambda other: implies(
                before.cached.contain(step.key, other) & (other != found),
                before.cached.before(step.key, found, other),
            ),
        )
    return kept & forall(
        (u.keys, u.blocks, u.blocks),
        lambda key, old, new: implies(
            before.cached.contain(key, old)
            & neg(before.cached.contain(key, new))
            & after.cached.contain(key, old)
            & after.cached.contain(key, new),
            after.cached.before(key, old, new),
        ),
    )


def hit_backed(step: Step) -> Bool:
    """A lookup finds a block that carries the key, or nothing when none does."""
    u, before = step.before.universe, step.before
    if step.transition != "lookup":
        return True
    return ite(
        step.block == u.null,
        forall(u.blocks, lambda block: neg(before.cached.contain(step.key, block))),
        before.cached.contain(step.key, step.block) & keys_of(before, step.block).has(step.key),
    )


def prediction_exact(step: Step) -> Bool:
    """The block that is handed out leaves the queue, and so does a block that is shared while
    nobody holds it. No other block leaves.
    """
    before, after, block = step.before, step.after, step.block
    may_leave = step.transition in ("acquire", "share") and not step.refused

    def leaves(other: BlockId) -> Bool:
        if not may_leave:
            return False
        if step.transition == "acquire":
            return other == block
        return (other == block) & (before.ref_cnt[block] == 0)

    return forall(
        before.universe.blocks,
        lambda other: iff(
            before.free_queue.has(other) & neg(after.free_queue.has(other)), leaves(other)
        ),
    )


def failed_is_noop(step: Step) -> Bool:
    """A transition that raises has changed nothing."""
    return implies(step.refused, same_state(step.before, step.after))


def same_state(before: PoolState, after: PoolState) -> Bool:
    """Nothing that anyone can observe differs, and no ghost."""
    u = before.universe
    return (
        (before.num_free_blocks == after.num_free_blocks)
        & forall(
            u.blocks,
            lambda block: (
                (before.ref_cnt[block] == after.ref_cnt[block])
                & (before.block_hash[block] == after.block_hash[block])
                & (before.place[block] == after.place[block])
                & iff(before.free_queue.has(block), after.free_queue.has(block))
            ),
        )
        & forall(
            (u.blocks, u.blocks),
            lambda first, second: iff(
                before.free_queue.before(first, second), after.free_queue.before(first, second)
            ),
        )
        & forall(
            (u.keys, u.blocks),
            lambda key, block: (
                iff(before.cached.contain(key, block), after.cached.contain(key, block))
                & iff(before.partial_keys[block].has(key), after.partial_keys[block].has(key))
                & iff(before.retired[block].has(key), after.retired[block].has(key))
            ),
        )
        & forall(u.keys, lambda key: iff(before.events.believed(key), after.events.believed(key)))
        & forall(
            u.slots,
            lambda slot: (
                iff(before.held[slot], after.held[slot]) & (before.table[slot] == after.table[slot])
            ),
        )
    )


STEP_STATEMENTS: dict[str, Callable[[Step], Bool]] = {
    "order-rule": order_rule,
    "lazy-eviction": lazy_eviction,
    "first-inserted": first_inserted,
    "hit-backed": hit_backed,
    "prediction-exact": prediction_exact,
    "failed-is-noop": failed_is_noop,
}
"""The statements that are proved for each transition."""


def _step(
    name: str, klass: Class, says: str, consequence: Consequence, because: str, source: str
) -> Property:
    return Property(name, klass, Kind.STEP, says, consequence, because, source)


STEP_PROPERTIES: dict[str, Property] = {
    found.name: found
    for found in (
        _step(
            "legal-accepted",
            Class.SAFETY,
            "a call that keeps the rules does not raise",
            Consequence.CRASH,
            "the scheduler does not expect the exception, and the engine dies",
            _POOL + "every method",
        ),
        _step(
            "hit-backed",
            Class.SAFETY,
            "a lookup finds in every group a block that carries the key asked for, or nothing when"
            " some group has none",
            Consequence.WRONG_DATA,
            "a request reads the keys and values of other tokens",
            _POOL + "get_cached_block",
        ),
        _step(
            "prediction-exact",
            Class.SAFETY,
            "a call takes exactly those blocks from the queue that it hands out, or shares while"
            " nobody holds them",
            Consequence.CRASH,
            "a caller that made room for what was announced meets an empty queue",
            _POOL + "get_new_blocks, touch",
        ),
        _step(
            "failed-is-noop",
            Class.SAFETY,
            "an operation that raises, or returns None or False, has changed nothing",
            Consequence.LEAK,
            "the caller cannot recover: it does not know which half was done",
            "seed 1, 'Boundaries and failure modes'; " + _POOL + "get_new_blocks",
        ),
        _step(
            "order-rule",
            Class.POLICY,
            "after one release call its unhashed blocks stand at the front and its hashed ones at"
            " the back, each in call order; get takes the front",
            Consequence.LOST_HIT,
            "blocks that can be hit are evicted before blocks that cannot",
            _POOL + "free_blocks; seed 1, 'LRU + tail-block-first eviction'",
        ),
        _step(
            "lazy-eviction",
            Class.POLICY,
            "a key leaves only by acquire, promotion, retract or reset; freeing keeps it",
            Consequence.LOST_HIT,
            "the prefix of a request that has ended cannot be hit",
            "seed 2, path four; " + _POOL + "_maybe_evict_cached_block",
        ),
        _step(
            "first-inserted",
            Class.POLICY,
            "lookup returns the block that was listed first",
            Consequence.DIVERGENCE,
            "two engines that follow one stream of calls use different blocks",
            _POOL + "BlockHashToBlockMap.get_one_block",
        ),
        _step(
            "decision-equal",
            Class.POLICY,
            "block ids, hits, None or blocks, queue order and events equal the model's",
            Consequence.DIVERGENCE,
            "the implementation cannot replace the one that it stands for",
            _POOL + "every method",
        ),
        _step(
            "misuse-refused",
            Class.MISUSE,
            "a second free, a negative count, an id out of range, a full key on a block that has"
            " one, a partial key of another chain, a key on a queued block: refused, nothing"
            " changed",
            Consequence.CRASH,
            "one wrong call corrupts the pool, and the failure shows far from its cause",
            "kvproof.spec.rules; " + _POOL + "free_blocks, get_new_blocks, evict_blocks",
        ),
    )
}
