"""The concepts of requests and steps: hits, drafts, loads, admission, what is promised."""

from kvproof.cli.concept import Concept

_MANAGER = "vLLM 0.25.1, kv_cache_manager.py: "
_SCHEDULER = "vLLM 0.25.1, sched/scheduler.py: "
_HASHING = "vLLM 0.25.1, kv_cache_utils.py: generate_block_hash_extra_keys"
_ALLOCATE = "kv_cache_manager.KVCacheManager.allocate_slots"

CONCEPTS: tuple[Concept, ...] = (
    Concept(
        "block table",
        "The blocks of one request in one group, in the order of its tokens: entry i holds the"
        " tokens from i * block_size on. Kernels read it as a list of block ids.",
        "A position must find its slot. Entries that nobody reads any more are the null block.",
        "vLLM 0.25.1, single_type_kv_cache_manager.py: req_to_blocks; seed 1, Summary; seed 2,"
        " path 1",
        (
            "single_type_manager.SingleTypeKVCacheManager",
            "kv_cache_manager.KVCacheManager.get_block_ids",
        ),
        ("reads-own-prefix", "writes-exclusive"),
        "req_to_blocks block_ids physical mapping tensors kernel",
        ("null block", "skipped blocks"),
    ),
    Concept(
        "prefill",
        "The computation of a prompt, in one step or in several chunks. Look the hit up, then"
        " allocate slots: count what is needed, hold the hit, take the rest, publish what is full.",
        "All is counted before anything is held, so that None leaves nothing behind.",
        _MANAGER + "allocate_slots; seed 2, path 1",
        (_ALLOCATE, "kv_cache_manager.KVCacheManager.get_computed_blocks"),
        ("failed-is-noop", "prediction-exact"),
        "new request arrives prompt chunked prefill phase",
        ("allocate_slots", "get_computed_blocks"),
    ),
    Concept(
        "decode",
        "A running request gets room for its next token: no block while its last one has room, else"
        " one new block in each group, else None, and the scheduler preempts somebody.",
        "Most steps of most requests need no block, so that path must cost nothing.",
        _MANAGER + "allocate_slots; seed 2, path 2",
        (_ALLOCATE,),
        ("failed-is-noop", "prediction-exact"),
        "running request appends token last block has room fast path",
        ("allocate_slots", "preemption", "watermark"),
    ),
    Concept(
        "preemption",
        "Taking a running request's blocks, so that others can go on. Its tables are freed, its"
        " count of computed tokens is 0 again, and it resumes with a lookup, like a new one.",
        "Its blocks keep their keys, so that most of it may be hit again. If it is taken out of a"
        " step that has not run, its keys promise what nobody will write.",
        _SCHEDULER + "_preempt_request; seed 2, path 2",
        (
            "kv_cache_manager.KVCacheManager.free",
            "kv_cache_manager.KVCacheManager.unschedule",
            "scheduling_rules.FREED_WHEN_IDLE",
        ),
        ("reads-own-prefix", "all-returned"),
        "preempted resumed victim out of memory",
        ("free-no-promise", "freed-when-idle"),
    ),
    Concept(
        "watermark",
        "A share of the pool that is left free when a waiting or preempted request is admitted"
        " while others run. A running request may use it.",
        "Without it a request is admitted with the last blocks, and preempted at the next step.",
        _MANAGER + "allocate_slots, watermark_blocks",
        (_ALLOCATE,),
        ("decision-equal",),
        "watermark_blocks headroom reserve unused when a new request is admitted",
        ("reserved blocks", "allocate_slots"),
    ),
    Concept(
        "reserved blocks",
        "reserved_blocks: how many free blocks a call of allocate_slots leaves for others. vLLM's"
        " scheduler passes what the prefills in flight still need, for asynchronous loads only.",
        "A load holds its blocks without getting further; taking what a prefill relies on, the two"
        " would wait for each other.",
        _SCHEDULER + "_inflight_prefill_reserved_blocks",
        (_ALLOCATE,),
        ("decision-equal",),
        "reserved_blocks left for others deadlock",
        ("watermark", "admission gate"),
    ),
    Concept(
        "lookahead tokens",
        "num_lookahead_tokens: room behind the new tokens for drafts that a drafter writes. Nothing"
        " in it is published.",
        "A drafter with a cache of its own writes its keys and values there.",
        _MANAGER + "allocate_slots",
        (_ALLOCATE,),
        ("bound-covers-peak",),
        "num_lookahead_tokens look-ahead slots room speculative decoding tokens eagle",
        ("draft", "startup bound"),
    ),
    Concept(
        "draft",
        "A token that was guessed and may be rejected. Drafts get slots and are computed; a step"
        " may be scheduled behind them before it is known which are accepted.",
        "Only known tokens are published, and a window gives up only what no rejected draft can"
        " bring back: num_unsettled_tokens counts the drafts in flight.",
        _MANAGER + "allocate_slots; sched/scheduler.py: update_from_output",
        ("request.Request", _ALLOCATE),
        ("window-kept", "reads-own-prefix"),
        "draft tokens speculative rejected accepted unsettled num_unsettled_tokens verification",
        ("publish-known", "skip-invisible", "accepted-agree"),
    ),
    Concept(
        "external tokens",
        "num_external_computed_tokens: tokens whose keys and values another store has. They get"
        " slots behind the local hit, and are loaded, at once or in a later step.",
        "All local hits are held before any block is taken for them: a block of one group's hit"
        " could be queued, and be handed out for another group's external tokens.",
        _MANAGER + "allocate_slots; single_type_kv_cache_manager.py:"
        " allocate_external_computed_blocks",
        (
            _ALLOCATE,
            "kv_cache_coordinator.KVCacheCoordinator.allocate_new_computed_blocks",
            "scheduling_rules.LOADED_AS_ASKED",
        ),
        ("reads-own-prefix", "writes-exclusive"),
        "num_external_computed_tokens connector remote kv transfer load p/d disaggregated offload",
        ("delayed caching", "load-not-inflight", "rollback-window"),
    ),
    Concept(
        "delayed caching",
        "delay_cache_blocks: slots are given, and nothing is published, since the contents arrive"
        " in a later step. cache_blocks publishes them then.",
        "A key published before a load that may fail promises what may never be there.",
        _MANAGER + "allocate_slots, cache_blocks",
        (_ALLOCATE, "kv_cache_manager.KVCacheManager.cache_blocks"),
        ("reads-own-prefix",),
        "delay_cache_blocks asynchronous load publish later",
        ("external tokens", "publish-scheduled"),
    ),
    Concept(
        "admission gate",
        "full_sequence_must_fit: a waiting request is admitted only when the whole of what is known"
        " of it fits, not just the next chunk. A group that forgets is counted with the most blocks"
        " that it holds at once.",
        "Otherwise many prefills begin and none can end: deadlock. Counted with too much, a request"
        " that would fit waits for ever.",
        _MANAGER + "allocate_slots; kv_cache_interface.py: max_admission_blocks_per_request",
        (_ALLOCATE, "attention.admission_blocks"),
        ("bound-covers-peak", "bound-arithmetic"),
        "full_sequence_must_fit admission admitted too long does not fit wait for ever memory cap",
        ("startup bound", "bound-covers-peak"),
    ),
    Concept(
        "startup bound",
        "The most blocks of one request, by which an engine sizes its pool at startup: what its"
        " longest request fills, or, of a group that forgets, what it holds at once.",
        "A pool smaller than one request's peak deadlocks with that request alone in it.",
        "vLLM 0.25.1, kv_cache_interface.py: max_admission_blocks_per_request",
        ("attention.startup_bound", "attention.peak_blocks"),
        ("bound-covers-peak", "bound-arithmetic"),
        "pool size max_model_len maximum memory usage how many blocks a request holds at most peak",
        ("admission gate", "bound-tight"),
    ),
    Concept(
        "common prefix",
        "The leading blocks that stand in every table of a group, for cascade attention: it reads"
        " them once for all requests.",
        "Reported too many, one request's prefix is read for all: wrong data. 0.25.1 compares a"
        " block's count with the number of tables, and is misled by blocks that wait to be freed.",
        _MANAGER + "get_num_common_prefix_blocks; seed 1, Design motivation",
        ("kv_cache_manager.KVCacheManager.get_num_common_prefix_blocks",),
        ("common-prefix-true",),
        "get_num_common_prefix_blocks cascade attention system prompt shared by all requests",
        ("common-prefix-true", "get_num_common_prefix_blocks"),
    ),
    Concept(
        "deferred free",
        "Blocks of a request that ends while a step in flight may still write to them: they are"
        " popped, stay held, and are freed when that step has come back.",
        "Freed at once, they would be written by the late step when they are another's.",
        _SCHEDULER + "_free_request_blocks, _drain_deferred_frees",
        (
            "kv_cache_manager.KVCacheManager.pop_blocks_for_free",
            "scheduling_rules.POPPED_ONCE",
        ),
        ("deferral-neutral", "writes-exclusive"),
        "pop_blocks_for_free abort late write gpu still writes reused",
        ("popped-once", "load-not-inflight"),
    ),
    Concept(
        "step in flight",
        "A step that was dispatched and has not come back: its sampled tokens are not known yet."
        " Steps run in the order of dispatch, also for requests that have ended since.",
        "The next step is scheduled on what is expected of it; so counts are optimistic, and what"
        " may be rejected is counted apart.",
        _SCHEDULER + "schedule, update_from_output",
        ("scheduling_rules.STEP_COMPLETE", "scheduling_rules.NOT_BEYOND_EXPECTED"),
        ("window-kept", "reads-own-prefix"),
        "asynchronous scheduling dispatched in flight pipeline batch queue",
        ("draft", "deferred free"),
    ),
    Concept(
        "promise",
        "A key that is published, or a table entry that is shared, before the step that writes it"
        " has run. It is safe as long as it is kept: all writes of a step precede its reads.",
        "So a request may hit what another one computes in the same step. A promise that cannot be"
        " kept must be taken back first: key, sharers, then the request itself.",
        _MANAGER + "allocate_slots: blocks are cached when slots are given",
        ("protocol_rules.WRITES_BEFORE_READS", "protocol_rules.FREE_NO_PROMISE"),
        ("reads-own-prefix", "writes-exclusive"),
        "published before it is written same step",
        ("writes-before-reads", "free-no-promise", "unpromise-unkeyed"),
    ),
    Concept(
        "ghost contents",
        "What every slot of every block holds, and what it will hold when all scheduled writes have"
        " landed. No engine stores it; specification and fuzzer do.",
        "That a token reads its own prefix cannot be said without it: a stale block looks like any"
        " other, and nothing crashes.",
        _MANAGER + "allocate_slots, free; seed 2, section 6",
        ("ghost_state.GhostState", "ghost_properties.reads_own_prefix", "ghost_transitions.write"),
        ("reads-own-prefix", "writes-exclusive"),
        "content of slots stale data wrong tokens poison",
        ("promise", "reads-own-prefix"),
    ),
    Concept(
        "extra keys",
        "What is hashed besides tokens: the LoRA adapter, multimodal items with their offsets, the"
        " cache salt, prompt embeddings. Each carries its kind.",
        "Keys and values depend on them. Without the kind, a salt equals an adapter of that name,"
        " and a request reads another tenant's blocks: wrong data.",
        _HASHING,
        ("hashing.ExtraKey", "hashing.extra_keys"),
        ("key-injective",),
        "lora adapter adapters multimodal image embeddings different share blocks",
        ("cache salt", "key-injective"),
    ),
    Concept(
        "cache salt",
        "A text in the first unit's hash that keeps tenants apart: requests share blocks only when"
        " their salts are equal.",
        "A tenant could otherwise find out, by timing, what another has asked.",
        _HASHING,
        ("hashing.CacheSaltKey", "manager_rules.NAME_GIVEN"),
        ("key-injective",),
        "cache_salt tenant tenants isolation privacy keep apart another",
        ("extra keys", "name-given"),
    ),
)
"""Each concept."""
