"""Two defects in one pool that break the same property are two failures."""

import pytest

from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.defect import Defect
from kvproof.fuzz.defects import DEFECTS, load_defect
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.run import Flags
from kvproof.fuzz.tally import Tally

PAIRS = {
    ("removed-untold", "cleared-untold"): ("get_new_blocks", "reset_prefix_cache"),
    ("mask-ignored", "reset-keeps-hashes"): ("cache_full_blocks", "reset_prefix_cache"),
    ("double-free", "negative-count"): ("free_blocks", "get_new_blocks"),
    ("hashed-to-front", "takes-from-back"): ("free_blocks", "get_new_blocks"),
}
"""Two defects, and for each an operation that shows it and not the other."""


def fuzz(name: str, known: tuple[str, ...] = ()) -> Tally:
    defect = DEFECTS[name]
    flags = Flags("policy" in defect.flags, "misuse" in defect.flags)
    layouts, limits = [LAYOUTS["one-size"]], Limits(examples=40)
    return run_campaign(load_defect(name), name, flags, limits, layouts, known, seed=2)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_both_are_reported_and_one_that_is_known_hides_no_other(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (DEFECTS[name] for name in pair)
    assert first.breaks == second.breaks
    name = "+".join(pair)
    both = Defect(name, "two defects", first.edits + second.edits, first.breaks, first.flags)
    monkeypatch.setitem(DEFECTS, name, both)

    def of(session: Tally, operation: str) -> set[str]:
        return {
            signature
            for signature in session.failures
            if signature.startswith(f"{first.breaks}:{operation}:")
        }

    found = fuzz(name)
    ours, others = (of(found, operation) for operation in PAIRS[pair])
    assert ours
    assert others

    again = fuzz(name, known=tuple(ours))
    assert not of(again, PAIRS[pair][0]) & ours
    assert of(again, PAIRS[pair][1])
    assert set(again.known_seen) <= ours
    assert again.known_seen
