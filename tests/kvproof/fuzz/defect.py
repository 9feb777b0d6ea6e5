"""What a seeded defect is."""

from dataclasses import dataclass

POLICY = ("policy",)
MISUSE = ("misuse",)


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
