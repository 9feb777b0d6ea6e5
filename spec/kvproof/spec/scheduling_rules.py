"""The rules that a scheduler must keep when it calls the cache manager: in what order, and with
which counts. The ghost contents have rules of their own (`kvproof.spec.protocol_rules`).

Source: vLLM 0.25.1, sched/scheduler.py, `schedule`, `update_from_output`, `_preempt_request`,
`_free_request_blocks`, `_update_waiting_for_remote_kv`.
"""

from kvproof.spec.rules import KVCacheError, Rule


class SchedulingError(KVCacheError, AssertionError):
    """A call came out of order, or with counts that are not the request's."""


def _rule(name: str, says: str, argument: str, advice: str, consequence: str) -> Rule:
    return Rule(name, says, argument, advice, SchedulingError, consequence)


REQUEST_KNOWN = _rule(
    "request-known",
    "a call names a request that has arrived, under a name that no other has",
    "request",
    "give each request a name of its own, and announce it before the first call",
    "two requests share one table",
)
PROGRESS_TOLD = _rule(
    "progress-told",
    "the counts that are passed are the request's own: computed tokens with the drafts in flight,"
    " those drafts, and whether it runs",
    "num_computed_tokens",
    "count what was scheduled, and take back what was rejected when its step has come back",
    "slots are given for other positions than those that are written",
)
SCHEDULED_ONCE = _rule(
    "scheduled-once",
    "a request is in a step at most once, and in none while it loads, while sampled tokens of it"
    " are not appended, or after a failed load that was not taken back",
    "request",
    "let the step come back, append what was sampled, and unschedule what has failed",
    "a position is computed from tokens that are not there",
)
NOT_BEYOND_EXPECTED = _rule(
    "not-beyond-expected",
    "a step computes tokens that are known, expected from a step in flight, or drafts, and no more"
    " than max_model_len",
    "num_new_tokens",
    "schedule at most num_tokens + placeholders + drafts - computed tokens",
    "a slot is written for a token that nobody has chosen",
)
HIT_AT_ONCE = _rule(
    "hit-at-once",
    "a hit is used by the allocate_slots that follows it, and then it is used",
    "use_hit",
    "call get_computed_blocks and allocate_slots one after the other",
    "the blocks of the hit are handed out to another request before it holds them",
)
LOADED_AS_ASKED = _rule(
    "loaded-as-asked",
    "what arrives from another store is what slots were given for; with delay_cache_blocks it"
    " arrives in a later step, otherwise before the step runs",
    "num_external_computed_tokens",
    "load exactly the external tokens of the allocate_slots call",
    "a step reads slots that nothing was written to",
)
STEP_COMPLETE = _rule(
    "step-complete",
    "a step samples for exactly those requests that it computes up to their last token; steps come"
    " back in the order in which they run",
    "sampled",
    "sample at least one token, and at most one more than there were drafts",
    "a token is sampled from logits that were not computed",
)
FREED_WHEN_IDLE = _rule(
    "freed-when-idle",
    "a request is freed when it has blocks, is in no step that is being put together, and nothing"
    " is loaded into its blocks",
    "request",
    "unschedule it first, or wait until the load has ended",
    "its blocks are written after another request has got them",
)
POPPED_ONCE = _rule(
    "popped-once",
    "free_blocks gets the blocks that pop_blocks_for_free returned, once, in reverse order",
    "blocks",
    "keep the list, and pass it reversed when no step in flight writes to it any more",
    "blocks are freed twice, or never",
)

SCHEDULING_RULES: dict[str, Rule] = {
    rule.name: rule for rule in list(globals().values()) if isinstance(rule, Rule)
}
"""The rules of a scheduler, by name."""
