"""Ghost contents: what every slot of every block holds, and what it will hold.

No engine stores this. It is what has to be known to say that a token reads its own prefix: for
each slot the prefix that was written there (`content`), and the prefix that is there when all
scheduled writes have landed (`promise`). A key may be published before the write, since a key
speaks of the promise.

Simplified: a block has one key, a full one; tables are those of attention; what the pool hands
out is an argument, for which the theorems of the pool speak.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NewType, Protocol

from kvproof.spec.logic import Bool, Domain, forall, implies, neg
from kvproof.spec.quantities import BlockId, GroupId, Key
from kvproof.spec.universe import Map

RequestId = NewType("RequestId", int)
"""A request, live or not."""

Tokens = tuple[int, ...]
"""All tokens of a request: those that are known, then what was guessed or is not yet known."""


class Sort(Enum):
    """What a ghost map maps from, and to."""

    BLOCK = "Block"
    KEY = "Key"
    REQUEST = "Request"
    GROUP = "Group"
    TOKENS = "Tokens"
    NUMBER = "Int"
    TRUTH = "Bool"


class Rows(Map[tuple[RequestId, GroupId], int], Protocol):
    """A number for each group of each request."""

    def fill(self, request: RequestId, value: int) -> None:
        """Give this value to every group of the request."""
        ...


class GhostUniverse(Protocol):
    """The values of one reading (see `kvproof.spec.universe`), and what is known of blocks,
    tokens and attention.
    """

    null: BlockId
    no_key: Key
    poison: Key

    @property
    def blocks(self) -> Domain:
        """All blocks, the null block among them."""
        ...

    @property
    def requests(self) -> Domain:
        """All requests."""
        ...

    @property
    def groups(self) -> Domain:
        """All groups."""
        ...

    @property
    def sequences(self) -> Domain:
        """All sequences of tokens."""
        ...

    @property
    def keys(self) -> Domain:
        """All prefixes, with no key and the poison."""
        ...

    @property
    def numbers(self) -> Domain:
        """All positions, indices and offsets, from 0 on."""
        ...

    def block_size(self, group: GroupId) -> int:
        """How many tokens a block of the group holds."""
        ...

    def start(self, group: GroupId, index: int) -> int:
        """The first position of the block at this index of a table."""
        ...

    def last(self, group: GroupId, index: int) -> int:
        """The last position of the block at this index of a table."""
        ...

    def index(self, group: GroupId, position: int) -> int:
        """The index of the block in which the position lies."""
        ...

    def prefix(self, group: GroupId, tokens: Tokens, position: int) -> Key:
        """The tokens up to this position, as the group's layers see them. It is what is written
        at the position, and what a key that ends there says.
        """
        ...

    def content_at(self, key: Key, offset: int) -> Key:
        """What a full key says about one slot of its block."""
        ...

    def position(self, key: Key) -> int:
        """Where the prefix ends."""
        ...

    def group(self, key: Key) -> GroupId:
        """The group of the prefix."""
        ...

    def reads(self, request: RequestId, group: GroupId, reader: int, position: int) -> Bool:
        """The token at `reader` reads what is stored at `position`, perhaps its own."""
        ...

    def map(
        self, name: str, domain: tuple[Sort, ...], codomain: Sort, default: object
    ) -> Map[Any, Any]:
        """Make a map; on the concrete reading every value is at first the default."""
        ...

    def rows(self, name: str) -> Rows:
        """Make a map from groups of requests to numbers, all 0."""
        ...


class GhostState:
    """Requests, tables, keys and contents. `GhostState(universe)` is the initial state on the
    concrete reading, an arbitrary one on the symbolic reading (where `is_initial` pins it down).
    """

    __slots__ = (
        "block_key",
        "content",
        "in_flight",
        "live",
        "num_computed",
        "num_entries",
        "num_known",
        "num_scheduled",
        "num_written",
        "promise",
        "promised_by",
        "promised_for",
        "promised_in",
        "running",
        "table",
        "tokens",
        "universe",
    )

    def __init__(self, universe: GhostUniverse) -> None:
        self.universe = u = universe
        slot = (Sort.BLOCK, Sort.NUMBER)
        request = (Sort.REQUEST,)

        self.block_key: Map[BlockId, Key] = u.map("block_key", (Sort.BLOCK,), Sort.KEY, u.no_key)
        """The block's key."""
        self.content: Map[tuple[BlockId, int], Key] = u.map("content", slot, Sort.KEY, u.poison)
        """The prefix that was written into the slot."""
        self.promise: Map[tuple[BlockId, int], Key] = u.map("promise", slot, Sort.KEY, u.poison)
        """The prefix that the slot holds when all that is scheduled is written."""
        self.in_flight: Map[BlockId, Bool] = u.map("in_flight", (Sort.BLOCK,), Sort.TRUTH, False)
        """A step that was dispatched, and has not come back, may still touch the block."""

        self.live: Map[RequestId, Bool] = u.map("live", request, Sort.TRUTH, False)
        """The request has a block table."""
        self.running: Map[RequestId, Bool] = u.map("running", request, Sort.TRUTH, False)
        """Its tokens may be computed."""
        self.tokens: Map[RequestId, Tokens] = u.map("tokens", request, Sort.TOKENS, ())
        """Its tokens."""
        self.num_known: Map[RequestId, int] = u.map("num_known", request, Sort.NUMBER, 0)
        """So many of them stay as they are: no draft, nothing that is still to be sampled."""
        self.num_computed: Map[RequestId, int] = u.map("num_computed", request, Sort.NUMBER, 0)
        """So many are settled. Any token from here on may have to be computed, and reads."""

        self.table: Map[tuple[RequestId, GroupId, int], BlockId] = u.map(
            "table", (Sort.REQUEST, Sort.GROUP, Sort.NUMBER), Sort.BLOCK, u.null
        )
        """The block table."""
        self.num_entries: Rows = u.rows("num_entries")
        """Its length."""
        self.num_scheduled: Rows = u.rows("num_scheduled")
        """So many tokens are in the table's blocks, or promised."""
        self.num_written: Rows = u.rows("num_written")
        """So many of these are written."""

        self.promised_by: Map[tuple[BlockId, int], RequestId] = u.map(
            "promised_by", slot, Sort.REQUEST, RequestId(-1)
        )
        """Witness: the request that was scheduled last to write the slot."""
        self.promised_in: Map[tuple[BlockId, int], GroupId] = u.map(
            "promised_in", slot, Sort.GROUP, GroupId(-1)
        )
        """Witness: in which group."""
        self.promised_for: Map[tuple[BlockId, int], int] = u.map(
            "promised_for", slot, Sort.NUMBER, 0
        )
        """Witness: which of its positions."""


