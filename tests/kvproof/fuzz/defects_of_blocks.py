"""Seeded defects in handing out, hitting and freeing blocks."""

from kvproof.fuzz.defect import MISUSE, POLICY, Defect

DEFECTS: tuple[Defect, ...] = (
    # Handing out.
    Defect(
        "negative-count",
        "a negative number of blocks is accepted, and the counter grows beyond the queue",
        (
            (
                "        if num_blocks < 0:\n"
                "            _refuse(rules.COUNT_NONNEGATIVE, num_blocks)\n",
                "",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "counter-before-check",
        "the counter is reduced before it is checked that there are enough blocks",
        (
            (
                "        if num_blocks > self.free_queue.num_free_blocks:\n",
                "        self.free_queue.num_free_blocks -= num_blocks\n"
                "        if self.free_queue.num_free_blocks < 0:\n",
            ),
            ("        self.num_free_blocks -= num_blocks\n", ""),
        ),
        "failed-is-noop",
    ),
    Defect(
        "failed-get-takes",
        "when there are not enough blocks, those that there are are lost",
        (
            (
                "            _refuse(rules.ENOUGH_FREE, num_blocks)\n",
                "            self.free_queue.popleft_n(self.free_queue.num_free_blocks)\n"
                "            _refuse(rules.ENOUGH_FREE, num_blocks)\n",
            ),
        ),
        "failed-is-noop",
    ),
    Defect(
        "last-free-refused",
        "the last free block cannot be had",
        (
            (
                "num_blocks > self.free_queue.num_free_blocks",
                "num_blocks >= self.free_queue.num_free_blocks > 0",
            ),
        ),
        "legal-accepted",
    ),
    Defect(
        "stale-key",
        "a block that is handed out keeps its keys",
        (
            (
                "            if block_hash[block] is not None:\n"
                "                self._drop_keys(block)\n",
                "",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "stale-entry",
        "a block that loses its keys stays listed under them",
        (
            (
                "gone = [block_hash for block_hash in hashes if"
                " self.cached.pop(block_hash, group, block)]",
                "gone = hashes",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "missed-reset",
        "a block keeps its key when others are listed under it, though it is listed no more",
        (
            (
                "        self.block_hash[block] = None\n        self.chain[block] = ()\n",
                "",
            ),
            (
                "        if gone and self.enable_kv_cache_events:\n",
                "        if not gone:\n"
                "            return\n"
                "        self.block_hash[block] = None\n"
                "        self.chain[block] = ()\n"
                "        if self.enable_kv_cache_events:\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "null-not-zero",
        "the null block is created behind the others, and block 0 is handed out",
        (
            (
                "        self.null_block = 0\n",
                "        self.null_block = num_gpu_blocks - 1\n",
            ),
        ),
        "null-inert",
    ),
    Defect(
        "takes-from-back",
        "blocks are taken from the back of the queue",
        (
            (
                "        blocks = self.free_queue.popleft_n(num_blocks)\n",
                "        blocks = []\n"
                "        for _ in range(num_blocks):\n"
                "            blocks.append(self.free_queue.prev[self.null_block])\n"
                "            self.free_queue.remove(blocks[-1])\n",
            ),
        ),
        "order-rule",
        POLICY,
    ),
    Defect(
        "new-front-unlinked",
        "the new front of the queue still points back at a block that was taken",
        (("        self.prev[block] = self.null_block\n", ""),),
        "queue-is-a-set",
    ),
    Defect(
        "retired-for-ever",
        "a key that was retired on a block does not come back when it is handed out anew",
        (
            (
                "        if self.retired:\n"
                "            for block in blocks:\n"
                "                self.retired.pop(block, None)\n",
                "",
            ),
        ),
        "lazy-eviction",
        POLICY,
    ),
    # Hits.
    Defect(
        "touch-stays-queued",
        "a free block that is hit stays in the queue",
        (
            (
                "            if ref_cnt[block] == 0:\n"
                "                self.free_queue.remove(block)\n",
                "",
            ),
        ),
        "free-iff-unreferenced",
    ),
    Defect(
        "touch-not-counted",
        "a second hit of one block is not counted",
        (("            ref_cnt[block] += 1\n", "            ref_cnt[block] = 1\n"),),
        "refs-exact",
    ),
    Defect(
        "hit-loses-hash",
        "a free block that is hit loses its hash",
        (
            (
                "                self.free_queue.remove(block)\n",
                "                self.free_queue.remove(block)\n"
                "                self.block_hash[block] = None\n",
            ),
        ),
        "index-agrees",
    ),
    Defect(
        "removed-back-unlinked",
        "taking a block out of the middle leaves the link from behind",
        (
            (
                "        self.prev[after] = before\n        self.num_free_blocks -= 1\n",
                "        self.num_free_blocks -= 1\n",
            ),
        ),
        "queue-is-a-set",
    ),
    Defect(
        "lookup-last",
        "a lookup finds the block that was listed last",
        (("            return next(iter(listed))\n", "            return [*listed][-1]\n"),),
        "first-inserted",
        POLICY,
    ),
    Defect(
        "lookup-first-group-only",
        "a miss in a group behind the first is no miss",
        (
            (
                "            if block is None:\n                return None\n",
                "            if block is None:\n                return found or None\n",
            ),
        ),
        "hit-backed",
    ),
    Defect(
        "lookup-one-group",
        "every group is looked up as if it were the first",
        (
            (
                "self.cached.get_one_block(block_hash, group)",
                "self.cached.get_one_block(block_hash, kv_cache_group_ids[0])",
            ),
        ),
        "hit-backed",
    ),
    # Freeing.
    Defect(
        "double-free",
        "a block that nobody holds is freed, and its count falls below zero",
        (
            (
                "            if count < 0:\n"
                "                for earlier in blocks[:position]:\n"
                "                    if earlier != null_block:\n"
                "                        ref_cnt[earlier] += 1\n"
                "                _refuse(rules.RELEASE_HELD, block)\n",
                "",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "refused-free-half-done",
        "when a free is refused, the blocks before the wrong one have lost a reference",
        (
            (
                "                for earlier in blocks[:position]:\n"
                "                    if earlier != null_block:\n"
                "                        ref_cnt[earlier] += 1\n",
                "",
            ),
        ),
        "misuse-refused",
        MISUSE,
    ),
    Defect(
        "twice-in-one-batch",
        "a block that one call releases twice is queued twice",
        (
            (
                "            if count == 0:\n",
                "        for block in blocks:\n"
                "            if ref_cnt[block] == 0 and block != null_block:\n",
            ),
        ),
        "queue-is-a-set",
    ),
    Defect(
        "freed-while-shared",
        "a block that one other still holds is queued",
        (
            (
                "            if count == 0:\n",
                "            if count <= 1 and block not in hashed + unhashed:\n",
            ),
        ),
        "free-iff-unreferenced",
    ),
    Defect(
        "freed-not-queued",
        "a block with a key is not queued when it is freed: it is lost",
        (("        self.free_queue.append_n(hashed)\n", ""),),
        "free-iff-unreferenced",
    ),
    Defect(
        "freed-not-counted",
        "the counter of free blocks does not grow when blocks are queued",
        (("        self.num_free_blocks += len(blocks)\n", ""),),
        "queue-is-a-set",
    ),
    Defect(
        "hashed-to-front",
        "blocks that can be hit are queued in front of those that cannot",
        (("self.free_queue.append_n(hashed)", "self.free_queue.prepend_n(hashed)"),),
        "order-rule",
        POLICY,
    ),
    Defect(
        "unhashed-reversed",
        "blocks without a key are queued in reverse order",
        (
            (
                "self.free_queue.prepend_n(unhashed)",
                "self.free_queue.prepend_n(unhashed[::-1])",
            ),
        ),
        "order-rule",
        POLICY,
    ),
    Defect(
        "free-order-uncached",
        "with caching off, blocks are queued in reverse order",
        (
            (
                "self.free_queue.prepend_n(unhashed)",
                "self.free_queue.prepend_n(unhashed[:: 1 if self.enable_caching else -1])",
            ),
        ),
        "order-rule",
        POLICY,
    ),
    Defect(
        "eager-eviction",
        "a block loses its keys as soon as it is freed",
        (
            (
                "            if count == 0:\n",
                "            if count == 0:\n                self._drop_keys(block)\n",
            ),
        ),
        "lazy-eviction",
        POLICY,
    ),
)
