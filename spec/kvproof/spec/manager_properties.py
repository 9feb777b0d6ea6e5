"""The properties of the layer above the pool: what a request may rely on.

They speak of requests, their tables and what their tokens read, so each is judged with the
ghost contents of the blocks, or from what the manager answers (`kvproof.fuzz.contents`,
`kvproof.fuzz.scheduler`).
"""

from kvproof.spec.properties import Class, Consequence, Kind, Property

_MANAGER = "vLLM 0.25.1, kv_cache_manager.py: "
_TYPES = "vLLM 0.25.1, single_type_kv_cache_manager.py: "


def _step(
    name: str, klass: Class, says: str, consequence: Consequence, because: str, source: str
) -> Property:
    return Property(name, klass, Kind.STEP, says, consequence, because, source)


MANAGER_PROPERTIES: dict[str, Property] = {
    found.name: found
    for found in (
        _step(
            "hit-aligned",
            Class.SAFETY,
            "a hit covers a multiple of the alignment",
            Consequence.WRONG_DATA,
            "the table's entries and the request's positions part ways",
            _MANAGER + "get_computed_blocks",
        ),
        _step(
            "hit-below-prompt",
            Class.SAFETY,
            "a hit covers at most num_tokens - 1 tokens",
            Consequence.CRASH,
            "no token is left to compute, and there are no logits to sample from",
            _MANAGER + "get_computed_blocks",
        ),
        _step(
            "window-kept",
            Class.SAFETY,
            "no block that a scheduled, in-flight or next token may read is freed or nulled",
            Consequence.WRONG_DATA,
            "a token reads the null block, or what another request has written there",
            _TYPES + "get_num_skipped_tokens, remove_skipped_blocks",
        ),
        _step(
            "reads-own-prefix",
            Class.SAFETY,
            "every slot that a token's attention may read holds this request's own prefix",
            Consequence.WRONG_DATA,
            "the answer is computed from other tokens, and nothing crashes",
            _MANAGER + "allocate_slots, get_computed_blocks, free",
        ),
        _step(
            "writes-exclusive",
            Class.SAFETY,
            "whatever a token's write puts into a slot, every other holder of the block and every"
            " key on it expects the same content there",
            Consequence.WRONG_DATA,
            "one request overwrites what another reads",
            _MANAGER + "allocate_slots",
        ),
        _step(
            "common-prefix-true",
            Class.SAFETY,
            "blocks reported as common are in the tables of all running requests",
            Consequence.WRONG_DATA,
            "cascade attention reads one request's prefix for all of them",
            _TYPES + "get_num_common_prefix_blocks",
        ),
        _step(
            "bound-covers-peak",
            Class.SAFETY,
            "the startup bound (with its look-ahead) is at least the most blocks the request ever"
            " holds; the admission gate at least the most it holds while its current tokens are"
            " prefilled",
            Consequence.DEADLOCK,
            "what was admitted cannot finish",
            "vLLM 0.25.1, kv_cache_interface.py: max_admission_blocks_per_request",
        ),
        _step(
            "admission-live",
            Class.SAFETY,
            "a request whose startup bound fits the pool (N - 1 - permanent) is admitted in the"
            " end, and what was admitted can finish",
            Consequence.DEADLOCK,
            "a request that the engine has accepted waits for ever, though nobody else is there",
            _MANAGER + "allocate_slots (full_sequence_must_fit)",
        ),
        _step(
            "deferral-neutral",
            Class.POLICY,
            "popping a request's blocks and then freeing them as documented, with nothing between,"
            " equals freeing the request, queue order included",
            Consequence.DIVERGENCE,
            "an engine that defers its frees evicts other blocks",
            _MANAGER + "pop_blocks_for_free",
        ),
    )
}
"""Each property of the managers, by name."""
