"""The transitions of the ghost contents, and the protocol rules that each requires.

| transition | in vLLM 0.25.1 |
| --- | --- |
| `admit`, `hit`, `pad`, `start` | `Scheduler.schedule` admits a request; a hit; null entries |
| `append`, `schedule`, `publish` | `KVCacheManager.allocate_slots` |
| `write`, `read` | the model runner runs a step: the writes of all, then the reads |
| `settle`, `accept` | `Scheduler.update_from_output` |
| `load`, `fail_load`, `fall_back` | a KV connector; `_handle_invalid_blocks` |
| `skip` | a manager's `remove_skipped_blocks` |
| `stop`, `unschedule`, `free_last`, `close` | `_preempt_request`, `finish_requests`, `free` |
| `retract`, `reset` | eviction, `evict_blocks`, `reset_prefix_cache` |

Each is about one block or one token; a call of the manager is several in a row. Rules of
`kvproof.spec.protocol_rules` are what an engine must see to. Two more say how the transitions
are meant: `request-phase` and `slot-there`.

What a step writes is written when it is dispatched: later steps come after it.
"""

from kvproof.spec import protocol_rules as rules
from kvproof.spec.ghost_properties import reads_own_prefix, writes_exclusive
from kvproof.spec.ghost_state import (
    GhostState,
    RequestId,
    Tokens,
    agree,
    end_of,
    for_every_entry,
    has_entry,
    holds,
    is_idle,
    is_unread,
    own_key,
    place_of,
)
from kvproof.spec.logic import Bool, check, forall, implies, ite, neg, requires
from kvproof.spec.protocol_rules import ProtocolError
from kvproof.spec.quantities import BlockId, GroupId
from kvproof.spec.rules import Rule

REQUEST_PHASE = Rule(
    "request-phase",
    "the request is in the phase in which this is done: waiting, being admitted, running, or"
    " stopped with nothing unwritten, and the numbers that it is given are in order",
    "request",
    "follow the order of the calls",
    ProtocolError,
    "the transition means nothing",
)
SLOT_THERE = Rule(
    "slot-there",
    "the table has an entry for what is written, published or freed, and it names a real block",
    "index",
    "append blocks first: `allocate_slots` gives every scheduled token a slot",
    ProtocolError,
    "the transition means nothing",
)


def admit(
    state: GhostState, request: RequestId, tokens: Tokens, num_computed: int, num_known: int
) -> None:
    """Give a request that is not live an empty table. Its first `num_computed` tokens will not
    be computed: they are hit or loaded.
    """
    requires(neg(state.live[request]), REQUEST_PHASE, request)
    requires((num_computed >= 0) & (num_computed < num_known), REQUEST_PHASE, request)

    state.live[request] = True
    state.running[request] = False
    state.tokens[request] = tokens
    state.num_computed[request] = num_computed
    state.num_known[request] = num_known


def hit(state: GhostState, request: RequestId, group: GroupId, block: BlockId) -> None:
    """Let the next entry name a cached block."""
    index = state.num_entries[request, group]
    _requires_next_entry(state, request, group)
    requires(block != state.universe.null, SLOT_THERE, block)
    requires(end_of(state, group, index) <= state.num_known[request], rules.HIT_BELOW_KNOWN, index)
    requires(state.block_key[block] == own_key(state, request, group, index), rules.HIT_KEY, block)

    _next_entry(state, request, group, block)


