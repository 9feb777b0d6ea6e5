"""What callers of a pool may do next, and how often each of it is done.

A move is one call, or a few that belong together. `MOVES` gives each a weight and says when
it is possible. Prompts share prefixes, so that hits, sharing, eviction and exhaustion all
happen within a few dozen calls on a small pool.
"""

from collections.abc import Callable
from math import lcm
from typing import Any

from kvproof.fuzz.calls import Call, to_wire
from kvproof.fuzz.layouts import Layout
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.picks import Pick
from kvproof.fuzz.run import Run
from kvproof.fuzz.session import Session
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key, TokenId
from kvproof.spec.transitions import has_full_key, is_own_chain, is_readable

PROMPTS: tuple[tuple[int, ...], ...] = (
    (0,) * 12,
    (0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1),
    (0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1),
    (1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0),
)
"""Tokens of the requests. They share prefixes of 0 to 6 tokens."""


class Table:
    """The block table of one request in a layout with a protocol."""

    def __init__(self, tokens: tuple[int, ...], blocks: list[int]) -> None:
        self.tokens, self.blocks, self.published = tokens, blocks, len(blocks)


class Moves:
    """The moves on one pool. A careful player keeps off paths that are known to fail."""

    def __init__(self, session: Session, run: Run, layout: Layout, careful: bool) -> None:
        self.session, self.run, self.layout, self.careful = session, run, layout, careful
        self.tables: list[Table] = []
        self.given: list[dict[str, Any]] = []

    def do(self, name: str, **args: Any) -> Any:
        """Make a call, unless the run is over. Return the answer, None when it is refused."""
        own = {key: list(v) if isinstance(v, list) else v for key, v in args.items()}
        return self.session.call(self.run, Call(name, own), self.careful)

    def possible(self) -> list[str]:
        """Return the names of the moves that are possible now, each as often as it weighs."""
        return [
            name for name, (weight, enabled, _) in MOVES.items() if enabled(self)
            for _ in range(weight)
        ]  # fmt: skip

    def make(self, name: str, pick: Pick) -> None:
        """Make a move that is possible."""
        MOVES[name][2](self, pick)

    # What is possible now

    def free_use(self) -> bool:
        """Blocks are used in any legal way."""
        return not self.layout.protocol and not self.run.over

    def table_use(self) -> bool:
        """Blocks are used table by table, as a full-attention manager uses them."""
        return self.layout.protocol and not self.run.over

    def may_publish(self) -> bool:
        """Some block may get a key."""
        return self.free_use() and self.layout.enable_caching and any(self.run.ledger.held[1:])

    def may_publish_partial(self) -> bool:
        """Some block may get a key that ends inside it."""
        sizes = self.layout.block_sizes.values()
        return self.may_publish() and max(sizes) > self.layout.hash_block_size

    def held(self) -> list[int]:
        """Every reference that can be released, by its block."""
        return [block for block, count in enumerate(self.run.ledger.held) for _ in range(count)]

    def readable(self) -> list[int]:
        """Every block that can be touched; the null block is among them. Of a target that does
        not show its keys, only those that are held: others may have lost their keys early.
        """
        blocks = range(1, self.run.config.num_gpu_blocks)
        if not self.run.shows_keys:
            return [0, *(block for block in blocks if self.run.ledger.held[block] > 0)]
        return [0, *(b for b in blocks if is_readable(self.run.model.state, BlockId(b)))]

    def keyable(self, tokens: tuple[int, ...], end: int, group: int) -> list[int]:
        """Every block that is held, has no full key, and may get the key of this prefix."""
        state, key = self.run.model.state, _key(tokens, end, group)
        return [
            block
            for block, count in enumerate(self.run.ledger.held)
            if block
            and count > 0
            and not has_full_key(state, BlockId(block))
            and is_own_chain(state, BlockId(block), key)
        ]

    # Blocks used in any legal way

    def get_new_blocks(self, pick: Pick) -> None:
        """Take blocks, more than there are now and then."""
        self.do("get_new_blocks", num_blocks=pick.number(0, 4))

    def free_blocks(self, pick: Pick) -> None:
        """Release some references, in any order, null entries among them."""
        self.do("free_blocks", blocks=pick.some([0, *self.held()], 1, 5))

    def free_everything(self, pick: Pick) -> None:
        """End all requests; then, perhaps, reset."""
        self.do("free_blocks", blocks=self.held())
        if pick.flag():
            self.do("reset_prefix_cache")

    def touch(self, pick: Pick) -> None:
        """Hold readable blocks once more, some of them twice."""
        readable = self.readable()
        self.do("touch", blocks=pick.some(readable, 1, 2) + pick.some(readable, 0, 1))

    def hit(self, pick: Pick) -> None:
        """Look a prefix up, and hold what is found."""
        tokens, groups = pick.one(PROMPTS), sorted(self.layout.block_sizes)
        end = pick.number(1, pick.one([2, 6])) * self.layout.hash_block_size
        lists = [*([group] for group in groups), groups]
        found = self.do("get_cached_block", block_hash=_hash(tokens, end), groups=pick.one(lists))
        if found and not self.run.over:
            self.do("touch", blocks=found)

    def cache_full_blocks(self, pick: Pick) -> None:
        """Publish consecutive blocks of a request; some are null, some are masked."""
        tokens, group = pick.one(PROMPTS), pick.one(sorted(self.layout.block_sizes))
        size = self.layout.block_sizes[group]
        first = pick.number(0, 2)
        last = min(first + pick.number(0, 3), len(tokens) // size)
        blocks, mask = [0] * first, []
        for index in range(first, last):
            able = [b for b in self.keyable(tokens, (index + 1) * size, group) if b not in blocks]
            partly = [b for b in able if self.run.model.state.block_hash[BlockId(b)] != NO_KEY]
            able = partly if partly and pick.flag() else able
            blocks.append(pick.one([*able, 0] if pick.number(0, 3) == 0 else able or [0]))
            mask.append(pick.flag() or pick.flag())
        self.do(
            "cache_full_blocks",
            request={"tokens": list(tokens)},
            blocks=blocks,
            num_cached_blocks=first,
            num_full_blocks=last,
            block_size=size,
            group=group,
            block_mask=mask if first <= last and pick.flag() else None,
        )

    def cache_in_all_groups(self, pick: Pick) -> None:
        """Publish one prefix in every group, as a request with several tables does."""
        tokens, sizes = pick.one(PROMPTS[:3]), self.layout.block_sizes
        end = lcm(*sizes.values())
        for group, size in sorted(sizes.items()):
            able = self.keyable(tokens, end, group)
            if able and not self.run.over:
                self.do(
                    "cache_full_blocks",
                    request={"tokens": list(tokens)},
                    blocks=[0] * (end // size - 1) + [pick.one(able)],
                    num_cached_blocks=end // size - 1,
                    num_full_blocks=end // size,
                    block_size=size,
                    group=group,
                    block_mask=None,
                )

    def cache_partial_block(self, pick: Pick) -> None:
        """Publish a block for a prefix that ends inside it, most often a keyed one."""
        unit, sizes = self.layout.hash_block_size, self.layout.block_sizes
        state, held = self.run.model.state, [b for b in sorted(set(self.held())) if b]
        keyed = [b for b in held if state.block_hash[BlockId(b)] != NO_KEY]
        partly = [b for b in keyed if not has_full_key(state, BlockId(b))]
        if keyed and pick.number(0, 3):
            block = pick.one(partly if partly and pick.flag() else keyed)
            own = state.block_hash[BlockId(block)]
            group, size = int(own.group), sizes[own.group]
            first = (len(own.block_hash) - 1) // size * size
            fitting = [p for p in PROMPTS if p[: len(own.block_hash)] == own.block_hash]
            tokens = pick.one(fitting or [tuple(map(int, own.block_hash))])
        else:
            block = pick.one([*(b for b in held if b not in keyed), 0])
            group = pick.one([group for group, size in sorted(sizes.items()) if size > unit])
            size, tokens = sizes[group], pick.one(PROMPTS)
            first = pick.number(0, len(tokens) // size - 1) * size
        ends = [end for end in range(first + unit, first + size, unit) if end <= len(tokens)]
        if ends:
            self.given.append(
                {
                    "request": {"tokens": list(tokens)},
                    "block": block,
                    "num_tokens": pick.one(ends),
                    "group": group,
                    "block_size": size,
                }
            )
            self.do("cache_partial_block", **self.given[-1])

    def promote(self, pick: Pick) -> None:
        """Publish a block that has partial keys as a full one."""
        state = self.run.model.state
        partly = [
            block
            for block in sorted(set(self.held()))
            if state.block_hash[BlockId(block)] != NO_KEY
            and not has_full_key(state, BlockId(block))
        ]
        if not partly:
            return
        block = pick.one(partly)
        own = state.block_hash[BlockId(block)]
        size = self.layout.block_sizes[own.group]
        index = (len(own.block_hash) - 1) // size
        fitting = [p for p in PROMPTS if p[: len(own.block_hash)] == own.block_hash]
        if fitting and len(fitting[0]) >= (index + 1) * size:
            self.do(
                "cache_full_blocks",
                request={"tokens": list(pick.one(fitting))},
                blocks=[0] * index + [block],
                num_cached_blocks=index,
                num_full_blocks=index + 1,
                block_size=size,
                group=int(own.group),
                block_mask=None,
            )

    def cache_partial_again(self, pick: Pick) -> None:
        """Publish a block again for a prefix that it was published for before: it may carry the
        key still, have retired it or lost it, or have been handed out anew. Now and then it is
        published in another group.
        """
        state, held = self.run.model.state, self.run.ledger.held
        sizes = self.layout.block_sizes
        given = self.given[-12:]
        if pick.number(0, 3) == 0:
            given = [
                {**args, "group": group}
                for args in given
                for group, size in sorted(sizes.items())
                if size == args["block_size"]
            ]
        able = [
            args
            for args in given
            if held[args["block"]] > 0
            and is_own_chain(
                state,
                BlockId(args["block"]),
                _key(tuple(args["request"]["tokens"]), args["num_tokens"], args["group"]),
            )
        ]
        if able:
            self.do("cache_partial_block", **pick.one(able))

    def evict_blocks(self, pick: Pick) -> None:
        """Take the keys from any blocks, as a connector may; half the time from keyed ones."""
        state = self.run.model.state
        blocks = range(1, self.run.config.num_gpu_blocks)
        keyed = [b for b in blocks if state.block_hash[BlockId(b)] != NO_KEY]
        retired = state.retired
        worn = [b for b in keyed if retired[BlockId(b)].members]  # type: ignore[attr-defined]
        if keyed and pick.flag():
            self.do("evict_blocks", blocks=pick.some(worn or keyed, 1, 2))
            return
        self.do("evict_blocks", blocks=pick.some(range(self.run.config.num_gpu_blocks), 0, 3))

    # Blocks used table by table

    def admit(self, pick: Pick) -> None:
        """Start a request: hit from the left until the first miss, take the rest new."""
        tokens, wanted, size = pick.one(PROMPTS), pick.number(1, 5), self.layout.block_sizes[0]
        hits: list[int] = []
        while len(hits) < wanted:
            end = _hash(tokens, (len(hits) + 1) * size)
            found = self.do("get_cached_block", block_hash=end, groups=[0])
            if not found:
                break
            hits += found
        held = self.run.ledger.held
        queued = sum(held[block] == 0 for block in hits)
        if wanted - len(hits) + queued > held[1:].count(0) or self.run.over:
            return
        if hits:
            self.do("touch", blocks=hits)
        self.tables.append(Table(tokens, hits))
        new = self.do("get_new_blocks", num_blocks=wanted - len(hits))
        self.tables[-1].blocks += new or []

    def fill(self, pick: Pick) -> None:
        """Publish the next blocks of a request."""
        table = pick.one(self.tables)
        last = min(table.published + pick.number(1, 3), len(table.blocks))
        self.do(
            "cache_full_blocks",
            request={"tokens": list(table.tokens)},
            blocks=list(table.blocks),
            num_cached_blocks=table.published,
            num_full_blocks=last,
            block_size=self.layout.block_sizes[0],
            group=0,
            block_mask=None,
        )
        table.published = max(last, table.published)

    def finish(self, pick: Pick) -> None:
        """End a request: free its table from the last block to the first."""
        index = pick.number(0, len(self.tables) - 1)
        self.do("free_blocks", blocks=self.tables.pop(index).blocks[::-1])

    # Everywhere

    def ask(self, pick: Pick) -> None:
        """Ask for what any caller may ask for."""
        self.do(pick.one(["take_events", "get_num_free_blocks", "get_usage"]))

    def reset_prefix_cache(self, pick: Pick) -> None:
        """Reset, also while blocks are in use."""
        self.do("reset_prefix_cache")

    def misuse(self, pick: Pick) -> None:
        """Make a call that breaks a rule."""
        tokens = pick.one(PROMPTS)
        for kind in pick.some(sorted(MISUSES), 4, 4):
            if self.session.may_misuse(kind, self.careful):
                call = MISUSES[kind](self.run, self.layout, tokens, pick)
                if call is not None:
                    self.session.call(self.run, call, careful=False, kind=kind)
                    return


Move = tuple[int, Callable[[Moves], bool], Callable[[Moves, Pick], None]]

MOVES: dict[str, Move] = {
    "get_new_blocks": (4, Moves.free_use, Moves.get_new_blocks),
    "free_blocks": (4, lambda m: m.free_use() and any(m.run.ledger.held), Moves.free_blocks),
    "free_everything": (
        1,
        lambda m: m.free_use() and any(m.run.ledger.held),
        Moves.free_everything,
    ),
    "touch": (1, Moves.free_use, Moves.touch),
    "hit": (4, Moves.free_use, Moves.hit),
    "cache_full_blocks": (6, Moves.may_publish, Moves.cache_full_blocks),
    "cache_in_all_groups": (
        3,
        lambda m: m.may_publish() and len(m.layout.block_sizes) > 1,
        Moves.cache_in_all_groups,
    ),
    "cache_partial_block": (4, Moves.may_publish_partial, Moves.cache_partial_block),
    "promote": (2, Moves.may_publish_partial, Moves.promote),
    "cache_partial_again": (
        4,
        lambda m: m.may_publish_partial() and bool(m.given),
        Moves.cache_partial_again,
    ),
    "evict_blocks": (2, Moves.free_use, Moves.evict_blocks),
    "admit": (4, lambda m: m.table_use() and len(m.tables) < 4, Moves.admit),
    "fill": (4, lambda m: m.table_use() and bool(m.tables), Moves.fill),
    "finish": (3, lambda m: m.table_use() and bool(m.tables), Moves.finish),
    "ask": (1, lambda m: not m.run.over, Moves.ask),
    "reset_prefix_cache": (1, lambda m: not m.run.over, Moves.reset_prefix_cache),
    "misuse": (3, lambda m: m.session.flags.misuse and m.free_use(), Moves.misuse),
}
"""Every move: its weight, when it is possible, and how it is made."""


def _hash(tokens: tuple[int, ...], end: int) -> str:
    return to_wire(tuple(map(TokenId, tokens[:end])))


def _key(tokens: tuple[int, ...], end: int, group: int) -> Key:
    return Key(tuple(map(TokenId, tokens[:end])), GroupId(group))
