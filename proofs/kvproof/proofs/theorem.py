"""What a theorem is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvproof.proofs.ghost_needed import GhostChecks
from kvproof.proofs.induction import Proof
from kvproof.proofs.reachability import Reachability
from kvproof.proofs.stranded import ProtocolNeeded


@dataclass(frozen=True)
class Theorem:
    """One theorem. `where` is the file and line of its statement."""

    name: str
    says: str
    property: str
    core: bool
    where: str
    proof: Proof | ProtocolNeeded | Reachability | GhostChecks


def place_of(statement: Callable[..., Any]) -> str:
    """Return the file and line of a statement, from the package on."""
    parts = Path(statement.__code__.co_filename).parts
    start = len(parts) - 1 - parts[::-1].index("kvproof") if "kvproof" in parts else 0
    return f"{'/'.join(parts[start:])}:{statement.__code__.co_firstlineno}"
