"""Consulting: questions as readers of the seeds ask them, and the entry that answers each.

The words are those of the two documents (docs/seeds.md), not ours; the second list asks in
words that neither they nor the entries were chosen for, and the third in the language of seed 2.
"""

from collections.abc import Callable

import pytest
from click.testing import Result

from kvproof.cli.entries import all_entries
from kvproof.cli.explain_search import ranked

Run = Callable[..., Result]
ENTRIES = all_entries()

SEED_1 = [
    (
        "Do all groups share the same set of KVCacheBlock instances?",
        "Do all groups share one block pool, or has each group its own?",
    ),
    (
        "Can the same block be cached by multiple groups at once?",
        "Can the same block be cached by several groups at once?",
    ),
    ("Which coordinator does the get_kv_cache_coordinator factory choose?", "coordinator factory"),
    ("What does UnitaryKVCacheCoordinator assume?", "UnitaryKVCacheCoordinator"),
    ("What is a SpecGroup?", "SpecGroup"),
    (
        "Why is full attention placed first when groups are merged by spec?",
        "HybridKVCacheCoordinator",
    ),
    ("Does Hybrid support DCP / PCP?", "context parallelism"),
    ("What does get_cached_block return when any group_id misses?", "get_cached_block"),
    ("How does one hash map to several blocks?", "Can one key list two blocks?"),
    (
        "Are freed blocks with a hash appended to the LRU tail?",
        "Does a freed block go to the tail or to the front of the free queue?",
    ),
    (
        "Why does free push in reverse order so that tail blocks get evicted first?",
        "In which order does one `free_blocks` call queue its blocks?",
    ),
    ("What is the null_block placeholder for?", "null block"),
    ("Is the ref_cnt of null_block tracked?", "Is the null block's count 0, 1 or unspecified?"),
    (
        "Does get_new_blocks pre-check or directly raise a ValueError?",
        "Does `get_new_blocks` pre-check that enough blocks are free?",
    ),
    ("What if num_blocks exceeds the free block count?", "enough-free"),
    ("When ref_cnt goes from 0 to 1, does touch remove the block from the free queue?", "touch"),
    ("When does reset_prefix_cache refuse to clear?", "reset_prefix_cache"),
    (
        "What guards against setting a hash on an already-hashed block?",
        "Can a hash be set on an already hashed block?",
    ),
    ("A KV connector reports out-of-range block ids", "id-in-range"),
    (
        "Must retention_interval be a positive integer multiple of scheduler_block_size?",
        "Is 0 a valid retention interval?",
    ),
    ("What does block_mask skip?", "mask"),
    (
        "Who computes the requirement before blocks are taken?",
        "get_num_blocks_to_allocate",
    ),
    (
        "Which blocks does remove_skipped_blocks replace with null_block?",
        "remove_skipped_blocks",
    ),
    ("How does R-SWA use num_prompt_tokens to decide the gap?", "R-SWA"),
    ("How does cross-attention handle encoder tokens?", "cross attention"),
    (
        "Are preempted blocks replaced by the null block?",
        "Do preempted requests leave null blocks behind?",
    ),
    ("What carries the group_id in a hash key?", "key"),
    (
        "Where does SingleTypeKVCacheManager.allocate_new_blocks put the new blocks?",
        "allocate_new_blocks",
    ),
]

SEED_2 = [
    (
        "Does each group have its own independent BlockPool?",
        "Do all groups share one block pool, or has each group its own?",
    ),
    (
        "What does KVCacheManager.prefill_allocation do?",
        "Are there methods `prefill_allocation` and `append_slots`?",
    ),
    (
        "SingleTypeKVCacheManager.append_slots",
        "Are there methods `prefill_allocation` and `append_slots`?",
    ),
    ("free_blocks(blocks, prepend=False)", "Has `free_blocks` a `prepend` argument?"),
    (
        "Is hash_block_size the min over the groups?",
        "Is the hash unit the smallest block size or the greatest common divisor?",
    ),
    ("Is the hash kept when ref_cnt falls to 0: Lazy Eviction?", "lazy eviction"),
    (
        "Do historical tokens outside the window count as a hit?",
        "Do tokens outside the sliding window count as a hit?",
    ),
    ("Full attention matches from left to right until the first miss", "full attention"),
    ("Sliding window matches blocks from right to left", "sliding window"),
    ("Who is the scheduler's façade to the KV cache?", "KVCacheManager"),
    (
        "In decode the last block is full: are the reserved blocks deducted?",
        "Does decode leave reserved blocks free when the last block is full?",
    ),
]

