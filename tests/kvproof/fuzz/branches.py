"""The branch paths of the specification that a call takes, by name.

They say what a run has covered, and tell defects apart: a failure's signature contains them.
"""

from collections.abc import Callable
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.ledger import published
from kvproof.fuzz.model import Model
from kvproof.fuzz.view import key_from_wire
from kvproof.spec.concrete import ConcreteIndex, ConcreteQueue
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key

BRANCHES: dict[str, tuple[str, ...]] = {
    "get_new_blocks": ("none", "unkeyed", "evicts", "short"),
    "touch": ("queued", "held", "null", "twice"),
    "free_blocks": ("shared", "last-keyed", "last-unkeyed", "null", "twice"),
    "get_cached_block": ("miss", "hit-queued", "hit-held", "duplicates", "several-groups"),
    "cache_full_blocks": ("nothing", "fresh", "promotes", "duplicate", "masked", "null"),
    "cache_partial_block": ("fresh", "longer", "shorter", "again", "retired", "null"),
    "evict_blocks": ("unkeyed", "keyed", "duplicate", "queued", "null"),
    "reset_prefix_cache": ("done", "in-use"),
    "take_events": ("none", "some"),
    "get_num_free_blocks": ("called",),
    "get_usage": ("called",),
}
"""For each operation, all branches. A legal run that never takes one is weak."""


def branches(model: Model, call: Call) -> frozenset[str]:
    """Return the branches that the call takes from the model's state."""
    return frozenset(_BRANCHES[call.name](model, call.args, call))


def _get_new_blocks(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    count, queue = args["num_blocks"], model.state.free_queue
    assert isinstance(queue, ConcreteQueue)
    if count > model.state.num_free_blocks:
        return {"short"}
    if count <= 0:
        return {"none"}
    handed = queue.as_list()[:count]
    keyed = [model.state.block_hash[block] != NO_KEY for block in handed]
    return {"evicts" if one else "unkeyed" for one in keyed}


def _touch(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    blocks, counts = args["blocks"], model.state.ref_cnt
    found = {"twice"} if len(set(blocks)) < len(blocks) else set()
    for block in blocks:
        found.add("null" if block == 0 else "held" if counts[block] else "queued")
    return found


def _free_blocks(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    blocks, state = args["blocks"], model.state
    found = set()
    for block in set(blocks):
        times = blocks.count(block)
        if block == 0:
            found.add("null")
        elif times < state.ref_cnt[block]:
            found.add("shared")
        else:
            found.add("last-unkeyed" if state.block_hash[block] == NO_KEY else "last-keyed")
        if times > 1:
            found.add("twice")
    return found


def _get_cached_block(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    index = model.state.cached
    assert isinstance(index, ConcreteIndex)
    found = {"several-groups"} if len(args["groups"]) > 1 else set()
    for group in args["groups"]:
        listed = index.lists_of.get(key_from_wire((args["block_hash"], group)))
        if not listed:
            return found | {"miss"}
        held = model.state.ref_cnt[next(iter(listed))] > 0
        found |= {"hit-held" if held else "hit-queued"}
        found |= {"duplicates"} if len(listed) > 1 else set()
    return found


def _cache_full_blocks(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    first, last, blocks = args["num_cached_blocks"], args["num_full_blocks"], args["blocks"]
    if first >= last:
        return {"nothing"}
    found = {"null"} if 0 in blocks[first:last] else set()
    found |= {"masked"} if args["block_mask"] and not all(args["block_mask"]) else set()
    if call_is_malformed(args):
        return found
    own, lists = model.state.block_hash, model.state.cached.lists
    for block, wire in published(call):
        found.add("promotes" if own[BlockId(block)] != NO_KEY else "fresh")
        if lists(key_from_wire(wire)):
            found.add("duplicate")
    return found


def call_is_malformed(args: dict[str, Any]) -> bool:
    """A `cache_full_blocks` whose range, mask and tokens do not fit together."""
    first, last, mask = args["num_cached_blocks"], args["num_full_blocks"], args["block_mask"]
    return bool(
        first < 0
        or last > len(args["blocks"])
        or (mask is not None and len(mask) != last - first)
        or args["block_size"] <= 0
        or last * args["block_size"] > len(args["request"]["tokens"])
    )


def _cache_partial_block(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    block, state = BlockId(args["block"]), model.state
    if block == 0:
        return {"null"}
    end = tuple(args["request"]["tokens"][: max(args["num_tokens"], 0)])
    key, own = Key(end, GroupId(args["group"])), state.block_hash[block]
    if state.cached.contain(key, block):
        return {"again"}
    if state.retired[block].has(key):
        return {"retired"}
    if own == NO_KEY:
        return {"fresh"}
    return {"longer" if len(own.block_hash) < len(end) else "shorter"}


def _evict_blocks(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    found, state = set(), model.state
    index = state.cached
    assert isinstance(index, ConcreteIndex)
    for block in args["blocks"]:
        key = state.block_hash[block]
        if block == 0:
            found.add("null")
        elif key == NO_KEY:
            found.add("unkeyed")
        else:
            found.add("duplicate" if len(index.lists_of.get(key, ())) > 1 else "keyed")
            found |= {"queued"} if state.free_queue.has(block) else set()
    return found


def _reset_prefix_cache(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    return {"done" if model.state.num_free_blocks == model.config.num_gpu_blocks - 1 else "in-use"}


def _take_events(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    return {"some" if model.state.events.log else "none"}  # type: ignore[attr-defined]


def _called(model: Model, args: dict[str, Any], call: Call) -> set[str]:
    return {"called"}


_BRANCHES: dict[str, Callable[[Model, dict[str, Any], Call], set[str]]] = {
    "get_new_blocks": _get_new_blocks,
    "touch": _touch,
    "free_blocks": _free_blocks,
    "get_cached_block": _get_cached_block,
    "cache_full_blocks": _cache_full_blocks,
    "cache_partial_block": _cache_partial_block,
    "evict_blocks": _evict_blocks,
    "reset_prefix_cache": _reset_prefix_cache,
    "take_events": _take_events,
    "get_num_free_blocks": _called,
    "get_usage": _called,
}
