"""Seeded defects: copies of our implementation, each with one thing wrong.

They answer the question who tests the tests: a fuzzer that is worth its time finds each of
them. A defect is an edit of the implementation's source text. The edited text is compiled
into modules of its own; the implementation that is imported stays as it is.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType

from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.target import PoolFactory
from kvproof.impl import block_pool, free_queue, hash_map

MODULES = (free_queue, hash_map, block_pool)
"""The implementation's modules, those that are imported before those that import them."""


@dataclass(frozen=True)
class Defect:
    """One defect. `edits` are pairs of a text that occurs exactly once in the implementation
    and what stands there instead. `breaks` is the property that calls can show to be broken,
    and `flags` the switches of `kvproof fuzz` without which it is not judged.
    """

    name: str
    says: str
    edits: tuple[tuple[str, str], ...]
    breaks: str
    flags: tuple[str, ...] = ()


class DefectError(ValueError):
    """There is no such defect, or its edits no longer fit the implementation."""


def load_defect(name: str) -> PoolFactory:
    """Return what builds pools that have the defect.

    Raises DefectError when there is no defect of this name, or when a text that it replaces
    does not occur exactly once in the implementation.
    """
    if name not in DEFECTS:
        raise DefectError(f"no defect {name!r}; known: {', '.join(DEFECTS)}")
    return partial(ImplPool, pool_type=_pool_with(DEFECTS[name]))


@cache
def _pool_with(defect: Defect) -> type[block_pool.BlockPool]:
    texts = edited_sources(defect)
    compiled: list[ModuleType] = []
    for module in MODULES:
        copy = ModuleType(module.__name__, module.__doc__)
        copy.__file__ = module.__file__
        exec(compile(texts[module.__name__], f"<{defect.name}>", "exec"), copy.__dict__)
        for imported in compiled:
            _rebind(copy, imported)
        compiled.append(copy)
    pool: type[block_pool.BlockPool] = compiled[-1].__dict__["BlockPool"]
    return pool


def _rebind(module: ModuleType, imported: ModuleType) -> None:
    """Let the module use what the copy defines where it imported it from the original."""
    for name, value in list(module.__dict__.items()):
        if getattr(value, "__module__", None) == imported.__name__ and name in imported.__dict__:
            setattr(module, name, imported.__dict__[name])


def edited_sources(defect: Defect) -> dict[str, str]:
    """Return the text of each module of the implementation, with the edits made.

    Raises DefectError when a text to replace does not occur exactly once.
    """
    texts = {module.__name__: inspect.getsource(module) for module in MODULES}
    for old, new in defect.edits:
        places = [name for name, text in texts.items() for _ in range(text.count(old))]
        if len(places) != 1:
            raise DefectError(
                f"defect {defect.name}: the text must occur once in kvproof.impl, not"
                f" {len(places)} times; change the edit to fit:\n{old}"
            )
        texts[places[0]] = texts[places[0]].replace(old, new)
    return texts


def _by_name(defects: Iterable[Defect]) -> dict[str, Defect]:
    return {defect.name: defect for defect in defects}


_POLICY = ("policy",)
_MISUSE = ("misuse",)

DEFECTS: dict[str, Defect] = _by_name(
    (
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
            _MISUSE,
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
            _POLICY,
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
            _POLICY,
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
            _POLICY,
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
            _MISUSE,
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
            _MISUSE,
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
            _POLICY,
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
            _POLICY,
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
            _POLICY,
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
            _POLICY,
        ),
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
            _MISUSE,
        ),
        Defect(
            "one-block-two-keys",
            "a block that is listed twice in one call gets two full keys",
            (("        if len(set(chosen.values())) < len(chosen):\n", "        if False:\n"),),
            "misuse-refused",
            _MISUSE,
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
            _MISUSE,
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
            _MISUSE,
        ),
        Defect(
            "foreign-group",
            "a block is given a partial key of another group than its own",
            (("        if self.group[block] != group or ", "        if "),),
            "misuse-refused",
            _MISUSE,
        ),
        # Partial keys.
        Defect(
            "promotion-keeps-entry",
            "a partial key that a longer one replaces stays in the index",
            (
                (
                    "            retired.add(Key(block_hash, group))\n"
                    "        self._drop_keys(block)\n",
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
            _POLICY,
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
            _POLICY,
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
            _POLICY,
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
            _MISUSE,
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
)
"""The catalogue, by name."""
