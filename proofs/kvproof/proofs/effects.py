"""What each transition changes, and that it changes nothing else.

The invariant is kept by a transition that does nothing at all. So each transition's effect
is stated as well: by how much each block's count changes, what each slot names, which keys
each block carries and which were retired. The rest of the state follows from these through
the invariant, or is the subject of a property of steps (the order of the queue and of the
lists).
"""

from collections.abc import Callable
from typing import Any

from kvproof.proofs.exploration import Run
from kvproof.spec.logic import Bool, forall, iff, implies, ite, neg


def effects_exact(run: Run) -> Bool:
    """The transition does what it says, and nothing else."""
    if run.answer.refused:
        return True
    holds: Bool = _EFFECTS[run.call.name](run)
    return holds


def _change(
    run: Run,
    count: Callable[[Any], Any] = lambda block: 0,
    carries: Callable[[Any, Any], Any] | None = None,
    retired: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Return that counts, keys and retired keys change like this, and no slot but the
    argument does.
    """
    u, before, after = run.before.universe, run.before, run.after
    carries = carries or before.cached.contain
    retired = retired or (lambda key, block: before.retired[block].has(key))
    slot = run.answer.arguments.get("slot")
    return (
        forall(u.blocks, lambda block: after.ref_cnt[block] == before.ref_cnt[block] + count(block))
        & forall(
            (u.keys, u.blocks),
            lambda key, block: (
                iff(after.cached.contain(key, block), carries(key, block))
                & iff(after.retired[block].has(key), retired(key, block))
            ),
        )
        & forall(
            u.slots,
            lambda other: (
                _is(slot, other)
                | (
                    iff(after.held[other], before.held[other])
                    & (after.table[other] == before.table[other])
                )
            ),
        )
    )


def _is(slot: Any, other: Any) -> Any:
    return False if slot is None else other == slot


def _names(run: Run, block: Any) -> Any:
    slot = run.answer.arguments["slot"]
    return run.after.held[slot] & (run.after.table[slot] == block)


def _one(block: Any) -> Callable[[Any], Any]:
    return lambda other: ite(other == block, 1, 0)


def _acquire(run: Run) -> Any:
    taken, before = run.answer.result, run.before
    return (
        before.free_queue.has(taken)
        & _names(run, taken)
        & _change(
            run,
            _one(taken),
            lambda key, block: before.cached.contain(key, block) & (block != taken),
            lambda key, block: before.retired[block].has(key) & (block != taken),
        )
    )


def _share(run: Run) -> Any:
    block = run.answer.arguments["block"]
    return _names(run, block) & _change(run, _one(block))


def _count_of_released(run: Run) -> Callable[[Any], Any]:
    named = run.before.table[run.answer.arguments["slot"]]
    null = run.before.universe.null
    return lambda block: ite((block == named) & (block != null), -1, 0)


def _release(run: Run) -> Any:
    slot = run.answer.arguments["slot"]
    return neg(run.after.held[slot]) & _change(run, _count_of_released(run))


def _skip(run: Run) -> Any:
    return _names(run, run.before.universe.null) & _change(run, _count_of_released(run))


def _pad(run: Run) -> Any:
    return _names(run, run.before.universe.null) & _change(run)


def _publish(run: Run) -> Any:
    keyed, published = run.answer.arguments["block"], run.answer.arguments["key"]
    before = run.before
    return _change(
        run,
        carries=lambda key, block: ite(
            block == keyed, key == published, before.cached.contain(key, block)
        ),
        retired=lambda key, block: (
            before.retired[block].has(key) | ((block == keyed) & before.cached.contain(key, block))
        ),
    )


def _publish_partial(run: Run) -> Any:
    """A key that is there, or was retired, changes nothing; one that is longer than all that
    the block has retires them; another one is added.
    """
    keyed, published = run.answer.arguments["block"], run.answer.arguments["key"]
    u, before = run.before.universe, run.before
    stays = before.cached.contain(published, keyed) | before.retired[keyed].has(published)
    longest = forall(
        u.keys,
        lambda key: implies(before.cached.contain(key, keyed), u.is_prefix(key, published)),
    )
    retires = neg(stays) & longest
    return iff(run.answer.result, run.after.cached.contain(published, keyed)) & _change(
        run,
        carries=lambda key, block: ite(
            (block == keyed) & neg(stays),
            (key == published) | (before.cached.contain(key, block) & neg(longest)),
            before.cached.contain(key, block),
        ),
        retired=lambda key, block: (
            before.retired[block].has(key)
            | ((block == keyed) & retires & before.cached.contain(key, block))
        ),
    )


def _retract(run: Run) -> Any:
    retracted = run.answer.arguments["block"]
    return _change(
        run,
        carries=lambda key, block: run.before.cached.contain(key, block) & (block != retracted),
    )


def _reset(run: Run) -> Any:
    return _change(run, carries=lambda key, block: False)


def _lookup(run: Run) -> Any:
    return _change(run)


_EFFECTS: dict[str, Callable[[Run], Any]] = {
    "acquire": _acquire,
    "share": _share,
    "release": _release,
    "skip": _skip,
    "pad": _pad,
    "publish": _publish,
    "publish_partial": _publish_partial,
    "retract": _retract,
    "reset": _reset,
    "lookup": _lookup,
}
