"""The named shapes of a manager that the fuzzer draws from."""

from dataclasses import dataclass

from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.picks import Pick

LONGEST = 48
"""The most tokens of a request (`max_model_len`)."""


@dataclass(frozen=True)
class ManagerLayout:
    """A name, and the groups that it may have: one choice of them is drawn for each run."""

    name: str
    says: str
    choices: tuple[tuple[GroupConfig, ...], ...]
    enable_caching: bool = True

    def draw(self, pick: Pick) -> ManagerConfig:
        """Return the configuration of one run."""
        groups = pick.one(self.choices)
        unit = groups[0].block_size if groups else 1
        forgets = self.enable_caching and any(g.kind == "sliding-window" for g in groups)
        return ManagerConfig(
            num_blocks=pick.number(4, 20),
            groups=groups,
            max_model_len=LONGEST,
            max_num_batched_tokens=pick.number(4, 24),
            enable_caching=self.enable_caching,
            watermark=pick.one([0.0, 0.0, 0.1]),
            retention_interval=pick.one([None, None, 0, unit, 3 * unit]) if forgets else None,
        )


def _each(kind: str, *sizes: tuple[int, int]) -> tuple[tuple[GroupConfig, ...], ...]:
    return tuple((GroupConfig(kind, size, reach),) for size, reach in sizes)


_FULL = _each("full", (4, 0), (2, 0))
_WINDOWS = _each("sliding-window", (4, 6), (2, 5), (4, 2), (4, 8), (2, 3))
_CHUNKS = _each("chunked-local", (4, 8), (4, 4), (2, 6))

MANAGER_LAYOUTS: dict[str, ManagerLayout] = {
    layout.name: layout
    for layout in (
        ManagerLayout("full", "one group of full attention", _FULL),
        ManagerLayout("mla", "one group of MLA", _each("mla", (4, 0), (2, 0))),
        ManagerLayout("swa", "one group of a sliding window", _WINDOWS),
        ManagerLayout("chunked", "one group of chunked local attention", _CHUNKS),
        ManagerLayout(
            "caching-off",
            "prefix caching off: one group of any of these types, or two",
            (
                *_FULL,
                *_WINDOWS,
                *_CHUNKS,
                (GroupConfig("full", 4), GroupConfig("sliding-window", 2, 5)),
            ),
            enable_caching=False,
        ),
        ManagerLayout("no-groups", "no group at all, prefix caching off", ((),), False),
    )
}
"""Each layout, by name."""
