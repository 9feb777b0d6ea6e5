"""The words of the block pool, and what each branch of an operation is."""

TERMS: dict[str, str] = {
    "block": "A fixed piece of KV-cache memory that holds the keys and values of block_size tokens"
    " for the layers of one group. A pool has N of them, named by ids 0 .. N - 1.",
    "null block": "Block 0, the placeholder in table entries that nobody will read (skipped window"
    " blocks, padding). It is never queued, keyed, counted or handed out.",
    "reference count": "ref_cnt: how many slots hold a block. At 0 the block is in the free"
    " queue; the null block's own count is unspecified.",
    "free queue": "The blocks that may be handed out, in the order of eviction: the block at the"
    " front is evicted first. Freed blocks without a key join at the front, those with one at the"
    " back, so the least recently used cached block is evicted first (LRU).",
    "eviction": "Handing out a block that carries keys: it loses them, and what it cached is gone."
    " Who is evicted first is decided by the free queue: its front.",
    "lazy eviction": "Freeing a block keeps its keys. It stays cached, and can be hit, until it"
    " is handed out again.",
    "block hash": "What identifies the contents of a block: a hash of all tokens of the prefix"
    " that ends with it. kvproof takes it to be injective, and writes it as the tokens joined by"
    " dots: 0.1.1.",
    "hash unit": "hash_block_size: the number of tokens between two prefixes that have a hash. A"
    " group's block size is a multiple of it.",
    "key": "A block hash together with a group (vLLM: BlockHashWithGroupId). What the prefix"
    " cache looks up. kvproof writes it as hash@group: 0.1@0.",
    "full key": "A key whose prefix ends on a block boundary.",
    "partial key": "A key whose prefix ends inside a block, on a hash unit. A block may carry"
    " several, all prefixes of one chain; the longest is its block_hash.",
    "promotion": "Giving a block a longer key than the ones that it has: the shorter ones are"
    " retired, and do not come back to that block before it is handed out again.",
    "retired key": "A partial key that a longer one has replaced on its block.",
    "chain": "The prefixes of one sequence of tokens, each with its hash. All keys of a block"
    " belong to one chain.",
    "group": "A KV-cache group: the layers that share one block table, one block size and one"
    " attention type.",
    "slot": "A place that holds one reference to a block: an entry of a block table, a pending"
    " free, or a permanent holder.",
    "block table": "The blocks of one request in one group, in the order of its tokens.",
    "prefix-cache hit": "A lookup that finds a block for the request's own prefix. The block is"
    " then touched: it leaves the free queue if nobody held it, and its count grows.",
    "double free": "Releasing a reference that nobody holds, freeing a block twice. It is refused:"
    " see the rule release-held and the property misuse-refused. Accepted, it makes a count fall"
    " below zero, or frees a block under its reader.",
    "duplicate": "A key that several blocks carry. vLLM keeps them all (it does not deduplicate),"
    " and a lookup finds the one that was listed first.",
    "mask": "block_mask of cache_full_blocks: which of the new full blocks are published.",
    "connector": "What moves KV data into or out of the pool from outside; it may evict_blocks.",
    "event": "What the pool tells about its cache: stored, removed, cleared. A router that folds"
    " the stream of events knows the resident keys.",
    "resident": "A key is resident when some block is listed under it.",
    "stranded suffix": "A cached block whose parent is not cached. A full-attention lookup stops"
    " at the first miss, so it can never be hit.",
    "erratum": "A place where vLLM 0.25.1 breaks a property. The property decides.",
    "signature": "What tells failures apart: property, operation, branches of the specification,"
    " features of the layout. --known and --expect read lists of signatures.",
    "layout": "A named shape of a pool that the fuzzer draws from: groups, block sizes, caching.",
    "ledger": "What the fuzzer knows of a target from its calls and answers alone: who holds"
    " which block, and which keys each block was given.",
    "model": "The specification, run beside the target as the oracle of the fuzzer.",
    "invariant": "Everything that holds in every reachable state; kvproof prove proves that every"
    " transition keeps it.",
}

ALIASES: dict[str, str] = {
    "ref cnt": "reference count",
    "ref count": "reference count",
    "refcount": "reference count",
    "null": "null block",
    "evict": "eviction",
    "lru": "free queue",
    "prefix cache hit": "prefix-cache hit",
    "cache hit": "prefix-cache hit",
    "promote": "promotion",
    "retired": "retired key",
}
"""Other names of these words."""

BRANCHES: dict[str, str] = {
    "get_new_blocks:none": "no block is asked for",
    "get_new_blocks:unkeyed": "a block without a key is handed out",
    "get_new_blocks:evicts": "a block that carries keys is handed out, and loses them",
    "get_new_blocks:short": "more blocks are asked for than are free: the call is refused",
    "touch:queued": "a block that nobody held leaves the free queue",
    "touch:held": "a block that somebody holds is held once more",
    "touch:null": "the null block is among the blocks, and left alone",
    "touch:twice": "one block is named twice in one call",
    "free_blocks:shared": "a reference is released, and others remain",
    "free_blocks:last-keyed": "the last reference of a block with a key: it is queued at the back",
    "free_blocks:last-unkeyed": "the last reference of a block without a key: queued at the front",
    "free_blocks:null": "the null block is among the blocks, and left alone",
    "free_blocks:twice": "one block is released twice in one call",
    "get_cached_block:miss": "some group has no block for this hash",
    "get_cached_block:hit-queued": "the block that is found is held by nobody",
    "get_cached_block:hit-held": "the block that is found is held by somebody",
    "get_cached_block:duplicates": "several blocks are listed, and the first is found",
    "get_cached_block:several-groups": "several groups are looked up in one call",
    "cache_full_blocks:nothing": "there is no new full block",
    "cache_full_blocks:fresh": "a block without a key gets its full key",
    "cache_full_blocks:promotes": "a block with partial keys gets its full key, and they retire",
    "cache_full_blocks:duplicate": "the key is resident in another block already",
    "cache_full_blocks:masked": "the mask leaves a block out",
    "cache_full_blocks:null": "a null entry is among the new full blocks, and left out",
    "cache_partial_block:fresh": "a block without a key gets a partial key",
    "cache_partial_block:longer": "a block gets a longer partial key, and the shorter ones retire",
    "cache_partial_block:shorter": "a block gets a partial key shorter than its longest one",
    "cache_partial_block:again": "a block is given a key that it carries already",
    "cache_partial_block:retired": "a block is given a key that it has retired: it is not listed",
    "cache_partial_block:null": "the null block is given a partial key: nothing happens",
    "evict_blocks:unkeyed": "a block without a key is evicted: nothing happens",
    "evict_blocks:keyed": "a block loses keys that no other block carries",
    "evict_blocks:duplicate": "a block loses a key that another block still carries",
    "evict_blocks:queued": "a block loses its keys in the free queue, and keeps its place",
    "evict_blocks:null": "the null block is among the blocks, and left alone",
    "reset_prefix_cache:done": "no block is in use: all keys go",
    "reset_prefix_cache:in-use": "a block is in use: the reset is refused with a warning",
    "take_events:none": "nothing has happened since the last call",
    "take_events:some": "there are events since the last call",
    "get_num_free_blocks:called": "the number of free blocks is asked for",
    "get_usage:called": "the share of blocks in use is asked for",
}
"""What each branch is. A run that never takes one is weak."""