def end_of(state: GhostState, group: GroupId, index: int) -> int:
    """Return the position after the block at this index."""
    return state.universe.start(group, index) + state.universe.block_size(group)


def own_key(state: GhostState, request: RequestId, group: GroupId, index: int) -> Key:
    """Return the key of the request's own block at this index."""
    u = state.universe
    return u.prefix(group, state.tokens[request], u.last(group, index))


def place_of(
    state: GhostState, request: RequestId, group: GroupId, position: int
) -> tuple[BlockId, int]:
    """Return the slot of a position: its block in the request's table, and the offset."""
    index = state.universe.index(group, position)
    return state.table[request, group, index], position - state.universe.start(group, index)


def has_entry(state: GhostState, request: RequestId, group: GroupId, index: int) -> Bool:
    """The request's table is long enough to have this entry."""
    return (index >= 0) & (index < state.num_entries[request, group])


def holds(
    state: GhostState, request: RequestId, group: GroupId, index: int, block: BlockId
) -> Bool:
    """This entry of the request's table names the block."""
    entry = state.table[request, group, index]
    return has_entry(state, request, group, index) & (entry == block)


def for_every_entry(state: GhostState, body: Callable[[RequestId, GroupId, int], Bool]) -> Bool:
    """Say something of every entry of every table."""
    u = state.universe
    return forall(
        (u.requests, u.groups, u.numbers),
        lambda request, group, index: implies(
            has_entry(state, request, group, index), body(request, group, index)
        ),
    )


def is_idle(state: GhostState, request: RequestId) -> Bool:
    """Nothing that the request promised is unwritten."""
    return forall(
        state.universe.groups,
        lambda group: state.num_written[request, group] == state.num_scheduled[request, group],
    )


def is_unread(
    state: GhostState, request: RequestId, group: GroupId, index: int, reader: int
) -> Bool:
    """The block at this index lies below `reader`, and no token from there on reads of it."""
    u = state.universe
    end = end_of(state, group, index)
    return (end <= reader) & forall(
        u.numbers,
        lambda position: implies(
            (u.start(group, index) <= position) & (position < end),
            neg(u.reads(request, group, reader, position)),
        ),
    )


def agree(state: GhostState, one: Tokens, other: Tokens, length: int) -> Bool:
    """The two sequences have the same prefixes below this length."""
    u = state.universe
    return forall(
        (u.groups, u.numbers),
        lambda group, position: implies(
            position < length,
            u.prefix(group, one, position) == u.prefix(group, other, position),
        ),
    )


def is_full(state: GhostState, key: Key) -> Bool:
    """The prefix ends on a block boundary of its group."""
    u = state.universe
    group, position = u.group(key), u.position(key)
    return (position >= 0) & (position == u.last(group, u.index(group, position)))


def is_pending(state: GhostState, block: BlockId, offset: int) -> Bool:
    """A live request that holds the block has scheduled this slot, and not yet written it."""
    request, group = state.promised_by[block, offset], state.promised_in[block, offset]
    position = state.promised_for[block, offset]
    place = place_of(state, request, group, position)
    return (
        state.live[request]
        & (state.num_written[request, group] <= position)
        & (position < state.num_scheduled[request, group])
        & (place[0] == block)
        & (place[1] == offset)
        & (block != state.universe.null)
    )


def is_initial(state: GhostState) -> Bool:
    """No request is live, no block is keyed, nothing is scheduled."""
    u = state.universe
    return (
        forall(u.requests, lambda request: neg(state.live[request]))
        & forall(u.requests, lambda request: neg(state.running[request]))
        & forall(
            u.requests,
            lambda request: (state.num_computed[request] == 0) & (state.num_known[request] == 0),
        )
        & forall(
            (u.requests, u.groups),
            lambda request, group: (
                (state.num_entries[request, group] == 0)
                & (state.num_scheduled[request, group] == 0)
                & (state.num_written[request, group] == 0)
            ),
        )
        & forall(u.blocks, lambda block: state.block_key[block] == u.no_key)
        & forall(
            (u.blocks, u.numbers),
            lambda block, offset: state.content[block, offset] == state.promise[block, offset],
        )
    )
