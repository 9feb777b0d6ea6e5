"""Calls that break a rule, one kind for each way to do it.

Each kind returns a call, or None when it is not possible now. All go through the same judge
as legal calls: the model says which rule is broken.
"""

from collections.abc import Callable
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.layouts import Layout
from kvproof.fuzz.picks import Pick
from kvproof.fuzz.run import Run
from kvproof.spec.quantities import NO_KEY, BlockId, Key
from kvproof.spec.transitions import has_full_key, is_readable

Misuse = Callable[[Run, Layout, tuple[int, ...], Pick], Call | None]


def free_twice(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Release a block once more than it is held; other releases may stand before it."""
    if run.config.num_gpu_blocks == 1:
        return None
    block = pick.number(1, run.config.num_gpu_blocks - 1)
    others = [b for b, count in enumerate(run.ledger.held) if b != block and count > 0]
    first = pick.some(others, 0, 1) if others else []
    return Call("free_blocks", {"blocks": first + [block] * (run.ledger.held[block] + 1)})


def negative_count(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call:
    """Ask for fewer than no blocks."""
    return Call("get_new_blocks", {"num_blocks": pick.number(-3, -1)})


def touch_unreadable(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Touch a block that is neither held nor keyed, perhaps after some that are."""
    state = run.model.state
    good: list[int] = []
    bad: list[int] = []
    for block in range(1, run.config.num_gpu_blocks):
        (good if is_readable(state, BlockId(block)) else bad).append(block)
    if not bad:
        return None
    first = pick.some(good, 0, 2) if good else []
    return Call("touch", {"blocks": [*first, pick.one(bad)]})


def evict_out_of_range(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call:
    """Evict an id that is no block, perhaps after one that is."""
    count = run.config.num_gpu_blocks
    first = pick.some(range(count), 0, 1)
    return Call("evict_blocks", {"blocks": [*first, pick.number(count, count + 2)]})


def evict_negative(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call:
    """Evict a negative id."""
    return Call("evict_blocks", {"blocks": [pick.number(-3, -1)]})


def use_out_of_range(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call:
    """Touch or free an id that is no block, perhaps after one that is."""
    name = pick.one(["touch", "free_blocks"])
    held = [block for block, count in enumerate(run.ledger.held) if block and count > 0]
    first = pick.some(held, 0, 1) if held else []
    return Call(name, {"blocks": [*first, pick.one([-1, run.config.num_gpu_blocks])]})


def publish_unheld(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Publish a block that nobody holds, perhaps after one that may be published."""
    state = run.model.state
    unheld = [
        block
        for block, count in enumerate(run.ledger.held)
        if block and count == 0 and not has_full_key(state, BlockId(block))
    ]
    good = [
        block
        for block, count in enumerate(run.ledger.held)
        if block and count > 0 and state.block_hash[BlockId(block)] == NO_KEY
    ]
    if not unheld:
        return None
    first = pick.some(good, 0, 1) if good else []
    return _publish(layout, tokens, [*first, pick.one(unheld)])


def publish_again(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Publish a block that has a full key, under the same key or another."""
    state, held = run.model.state, enumerate(run.ledger.held)
    full = [b for b, count in held if count > 0 and has_full_key(state, BlockId(b))]
    if not full:
        return None
    block = pick.one(full)
    own = state.block_hash[BlockId(block)]
    if pick.flag():
        before = len(own.block_hash) // layout.block_sizes[own.group] - 1
        return _publish(layout, tuple(own.block_hash), [block], before, own.group)
    return _publish(layout, tokens, [block], pick.number(0, 1))


def publish_in_other_group(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Publish a block that has a key of one group in another group."""
    state, held = run.model.state, enumerate(run.ledger.held)
    keyed = [b for b, count in held if count > 0 and state.block_hash[BlockId(b)] != NO_KEY]
    if not keyed or len(layout.block_sizes) < 2:
        return None
    keyed.sort(key=lambda b: len(state.block_hash[BlockId(b)].block_hash))
    block = pick.one(keyed[:2])
    own = state.block_hash[BlockId(block)]
    group = pick.one([group for group in sorted(layout.block_sizes) if group != own.group])
    same = tuple(own.block_hash) + tokens[len(own.block_hash) :]
    if pick.flag():
        return _publish(layout, same, [block], 0, group)
    end, size = len(own.block_hash), layout.block_sizes[group]
    return _partial(layout, same, block, end if end % size else layout.hash_block_size, group)


def publish_one_block_twice(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Publish one block as two entries of a table."""
    block = _unkeyed(run, pick)
    return None if block is None else _publish(layout, tokens, [block, block])


def publish_other_chain(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Publish a block with partial keys under another chain, which parts from its own at the
    start or inside the block.
    """
    found = _partly_keyed(run, pick)
    if found is None:
        return None
    block, own = found
    size = layout.block_sizes[own.group]
    other = _parted(tuple(own.block_hash), pick) + (0,) * size
    return _publish(layout, other, [block], (len(own.block_hash) - 1) // size, int(own.group))


def publish_other_index(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Publish a block with partial keys as another block of its own chain."""
    found = _partly_keyed(run, pick)
    if found is None:
        return None
    block, own = found
    size = layout.block_sizes[own.group]
    index = (len(own.block_hash) - 1) // size
    longer = tuple(own.block_hash) + (0,) * (2 * size)
    other = pick.one([index + 1, index - 1 if index else index + 1])
    return _publish(layout, longer, [block], other, int(own.group))


def publish_uncached(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Publish a block that may be published, but for caching being off."""
    return None if layout.enable_caching else _publish_but(run, layout, tokens, pick)


def publish_negative_start(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Say that there are fewer than no blocks that are published already."""
    return _publish_but(run, layout, tokens, pick, num_cached_blocks=-1)


def publish_short_mask(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Give a mask that is not as long as the new full blocks."""
    return _publish_but(run, layout, tokens, pick, block_mask=pick.one([[], [True, True]]))


def publish_missing_blocks(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Say that there are more full blocks than the table has."""
    return _publish_but(run, layout, tokens, pick, num_full_blocks=2)


def publish_unknown_tokens(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Publish a block whose tokens have no hash yet."""
    return _publish_but(run, layout, tokens[: layout.block_sizes[0] - 1], pick)


def publish_other_size(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Publish with a block size that is not the group's."""
    size = layout.block_sizes[0] + pick.one([1, layout.hash_block_size])
    return _publish_but(run, layout, tokens, pick, block_size=size)


def partial_misplaced(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Publish a partial key that ends on a boundary, off the hash units, or nowhere."""
    block = _unkeyed(run, pick)
    size = layout.block_sizes[0]
    end = pick.one([size, 0, 1, len(tokens) + layout.hash_block_size])
    return None if block is None else _partial(layout, tokens, block, end)


def partial_other_chain(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick
) -> Call | None:
    """Give a keyed block a partial key of another chain, or of another block of its own."""
    state = run.model.state
    held = enumerate(run.ledger.held)
    keyed = [b for b, count in held if count > 0 and state.block_hash[BlockId(b)] != NO_KEY]
    if not keyed:
        return None
    block = pick.one(keyed)
    own, unit = state.block_hash[BlockId(block)], layout.hash_block_size
    size, length = layout.block_sizes[own.group], len(own.block_hash)
    first = (length - 1) // size * size
    if pick.flag():
        longer = tuple(own.block_hash) + (0,) * (2 * size)
        end = pick.one([first + size, first - size if first else first + size]) + unit
        return _partial(layout, longer, block, end, int(own.group))
    other = _parted(tuple(own.block_hash), pick) + (0,) * size
    end = min(length, first + size - unit)
    return _partial(layout, other, block, max(end, first + unit), int(own.group))


def partial_unheld(run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick) -> Call | None:
    """Give a partial key to a block that nobody holds."""
    unheld = [b for b, count in enumerate(run.ledger.held) if b and count == 0]
    if not unheld:
        return None
    return _partial(layout, tokens, pick.one(unheld), layout.hash_block_size)


def _unkeyed(run: Run, pick: Pick) -> int | None:
    state = run.model.state
    chosen = [
        block
        for block, count in enumerate(run.ledger.held)
        if block and count > 0 and state.block_hash[BlockId(block)] == NO_KEY
    ]
    return pick.one(chosen) if chosen else None


def _partly_keyed(run: Run, pick: Pick) -> tuple[int, Key] | None:
    """Choose a held block whose keys are partial. Return it and its longest key."""
    state = run.model.state
    chosen = [
        block
        for block, count in enumerate(run.ledger.held)
        if block
        and count > 0
        and state.block_hash[BlockId(block)] != NO_KEY
        and not has_full_key(state, BlockId(block))
    ]
    if not chosen:
        return None
    block = pick.one(chosen)
    return block, state.block_hash[BlockId(block)]


def _parted(tokens: tuple[int, ...], pick: Pick) -> tuple[int, ...]:
    """Return tokens that differ in the first place, or in the last one only."""
    place = pick.one([0, len(tokens) - 1])
    return (*tokens[:place], 1 - tokens[place], *tokens[place + 1 :])


def _publish_but(
    run: Run, layout: Layout, tokens: tuple[int, ...], pick: Pick, **wrong: Any
) -> Call | None:
    """Publish a block that may be published, but for what is wrong."""
    block = _unkeyed(run, pick)
    if block is None:
        return None
    call = _publish(layout, tokens, [block])
    return Call(call.name, {**call.args, **wrong})


def _publish(
    layout: Layout, tokens: tuple[int, ...], blocks: list[int], first: int = 0, group: int = 0
) -> Call:
    return Call(
        "cache_full_blocks",
        {
            "request": {"tokens": list(tokens)},
            "blocks": [0] * first + blocks,
            "num_cached_blocks": first,
            "num_full_blocks": first + len(blocks),
            "block_size": layout.block_sizes[group],
            "group": group,
            "block_mask": None,
        },
    )


def _partial(layout: Layout, tokens: tuple[int, ...], block: int, end: int, group: int = 0) -> Call:
    return Call(
        "cache_partial_block",
        {
            "request": {"tokens": list(tokens)},
            "block": block,
            "num_tokens": end,
            "group": group,
            "block_size": layout.block_sizes[group],
        },
    )


MISUSES: dict[str, Misuse] = {
    made.__name__.replace("_", "-"): made
    for made in (
        free_twice,
        negative_count,
        touch_unreadable,
        evict_out_of_range,
        evict_negative,
        use_out_of_range,
        publish_unheld,
        publish_again,
        publish_in_other_group,
        publish_one_block_twice,
        publish_other_chain,
        publish_other_index,
        publish_uncached,
        publish_negative_start,
        publish_short_mask,
        publish_missing_blocks,
        publish_unknown_tokens,
        publish_other_size,
        partial_misplaced,
        partial_other_chain,
        partial_unheld,
    )
}
"""Every kind of call that breaks a rule, by name."""