OTHER_WORDS = [
    ("which memory gets recycled before anything else", "Who is evicted first?"),
    ("two requests released one page two times", "Is it an error to free a block twice?"),
    ("could another tenant read my prompt's cache", "cache salt"),
    ("how much of a prompt may come from the cache at most", "How long may a hit be?"),
    ("is a rejected draft token ever published", "draft"),
    ("pages are reused while the GPU still writes them", "deferred free"),
    ("smallest reserve that stays unused when a new request is admitted", "watermark"),
    ("room for speculative tokens", "lookahead tokens"),
    ("how does the router learn that a prefix is gone", "When is `BlockRemoved` told?"),
    ("where may a request resume after a failed load", "rollback-window"),
    ("shared system prompt that cascade attention uses", "common prefix"),
    ("will a request that is too long for the memory wait for ever", "admission gate"),
    ("do two different adapters share blocks", "extra keys"),
    ("what do I need to do before changing model weights", "reset_prefix_cache"),
    ("why does my request hit one block less than the full prompt", "How long may a hit be?"),
    ("is the last token of a fully cached prompt computed again", "How long may a hit be?"),
    ("aborted while the gpu is running", "deferred free"),
    (
        "may a prefix shorter than the window be reused",
        "Do tokens outside the sliding window count as a hit?",
    ),
    ("which error is raised when the pool is exhausted", "enough-free"),
    ("does freeing delete the hash immediately", "Does freeing a block drop its hash?"),
    ("streaming session drops a token", "known-fixed"),
    ("two requests compute the same prefix simultaneously", "duplicate"),
    (
        "what if allocation gives nothing back",
        "What has changed when `allocate_slots` returns None?",
    ),
]

CHINESE = [
    ("前缀命中时 ref_cnt 如何变化", "touch"),
    ("谁先被驱逐", "Who is evicted first?"),
    ("释放时 hash 保留吗", "Does freeing a block drop its hash?"),
    (
        "每个 group 有自己独立的 BlockPool 吗",
        "Do all groups share one block pool, or has each group its own?",
    ),
    ("滑动窗口外的历史 token 算命中吗", "Do tokens outside the sliding window count as a hit?"),
]


@pytest.mark.parametrize(("question", "answer"), [*SEED_1, *SEED_2, *OTHER_WORDS, *CHINESE])
def test_the_first_answer_is_the_right_entry(run: Run, question: str, answer: str) -> None:
    result = run("explain", *question.split())
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].startswith(f"{answer} ("), [
        one.name for one in ranked(question, ENTRIES)[:5]
    ]


def test_there_are_enough_questions() -> None:
    assert len(SEED_1) + len(SEED_2) >= 24
    assert len(OTHER_WORDS) >= 10


def test_an_answer_names_what_else_fits(run: Run) -> None:
    text = run(
        "explain", "which", "memory", "gets", "recycled", "before", "anything", "else"
    ).stdout
    assert "see also: " in text.splitlines()[-1]


@pytest.mark.parametrize(
    "question",
    [
        "how do I bake bread",
        "the price of tea in China tomorrow",
        "zzzz qqqq",
        "the watermark of banknotes printed by some treasury during winter",
        "?!",
        "x" * 5000,
        "what is the",
    ],
)
def test_what_has_no_answer_is_one_line(run: Run, question: str) -> None:
    result = run("explain", question)
    assert result.exit_code == 2
    assert not result.stdout
    assert len(result.stderr) < 500


def test_a_word_that_many_names_have_is_ambiguous_and_lists_them(run: Run) -> None:
    result = run("explain", "prefix")
    assert result.exit_code == 2
    assert "'prefix' is in " in result.stderr
    assert "prefix-cache hit" in result.stderr


def test_a_misspelt_word_is_understood(run: Run) -> None:
    assert (
        run("explain", "retenton", "interval").stdout
        == run("explain", "retention", "interval").stdout
    )
