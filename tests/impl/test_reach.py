"""The closed formulas of the implementation come to what the specification states."""

from hypothesis import given
from hypothesis import strategies as st

from kvproof.impl.reach import GroupSpec, reach_of
from kvproof.spec.attention import Attention, ChunkedLocal, Full, SlidingWindow, admission_blocks

NUMBERS = st.integers(0, 24)


@given(st.data(), st.integers(1, 4), NUMBERS, NUMBERS, st.integers(1, 9), st.lists(st.booleans()))
def test_the_peak_is_what_admission_asks_for(
    data: st.DataObject, size: int, computed: int, more: int, step: int, alone: list[bool]
) -> None:
    kind = data.draw(st.sampled_from(["full", "sliding-window", "chunked-local"]))
    reach = data.draw(st.integers(1, 5)) * (size if kind == "chunked-local" else 1)
    kinds: dict[str, Attention] = {
        "full": Full(),
        "sliding-window": SlidingWindow(reach),
        "chunked-local": ChunkedLocal(reach),
    }
    slots = computed + more
    peak = reach_of(GroupSpec(kind, size, reach)).peak(alone, computed, slots, step)
    assert peak == admission_blocks(
        kinds[kind],
        computed,
        slots,
        step,
        size,
        lambda entry: entry < len(alone) and not alone[entry],
    )
