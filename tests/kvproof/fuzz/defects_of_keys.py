"""Seeded defects in publishing and taking away keys, and in what is told of them."""

from kvproof.fuzz.defect import MISUSE, POLICY, Defect

DEFECTS: tuple[Defect, ...] = (
    # Publishing.
    Defect(
        "mask-ignored",
        "a block is published though its mask says no",
        ((" and (block_mask is None or block_mask[index - num_cached_blocks])", ""),),
        "index-agrees",
    ),
    Defect(
        "mask-shifted",
        "the mask is read from the start of the table, not from the first new block",
        (
            (
                "block_mask[index - num_cached_blocks]",
                "block_mask[index % len(block_mask)]",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "keys-from-zero",
        "new blocks get the hashes of the blocks that are cached already",
        (
            ("enumerate(new_blocks, num_cached_blocks)", "enumerate(new_blocks)"),
            ("block_mask[index - num_cached_blocks]", "block_mask[index]"),
        ),
        "index-agrees",
    ),
    Defect(
        "unit-hash-for-block",
        "a block of several hash units is keyed as if it were one unit",
        (
            (
                "        block_hash = hashes[end - 1]\n",
                "        block_hash = hashes[(num_tokens - 1) // size]\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "null-keyed",
        "the null block is published",
        (
            ("if block != null_block and (block_mask is None", "if (block_mask is None"),
            (
                "            if self.ref_cnt[block] <= 0:\n",
                "            if self.ref_cnt[block] <= 0 and block != self.null_block:\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "last-unit-refused",
        "a block that ends with the last hash cannot be published",
        (
            (
                "num_full_blocks * units > len(hashes)",
                "num_full_blocks * units >= len(hashes)",
            ),
        ),
        "legal-accepted",
    ),
    Defect(
        "duplicate-replaces",
        "the second block under one key takes the first one's place",
        (
            (
                "            keys[block_hash] = {listed: None, block: None}\n",
                "            keys[block_hash] = block\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "full-key-twice",
        "a block that has a full key is given another",
        (
            (
                "                if self.num_tokens[block] %"
                " self.block_sizes[self.group[block]] == 0:\n"
                "                    _refuse(rules.PUBLISH_ONCE, block)\n",
                "",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "one-block-two-keys",
        "a block that is listed twice in one call gets two full keys",
        (("        if len(set(chosen.values())) < len(chosen):\n", "        if False:\n"),),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "unheld-published",
        "a block that nobody holds is given a partial key",
        (
            (
                "        if self.ref_cnt[block] <= 0:\n"
                "            _refuse(rules.PUBLISH_HELD, block)\n"
                "        if num_tokens",
                "        if num_tokens",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "foreign-chain",
        "a block is given a key of another prefix than its own",
        (
            (
                "        return self.chain[block][last - index * size //"
                " self.hash_block_size] == hashes[last]\n",
                "        return True\n",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "foreign-group",
        "a block is given a partial key of another group than its own",
        (("        if self.group[block] != group or ", "        if "),),
        "misuse-refused",
        MISUSE,
    ),
    # Partial keys.
    Defect(
        "promotion-keeps-entry",
        "a partial key that a longer one replaces stays in the index",
        (
            (
                "            retired.add(Key(block_hash, group))\n        self._drop_keys(block)\n",
                "            retired.add(Key(block_hash, group))\n"
                "        self.block_hash[block] = None\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "promotion-keeps-partial",
        "when a longer key replaces the longest one, the other partial keys stay",
        (
            (
                "        hashes = [own, *self.partial_hashes.pop(block, ())]\n",
                "        hashes = [own]\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "resurrected-key",
        "a partial key that a full one replaced comes back",
        (
            (
                "        if key in self.retired.get(block, ()):\n            return None\n",
                "",
            ),
        ),
        "retired-stays-retired",
        POLICY,
    ),
    Defect(
        "shorter-retires-longer",
        "a shorter partial key replaces a longer one",
        (
            (
                "        if own is not None and num_tokens < self.num_tokens[block]:\n",
                "        if False:\n",
            ),
        ),
        "lazy-eviction",
        POLICY,
    ),
    Defect(
        "partial-taken-for-full",
        "a block with a partial key is taken for a full one, and is never promoted",
        (
            (
                "        self.num_tokens[block] = num_tokens\n",
                "        self.num_tokens[block] = -(-num_tokens // size) * size\n",
            ),
        ),
        "legal-accepted",
    ),
    # Evicting and resetting.
    Defect(
        "evict-frees",
        "a block that is held loses a reference when it is evicted",
        (
            (
                "self.metrics_collector.on_block_evicted(block)\n"
                "            self._drop_keys(block)\n",
                "self.metrics_collector.on_block_evicted(block)\n"
                "            self._drop_keys(block)\n"
                "            if self.ref_cnt[block] > 0:\n"
                "                self.free_blocks([block])\n",
            ),
        ),
        "refs-exact",
    ),
    Defect(
        "evict-requeues",
        "a free block moves to the front of the queue when it is evicted",
        (
            (
                "self.metrics_collector.on_block_evicted(block)\n"
                "            self._drop_keys(block)\n",
                "self.metrics_collector.on_block_evicted(block)\n"
                "            self._drop_keys(block)\n"
                "            if self.ref_cnt[block] == 0 and block != self.null_block:\n"
                "                self.free_queue.remove(block)\n"
                "                self.free_queue.prepend_n([block])\n",
            ),
        ),
        "decision-equal",
        POLICY,
    ),
    Defect(
        "evict-half-done",
        "when an id is out of range, the blocks before it have lost their keys",
        (
            (
                "        blocks = list(block_ids)\n"
                "        self._require_ids(blocks)\n\n"
                "        for block in blocks:\n",
                "        blocks = list(block_ids)\n\n"
                "        for block in blocks:\n"
                "            self._require_ids([block])\n",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "reset-in-use",
        "the prefix cache is reset while blocks are in use",
        (("        if used:\n", "        if False:\n"),),
        "failed-is-noop",
    ),
    Defect(
        "reset-counts-null",
        "the null block counts as in use, and a reset never succeeds",
        (("used = self.num_gpu_blocks - 1 - self", "used = self.num_gpu_blocks - self"),),
        "all-returned",
    ),
    Defect(
        "reset-keeps-hashes",
        "a reset empties the index, but blocks keep their hashes",
        (("        self.block_hash[:] = [None] * self.num_gpu_blocks\n", ""),),
        "index-agrees",
    ),
    Defect(
        "reset-keeps-partials",
        "a reset empties the index, but blocks keep their shorter partial keys",
        (("        self.partial_hashes.clear()\n", ""),),
        "index-agrees",
    ),
    # What is told.
    Defect(
        "num-free-wrong",
        "the null block counts as free",
        (
            (
                "        return self.free_queue.num_free_blocks\n",
                "        return self.free_queue.num_free_blocks + 1\n",
            ),
        ),
        "blocks-conserved",
    ),
    Defect(
        "usage-counts-null",
        "the null block counts as in use",
        (
            (
                "        usable = self.num_gpu_blocks - 1\n",
                "        usable = self.num_gpu_blocks\n",
            ),
        ),
        "blocks-conserved",
    ),
    Defect(
        "stored-untold",
        "no event tells that a partial key has become resident",
        (
            (
                "self._tell_stored(request, num_tokens - unit, num_tokens, unit,"
                " kv_cache_group_id)",
                "pass",
            ),
        ),
        "events-mirror-cache",
    ),
    Defect(
        "stored-across-gap",
        "one event tells of blocks on both sides of a masked one, as if none were missing",
        (
            ("        if runs and runs[-1][1] == index:\n", "        if runs:\n"),
            (
                " for last in range(start + size, end + 1, size)]",
                " for last in range(start + size, end + 1, size)"
                " if self.cached.get_one_block(hashes[last // unit - 1], group)]",
            ),
        ),
        "events-mirror-cache",
    ),
    Defect(
        "stored-orphan",
        "an event names no parent",
        (("hashes[start // unit - 1] if start else None", "None"),),
        "events-mirror-cache",
    ),
    Defect(
        "removed-untold",
        "no event tells that keys are gone",
        (
            (
                "            self._events.append(BlockRemoved(gone, group))\n",
                "            pass\n",
            ),
        ),
        "events-mirror-cache",
    ),
    Defect(
        "removed-too-early",
        "a key is told to be gone while another block has it",
        (
            (
                "            if listed:\n                return False\n",
                "            if listed:\n                return True\n",
            ),
        ),
        "events-mirror-cache",
    ),
    Defect(
        "cleared-untold",
        "no event tells of a reset",
        (("self._events.append(AllBlocksCleared())", "pass"),),
        "events-mirror-cache",
    ),
)
