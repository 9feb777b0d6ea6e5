"""The concepts that the seeds and vLLM name, each with its reasons, its sources and its checks."""

from kvproof.cli import concepts_of_managers, concepts_of_pool, concepts_of_requests
from kvproof.cli.concept import Concept

CONCEPTS: dict[str, Concept] = {
    concept.name: concept
    for module in (concepts_of_pool, concepts_of_managers, concepts_of_requests)
    for concept in module.CONCEPTS
}
"""Each concept, by name."""
