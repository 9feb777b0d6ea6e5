"""The concepts of the block pool: blocks, keys, the free queue."""

from kvproof.cli.concept import Concept

CONCEPTS: tuple[Concept, ...] = (
    Concept(
        "block pool",
        "BlockPool: all physical blocks of all groups, the queue of the free ones, and the index"
        " from keys to blocks.",
        "One pool serves all groups, so that memory need not be divided between them in advance."
        " It knows no requests and no attention: callers say which blocks they hold.",
        "vLLM 0.25.1, block_pool.py: BlockPool; seed 1, Responsibilities",
        ("block_pool.BlockPool", "state.PoolState"),
        ("blocks-conserved", "refs-exact", "free-iff-unreferenced", "index-agrees"),
        "physical memory blockpool",
        ("free queue", "key", "null block"),
    ),
    Concept(
        "block",
        "A fixed piece of KV-cache memory that holds the keys and values of block_size tokens for"
        " the layers of one group. A pool has N of them, named by ids 0 .. N - 1.",
        "A block has an id, a reference count, its keys and a place in the free queue; the null"
        " block is marked. What it holds means nothing to any other group.",
        "vLLM 0.25.1, kv_cache_utils.py: KVCacheBlock; seed 1, Key files",
        ("block_pool.KVCacheBlock", "quantities.BlockId"),
        ("blocks-conserved",),
        "kvcacheblock page metadata block_id is_null pointers physical",
        ("null block", "reference count"),
    ),
    Concept(
        "null block",
        "Block 0, the placeholder in table entries that nobody will read (skipped window blocks,"
        " padding). It is never queued, keyed, counted or handed out.",
        "A table keeps its positions when blocks leave its window, so something must stand there."
        " Handed out or hit, it would be written by one request and read by another: wrong data.",
        "vLLM 0.25.1, block_pool.py: BlockPool.__init__; seed 1, Design motivation",
        ("pool_properties.null_inert", "transitions.skip", "transitions.pad"),
        ("null-inert",),
        "null_block placeholder dummy special block_id zero 0",
        ("null-inert", "real-block", "remove_skipped_blocks"),
    ),
    Concept(
        "reference count",
        "ref_cnt: how many slots hold a block. At 0 the block is in the free queue; the null"
        " block's own count is unspecified.",
        "A count that is too low frees a block under its reader: wrong data. One that is too high"
        " leaks it.",
        "vLLM 0.25.1, block_pool.py: touch, free_blocks; seed 1, Data flow; seed 2, section 6",
        ("pool_properties.refs_exact", "transitions.share", "transitions.release"),
        ("refs-exact", "refs-nonnegative", "free-iff-unreferenced"),
        "ref_cnt references holders",
        ("touch", "free_blocks"),
    ),
    Concept(
        "free queue",
        "The blocks that may be handed out, in the order of eviction: the block at the front is"
        " evicted first. Freed blocks without a key join at the front, those with one at the back,"
        " so the least recently used cached block is evicted first (LRU).",
        "A hit takes a block out of the middle, so vLLM links the queue in both directions: removal"
        " costs the same wherever the block stands. The specification states the order only. A"
        " block queued twice would be handed out to two requests.",
        "vLLM 0.25.1, kv_cache_utils.py: FreeKVCacheBlockQueue; seed 1, Design motivation",
        ("universe.Queue", "transitions.acquire", "transitions.release"),
        ("queue-is-a-set", "free-iff-unreferenced", "order-rule"),
        "doubly linked list removal middle lru order popleft_n free_block_queue"
        " freekvcacheblockqueue least recently used",
        ("eviction", "order-rule"),
    ),
    Concept(
        "eviction",
        "Handing out a block that carries keys: it loses them, and what it cached is gone. Who is"
        " evicted first is decided by the free queue: its front.",
        "If the keys stayed, a lookup would find the block with another request's tokens in it.",
        "vLLM 0.25.1, block_pool.py: _maybe_evict_cached_block; seed 1, Data flow; seed 2, path 1",
        ("transitions.acquire",),
        ("index-agrees", "order-rule"),
        "_maybe_evict_cached_block old hashes cleared",
        ("free queue", "lazy eviction", "acquire-retracts"),
    ),
    Concept(
        "lazy eviction",
        "Freeing a block keeps its keys. It stays cached, and can be hit, until it is handed out"
        " again.",
        "The next request with the same prefix finds it without computing anything. A pool that"
        " drops keys on free loses those hits.",
        "vLLM 0.25.1, block_pool.py: free_blocks; seed 2, path 4",
        ("steps.lazy_eviction", "transitions.release"),
        ("lazy-eviction",),
        "hash kept remains retained when count falls to zero",
        ("eviction", "lazy-eviction"),
    ),
    Concept(
        "block hash",
        "What identifies the contents of a block: a hash of all tokens of the prefix that ends with"
        " it, each with its extra keys. kvproof takes it to be injective, and writes it as the"
        " tokens joined by dots: 0.1.1.",
        "It is chained: each hash covers the one before it, so equal hashes mean equal prefixes"
        " from the first token on. A hash of the block's own tokens alone would be hit by any"
        " request that has these tokens anywhere.",
        "vLLM 0.25.1, kv_cache_utils.py: hash_block_tokens, get_request_block_hasher",
        ("quantities.BlockHash", "hashing.block_hashes", "hashing.extend"),
        ("key-injective", "incremental-equals-fresh"),
        "chained prefix identity sha256 request.block_hashes",
        ("extra keys", "hash unit", "key"),
    ),
    Concept(
        "hash unit",
        "hash_block_size: the number of tokens between two prefixes that have a hash. A group's"
        " block size is a multiple of it.",
        "With one group it is the block size; with several, 0.25.1 takes the greatest common"
        " divisor of their block sizes. A unit that does not divide a block size leaves blocks that"
        " end where no hash ends.",
        "vLLM 0.25.1, kv_cache_utils.py: resolve_kv_cache_block_sizes; seed 2, path 1",
        ("rules.ONE_BLOCK_SIZE", "hashing.view"),
        ("key-injective",),
        "hash_block_size granularity hash size",
        ("block hash", "one-block-size"),
    ),
    Concept(
        "key",
        "A block hash together with a group (vLLM: BlockHashWithGroupId). What the prefix cache"
        " looks up. kvproof writes it as hash@group: 0.1@0.",
        "All groups share one index, so a key must say whose layers the block is of: without the"
        " group a hit would read other layers' data.",
        "vLLM 0.25.1, kv_cache_utils.py: make_block_hash_with_group_id; seed 1, Responsibilities",
        ("quantities.Key", "hashing.with_group"),
        ("index-agrees", "one-chain-per-block"),
        "group_id hash key group qualified make_block_hash_with_group_id blockhashwithgroupid",
        ("block hash", "group"),
    ),
    Concept(
        "hash map",
        "cached_block_hash_to_block (BlockHashToBlockMap): the index of the prefix cache, from each"
        " key to the blocks that carry it, in the order in which they were listed.",
        "One key may list several blocks; a lookup returns the first. A stale entry returns a block"
        " with another request's tokens.",
        "vLLM 0.25.1, block_pool.py: BlockHashToBlockMap; seed 1, Design motivation",
        ("universe.Index", "transitions.lookup"),
        ("index-agrees", "first-inserted"),
        "blockhashtoblockmap cached_block_hash_to_block prefix cache index hash table",
        ("key", "duplicate"),
    ),
    Concept(
        "duplicate",
        "A key that several blocks carry. vLLM keeps them all (it does not deduplicate), and a"
        " lookup finds the one that was listed first.",
        "Two requests may compute one prefix at the same time. To replace a block that a request"
        " holds would change tables that are in use.",
        "vLLM 0.25.1, block_pool.py: BlockHashToBlockMap.insert; seed 1, Design motivation",
        ("universe.Index", "transitions.lookup"),
        ("first-inserted", "events-mirror-cache"),
        "deduplication duplicated same hash",
        ("hash map", "first-inserted"),
    ),
    Concept(
        "group",
        "A KV-cache group: the layers that share one block table, one block size and one attention"
        " type.",
        "A model that mixes attention types has several. Each has tables of its own, and all take"
        " their blocks from one pool.",
        "vLLM 0.25.1, kv_cache_interface.py: KVCacheGroupSpec; seed 1, Responsibilities; seed 2,"
        " section 3",
        ("quantities.GroupId", "kv_cache_spec.KVCacheConfig"),
        ("one-chain-per-block",),
        "kv cache group layers hybrid model",
        ("block pool", "KVCacheCoordinator"),
    ),
    Concept(
        "prefix-cache hit",
        "A lookup that finds a block for the request's own prefix. The block is then touched: it"
        " leaves the free queue if nobody held it, and its count grows.",
        "What is hit is not computed again. A block that is not touched may be handed out while it"
        " is read.",
        "vLLM 0.25.1, block_pool.py: get_cached_block, touch; seed 1, Data flow; seed 2, path 3",
        ("transitions.lookup", "transitions.share", "attention.longest_hit"),
        ("hit-backed", "hit-aligned", "hit-below-prompt"),
        "prefix cache reuse cached recompute",
        ("get_computed_blocks", "touch"),
    ),
    Concept(
        "mask",
        "block_mask of cache_full_blocks: which of the new full blocks are published. A sliding"
        " window publishes those that a hit at some promised boundary needs, and skips the others.",
        "A block that no lookup can ever need fills the index for nothing. A block left out by"
        " mistake is a hit that is lost.",
        "vLLM 0.25.1, single_type_kv_cache_manager.py: reachable_block_mask; seed 1, Key files",
        ("attention.wanted_blocks", "rules.MASK_FITS"),
        ("mask-covers-lookup",),
        "block_mask skip blocks never hit reachable_block_mask",
        ("retention interval", "mask-covers-lookup"),
    ),
)
"""Each concept; the other words of the pool are in `kvproof.cli.glossary`."""
