"""The concepts of the managers and coordinators: who is who, and what each attention type is."""

from kvproof.cli.concept import Concept

_ONE = "kv_cache_coordinator."
_COORDINATORS = "vLLM 0.25.1, kv_cache_coordinator.py: "
_TYPES = "vLLM 0.25.1, single_type_kv_cache_manager.py: "

CONCEPTS: tuple[Concept, ...] = (
    Concept(
        "KVCacheManager",
        "The door between the scheduler and the cache: a scheduler asks it for hits and slots, and"
        " frees requests through it. It routes and records; the managers below decide.",
        "One door is one place where the order of calls is checked.",
        "vLLM 0.25.1, kv_cache_manager.py: KVCacheManager; seed 2, section 2",
        ("kv_cache_manager.KVCacheManager",),
        ("decision-equal", "reads-own-prefix", "writes-exclusive"),
        "facade façade scheduler interface router",
        ("allocate_slots", "get_computed_blocks", "free"),
    ),
    Concept(
        "KVCacheCoordinator",
        "The layer that passes each action on to every group's manager, over one pool that it"
        " builds.",
        "A model with several groups is hit only where every group is, and needs blocks in all of"
        " them.",
        _COORDINATORS + "KVCacheCoordinator; seed 1, Responsibilities; seed 2, section 3",
        (_ONE + "KVCacheCoordinator",),
        ("decision-equal",),
        "coordinator split actions dispatch by group",
        ("block pool", "coordinator factory"),
    ),
    Concept(
        "coordinator factory",
        "get_kv_cache_coordinator: without caching KVCacheCoordinatorNoPrefixCache, whatever the"
        " groups are; with caching and one group UnitaryKVCacheCoordinator; with several"
        " HybridKVCacheCoordinator, which is not specified yet and refused here.",
        "Each serves what the others cannot: no groups, one group without merging, several groups.",
        _COORDINATORS + "get_kv_cache_coordinator; seed 1, Responsibilities",
        (_ONE + "get_kv_cache_coordinator", "manager_rules.GROUP_COUNT"),
        (),
        "get_kv_cache_coordinator picks chooses strategy noprefix unitary hybrid",
        ("group-count", "config-fits"),
    ),
    Concept(
        "KVCacheCoordinatorNoPrefixCache",
        "The coordinator without prefix caching: any number of groups, also none; every lookup is"
        " empty, nothing is common, nothing is published.",
        "Tables and frees go on working while no caching path is used.",
        _COORDINATORS + "KVCacheCoordinatorNoPrefixCache; seed 1, Design motivation",
        (_ONE + "KVCacheCoordinatorNoPrefixCache",),
        ("decision-equal",),
        "no cache fallback caching disabled off zeros empty",
        ("caching-on", "coordinator factory"),
    ),
    Concept(
        "UnitaryKVCacheCoordinator",
        "The coordinator for one group with prefix caching. It requires that there is exactly one"
        " group, and that the hash unit is the group's block size.",
        "Then a hit of the group is the hit of the model, and nothing is merged.",
        _COORDINATORS + "UnitaryKVCacheCoordinator; seed 1, Boundaries",
        (_ONE + "UnitaryKVCacheCoordinator", "manager_rules.CONFIG_FITS"),
        ("decision-equal",),
        "single group fast path assumes hash_block_size equals block_size",
        ("config-fits", "group-count"),
    ),
    Concept(
        "HybridKVCacheCoordinator",
        "The coordinator for several groups with prefix caching: groups of equal spec are merged"
        " (SpecGroup), full attention is looked up first, and a length is a hit when every group"
        " backs it. Not specified yet.",
        "Full attention scans from the left, and what it finds bounds all others. 0.25.1 wants at"
        " least two merged groups, and no context parallelism.",
        _COORDINATORS + "HybridKVCacheCoordinator.verify_and_split_kv_cache_groups; seed 1, Design"
        " motivation",
        (),
        (),
        "verify_and_split_kv_cache_groups merges groups spec full attention first tight upper bound"
        " find_longest_cache_hit_per_group fixed point two attention groups several groups with"
        " caching supported",
        ("SpecGroup", "group-count"),
    ),
    Concept(
        "SpecGroup",
        "The groups that have one and the same spec, looked up together. Not specified yet.",
        "One lookup then serves all of them: each block must be cached in every one.",
        _COORDINATORS + "SpecGroup; seed 1, Key files",
        (),
        (),
        "merged same spec namedtuple attention_groups",
        ("HybridKVCacheCoordinator",),
    ),
    Concept(
        "SingleTypeKVCacheManager",
        "The manager of one group: its block tables, and which of its blocks are published. All"
        " types share its text here; what differs follows from what a token reads.",
        "vLLM has a subclass for each type, each with scans of its own; here a lookup, a skip and a"
        " mask are derived from one definition, so that they agree.",
        _TYPES + "SingleTypeKVCacheManager; seed 2, section 4",
        ("single_type_manager.SingleTypeKVCacheManager", "attention.Attention"),
        ("window-arithmetic", "hit-arithmetic", "decision-equal"),
        "abstract base class template method req_to_blocks get_manager_for_kv_cache_spec",
        ("full attention", "sliding window", "chunked local attention"),
    ),
    Concept(
        "full attention",
        "Each token reads all tokens before it. A hit is the longest cached prefix: from the left,"
        " to the first miss. Nothing is skipped before the request ends.",
        "Behind a miss nothing can be hit, since every later token reads what is missing. So the"
        " tail of a table is freed first.",
        _TYPES + "FullAttentionManager; seed 2, section 5",
        ("attention.Full", "full_attention.no_stranded_suffix"),
        ("hit-arithmetic", "no-stranded-suffix", "hit-longest"),
        "fullattentionmanager left to right first miss scan history context",
        ("table-in-order", "stranded suffix"),
    ),
    Concept(
        "sliding window",
        "Each token reads the last w tokens, itself included. A hit needs the blocks of the last"
        " w - 1 positions in front of the next token; entries before them are null, and count.",
        "vLLM scans from the right until it has enough blocks in a row, and so finds the longest."
        " Blocks that leave the window are released: nobody reads them any more.",
        _TYPES + "SlidingWindowManager; seed 1, Key files; seed 2, section 5",
        ("attention.SlidingWindow", "attention.longest_hit"),
        ("window-arithmetic", "window-kept", "hit-longest"),
        "slidingwindowmanager swa right to left contiguous window",
        ("skipped blocks", "mask"),
    ),
    Concept(
        "chunked local attention",
        "Each token reads its own chunk of c tokens up to itself. A hit that ends where a chunk"
        " begins needs no block at all; chunks hold whole blocks.",
        "A chunk that is complete is read by no later token, and is released.",
        _TYPES + "ChunkedLocalAttentionManager",
        ("attention.ChunkedLocal",),
        ("window-arithmetic", "hit-longest"),
        "chunkedlocalattentionmanager chunk local attention llama",
        ("skipped blocks", "config-fits"),
    ),
    Concept(
        "MLA",
        "Multi-head latent attention: keys and values are stored compressed. To the manager it is"
        " full attention.",
        "What is stored in a slot does not change who reads it.",
        "vLLM 0.25.1, kv_cache_interface.py: MLAAttentionSpec; seed 1, Responsibilities",
        ("kv_cache_spec.MLAAttentionSpec",),
        ("decision-equal",),
        "latent compressed deepseek",
        ("full attention",),
    ),
    Concept(
        "R-SWA",
        "A window that also reads the request's whole prompt: blocks between the prompt and the"
        " window are a gap that is released, so the manager must be told num_prompt_tokens. Not"
        " specified yet.",
        "In 0.25.1 remove_skipped_blocks takes the prompt's length for it, and the others ignore"
        " it.",
        _TYPES + "RSWAManager.remove_skipped_blocks; seed 1, Key files",
        (),
        (),
        "rswa rswamanager r-swa gap prompt decode num_prompt_tokens",
        ("remove_skipped_blocks", "sliding window"),
    ),
    Concept(
        "Mamba",
        "Layers that keep one state instead of keys and values for each token. Not specified yet.",
        "A state is hit only where one was kept; the token before leaves all that the next one"
        " reads.",
        _TYPES + "MambaManager; seed 1, Responsibilities; seed 2, section 3",
        (),
        (),
        "recurrent state mambamanager linear attention",
        ("HybridKVCacheCoordinator",),
    ),
    Concept(
        "cross attention",
        "The slots of an encoder's tokens, given once and by their own number. Not specified yet.",
        "In 0.25.1 the coordinator counts and gives num_encoder_tokens for such a group in a path"
        " of its own; there is no lookup.",
        _TYPES + "CrossAttentionManager; seed 1, Key files",
        (),
        (),
        "encoder tokens num_encoder_tokens crossattentionmanager whisper separate path",
        ("allocate_slots",),
    ),
    Concept(
        "attention sink",
        "Full attention with a few blocks that are held for ever. Not specified yet.",
        "They are holders that no request is: a pool with nothing but them in use is unused.",
        _TYPES + "SinkFullAttentionManager",
        (),
        (),
        "sinkfullattentionmanager permanent blocks",
        ("reset-unused",),
    ),
    Concept(
        "EAGLE drop",
        "With an EAGLE drafter the last block of a hit is dropped, so that its hidden states are"
        " computed again. Not specified yet.",
        "Without it the drafter guesses worse; the tokens of the target stay right.",
        _COORDINATORS + "find_longest_cache_hit",
        (),
        (),
        "eagle mtp drafter last block dropped use_eagle",
        ("draft",),
    ),
    Concept(
        "context parallelism",
        "DCP and PCP: a request's tokens are spread over several devices, and a block holds as many"
        " times more of them. Not specified.",
        "0.25.1 supports it for one group, where the block size is multiplied, and not for hybrid"
        " models: HybridKVCacheCoordinator asserts that both sizes are 1.",
        _COORDINATORS + "HybridKVCacheCoordinator.__init__; seed 1, Boundaries",
        (),
        (),
        "dcp pcp dcp_world_size pcp_world_size hybrid",
        ("HybridKVCacheCoordinator",),
    ),
    Concept(
        "alignment",
        "A hit is a multiple of the scheduler's block size, the least common multiple of the"
        " groups' block sizes. With one group that is its block size.",
        "A request resumes where every group has whole blocks. Else the table's entries and the"
        " request's positions part ways: wrong data.",
        "vLLM 0.25.1, kv_cache_utils.py: resolve_kv_cache_block_sizes; kv_cache_coordinator.py:"
        " KVCacheCoordinator.__init__; seed 1, Boundaries",
        ("attention.last_boundary", "manager_rules.CONFIG_FITS"),
        ("hit-aligned",),
        "scheduler_block_size cache hit aligned boundary lcm inside the middle of a block",
        ("hit-aligned", "config-fits"),
    ),
    Concept(
        "skipped blocks",
        "The blocks that hold no position which a token still to be computed may read. They are"
        " released, and the null block stands in their place.",
        "So a window holds a bounded number of blocks however long the request is. Skipped too"
        " early, a token reads the null block, or what another request wrote: wrong data.",
        _TYPES + "get_num_skipped_tokens, remove_skipped_blocks; seed 1, Key files",
        ("attention.skipped_tokens", "attention.Attention.first_read"),
        ("window-kept", "window-arithmetic"),
        "window skip get_num_skipped_tokens forget outside",
        ("remove_skipped_blocks", "skip-invisible"),
    ),
    Concept(
        "retention interval",
        "VLLM_PREFIX_CACHE_RETENTION_INTERVAL: at which boundaries a group that forgets keeps what"
        " a hit needs. None: at every aligned one; 0: at the last one of a prompt; r: at multiples"
        " of r and there.",
        "A window's blocks are useful at a boundary only as a whole run. Keeping fewer runs leaves"
        " more room, and promises fewer hits.",
        _TYPES + "reachable_block_mask; kv_cache_coordinator.py:"
        " _validate_prefix_cache_retention_interval; seed 1, Boundaries",
        ("attention.is_promised", "manager_rules.RETENTION_FITS"),
        ("mask-covers-lookup",),
        "retention_interval vllm_prefix_cache_retention_interval sparse checkpoints",
        ("retention-fits", "mask"),
    ),
)
"""Each concept. Where `specified` is empty, the specification does not have it yet."""
