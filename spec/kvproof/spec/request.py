"""A request, as far as the cache layer looks at it.

Source: vLLM 0.25.1, request.py, `Request`.
"""

from dataclasses import dataclass
from typing import NewType

from kvproof.spec.quantities import BlockHash, NumTokens

NO_TOKENS = NumTokens(0)

RequestId = NewType("RequestId", str)


@dataclass
class Request:
    """`tokens` are all tokens that are known: the prompt and what was sampled, no drafts.

    What is hashed stands for a token: two requests whose extra keys differ have different
    elements where they differ (`kvproof.spec.hashing`). `num_computed_tokens` counts the tokens
    whose keys and values are in the cache, or will be when the scheduled steps have run and all
    drafts in them are accepted; `num_unsettled_tokens` are those drafts, which may be rejected.
    """

    request_id: RequestId
    tokens: BlockHash
    num_prompt_tokens: NumTokens
    num_computed_tokens: NumTokens = NO_TOKENS
    num_unsettled_tokens: NumTokens = NO_TOKENS
    is_running: bool = False
    skip_reading_prefix_cache: bool = False
    num_preemptions: int = 0

    @property
    def num_tokens(self) -> NumTokens:
        """How many tokens are known."""
        return NumTokens(len(self.tokens))
