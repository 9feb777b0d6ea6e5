"""The state machine: which calls are possible now, and how often each kind is drawn.

Rules draw legal calls from the model's state. `misuse` draws calls that break a rule, when
that is asked for. Pools are small, alphabets tiny and prompts share prefixes, so that hits,
sharing, eviction and exhaustion all happen within a few dozen calls. A rule that is listed
under several names is drawn that much more often.
"""

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvproof.fuzz.calls import Call, to_wire
from kvproof.fuzz.layouts import Layout
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.run import Run
from kvproof.fuzz.session import Session
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key, TokenId
from kvproof.spec.transitions import has_full_key, is_own_chain

PROMPTS: tuple[tuple[int, ...], ...] = (
    (0,) * 12,
    (0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1),
    (0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1),
    (1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0),
)
"""Tokens of the requests. They share prefixes of 0 to 6 tokens."""

prompts = st.sampled_from(PROMPTS)
some = st.integers(min_value=0, max_value=4)


class Table:
    """The block table of one request in a layout with a protocol."""

    def __init__(self, tokens: tuple[int, ...], blocks: list[int]) -> None:
        self.tokens, self.blocks, self.published = tokens, blocks, len(blocks)


class PoolRules(RuleBasedStateMachine):
    """A block pool under test. `session` gives the target and takes the verdicts."""

    session: ClassVar[Session]

    @initialize(
        data=st.data(), num_blocks=st.integers(2, 12), drain=st.booleans(), careful=st.booleans()
    )
    def start(self, data: st.DataObject, num_blocks: int, drain: bool, careful: bool) -> None:
        """Build a fresh pool of one of the layouts."""
        self.layout: Layout = data.draw(st.sampled_from(self.session.layouts), "layout")
        self.careful = careful
        self.tables: list[Table] = []
        self.run_: Run = self.session.start(self.layout, num_blocks, drain)

    def do(self, name: str, **args: Any) -> Any:
        """Make a call, unless the run is over. Return the answer, None when it is refused."""
        return self.session.call(self.run_, Call(name, args), self.careful)

    # What is possible now

    def held(self) -> list[int]:
        """Every reference that can be released, by its block."""
        return [b for b, count in enumerate(self.run_.ledger.held) for _ in range(count)]

    def readable(self) -> list[int]:
        """Every block that can be touched; the null block is among them."""
        state, blocks = self.run_.model.state, range(self.run_.config.num_gpu_blocks)
        return [
            block
            for block in blocks
            if block == 0
            or state.ref_cnt[BlockId(block)] > 0
            or state.block_hash[BlockId(block)] != NO_KEY
        ]

    def keyable(self, key: Key) -> list[int]:
        """Every block that may get this full key."""
        state = self.run_.model.state
        return [
            block
            for block, count in enumerate(self.run_.ledger.held)
            if block
            and count > 0
            and not has_full_key(state, BlockId(block))
            and is_own_chain(state, BlockId(block), key)
        ]

    def free_use(self) -> bool:
        """Blocks are used in any legal way."""
        return not self.layout.protocol and not self.run_.over

    # Blocks used in any legal way

    @precondition(free_use)
    @rule(num_blocks=some)
    def get_new_blocks(self, num_blocks: int) -> None:
        """Take blocks, more than there are now and then."""
        self.do("get_new_blocks", num_blocks=num_blocks)

    @precondition(lambda self: self.free_use() and self.held())
    @rule(data=st.data())
    def free_blocks(self, data: st.DataObject) -> None:
        """Release some references, in any order, null entries among them."""
        held = [0, *self.held()]
        chosen = st.lists(st.sampled_from(range(len(held))), min_size=1, max_size=5, unique=True)
        self.do("free_blocks", blocks=[held[index] for index in data.draw(chosen)])

    @precondition(lambda self: self.free_use() and self.held())
    @rule(reset=st.booleans())
    def free_everything(self, reset: bool) -> None:
        """End all requests."""
        self.do("free_blocks", blocks=self.held())
        if reset:
            self.do("reset_prefix_cache")

    @precondition(free_use)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        """Hold readable blocks once more."""
        blocks = st.lists(st.sampled_from(self.readable()), min_size=1, max_size=3)
        self.do("touch", blocks=data.draw(blocks))

    @precondition(free_use)
    @rule(tokens=prompts, units=st.integers(1, 4), data=st.data())
    def hit(self, tokens: tuple[int, ...], units: int, data: st.DataObject) -> None:
        """Look a prefix up, and hold what is found."""
        end = units * self.layout.hash_block_size
        groups = data.draw(st.sampled_from(self._group_lists()))
        found = self.do("get_cached_block", block_hash=to_wire(tokens[:end]), groups=groups)
        if found and not self.run_.over:
            self.do("touch", blocks=found)

    @precondition(lambda self: self.free_use() and self._may_publish())
    @rule(tokens=prompts, first=st.integers(0, 3), count=some, data=st.data())
    def cache_full_blocks(
        self, tokens: tuple[int, ...], first: int, count: int, data: st.DataObject
    ) -> None:
        """Publish consecutive blocks of a request; some are null, masked or held by others."""
        group = data.draw(st.sampled_from(sorted(self.layout.block_sizes)))
        size = self.layout.block_sizes[group]
        last = min(first + count, len(tokens) // size)
        first = min(first, last)
        blocks, mask = [0] * first, []
        for index in range(first, last):
            key = Key(tuple(map(TokenId, tokens[: (index + 1) * size])), GroupId(group))
            candidates = [block for block in self.keyable(key) if block not in blocks]
            blocks.append(data.draw(st.sampled_from([*candidates, 0])))
            mask.append(data.draw(st.sampled_from([True, True, False])))
        self.do(
            "cache_full_blocks",
            request={"tokens": list(tokens)},
            blocks=blocks,
            num_cached_blocks=first,
            num_full_blocks=last,
            block_size=size,
            group=group,
            block_mask=data.draw(st.sampled_from([None, mask])),
        )

    @precondition(lambda self: self.free_use() and self._may_publish() and self._has_partial())
    @rule(tokens=prompts, data=st.data())
    def cache_partial_block(self, tokens: tuple[int, ...], data: st.DataObject) -> None:
        """Publish a block for a prefix that ends inside it."""
        unit = self.layout.hash_block_size
        choices = [
            (group, end, block)
            for group, size in sorted(self.layout.block_sizes.items())
            for end in range(unit, len(tokens), unit)
            if end % size
            for block in self._own_chain(tokens[:end], group)
        ]
        if not choices:
            return
        group, end, block = data.draw(st.sampled_from(choices))
        self.do(
            "cache_partial_block",
            request={"tokens": list(tokens)},
            block=block,
            num_tokens=end,
            group=group,
            block_size=self.layout.block_sizes[group],
        )

    @precondition(free_use)
    @rule(data=st.data())
    def evict_blocks(self, data: st.DataObject) -> None:
        """Take the keys from any blocks, as a connector may."""
        ids = st.integers(0, self.run_.config.num_gpu_blocks - 1)
        self.do("evict_blocks", blocks=data.draw(st.lists(ids, max_size=3, unique=True)))

    get_new_blocks_too = get_new_blocks
    hit_too = hit
    cache_full_blocks_too = cache_full_blocks
    cache_full_blocks_again = cache_full_blocks
    cache_partial_block_too = cache_partial_block

    # Blocks used table by table, as a full-attention manager does

    @precondition(lambda self: self.layout.protocol and len(self.tables) < 4)
    @rule(tokens=prompts, blocks=st.integers(1, 5))
    def admit(self, tokens: tuple[int, ...], blocks: int) -> None:
        """Start a request: hit from the left until the first miss, take the rest new."""
        hits: list[int] = []
        size = self.layout.block_sizes[0]
        while len(hits) < blocks:
            end = to_wire(tokens[: (len(hits) + 1) * size])
            found = self.do("get_cached_block", block_hash=end, groups=[0])
            if not found:
                break
            hits += found
        free = self.run_.ledger.held[1:].count(0)
        queued = sum(self.run_.ledger.held[block] == 0 for block in hits)
        if blocks - len(hits) + queued > free or self.run_.over:
            return
        if hits:
            self.do("touch", blocks=hits)
        table = Table(tokens, hits)
        self.tables.append(table)
        table.blocks += self.do("get_new_blocks", num_blocks=blocks - len(hits)) or []

    @precondition(lambda self: self.tables and not self.run_.over)
    @rule(data=st.data(), count=st.integers(1, 3))
    def fill(self, data: st.DataObject, count: int) -> None:
        """Publish the next blocks of a request."""
        table: Table = data.draw(st.sampled_from(self.tables))
        last = min(table.published + count, len(table.blocks))
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

    @precondition(lambda self: self.tables and not self.run_.over)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """End a request: free its table from the last block to the first."""
        index = data.draw(st.integers(0, len(self.tables) - 1))
        self.do("free_blocks", blocks=self.tables.pop(index).blocks[::-1])

    fill_too = fill

    # Everywhere

    @precondition(lambda self: not self.run_.over)
    @rule(name=st.sampled_from(["take_events", "get_num_free_blocks", "get_usage"]))
    def ask(self, name: str) -> None:
        """Ask for what any caller may ask for."""
        self.do(name)

    @precondition(lambda self: not self.run_.over)
    @rule()
    def reset_prefix_cache(self) -> None:
        """Reset, also while blocks are in use."""
        self.do("reset_prefix_cache")

    @precondition(lambda self: self.session.flags.misuse and self.free_use())
    @rule(data=st.data(), kind=st.sampled_from(sorted(MISUSES)), tokens=prompts)
    def misuse(self, data: st.DataObject, kind: str, tokens: tuple[int, ...]) -> None:
        """Make a call that breaks a rule."""
        if self.session.may_misuse(kind, self.careful):
            call = MISUSES[kind](self.run_, self.layout, tokens, data.draw)
            if call is not None:
                self.session.call(self.run_, call, careful=False, kind=kind)

    def teardown(self) -> None:
        """Take the remaining events, so that every sequence has its stream judged."""
        if hasattr(self, "run_") and not self.run_.over:
            self.do("take_events")

    def _may_publish(self) -> bool:
        return self.layout.enable_caching and any(self.run_.ledger.held[1:])

    def _has_partial(self) -> bool:
        return any(size > self.layout.hash_block_size for size in self.layout.block_sizes.values())

    def _own_chain(self, prefix: tuple[int, ...], group: int) -> list[int]:
        state, key = self.run_.model.state, Key(tuple(map(TokenId, prefix)), GroupId(group))
        return [
            block
            for block, count in enumerate(self.run_.ledger.held)
            if block == 0 or (count > 0 and is_own_chain(state, BlockId(block), key))
        ]

    def _group_lists(self) -> list[list[int]]:
        groups = sorted(self.layout.block_sizes)
        return [[group] for group in groups] + ([groups] if len(groups) > 1 else [])
