"""Where each rule comes from: what vLLM 0.25.1 does there, or a seed and its section.

A rule that 0.25.1 does not check is one that its own callers keep.
"""

_POOL = "vLLM 0.25.1, block_pool.py: "
_TYPES = "vLLM 0.25.1, single_type_kv_cache_manager.py: "
_MANAGER = "vLLM 0.25.1, kv_cache_manager.py: "
_COORDINATOR = "vLLM 0.25.1, kv_cache_coordinator.py: "
_HASHES = "vLLM 0.25.1, kv_cache_utils.py: "
_SCHEDULER = "vLLM 0.25.1, sched/scheduler.py: "

SOURCES: dict[str, str] = {
    "pool-has-null": _POOL + "BlockPool.__init__; seed 1, Design motivation",
    "enough-free": _POOL + "get_new_blocks, asserted; seed 1, Boundaries",
    "count-nonnegative": _POOL + "get_new_blocks, not checked",
    "release-held": _POOL + "free_blocks, not checked",
    "slot-empty": _TYPES + "add_local_computed_blocks, asserted",
    "real-block": _POOL + "free_blocks, cache_full_blocks: null blocks are left out; seed 1, Design"
    " motivation",
    "id-in-range": _POOL + "evict_blocks, asserted for ids that are too large; seed 1, Boundaries",
    "share-readable": _POOL + "touch, not checked; seed 2, path 3",
    "publish-held": _POOL + "cache_full_blocks, not checked",
    "publish-once": _HASHES + "KVCacheBlock.set_block_hash, asserted; block_pool.py:"
    " cache_full_blocks; seed 1, Boundaries",
    "one-chain": _POOL + "cache_full_blocks, cache_partial_block, not checked; against seed 1,"
    " Responsibilities",
    "full-on-boundary": _POOL + "cache_full_blocks",
    "partial-inside": _POOL + "cache_partial_block, asserted",
    "caching-on": _MANAGER + "allocate_slots, cache_blocks: not called without caching; seed 1,"
    " Design motivation",
    "tokens-known": _POOL + "cache_full_blocks, asserted",
    "blocks-given": _POOL + "cache_full_blocks, asserted in part",
    "one-block-size": _POOL + "cache_full_blocks, asserted for the multiple; seed 2, path 1",
    "mask-fits": _POOL + "cache_full_blocks, asserted; seed 1, Key files",
    "table-in-order": _TYPES + "free: reversed; seed 1, Design motivation",
    "reset-unused": _POOL + "reset_prefix_cache: a warning and False; seed 1, Boundaries",
    "something-new": _MANAGER + "allocate_slots, a ValueError",
    "tokens-nonnegative": _MANAGER + "allocate_slots, not checked",
    "hits-come-first": _COORDINATOR + "allocate_new_computed_blocks, asserted for local hits",
    "hit-is-whole": _MANAGER + "get_computed_blocks, allocate_slots, not checked",
    "cached-are-known": _MANAGER + "allocate_slots: at most request.num_tokens",
    "config-fits": _COORDINATOR + "KVCacheCoordinator.__init__, UnitaryKVCacheCoordinator.__init__,"
    " asserted; seed 1, Boundaries",
    "retention-fits": _COORDINATOR + "_validate_prefix_cache_retention_interval, a ValueError;"
    " against seed 1, Boundaries",
    "group-count": _COORDINATOR + "UnitaryKVCacheCoordinator.__init__, asserted; seed 1, Design"
    " motivation",
    "name-given": _HASHES + "generate_block_hash_extra_keys: an empty salt is no salt",
    "items-in-order": _HASHES + "generate_block_hash_extra_keys, relied on",
    "within-tokens": _HASHES + "get_request_block_hasher, relied on",
    "request-known": _SCHEDULER + "add_request",
    "progress-told": _SCHEDULER + "_update_after_schedule, update_from_output",
    "scheduled-once": _SCHEDULER + "schedule",
    "not-beyond-expected": _SCHEDULER + "schedule",
    "hit-at-once": _SCHEDULER
    + "schedule: get_computed_blocks, then allocate_slots; against seed 2,"
    " path 1",
    "loaded-as-asked": _SCHEDULER + "_update_waiting_for_remote_kv",
    "step-complete": _SCHEDULER + "update_from_output",
    "freed-when-idle": _SCHEDULER + "_free_request_blocks, _preempt_request",
    "popped-once": _SCHEDULER + "_drain_deferred_frees",
    "request-phase": "no rule of vLLM: the transitions are those of its scheduler",
    "slot-there": "no rule of vLLM: allocate_slots gives every scheduled token a slot",
    "acquire-unheld": _POOL + "get_new_blocks; seed 2, path 1",
    "acquire-retracts": _POOL + "_maybe_evict_cached_block; seed 1, Data flow; seed 2, path 1",
    "hit-key": _SCHEDULER + "schedule; seed 2, path 3",
    "hit-below-known": _MANAGER + "get_computed_blocks",
    "publish-scheduled": _MANAGER + "allocate_slots",
    "publish-known": _MANAGER + "allocate_slots",
    "writes-before-reads": "vLLM 0.25.1, v1/attention: the backends",
    "ready-complete": _SCHEDULER + "schedule, _update_waiting_for_remote_kv",
    "pad-invisible": _TYPES + "add_local_computed_blocks",
    "skip-invisible": _TYPES + "remove_skipped_blocks; seed 1, Key files",
    "skip-written": _SCHEDULER + "schedule",
    "accepted-agree": _SCHEDULER + "update_from_output",
    "known-fixed": _SCHEDULER + "_update_request_as_session",
    "no-rollback-below-skip": _SCHEDULER + "update_from_output",
    "free-no-promise": _SCHEDULER + "_preempt_request",
    "unpromise-unkeyed": _SCHEDULER + "_handle_invalid_blocks",
    "unpromise-unshared": _SCHEDULER + "_update_requests_with_invalid_blocks",
    "unpromise-not-ready": _SCHEDULER + "_preempt_request",
    "rollback-window": _SCHEDULER + "_update_requests_with_invalid_blocks",
    "load-not-inflight": _SCHEDULER + "_free_request_blocks",
}
"""The source of each rule. A test holds that there is one for every rule."""
