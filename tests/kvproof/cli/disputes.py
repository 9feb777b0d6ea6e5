"""Disputes that come up, each with its answer: entries of `kvproof explain`.

docs/reading-the-spec.md has the same text; a test holds the two together.
"""

from kvproof.cli.disputes_of_seeds import SEED_DISPUTES, Dispute

DISPUTES: tuple[Dispute, ...] = (
    Dispute(
        "Is it an error to free a block twice?",
        (
            "kvproof.spec.rules.RELEASE_HELD",
            "kvproof.spec.transitions.release",
        ),
        "Yes: a reference that nobody holds cannot be released. The call raises "
        "`UnheldBlockError`, and nothing has changed, also when it is one block of a "
        "long list.",
        "double free",
        "double free released two times misuse",
    ),
    Dispute(
        "Who is evicted first?",
        (
            "kvproof.spec.transitions.acquire",
            "kvproof.spec.transitions.release",
        ),
        "The front of the queue. Blocks without a key join at the front, those with "
        "one at the back, so what can be hit goes last, the longest unused of it "
        "first.",
        "order-rule",
        "recycled reclaimed order victim before anything else eviction lru",
    ),
    Dispute(
        "In which order does one `free_blocks` call queue its blocks?",
        (
            "kvproof.spec.block_pool.BlockPool.free_blocks",
            "kvproof.spec.steps.order_rule",
        ),
        "In the order given, the keyed ones at the back and the others at the front. "
        "That tail blocks go first is the manager's doing: it passes them in reverse.",
        "free_blocks",
        "reverse order push tail blocks evicted reversed list",
    ),
    Dispute(
        "May a block be freed while a key is on it?",
        ("kvproof.spec.transitions.release",),
        "Yes, and it keeps the key: it joins the queue at the back and can be hit "
        "until it is handed out.",
        "lazy-eviction",
        "cached",
    ),
    Dispute(
        "Does freeing a block drop its hash?",
        ("kvproof.spec.steps.lazy_eviction",),
        "No. A key leaves when the block is handed out, or the key is retired by a "
        "longer one, retracted or reset; a hit in the meantime takes the block out of "
        "the queue.",
        "lazy-eviction",
        "kept retained lazy eviction",
    ),
    Dispute(
        "Can one key list two blocks?",
        (
            "kvproof.spec.pool_properties.one_chain_per_block",
            "kvproof.spec.transitions.lookup",
        ),
        "Yes, there is no deduplication, and a lookup finds the one listed first. One "
        "block may not have keys of two chains or two groups.",
        "first-inserted",
        "one hash maps to several multiple blocks duplicates",
    ),
    Dispute(
        "What happens to a block's 2-token key when the block becomes full?",
        (
            "kvproof.spec.transitions.publish",
            "kvproof.spec.pool_properties.retired_stays_retired",
        ),
        "It is retired: unlisted, told as removed, and refused on that block until the "
        "block is handed out anew. A shorter key beside a longer *partial* one is "
        "legal.",
        "retired-stays-retired",
        "partial promotion retired",
    ),
    Dispute(
        "When is `BlockRemoved` told?",
        (
            "kvproof.spec.universe.Events",
            "kvproof.spec.pool_properties.events_mirror_cache",
        ),
        "When the key is resident in no block any more, not when one of several blocks "
        "loses it. A consumer that folds the stream believes exactly the resident "
        "keys.",
        "events-mirror-cache",
        "event removed gone router consumer learns prefix evicted kv events",
    ),
    Dispute(
        "Does `evict_blocks` free a block, or move it in the queue?",
        ("kvproof.spec.transitions.retract",),
        "Neither: the block loses its keys and stays where it is, held or queued.",
        "retract",
    ),
    Dispute(
        "May a block be touched that is free and has no key?",
        ("kvproof.spec.rules.SHARE_READABLE",),
        "No: nobody promised its contents. A free block *with* a key is what a prefix hit is.",
        "share-readable",
        "unreadable",
    ),
    Dispute(
        "Is the null block's count 0, 1 or unspecified?",
        ("kvproof.spec.pool_properties.null_inert",),
        "In the specification it stays 0; of an engine it is never compared. Null "
        "entries in a list are left alone by every operation.",
        "null block",
        "ref_cnt of null_block tracked maintained",
    ),
    Dispute(
        "How long may a hit be?",
        (
            "kvproof.spec.attention.longest_hit",
            "kvproof.spec.kv_cache_manager.KVCacheManager.get_computed_blocks",
        ),
        "At most `num_tokens - 1` tokens, a multiple of the alignment, and every block "
        "that the next token reads is keyed. A window needs the blocks of its last `w "
        "- 1` positions only, a chunk that has just begun needs none.",
        "get_computed_blocks",
        "how much of the prompt at most one block less than the whole prompt last token computed"
        " again",
    ),
    Dispute(
        "What has changed when `allocate_slots` returns None?",
        ("kvproof.spec.kv_cache_manager.KVCacheManager.allocate_slots",),
        "Blocks that no token may read any more were released, and nothing else: no hit is held.",
        "allocate_slots",
        "allocation fails gives nothing not enough blocks no slots refused",
    ),
    Dispute(
        "Which blocks are common to all requests?",
        ("kvproof.spec.single_type_manager.SingleTypeKVCacheManager.get_num_common_prefix_blocks",),
        "Those that stand at the same place in every table. vLLM 0.25.1 counts "
        "references instead, also those of blocks that were popped and are still to be "
        "freed: it reports blocks that are not common.",
        "common-prefix-true",
        "cascade",
    ),
    *SEED_DISPUTES,
)
