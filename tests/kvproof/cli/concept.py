"""What a concept of the layer is, as `kvproof explain` tells it."""

from typing import NamedTuple


class Concept(NamedTuple):
    """A word of the seeds or of vLLM: what holds, why, and what follows when it does not.

    `source` names a file and method of vLLM 0.25.1, or a seed and its section. `specified` are
    names in `kvproof.spec`, empty when it is not specified yet; `checked` are the properties and
    theorems that hold it; `asks` are other words by which people ask for it.
    """

    name: str
    says: str
    because: str
    source: str
    specified: tuple[str, ...]
    checked: tuple[str, ...] = ()
    asks: str = ""
    see: tuple[str, ...] = ()
