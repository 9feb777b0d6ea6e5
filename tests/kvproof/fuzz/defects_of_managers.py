"""Seeded defects in the manager: tables, hits, windows, promises and announcements."""

from kvproof.fuzz.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "whole-prompt",
        "a hit may cover the whole prompt, so that no token is left to compute",
        (("min((len(request.tokens) - 1) // reach", "min(len(request.tokens) // reach"),),
        "hit-below-prompt",
    ),
    Defect(
        "hit-stops-early",
        "the last block that could be hit is not looked up",
        (
            (
                "len(hashes))\n        hit",
                "len(hashes))\n        limit = max(limit - 1, 0)\n        hit",
            ),
        ),
        "hit-longest",
        ("quality",),
    ),
    Defect(
        "window-hit-short",
        "a hit of a window is backed by a token less than the window",
        (("return -(-(self.reach - 1) //", "return -(-(self.reach - 2) //"),),
        "hit-backed",
    ),
    Defect(
        "chunk-hit-unbacked",
        "a hit of a chunk has null where its own chunk's blocks should be",
        (("            num_blocks - start, lambda", "            0 * start, lambda"),),
        "hit-longest",
        ("quality",),
    ),
    Defect(
        "leaf-unlocked",
        "the last block of a hit is not held",
        (("self.block_pool.touch(kept)", "self.block_pool.touch(kept[:-1])"),),
        "refs-exact",
    ),
    Defect(
        "touch-before-check",
        "the blocks of a hit are held before it is known whether there are slots",
        (
            (
                "        if leaving + watermark > free.num_free_blocks - reserved_blocks",
                "        for row in hit:\n"
                "            self.block_pool.touch([b for b in row if b])\n"
                "        if leaving + watermark > free.num_free_blocks - reserved_blocks",
            ),
        ),
        "refs-exact",
    ),
    Defect(
        "hit-not-announced",
        "queued blocks of a hit are not counted when it is asked whether there are slots",
        (("wanted - max(len(hit), skipped), 0) + queued", "wanted - max(len(hit), skipped), 0)"),),
        "prediction-exact",
    ),
    Defect(
        "grow-twice",
        "a table that grows gets as many new blocks as it should have in all",
        (
            (
                "        new = self.block_pool.get_new_blocks(missing)",
                "        new = self.block_pool.get_new_blocks(missing + len(table))",
            ),
        ),
        "prediction-exact",
    ),
    Defect(
        "drafts-published",
        "blocks are published for drafts, which may be rejected",
        (("min(with_new, len(request.tokens)))", "with_new)"),),
        "prediction-exact",
    ),
    Defect(
        "delay-ignored",
        "what is loaded later is published before it has arrived",
        (("if self.enable_caching and not delay_cache_blocks", "if self.enable_caching"),),
        "reads-own-prefix",
    ),
    Defect(
        "promise-stays",
        "what was published for a request that is taken out of its step stays published",
        (("            if whole < cached:", "            if whole < 0:"),),
        "reads-own-prefix",
    ),
    Defect(
        "promise-recounted",
        "what is taken back counts as published, and is not published again",
        (("                self.num_cached_block[name] = whole\n", ""),),
        "decision-equal",
        ("policy",),
    ),
    Defect(
        "window-too-early",
        "a window gives its blocks back one token too early",
        (("num_computed_tokens - self.reach + 1, 0)", "num_computed_tokens - self.reach + 2, 0)"),),
        "window-kept",
    ),
    Defect(
        "window-never",
        "blocks that nobody reads any more are never given back",
        (
            (
                "            if not skipped or not table:",
                "            if skipped >= 0 or not table:",
            ),
        ),
        "bound-covers-peak",
    ),
    Defect(
        "chunk-too-early",
        "a chunk is given back when its last block begins",
        (
            (
                "return num_computed_tokens // self.reach",
                "return (num_computed_tokens + self.block_size) // self.reach",
            ),
        ),
        "window-kept",
    ),
    Defect(
        "drafts-settled",
        "drafts in flight are taken for accepted when a window gives blocks back",
        (("        next_token -= request.num_unsettled_tokens\n", ""),),
        "window-kept",
    ),
    Defect(
        "last-token-padded",
        "a prompt that was loaded as a whole lacks the window of its last token",
        (
            (
                "computed if num_new_tokens else min(computed, len(request.tokens) - 1)",
                "computed",
            ),
        ),
        "window-kept",
    ),
    Defect(
        "freed-from-front",
        "a table is freed from its front, so that its first blocks are evicted first",
        (("free_blocks(reversed(self.pop_blocks", "free_blocks((self.pop_blocks"),),
        "order-rule",
        ("policy",),
    ),
    Defect(
        "popped-short",
        "the last block of a request that ends is lost",
        (
            (
                "for table in reversed(tables) for block in table]",
                "for table in reversed(tables) for block in table][:-1]",
            ),
        ),
        "refs-exact",
    ),
    Defect(
        "cached-count-stays",
        "what a request had published before it was freed counts as published when it is back",
        (("        self.num_cached_block.pop(request.request_id, None)\n", ""),),
        "decision-equal",
        ("policy",),
    ),
    Defect(
        "common-by-references",
        "blocks are taken for common when they have as many references as there are requests",
        (
            (
                "return all(table[index : index + 1] == [own[0][index]] for table in tables)",
                "return self.block_pool.ref_cnt[own[0][index]] == len(tables)",
            ),
        ),
        "common-prefix-true",
    ),
    Defect(
        "admission-knows-no-window",
        "a request with a window is admitted only when its whole prompt fits",
        (
            (
                "peak = reach.peak(alone, next_token, num_tokens, step)",
                "peak = reach.peak(alone, next_token, num_tokens, num_tokens)",
            ),
        ),
        "admission-live",
    ),
    Defect(
        "reserved-ignored",
        "blocks that are reserved for others are given away",
        (("free.num_free_blocks - reserved_blocks", "free.num_free_blocks"),),
        "decision-equal",
        ("policy",),
    ),
    Defect(
        "watermark-for-running",
        "a running request leaves the watermark free, too",
        (("has_scheduled_reqs and not request.is_running", "has_scheduled_reqs"),),
        "decision-equal",
        ("policy",),
    ),
    Defect(
        "lookahead-ignored",
        "there is no room for the drafts of the next step",
        (("slots = min(with_new + num_lookahead_tokens, most)", "slots = min(with_new, most)"),),
        "decision-equal",
        ("policy",),
    ),
    Defect(
        "new-ids-stay",
        "blocks to be zeroed are told again each time",
        (
            (
                "        self.new_block_ids = [[] for _ in self.reaches]\n        return ids",
                "        return ids",
            ),
        ),
        "decision-equal",
        ("policy",),
    ),
    Defect(
        "replay-not-kept",
        "with a retention interval the first block that a replay needs is not kept",
        (("if replay - needed <= index < replay", "if replay - needed < index < replay"),),
        "mask-covers-lookup",
        ("quality",),
    ),
    Defect(
        "uncached-groups-mixed",
        "every group takes the first one's block size when its table grows",
        (
            (
                "missing = -(-num_tokens // self.reaches[number].block_size)",
                "missing = -(-num_tokens // self.reaches[0].block_size)",
            ),
        ),
        "decision-equal",
        ("policy",),
    ),
)
"""Each breaks one property; `flags` says what must be judged besides safety."""
