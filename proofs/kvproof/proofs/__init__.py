"""Proofs of the specification: the symbolic reading, the theorems, the solvers.

`theorems()` lists what is proved; `prove` and `prove_all` prove it; `replay` runs a
counterexample on the concrete specification.
"""

from kvproof.proofs.counterexamples import Counterexample
from kvproof.proofs.runner import Verdict, prove, prove_all, replay
from kvproof.proofs.theorem import Theorem
from kvproof.proofs.theorems import theorems

__all__ = ["Counterexample", "Theorem", "Verdict", "prove", "prove_all", "replay", "theorems"]
