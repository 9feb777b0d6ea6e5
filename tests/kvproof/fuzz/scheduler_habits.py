"""What a scheduler of one run does as a habit, and what its requests are like: all of it drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.picks import Pick
from kvproof.fuzz.world import World

DrawExtra = Callable[[Pick, int], dict[str, Any] | None]
"""Draws what a prompt of so many tokens has besides them."""

PROMPTS = ((0,) * 40, (0, 0, 0, 0, 1) * 8, (0, 0, 0, 0, 0, 0, 0, 0, 1, 1) * 4, (1, 0) * 20)
"""What prompts begin with: they share prefixes of 0, 4, 8 and more tokens."""

MOST_SAMPLED = 12
"""The most tokens that a request samples, but for a few accepted drafts."""


@dataclass(frozen=True)
class Habits:
    """`depth` steps are in flight at most; `drafts` and `chunk` are most tokens of a request in
    a step, `lookahead` and `reserved` what is asked for each time. `connector`: another store
    has tokens; `defers`: blocks that a step in flight may write are popped, and freed later.
    """

    by_priority: bool
    depth: int
    drafts: int
    lookahead: int
    connector: bool
    defers: bool
    gate: bool
    reserved: int
    chunk: int | None

    @classmethod
    def draw(cls, pick: Pick) -> "Habits":
        """Draw the habits of one run."""
        drafts = pick.one((0, 0, 2, 3))
        return cls(
            by_priority=pick.number(0, 2) > 0,
            depth=pick.one((1, 2, 2, 3)),
            drafts=drafts,
            lookahead=pick.one((0, drafts)),
            connector=pick.flag(),
            defers=pick.flag(),
            gate=pick.flag(),
            reserved=pick.one((0, 0, 0, 1, 2)),
            chunk=pick.one((None, None, 3, 5)),
        )


@dataclass(eq=False)
class Job:
    """A request as the scheduler knows it. It ends when it has `goal` tokens; the greatest
    `rank` is preempted first. `doomed`: it was aborted while it loads.
    """

    name: str
    goal: int
    rank: tuple[int, int]
    num_preemptions: int = 0
    doomed: bool = False


def room_of(config: ManagerConfig, pick: Pick) -> int:
    """Return how many tokens a request may come to: mostly as many as fit the pool when it is
    alone.
    """
    most = config.max_model_len - 1
    forgets = all(group.reach for group in config.groups)
    if not config.groups or pick.number(0, 2 if forgets else 9) == 0:
        return most
    size = min(group.block_size for group in config.groups)
    return min(most, max((config.num_blocks - 1) // len(config.groups) * size, 2))


def draw_request(
    world: World, pick: Pick, draw_extra: DrawExtra | None
) -> tuple[list[int], dict[str, Any] | None]:
    """Draw a prompt and what it has besides tokens. Often it is what another request has, or
    begins as that does. Most prompts leave room for what is sampled.
    """
    most = room_of(world.config, pick)
    others = list(world.lives.values())[-6:]
    if others and pick.number(0, 2) == 0:
        other = pick.one(others)
        if other.extra is not None and "embeds" in other.extra:
            return other.tokens[: len(other.extra["embeds"])], other.extra
        kept = other.tokens[: pick.number(1, len(other.tokens))]
        tokens = [*kept, *pick.one(PROMPTS)[: pick.number(0, 3)]][:most]
        return tokens, _within(other.extra, len(tokens))
    length = pick.number(1, max(most - pick.number(0, 3), 1))
    tokens = [*pick.one(PROMPTS)[: max(length // pick.one((1, 1, 3)), 1)]]
    return tokens, None if draw_extra is None else draw_extra(pick, len(tokens))


def _within(extra: dict[str, Any] | None, length: int) -> dict[str, Any] | None:
    """Leave out items that do not lie within a shorter prompt."""
    if extra is None or "mm" not in extra:
        return extra
    items = [item for item in extra["mm"] if item[1] + item[2] <= length]
    others = {kind: part for kind, part in extra.items() if kind != "mm"}
    return {**others, **({"mm": items} if items else {})} or None
