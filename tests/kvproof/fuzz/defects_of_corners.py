"""Seeded defects that show in corners only: rare layouts, lists that repeat, events off."""

from kvproof.fuzz.defect import MISUSE, POLICY, Defect

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "alias-not-retired",
        "promotion retires the longest partial key, and forgets the shorter ones",
        (
            (
                "        for block_hash in self.partial_hashes.get(block, ()):\n"
                "            retired.add(Key(block_hash, group))\n",
                "",
            ),
        ),
        "retired-stays-retired",
        POLICY,
    ),
    Defect(
        "retired-in-all-groups",
        "a key that was retired in one group is refused in another",
        (
            (
                "if key in self.retired.get(block, ()):",
                "if any(k.block_hash == block_hash for k in self.retired.get(block, ())):",
            ),
        ),
        "lazy-eviction",
        POLICY,
    ),
    Defect(
        "chain-by-first-unit",
        "two chains that part inside a block are taken for one",
        (
            (
                "self.chain[block][last - index * size // self.hash_block_size] == hashes[last]",
                "self.chain[block][0] == hashes[index * size // self.hash_block_size]",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "any-block-of-the-chain",
        "a block with a partial key is published as another block of its chain",
        ((" or (own - 1) // size != index:", ":"),),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "published-with-caching-off",
        "a block is published though caching is off",
        (
            (
                "            if not self.enable_caching:\n"
                "                _refuse(rules.CACHING_ON, block)\n"
                "            if self",
                "            if self",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "negative-start",
        "a negative number of cached blocks counts from the end of the table",
        (
            (
                "num_cached_blocks < 0 or num_full_blocks > len(blocks)",
                "num_full_blocks > len(blocks)",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "touch-half-checked",
        "only the first two of the blocks to touch are checked",
        (
            (
                "        for block in blocks:\n            if ref_cnt[block] == 0 and self",
                "        for block in blocks[:2]:\n            if ref_cnt[block] == 0 and self",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "hooks-swapped",
        "a block is told to be allocated before it is told to be evicted",
        (
            (
                "                if self.enable_caching:\n"
                "                    self.metrics_collector.on_block_evicted(block)\n"
                "                self.metrics_collector.on_block_allocated(block)\n",
                "                self.metrics_collector.on_block_allocated(block)\n"
                "                if self.enable_caching:\n"
                "                    self.metrics_collector.on_block_evicted(block)\n",
            ),
        ),
        "decision-equal",
        POLICY,
    ),
    Defect(
        "stored-again",
        "a shorter partial key that the block has is told to be stored again",
        (
            (
                "if block_hash == own or block_hash in self.partial_hashes.get(block, ()):",
                "if block_hash == own:",
            ),
        ),
        "decision-equal",
        POLICY,
    ),
    Defect(
        "event-of-one-unit",
        "an event gives the hash unit for the block size",
        (
            (
                "                size,\n                group,\n            )",
                "                unit,\n                group,\n            )",
            ),
        ),
        "events-mirror-cache",
    ),
    Defect(
        "told-though-off",
        "what is stored is told though events are off",
        (
            (
                "        if self.enable_kv_cache_events:\n            for first",
                "        if True:\n            for first",
            ),
        ),
        "decision-equal",
        POLICY,
    ),
    Defect(
        "alias-kept-when-silent",
        "while events are off, shorter partial keys stay when a block loses its keys",
        (
            (
                "*self.partial_hashes.pop(block, ())]",
                "*(self.partial_hashes.pop(block, ()) if self.enable_kv_cache_events else ())]",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "usage-of-nothing",
        "the usage of a pool of the null block alone is a division by zero",
        ((" / usable if usable else 0.0", " / usable"),),
        "legal-accepted",
    ),
)
"""Each with the property that finds it."""
