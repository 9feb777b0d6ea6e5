"""Putting a recorded call right for a run that went another way than the recorded one.

When calls were left out or made smaller, counts that travel with others have to follow. What
cannot be put right makes no sense there, and is left out.
"""

from collections.abc import Callable
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.lives import Life
from kvproof.fuzz.manager_run import ManagerRun
from kvproof.fuzz.world import World

Args = dict[str, Any]


def repaired(run: ManagerRun, call: Call) -> Call | None:
    """Return the call as it makes sense in this run now; None when it does not."""
    world = run.world
    right = _RIGHT.get(call.name)
    args: Args | None = call.args
    if right is not None:
        life = world.lives.get(call.args.get("request", ""))
        if life is None and "request" in call.args:
            return None
        args = right(world, life, {**call.args})
    if args is None:
        return None
    made = Call(call.name, args)
    return made if world.rule(made) is None else None


def _append_tokens(world: World, life: Life, args: Args) -> Args:
    return {**args, "tokens": [*life.due]}


def _allocate_slots(world: World, life: Life, args: Args) -> Args | None:
    args["num_computed_tokens"] = life.num_computed
    args["num_unsettled_tokens"] = life.num_unsettled
    args["is_running"] = life.running
    waits = world.hit is not None and world.hit[0] == life.name
    args["use_hit"] = args["use_hit"] and waits and not life.admitted
    hits = world.hit[1] if world.hit is not None and args["use_hit"] else 0
    if life.admitted:
        args["num_external_computed_tokens"], args["delay_cache_blocks"] = 0, False
    later = args["delay_cache_blocks"]
    most = max(len(life.tokens) - hits - (not later), 0)
    external = args["num_external_computed_tokens"] = min(
        args["num_external_computed_tokens"], most
    )
    if later:
        return args if external else None
    rest = life.expected - life.num_computed - hits - external
    known = args["num_new_tokens"] - args["num_draft_tokens"]
    if known < rest:
        args["num_draft_tokens"] = 0
    known = min(max(known, 1), rest)
    args["num_new_tokens"] = known + args["num_draft_tokens"]
    return args


def _unschedule(world: World, life: Life, args: Args) -> Args:
    before = life.num_computed if life.in_step is None else life.in_step.before
    return {**args, "num_computed_tokens": before}


def _cache_blocks(world: World, life: Life, args: Args) -> Args:
    return {**args, "num_computed_tokens": min(args["num_computed_tokens"], life.arrived)}


def _free_blocks(world: World, life: Life | None, args: Args) -> Args | None:
    recorded = sorted(args["blocks"])
    same = [one for one in world.popped if sorted(one.blocks) == recorded] or world.popped
    return {"blocks": same[0].blocks[::-1]} if same else None


def _remove_skipped_blocks(world: World, life: Life, args: Args) -> Args:
    return {**args, "total_computed_tokens": min(args["total_computed_tokens"], life.settled)}


def _evict_blocks(world: World, life: Life | None, args: Args) -> Args:
    return {"blocks": [block for block in args["blocks"] if block < world.config.num_blocks]}


def _run_step(world: World, life: Life | None, args: Args) -> Args:
    sampled = {}
    for entry in world.pending:
        if entry.samples:
            tokens = args["sampled"].get(entry.life.name) or [0]
            sampled[entry.life.name] = tokens[: entry.drafts + 1]
    return {"sampled": sampled}


def _load(world: World, life: Life, args: Args) -> Args | None:
    asked = life.loading or life.must_load
    if asked is None:
        return None
    failed = args["failed_from"]
    if failed is not None:
        failed = min(max(failed, asked.start), asked.stop - 1)
    return {**args, "start": asked.start, "end": asked.stop, "failed_from": failed}


_RIGHT: dict[str, Callable[..., Args | None]] = {
    "append_tokens": _append_tokens,
    "allocate_slots": _allocate_slots,
    "unschedule": _unschedule,
    "cache_blocks": _cache_blocks,
    "free_blocks": _free_blocks,
    "remove_skipped_blocks": _remove_skipped_blocks,
    "evict_blocks": _evict_blocks,
    "run_step": _run_step,
    "load": _load,
}