def pad(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Let the next entry be null."""
    index = state.num_entries[request, group]
    _requires_next_entry(state, request, group)
    requires(
        is_unread(state, request, group, index, state.num_computed[request]),
        rules.PAD_INVISIBLE,
        index,
    )

    _next_entry(state, request, group, state.universe.null)


def start(state: GhostState, request: RequestId) -> None:
    """Let a request that was admitted compute."""
    requires(state.live[request] & neg(state.running[request]), REQUEST_PHASE, request)
    requires(
        forall(
            state.universe.groups,
            lambda group: state.num_computed[request] <= state.num_scheduled[request, group],
        ),
        rules.READY_COMPLETE,
        request,
    )

    state.running[request] = True


def append(state: GhostState, request: RequestId, group: GroupId, block: BlockId) -> None:
    """Let the next entry name a block that the pool hands out."""
    requires(state.live[request], REQUEST_PHASE, request)
    requires(block != state.universe.null, SLOT_THERE, block)
    requires(
        for_every_entry(
            state,
            lambda other, its_group, index: state.table[other, its_group, index] != block,
        ),
        rules.ACQUIRE_UNHELD,
        block,
    )
    requires(state.block_key[block] == state.universe.no_key, rules.ACQUIRE_RETRACTS, block)

    index = state.num_entries[request, group]
    state.table[request, group, index] = block
    state.num_entries[request, group] = index + 1


def schedule(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Promise the next token: it is computed in this step, or loaded with it. A running request
    takes all below `num_computed` to be there.
    """
    u, scheduled = state.universe, state.num_scheduled[request, group]
    computed = state.num_computed[request]
    jumps = state.running[request] & (scheduled < computed)
    position = ite(jumps, computed, scheduled)
    requires(state.live[request], REQUEST_PHASE, request)
    _requires_slot(state, request, group, position)

    _check_own_slot(state, request, group, position)
    place = place_of(state, request, group, position)
    state.promise[place] = u.prefix(group, state.tokens[request], position)
    state.promised_by[place] = request
    state.promised_in[place] = group
    state.promised_for[place] = position
    state.num_scheduled[request, group] = position + 1
    state.num_written[request, group] = ite(jumps, computed, state.num_written[request, group])


def publish(state: GhostState, request: RequestId, group: GroupId, index: int) -> None:
    """Give the block at this index its key, written or not."""
    block, end = state.table[request, group, index], end_of(state, group, index)
    requires(has_entry(state, request, group, index), SLOT_THERE, index)
    requires(block != state.universe.null, SLOT_THERE, index)
    requires(end <= state.num_scheduled[request, group], rules.PUBLISH_SCHEDULED, index)
    requires(end <= state.num_known[request], rules.PUBLISH_KNOWN, index)

    state.block_key[block] = own_key(state, request, group, index)


def write(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Write the first token that is promised and unwritten."""
    u, position = state.universe, state.num_written[request, group]
    requires(position < state.num_scheduled[request, group], REQUEST_PHASE, request)

    _check_own_slot(state, request, group, position)
    check(writes_exclusive(state, request, group, position), "writes-exclusive")
    block, offset = place_of(state, request, group, position)
    state.content[block, offset] = u.prefix(group, state.tokens[request], position)
    state.num_written[request, group] = position + 1
    state.in_flight[block] = True


def read(state: GhostState, request: RequestId, group: GroupId, reader: int, position: int) -> None:
    """Let the token at `reader`, which is computed in this step, read a position."""
    u = state.universe
    requires(state.running[request], REQUEST_PHASE, request)
    requires(
        (state.num_computed[request] <= reader)
        & (reader < state.num_scheduled[request, group])
        & (position >= 0)
        & u.reads(request, group, reader, position),
        REQUEST_PHASE,
        reader,
    )
    requires(
        forall(u.requests, lambda other: is_idle(state, other)),
        rules.WRITES_BEFORE_READS,
        request,
    )

    check(reads_own_prefix(state, request, group, position), "reads-own-prefix")
    state.in_flight[place_of(state, request, group, position)[0]] = True


def settle(state: GhostState) -> None:
    """Take note that all steps in flight are back: they touch nothing any more."""
    state.in_flight.clear(False)


def accept(
    state: GhostState, request: RequestId, tokens: Tokens, num_computed: int, num_known: int
) -> None:
    """Settle what a step of the request computed: its first `num_computed` tokens are kept, the
    drafts behind them are rejected, and `num_known` tokens are known now.
    """
    u = state.universe
    requires(state.running[request] & is_idle(state, request), REQUEST_PHASE, request)
    requires(
        (num_computed <= num_known)
        & forall(u.groups, lambda group: num_computed <= state.num_scheduled[request, group]),
        REQUEST_PHASE,
        request,
    )
    requires(
        num_computed >= state.num_computed[request], rules.NO_ROLLBACK_BELOW_SKIP, num_computed
    )
    requires(
        agree(state, state.tokens[request], tokens, num_computed), rules.ACCEPTED_AGREE, request
    )
    requires(
        (state.num_known[request] <= num_known)
        & agree(state, state.tokens[request], tokens, state.num_known[request]),
        rules.KNOWN_FIXED,
        request,
    )

    state.tokens[request] = tokens
    state.num_known[request] = num_known
    _cut_to(state, request, num_computed)


def skip(state: GhostState, request: RequestId, group: GroupId, index: int) -> None:
    """Let an entry be null: its block has left the window."""
    requires(has_entry(state, request, group, index), SLOT_THERE, index)
    requires(state.table[request, group, index] != state.universe.null, SLOT_THERE, index)
    requires(
        is_unread(state, request, group, index, state.num_computed[request]),
        rules.SKIP_INVISIBLE,
        index,
    )
    requires(
        end_of(state, group, index) <= state.num_written[request, group],
        rules.SKIP_WRITTEN,
        index,
    )

    state.table[request, group, index] = state.universe.null


def unschedule(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Withdraw the last promise, before the step that would have kept it is dispatched."""
    _withdraw(state, request, group, fails=False)


def fail_load(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Withdraw the last promise, as its load has failed: nobody knows what the slot holds."""
    _withdraw(state, request, group, fails=True)


def load(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Take note that the next token of a request that waits for a load has arrived. A load is
    not ordered with the steps: one in flight that still touches the block spoils it.
    """
    u, position = state.universe, state.num_scheduled[request, group]
    requires(state.live[request] & neg(state.running[request]), REQUEST_PHASE, request)
    requires(state.num_written[request, group] == position, REQUEST_PHASE, request)
    _requires_slot(state, request, group, position)
    block, offset = place_of(state, request, group, position)
    requires(neg(state.in_flight[block]), rules.LOAD_NOT_INFLIGHT, block)

    arrived = u.prefix(group, state.tokens[request], position)
    loaded = ite(state.in_flight[block], u.poison, arrived)
    state.content[block, offset] = loaded
    state.promise[block, offset] = loaded
    state.num_scheduled[request, group] = position + 1
    state.num_written[request, group] = position + 1


def fall_back(state: GhostState, request: RequestId, num_computed: int) -> None:
    """Let fewer tokens of a request count as computed, as what follows was not loaded."""
    u = state.universe
    requires(state.live[request] & is_idle(state, request), REQUEST_PHASE, request)
    requires(
        (num_computed >= 0)
        & (num_computed <= state.num_computed[request])
        & forall(u.groups, lambda group: num_computed <= state.num_scheduled[request, group]),
        REQUEST_PHASE,
        num_computed,
    )

    def unread(group: GroupId, position: int) -> Bool:
        index = u.index(group, position)
        return implies(
            has_entry(state, request, group, index)
            & (state.table[request, group, index] == u.null),
            (position < num_computed) & neg(u.reads(request, group, num_computed, position)),
        )

    requires(forall((u.groups, u.numbers), unread), rules.ROLLBACK_WINDOW, num_computed)

    _cut_to(state, request, num_computed)


def stop(state: GhostState, request: RequestId) -> None:
    """Preempt, abort or finish a request. Then it is freed, from the last entry on."""
    requires(state.live[request], REQUEST_PHASE, request)

    state.running[request] = False


def free_last(state: GhostState, request: RequestId, group: GroupId) -> None:
    """Free the last entry of a stopped request."""
    index, scheduled = state.num_entries[request, group] - 1, state.num_scheduled[request, group]
    requires(state.live[request] & neg(state.running[request]), REQUEST_PHASE, request)
    requires(index >= 0, SLOT_THERE, index)
    requires(state.num_written[request, group] == scheduled, rules.FREE_NO_PROMISE, request)

    first = state.universe.start(group, index)
    left = ite(scheduled <= first, scheduled, first)
    state.num_entries[request, group] = index
    state.num_scheduled[request, group] = left
    state.num_written[request, group] = left


def close(state: GhostState, request: RequestId) -> None:
    """End a request whose tables are empty."""
    requires(state.live[request] & neg(state.running[request]), REQUEST_PHASE, request)
    requires(
        forall(state.universe.groups, lambda group: state.num_entries[request, group] == 0),
        REQUEST_PHASE,
        request,
    )

    state.live[request] = False


def retract(state: GhostState, block: BlockId) -> None:
    """Take the key from a block."""
    state.block_key[block] = state.universe.no_key


def reset(state: GhostState) -> None:
    """Take the keys from all blocks."""
    state.block_key.clear(state.universe.no_key)


def _requires_next_entry(state: GhostState, request: RequestId, group: GroupId) -> None:
    """The request is being admitted, and all of its entries are full and written."""
    scheduled = state.num_scheduled[request, group]
    requires(state.live[request] & neg(state.running[request]), REQUEST_PHASE, request)
    requires(
        (scheduled == state.universe.start(group, state.num_entries[request, group]))
        & (scheduled == state.num_written[request, group]),
        REQUEST_PHASE,
        request,
    )


def _next_entry(state: GhostState, request: RequestId, group: GroupId, block: BlockId) -> None:
    index = state.num_entries[request, group]
    state.table[request, group, index] = block
    state.num_entries[request, group] = index + 1
    state.num_scheduled[request, group] = end_of(state, group, index)
    state.num_written[request, group] = end_of(state, group, index)


def _requires_slot(state: GhostState, request: RequestId, group: GroupId, position: int) -> None:
    index = state.universe.index(group, position)
    requires(index < state.num_entries[request, group], SLOT_THERE, index)
    requires(state.table[request, group, index] != state.universe.null, SLOT_THERE, index)


def _check_own_slot(state: GhostState, request: RequestId, group: GroupId, position: int) -> None:
    """Say that what the block's own key says about the slot is the token's own prefix."""
    u = state.universe
    index = u.index(group, position)
    said = u.content_at(own_key(state, request, group, index), position - u.start(group, index))
    own = u.prefix(group, state.tokens[request], position)
    check(said == own, "a slot's own key says the token's own prefix")


def _cut_to(state: GhostState, request: RequestId, num_computed: int) -> None:
    state.num_computed[request] = num_computed
    state.num_scheduled.fill(request, num_computed)
    state.num_written.fill(request, num_computed)


def _withdraw(state: GhostState, request: RequestId, group: GroupId, *, fails: bool) -> None:
    u, position = state.universe, state.num_scheduled[request, group] - 1
    requires(
        state.live[request] & (state.num_written[request, group] <= position),
        REQUEST_PHASE,
        request,
    )
    block, offset = place_of(state, request, group, position)
    requires(state.block_key[block] == u.no_key, rules.UNPROMISE_UNKEYED, block)
    requires(
        forall(
            (u.requests, u.groups, u.numbers),
            lambda other, its_group, index: implies(
                holds(state, other, its_group, index, block)
                & neg((other == request) & (its_group == group)),
                state.num_scheduled[other, its_group] <= position,
            ),
        ),
        rules.UNPROMISE_UNSHARED,
        block,
    )
    requires(
        neg(state.running[request]) | (position >= state.num_computed[request]),
        rules.UNPROMISE_NOT_READY,
        request,
    )

    if fails:
        state.content[block, offset] = u.poison
    state.promise[block, offset] = state.content[block, offset]
    state.num_scheduled[request, group] = position
