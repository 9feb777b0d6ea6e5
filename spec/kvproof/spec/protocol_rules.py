"""The rules that an engine must keep so that every token reads its own prefix.

A step is scheduled, runs, and comes back. Keys are published when slots are given, before anything
is written: a key is a promise. These rules say how promises are made, kept and taken back. Each is
a precondition of a transition of the ghost contents (`kvproof.spec.ghost_transitions`), and of
the calls that the fuzzer makes; without it a token may read what is not its own.

Source: vLLM 0.25.1, sched/scheduler.py, kv_cache_manager.py; seed 2, sections 2 and 6.
"""

from typing import NamedTuple

from kvproof.spec.rules import KVCacheError, Rule


class ProtocolError(KVCacheError, AssertionError):
    """An engine broke the protocol between its scheduler and its cache."""


def _rule(name: str, says: str, argument: str, advice: str, consequence: str) -> Rule:
    return Rule(name, says, argument, advice, ProtocolError, consequence)


ACQUIRE_UNHELD = _rule(
    "acquire-unheld",
    "a block that is handed out is held by nobody",
    "block",
    "take blocks from the free queue only",
    "two requests write one block: wrong data",
)
ACQUIRE_RETRACTS = _rule(
    "acquire-retracts",
    "a block that is handed out loses all its keys",
    "block",
    "take the keys away before the block is given on",
    "a lookup finds a block with another request's tokens: wrong data",
)
HIT_KEY = _rule(
    "hit-key",
    "an accepted hit carries the key of this request's own prefix, in this group",
    "new_computed_blocks",
    "look up again when anything happened since the lookup",
    "a request reads another prefix: wrong data",
)
HIT_BELOW_KNOWN = _rule(
    "hit-below-known",
    "a hit, with the external tokens behind it, ends below the request's known tokens, and leaves"
    " one to compute in this step",
    "num_new_computed_tokens",
    "hit at most num_tokens - 1 tokens",
    "a key of another prefix is taken for the request's own",
)
PUBLISH_SCHEDULED = _rule(
    "publish-scheduled",
    "a key covers scheduled tokens only: those that are in the cache, or will be when the steps in"
    " flight have run",
    "num_computed_tokens",
    "publish after the load has arrived, or with the step that computes the tokens",
    "a lookup finds a block that nobody is going to write: wrong data",
)
PUBLISH_KNOWN = _rule(
    "publish-known",
    "a key covers known tokens only: no draft, and no token that is not sampled yet",
    "num_computed_tokens",
    "publish at most request.num_tokens tokens",
    "a rejected draft is found under the key of what was guessed: wrong data",
)
WRITES_BEFORE_READS = _rule(
    "writes-before-reads",
    "within a step every write precedes the reads",
    "step",
    "write the keys and values of all requests of a step before its attention runs",
    "a request that hits a block of the same step reads it before it is written",
)
READY_COMPLETE = _rule(
    "ready-complete",
    "a request computes only when everything that its tokens read is in the cache, or promised in"
    " this step or one before it",
    "request",
    "wait until what is loaded has arrived",
    "a token reads slots that nothing was written to: wrong data",
)
PAD_INVISIBLE = _rule(
    "pad-invisible",
    "a table begins with null entries only where no token still to be computed can see them",
    "new_computed_blocks",
    "pad by what the attention type skips at the first token that is computed",
    "a token reads the null block: wrong data",
)
SKIP_INVISIBLE = _rule(
    "skip-invisible",
    "an entry becomes null only when no token still to be computed can see it, also when drafts in"
    " flight are rejected",
    "total_computed_tokens",
    "skip by what is settled, not by what is computed if all drafts are accepted",
    "a token reads the null block, or another request's: wrong data",
)
SKIP_WRITTEN = _rule(
    "skip-written",
    "an entry becomes null only when no step in flight has still to write or read it",
    "total_computed_tokens",
    "let steps run in the order in which they were dispatched",
    "a step writes a block that is another request's by then",
)
ACCEPTED_AGREE = _rule(
    "accepted-agree",
    "an accepted draft is the token that was written into its slot",
    "tokens",
    "accept drafts from the left, up to the first that differs",
    "a slot holds another token than the request has there: wrong data",
)
KNOWN_FIXED = _rule(
    "known-fixed",
    "a token that is known stays as it is",
    "tokens",
    "free a request, and let it start anew, when a streaming session drops or changes a token",
    "what is cached and published is another prefix than the request's",
)
NO_ROLLBACK_BELOW_SKIP = _rule(
    "no-rollback-below-skip",
    "a request never falls back below what its window gave up",
    "num_computed_tokens",
    "skip only what no rejected draft can bring back",
    "a token that is computed again reads the null block: wrong data",
)
FREE_NO_PROMISE = _rule(
    "free-no-promise",
    "blocks with a promise that will not be kept are not freed as if they were written",
    "request",
    "unschedule the request first: its keys are taken back",
    "a key stays on a block that nobody writes, and the next hit reads it: wrong data",
)
UNPROMISE_UNKEYED = _rule(
    "unpromise-unkeyed",
    "a promise is withdrawn only when no key covers it any more",
    "num_computed_tokens",
    "take the keys back before the request falls back",
    "a lookup finds what was never written: wrong data",
)
UNPROMISE_UNSHARED = _rule(
    "unpromise-unshared",
    "a promise is withdrawn only when nobody else relies on it",
    "request",
    "cut back those that hit the block first, the last one first",
    "another request reads what was never written: wrong data",
)
UNPROMISE_NOT_READY = _rule(
    "unpromise-not-ready",
    "a promise is withdrawn only from tokens that the request no longer counts as computed",
    "num_computed_tokens",
    "take the request out of its step first",
    "the request goes on behind a gap in its own prefix: wrong data",
)
ROLLBACK_WINDOW = _rule(
    "rollback-window",
    "after a failed load no request resumes where its window holds a null",
    "num_computed_tokens",
    "free the request, and let it start anew",
    "a token reads the null block: wrong data",
)
LOAD_NOT_INFLIGHT = _rule(
    "load-not-inflight",
    "an external load never targets a block that a step in flight may still touch",
    "num_external_computed_tokens",
    "pop the blocks of a request that leaves with a step in flight, and free them when it is back",
    "a step that runs late overwrites what was loaded: wrong data",
)

