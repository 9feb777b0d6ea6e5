"""Seeded defects: edits of the specification's own text that a proof must notice.

A proof that goes through whatever the specification says is worth nothing. For each defect
the named theorem is not proved, and a counterexample is found that replays on the defective
specification. Every property of the catalogue that is proved has at least one.
"""

from dataclasses import dataclass

from kvproof.proofs.specification import Edit


@dataclass(frozen=True)
class Defect:
    """One defect, and the theorem that it makes false."""

    name: str
    theorem: str
    edit: Edit


def _pool(name: str, theorem: str, old: str, new: str) -> Defect:
    return Defect(name, theorem, Edit("transitions", old, new))


def _ghost(name: str, theorem: str, old: str, new: str) -> Defect:
    return Defect(name, theorem, Edit("ghosts", old, new))


def _table(name: str, old: str, new: str) -> Defect:
    return Defect(name, "no-stranded-suffix", Edit("full_attention", old, new))


_RELEASED = "    drop_holder(state, slot)\n    if state.ref_cnt[block] == 0:\n"
_SHARED = "        state.free_queue.remove(block)\n        count_used(state, block)\n"
_PREPEND, _APPEND = "state.free_queue.prepend(block)", "state.free_queue.append(block)"
_NULL_RELEASED = (
    "    if block == state.universe.null:\n        state.held[slot] = False\n        return\n"
)
_REMOVED = "state.events.removed(keys.where(lambda key: neg(state.cached.lists(key))))"
_EMPTY_SLOT = "requires(neg(state.held[slot]), rules.SLOT_EMPTY, slot)\n    requires("
_RETIRED = "state.retired[block] = state.retired[block].union(keys_of(state, block))"

