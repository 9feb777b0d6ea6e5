"""Disputes that come from the two documents on which the specification rests, docs/seeds.md.

They contradict each other, or the release, or can be read in two ways. What is said here of
release 0.25.1 is held on the release itself by tests/docs/test_seeds_vllm.py.
"""

from typing import NamedTuple


class Dispute(NamedTuple):
    """A question, the functions that settle it, the answer, and a name to look up.

    `asks` are other words in which it is asked.
    """

    question: str
    settled_by: tuple[str, ...]
    answer: str
    see: str
    asks: str = ""


SEED_DISPUTES: tuple[Dispute, ...] = (
    Dispute(
        "Do all groups share one block pool, or has each group its own?",
        ("kvproof.spec.kv_cache_coordinator.KVCacheCoordinator",),
        "One pool for all groups: the coordinator builds it and gives it to every group's "
        "manager. Seed 2 says that each has its own; then memory would have to be divided in "
        "advance, and one group would run out while another has blocks to spare. Only keys are "
        "apart, by the group that they name.",
        "block pool",
        "same set of kvcacheblock instances independent own separate blockpool shared",
    ),
    Dispute(
        "Is 0 a valid retention interval?",
        (
            "kvproof.spec.manager_rules.RETENTION_FITS",
            "kvproof.spec.attention.is_promised",
        ),
        "Yes: 0 keeps only the last boundary of a prompt. Seed 1 asks for a positive multiple of "
        "the scheduler's block size; 0.25.1 accepts 0 and its multiples, and gives 0 a meaning of "
        "its own. Negative ones are refused, and any where no group forgets.",
        "retention-fits",
        "retention_interval positive integer multiple of scheduler_block_size zero validation must",
    ),
    Dispute(
        "Does a freed block go to the tail or to the front of the free queue?",
        (
            "kvproof.spec.transitions.release",
            "kvproof.spec.steps.order_rule",
        ),
        "Without a key to the front, with one to the back. Seed 1 says so, and elsewhere that both "
        "go to the tail; seed 2 appends all. A block that nobody can hit is worth nothing, so it "
        "goes first; 0.25.1 does that.",
        "order-rule",
        "appended prepended lru tail with hash without hash pushed back head prepend_last",
    ),
    Dispute(
        "Can the same block be cached by several groups at once?",
        (
            "kvproof.spec.pool_properties.one_chain_per_block",
            "kvproof.spec.rules.ONE_CHAIN",
        ),
        "No. Seed 1 says that it can; but a block holds the keys and values of one group's layers, "
        "so another group's hit on it would read other layers' data. The same tokens have one "
        "block in each group. 0.25.1 asserts against most second full keys, and accepts a partial "
        "one of another group.",
        "one-chain",
        "multiple groups same token",
    ),
    Dispute(
        "Is the hash unit the smallest block size or the greatest common divisor?",
        ("kvproof.spec.rules.ONE_BLOCK_SIZE",),
        "A common divisor. Seed 2 takes the minimum: of blocks of 16 and 24 tokens that is 16, and "
        "a block of 24 does not end where a hash ends. 0.25.1 takes the greatest common divisor, "
        "8, once when the engine starts; with one group it is the block size.",
        "hash unit",
        "hash_block_size min minimum gcd granularity over the groups",
    ),
    Dispute(
        "Are there methods `prefill_allocation` and `append_slots`?",
        ("kvproof.spec.kv_cache_manager.KVCacheManager.allocate_slots",),
        "No: seed 2 names them, 0.25.1 has neither. One call, `allocate_slots` of the manager, "
        "serves prefill and decode; below it each group has `get_num_blocks_to_allocate`, "
        "`allocate_new_computed_blocks` and `allocate_new_blocks`, and no `allocate_slots`.",
        "allocate_slots",
        "method names singletypekvcachemanager append_slots kvcachemanager prefill_allocation",
    ),
    Dispute(
        "Has `free_blocks` a `prepend` argument?",
        ("kvproof.spec.block_pool.BlockPool.free_blocks",),
        "No: seed 2 calls it with `prepend=False`, 0.25.1 takes the blocks alone, in the order in "
        "which they shall be evicted. Whether a block goes to the front is decided for each block, "
        "by whether it has a key.",
        "free_blocks",
        "prepend false",
    ),
    Dispute(
        "Does `get_new_blocks` pre-check that enough blocks are free?",
        (
            "kvproof.spec.rules.ENOUGH_FREE",
            "kvproof.spec.rules.COUNT_NONNEGATIVE",
        ),
        "Yes, before anything is taken. Seed 1 says that it does not, and shows the check. What it "
        "means is that the caller must count first, with `get_num_blocks_to_allocate`. 0.25.1 does "
        "not check for a negative number.",
        "enough-free",
        "precheck directly raise valueerror before",
    ),
    Dispute(
        "Does `evict_blocks` catch wrong block ids immediately?",
        ("kvproof.spec.rules.ID_IN_RANGE",),
        "Here all ids are checked first, and nothing is evicted when one is wrong. Seed 1 says "
        "that an assertion catches them at once; in 0.25.1 the blocks before the wrong one have "
        "lost their keys by then, and a negative id evicts a block counted from the end.",
        "id-in-range",
        "assert at once half way",
    ),
    Dispute(
        "Can a hash be set on an already hashed block?",
        (
            "kvproof.spec.rules.PUBLISH_ONCE",
            "kvproof.spec.transitions.publish",
        ),
        "No, except that a full key replaces the partial ones of its own chain. Seed 1 names an "
        "assertion against it; in 0.25.1 that does not stop a key that covers more tokens, of "
        "whatever chain or group: it is taken for such a promotion.",
        "publish-once",
        "set_block_hash double setting guard assert twice",
    ),
    Dispute(
        "Do preempted requests leave null blocks behind?",
        ("kvproof.spec.kv_cache_manager.KVCacheManager.free",),
        "No: a preempted request is freed, its table goes as a whole, and it starts anew with a "
        "lookup. Seed 1 says that the null block replaces preempted blocks too; it stands only for "
        "what no later token of a request that holds blocks may read.",
        "null block",
        "preempted blocks replaced by null_block preemption",
    ),
    Dispute(
        "Are blocks hashed when they are filled?",
        (
            "kvproof.spec.hashing.extend",
            "kvproof.spec.kv_cache_manager.KVCacheManager.allocate_slots",
        ),
        "No, earlier: a request has the hash of a unit as soon as its tokens are known, and "
        "`allocate_slots` publishes the block when it gives the slots, before the step writes "
        "them. Seed 1 lets `cache_full_blocks` hash a filled block of the prompt. Blocks that "
        "decode fills are published as well.",
        "cache_full_blocks",
        "when is the hash computed published before written prompt decode content fills",
    ),
    Dispute(
        "Are hit blocks held as soon as they are found?",
        (
            "kvproof.spec.kv_cache_manager.KVCacheManager.get_computed_blocks",
            "kvproof.spec.scheduling_rules.HIT_AT_ONCE",
        ),
        "No: a lookup changes nothing, and `allocate_slots` touches the blocks after it has seen "
        "that all fits. Seed 2 looks up and touches in one go. In between nothing else may be "
        "allocated or evicted, or the hit is gone.",
        "hit-at-once",
        "touched at lookup before the check pinned between",
    ),
    Dispute(
        "Do tokens outside the sliding window count as a hit?",
        (
            "kvproof.spec.attention.entries",
            "kvproof.spec.attention.longest_hit",
        ),
        "Yes: the hit counts all tokens in front of the next one, and has null entries for those "
        "that it does not read. Seed 2 says that they are no hit. It need not lie in the last "
        "window of the prompt either: the longest one that is cached counts, and a prefix shorter "
        "than the window, too.",
        "sliding window",
        "historical history outside window cached before the window",
    ),
    Dispute(
        "Does decode leave reserved blocks free when the last block is full?",
        ("kvproof.spec.kv_cache_manager.KVCacheManager.allocate_slots",),
        "Only what the caller asks for. Seed 2 subtracts a reserve in decode; in 0.25.1 the "
        "watermark is for requests that wait, and the scheduler passes `reserved_blocks` for "
        "asynchronous loads alone. A running request may take the last block; without one the "
        "answer is None, and somebody is preempted.",
        "watermark",
        "deducted reserve last block has no room append token",
    ),
    Dispute(
        "Is the KVCacheManager the only interface between scheduler and cache?",
        ("kvproof.spec.kv_cache_manager.KVCacheManager",),
        "Here it is. Seed 2 says so of vLLM; the scheduler of 0.25.1 also calls the pool, to free "
        "what it deferred, and the coordinator, for hits per group and for what admitted requests "
        "still need, and a connector gets the pool.",
        "kvcachemanager",
        "only door facade sole entry bypass",
    ),
    Dispute(
        "Does a coordinator without prefix caching touch any caching path?",
        ("kvproof.spec.kv_cache_coordinator.KVCacheCoordinatorNoPrefixCache",),
        "Here it publishes nothing, whoever asks. Seed 1 says that no caching path is touched; in "
        "0.25.1 it is the manager that does not call it: the coordinator has the `cache_blocks` of "
        "the others, and publishes when it is called itself.",
        "caching-on",
        "disabling disabled prefix caching never touches",
    ),
)
