"""`free_blocks` folds single releases; the release's own algorithm does it at once.

The theorem `free-blocks-fold` speaks of lists of any length. Here the composite operation of
the specification is compared with the algorithm, for every list up to a bound.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from kvproof.proofs import prove
from kvproof.proofs.induction import Laboratory
from kvproof.proofs.specification import Edit, Specification
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.quantities import BlockId, GroupId, TokenId

HELD = (BlockId(1), BlockId(2), BlockId(3))
LONGEST = 4


def at_once(
    queue: list[BlockId],
    counts: dict[BlockId, int],
    keyed: set[BlockId],
    freed: list[BlockId],
) -> None:
    """Drop all counts; then put blocks without a key in front and the others at the back."""
    plain: list[BlockId] = []
    hashed: list[BlockId] = []
    for block in freed:
        counts[block] -= 1
        if counts[block] == 0:
            (hashed if block in keyed else plain).append(block)
    queue[:] = plain + queue + hashed


def pools() -> Iterator[tuple[dict[BlockId, int], set[BlockId]]]:
    for extra in product((1, 2), repeat=len(HELD)):
        for chosen in product((False, True), repeat=len(HELD)):
            counts = dict(zip(HELD, extra, strict=True))
            yield counts, {block for block, is_keyed in zip(HELD, chosen, strict=True) if is_keyed}


def pool_with(counts: dict[BlockId, int], keyed: set[BlockId]) -> BlockPool:
    """Return a pool of six blocks; 4 (no key) and 5 (keyed) wait in the queue."""
    pool = BlockPool(6, True, 1, {GroupId(0): 1})
    blocks = pool.get_new_blocks(5)
    for block in blocks:
        if block in keyed or block == 5:
            pool.cache_full_blocks((TokenId(block),), [block], 0, 1, 1, GroupId(0))
    pool.free_blocks([blocks[3], blocks[4]])
    for block, count in counts.items():
        pool.touch([block] * (count - 1))
    return pool


def test_the_fold_equals_the_algorithm_for_every_short_list() -> None:
    for counts, keyed in pools():
        for length in range(1, LONGEST + 1):
            for freed in product(HELD, repeat=length):
                if any(count > counts[block] for block, count in Counter(freed).items()):
                    continue
                pool = pool_with(counts, keyed)
                queue = [*pool.state.free_queue]  # type: ignore[misc]
                left = dict(counts)
                pool.free_blocks(freed)
                at_once(queue, left, keyed, list(freed))
                assert [*pool.state.free_queue] == queue, (counts, keyed, freed)  # type: ignore[misc]
                assert {block: pool.state.ref_cnt[block] for block in HELD} == left


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("state.free_queue.prepend(block)", "state.free_queue.append(block)"),
        ("state.free_queue.append(block)", "state.free_queue.prepend(block)"),
        ("        count_free(state, block)\n", "        _drop_keys(state, block)\n"),
    ],
)
def test_a_defective_release_breaks_the_fold(old: str, new: str) -> None:
    laboratory = Laboratory(Specification((Edit("transitions", old, new),)))
    verdict = prove(
        "free-blocks-fold", laboratory=laboratory, solvers=("z3",), seeds=1, timeout_s=2
    )
    assert verdict.status == "refuted"
    assert verdict.detail[0].startswith("free_blocks, last references")