PROTOCOL_RULES: dict[str, Rule] = {
    rule.name: rule for rule in list(globals().values()) if isinstance(rule, Rule)
}
"""The rules of the protocol, by name."""


class Practice(NamedTuple):
    """Whether a release keeps a rule, and where that can be seen."""

    keeps: bool
    evidence: str


_KEPT = {
    ACQUIRE_UNHELD: "block_pool.py, get_new_blocks: from the free queue",
    ACQUIRE_RETRACTS: "block_pool.py, get_new_blocks: _maybe_evict_cached_block",
    HIT_KEY: "scheduler.py, schedule: lookup and allocate_slots follow each other",
    HIT_BELOW_KNOWN: "kv_cache_manager.py, get_computed_blocks: at most num_tokens - 1",
    PUBLISH_SCHEDULED: "kv_cache_manager.py, allocate_slots: delay_cache_blocks",
    PUBLISH_KNOWN: "kv_cache_manager.py, allocate_slots: at most request.num_tokens",
    WRITES_BEFORE_READS: "the attention backends: keys and values are written layer by layer first",
    READY_COMPLETE: "scheduler.py, schedule: WAITING_FOR_REMOTE_KVS until the load has ended",
    SKIP_WRITTEN: "steps run in the order of dispatch on one stream",
    UNPROMISE_NOT_READY: "scheduler.py, _preempt_request: num_computed_tokens becomes 0",
    LOAD_NOT_INFLIGHT: "scheduler.py, _free_request_blocks: frees are deferred where a connector"
    " loads and steps overlap",
}
_BROKEN = {
    PAD_INVISIBLE: "a prompt that is loaded as a whole computes its last token again, one before"
    " the position for which allocate_slots pads (scheduler.py, _update_waiting_for_remote_kv)",
    SKIP_INVISIBLE: "kv_cache_manager.py, allocate_slots: skips by num_computed_tokens, which"
    " counts drafts in flight as accepted",
    ACCEPTED_AGREE: "scheduler.py, _update_request_as_session: where a stop cut off accepted"
    " drafts, num_computed_tokens still counts them, and the next input's tokens there are never"
    " computed",
    KNOWN_FIXED: "scheduler.py, _update_request_as_session: a continued session drops the token"
    " that was sampled last, but not the block hash that covers it",
    NO_ROLLBACK_BELOW_SKIP: "scheduler.py, update_from_output: rejected drafts of a step in flight"
    " take back tokens whose window is gone",
    FREE_NO_PROMISE: "scheduler.py, _preempt_request: with priorities a request of this very step"
    " is freed, keys and all",
    UNPROMISE_UNKEYED: "scheduler.py, _handle_invalid_blocks: with the recompute policy the keys of"
    " what was not loaded stay",
    UNPROMISE_UNSHARED: "scheduler.py, _update_requests_with_invalid_blocks: only requests that run"
    " are cut back, and the first of them is trusted to compute the block again",
    ROLLBACK_WINDOW: "scheduler.py, _update_requests_with_invalid_blocks: num_computed_tokens falls"
    " to the first block that failed, whatever the window has given up",
}

RELEASES: dict[str, dict[str, Practice]] = {
    "0.25.1": {
        **{rule.name: Practice(True, why) for rule, why in _KEPT.items()},
        **{rule.name: Practice(False, why) for rule, why in _BROKEN.items()},
    }
}
"""For each vLLM release, whether it keeps each rule."""