DEFECTS = (
    _ghost(
        "a release counts twice",
        "refs-nonnegative",
        "state.ref_cnt[block] = count - 1",
        "state.ref_cnt[block] = count - 2",
    ),
    _ghost(
        "a holder is not counted",
        "refs-exact",
        "    state.ref_cnt[block] = count + 1\n",
        "",
    ),
    _ghost(
        "a released slot still names its block",
        "refs-exact",
        "    state.ref_cnt[block] = count - 1\n    state.held[slot] = False\n",
        "    state.ref_cnt[block] = count - 1\n",
    ),
    _pool(
        "a shared block stays in the queue",
        "free-iff-unreferenced",
        _SHARED,
        "        count_used(state, block)\n",
    ),
    _pool(
        "a released block is not queued",
        "free-iff-unreferenced",
        f"            {_PREPEND}\n",
        "            pass\n",
    ),
    _pool(
        "a block is queued while others hold it",
        "free-iff-unreferenced",
        _RELEASED,
        "    drop_holder(state, slot)\n    if state.ref_cnt[block] == 1:\n",
    ),
    _pool(
        "a shared block is counted as free",
        "queue-is-a-set",
        _SHARED,
        "        state.free_queue.remove(block)\n",
    ),
    _pool(
        "a released block is not counted",
        "queue-is-a-set",
        "        count_free(state, block)\n",
        "",
    ),
    _ghost(
        "the counter grows by two",
        "blocks-conserved",
        "state.num_free_blocks = state.num_free_blocks + 1",
        "state.num_free_blocks = state.num_free_blocks + 2",
    ),
    _ghost(
        "a used block is still numbered among the free ones",
        "blocks-conserved",
        "    state.place[other] = state.place[block]\n",
        "",
    ),
    _pool(
        "a released block is lost",
        "blocks-conserved",
        f"            {_APPEND}\n",
        "            pass\n",
    ),
    _pool(
        "a block that is handed out keeps its keys",
        "effects-exact",
        "    _drop_keys(state, block)\n    state.retired[block] = state.universe.no_keys()\n",
        "    state.retired[block] = state.universe.no_keys()\n",
    ),
    _pool(
        "a dropped key stays in the index",
        "index-agrees",
        "    state.cached.pop(keys, block)\n",
        "",
    ),
    _pool(
        "a dropped block keeps its hash",
        "index-agrees",
        "    state.block_hash[block] = state.universe.no_key\n    state.partial",
        "    state.partial",
    ),
    _pool(
        "partial keys are forgotten",
        "index-agrees",
        "    keys = keys_of(state, block)\n    state.cached.pop",
        "    keys = state.universe.no_keys().add(state.block_hash[block])\n    state.cached.pop",
    ),
    _pool(
        "reset leaves the index",
        "index-agrees",
        "    state.cached.clear()\n",
        "",
    ),
    _pool(
        "a partial key of another chain is accepted",
        "one-chain-per-block",
        "    requires(is_own_chain(state, block, key), rules.ONE_CHAIN, block)\n\n    if state.c",
        "\n    if state.c",
    ),
    _pool(
        "a key of another chain is accepted",
        "misuse-refused",
        "    requires(neg(has_full_key(state, block)), rules.PUBLISH_ONCE, block)\n"
        "    requires(is_own_chain(state, block, key), rules.ONE_CHAIN, block)\n",
        "    requires(neg(has_full_key(state, block)), rules.PUBLISH_ONCE, block)\n",
    ),
    _pool(
        "publishing does not retire partial keys",
        "longest-key-first",
        "    if state.block_hash[block] != state.universe.no_key:\n"
        "        _retire_keys(state, block)\n",
        "",
    ),
    _pool(
        "a released null entry is counted and queued",
        "null-inert",
        _NULL_RELEASED,
        "",
    ),
    _pool(
        "the null block is refused for another reason",
        "legal-accepted",
        "    requires(block != state.universe.null, rules.REAL_BLOCK, block)\n"
        "    requires(state.ref_cnt[block] > 0, rules.PUBLISH_HELD, block)\n",
        "    requires(state.ref_cnt[block] > 0, rules.PUBLISH_HELD, block)\n",
    ),
    _pool(
        "a key that other blocks carry is reported as removed",
        "events-mirror-cache",
        _REMOVED,
        "state.events.removed(keys)",
    ),
    _pool(
        "a key is not reported as stored",
        "events-mirror-cache",
        "    state.events.stored(key)\n",
        "",
    ),
    _pool(
        "reset is not reported",
        "events-mirror-cache",
        "    state.events.cleared()\n",
        "",
    ),
    Defect(
        "null entries count as held when all is returned",
        "all-returned",
        Edit(
            "pool_properties",
            "neg(state.held[slot]) | (state.table[slot] == u.null)),",
            "neg(state.held[slot]) | (state.table[slot] != u.null)),",
        ),
    ),
    _pool(
        "a retired key comes back",
        "retired-stays-retired",
        "    if state.retired[block].has(key):\n        return False\n",
        "",
    ),
    _pool(
        "keys are published with caching off",
        "keys-need-caching",
        "    requires(state.universe.enable_caching, rules.CACHING_ON, block)\n",
        "",
    ),
    _pool(
        "a retired key may be a full one",
        "retired-are-partial",
        "    _drop_keys(state, block)\n\n\ndef reset",
        "    _retire_keys(state, block)\n\n\ndef reset",
    ),
    _pool(
        "blocks without a key are appended",
        "order-rule",
        _PREPEND,
        _APPEND,
    ),
    _pool(
        "blocks with a key are prepended",
        "order-rule",
        _APPEND,
        _PREPEND,
    ),
    _pool(
        "freeing drops the keys",
        "lazy-eviction",
        "        count_free(state, block)\n",
        "        count_free(state, block)\n        _drop_keys(state, block)\n",
    ),
    _pool(
        "keys are retired without a record",
        "lazy-eviction",
        f"    {_RETIRED}\n",
        "",
    ),
    _pool(
        "sharing lists the block anew",
        "first-inserted",
        _SHARED,
        _SHARED
        + "        if state.block_hash[block] != state.universe.no_key:\n"
        + "            own = state.universe.no_keys().add(state.block_hash[block])\n"
        + "            state.cached.pop(own, block)\n"
        + "            state.cached.insert(state.block_hash[block], block)\n",
    ),
    _pool(
        "a lookup that finds a block returns the null block",
        "hit-backed",
        "        return state.cached.get_one_block(key)\n",
        "        return state.universe.null\n",
    ),
    _pool(
        "a shared block is announced but does not leave the queue",
        "prediction-exact",
        _SHARED,
        "        count_used(state, block)\n",
    ),
    _pool(
        "the slot is filled before the queue is asked",
        "failed-is-noop",
        f"    {_EMPTY_SLOT}state.free_queue.nonempty(), rules.ENOUGH_FREE, 1)\n",
        "    requires(neg(state.held[slot]), rules.SLOT_EMPTY, slot)\n"
        "    state.held[slot] = True\n"
        "    requires(state.free_queue.nonempty(), rules.ENOUGH_FREE, 1)\n",
    ),
    _pool(
        "the counter is reduced before the queue is asked",
        "failed-is-noop",
        f"    {_EMPTY_SLOT}state.free_queue.nonempty(), rules.ENOUGH_FREE, 1)\n",
        "    requires(neg(state.held[slot]), rules.SLOT_EMPTY, slot)\n"
        "    state.num_free_blocks = state.num_free_blocks - 1\n"
        "    requires(state.free_queue.nonempty(), rules.ENOUGH_FREE, 1)\n"
        "    state.num_free_blocks = state.num_free_blocks + 1\n",
    ),
    _pool(
        "a block is taken from an empty queue",
        "legal-accepted",
        "    requires(state.free_queue.nonempty(), rules.ENOUGH_FREE, 1)\n",
        "",
    ),
    _pool(
        "a slot is released twice",
        "misuse-refused",
        '    """\n    requires(state.held[slot], rules.RELEASE_HELD, slot)\n\n    block',
        '    """\n    block',
    ),
    _pool(
        "a queued block is keyed",
        "misuse-refused",
        "    requires(state.ref_cnt[block] > 0, rules.PUBLISH_HELD, block)\n",
        "",
    ),
    _pool(
        "a block gets a second full key",
        "misuse-refused",
        "    requires(neg(has_full_key(state, block)), rules.PUBLISH_ONCE, block)\n",
        "",
    ),
    _pool(
        "a block without meaning is shared",
        "misuse-refused",
        "    requires(is_readable(state, block), rules.SHARE_READABLE, block)\n",
        "",
    ),
    _pool(
        "the cache is reset in use",
        "misuse-refused",
        "    requires(state.num_free_blocks == u.num_blocks - 1, rules.RESET_UNUSED, "
        "state.num_free_blocks)\n",
        "",
    ),
    _pool(
        "a shared block is refused",
        "legal-accepted",
        "    requires(state.ref_cnt[block] > 0, rules.PUBLISH_HELD, block)\n",
        "    requires(state.ref_cnt[block] == 1, rules.PUBLISH_HELD, block)\n",
    ),
    _pool(
        "a block leaves the queue that is not in it",
        "legal-accepted",
        "    if state.ref_cnt[block] == 0:\n        check(",
        "    if state.ref_cnt[block] >= 0:\n        check(",
    ),
    _pool(
        "retract does nothing",
        "effects-exact",
        "    _drop_keys(state, block)\n\n\ndef reset",
        "    return\n\n\ndef reset",
    ),
    _pool(
        "a block that is handed out stays retired",
        "effects-exact",
        "    _drop_keys(state, block)\n    state.retired[block] = state.universe.no_keys()\n",
        "    _drop_keys(state, block)\n",
    ),
    _table(
        "a table is freed in any order",
        "state.held[other] & (other != slot), state.tables.previous(other) != slot",
        "state.held[other] & (other != slot), state.tables.previous(other) != other",
    ),
    _table(
        "a parent may be left out",
        "    requires(_previous_published(state, slot), rules.TABLE_IN_ORDER, slot)\n\n"
        "    publish(",
        "    publish(",
    ),
    _table(
        "a hit skips its parent",
        "    requires(_previous_published(state, slot), rules.TABLE_IN_ORDER, slot)\n"
        "    requires(state.cached",
        "    requires(state.cached",
    ),
)
"""The catalogue."""
