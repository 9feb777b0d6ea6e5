"""The rules that a caller of the managers and of hashing must keep (see `kvproof.spec.rules`)."""

from kvproof.spec.rules import KVCacheError, Rule, TokenCountError


class NothingToAllocateError(KVCacheError, ValueError):
    """Slots were asked for no token at all."""


class LateHitError(KVCacheError, AssertionError):
    """A prefix hit was given to a request that has blocks already."""


class ForeignHitError(KVCacheError, AssertionError):
    """Blocks were given for a hit that do not make it up."""


class ConfigError(KVCacheError, ValueError, AssertionError):
    """The groups, sizes or settings of a cache do not fit together."""


class RequestContentError(KVCacheError, ValueError):
    """A request has an empty name, or a multimodal item where none can be."""


SOMETHING_NEW = Rule(
    "something-new",
    "slots are allocated for at least one token, new or external",
    "num_new_tokens",
    "do not schedule a request that has nothing to compute and nothing to load",
    NothingToAllocateError,
    "the request is scheduled for nothing, and never ends",
)
TOKENS_NONNEGATIVE = Rule(
    "tokens-nonnegative",
    "a number of tokens or blocks is 0 or more",
    "num_tokens",
    "pass 0 when there are none",
    NothingToAllocateError,
    "the table is grown for fewer tokens than are written",
)
HITS_COME_FIRST = Rule(
    "hits-come-first",
    "a prefix hit, local or external, is for a request that has no blocks yet",
    "new_computed_blocks",
    "pass the hit with the first allocate_slots of the request; free it before it starts anew",
    LateHitError,
    "the hit's blocks stand behind the request's own, and the table names wrong positions",
)
HIT_IS_WHOLE = Rule(
    "hit-is-whole",
    "the blocks of a hit are as many as its tokens fill, in every group",
    "new_computed_blocks",
    "pass both parts of what get_computed_blocks returned, unchanged",
    ForeignHitError,
    "a token reads a block of another position",
)
CACHED_ARE_KNOWN = Rule(
    "cached-are-known",
    "blocks are cached up to tokens that are known, and that the table has room for",
    "num_computed_tokens",
    "pass at most min(computed tokens, request.num_tokens)",
    NothingToAllocateError,
    "a block is keyed for tokens that a draft may still replace",
)
CONFIG_FITS = Rule(
    "config-fits",
    "every block size is positive and divides the scheduler's; with caching and one group the hash"
    " unit is the block size; a chunk holds whole blocks",
    "kv_cache_config",
    "use the sizes that the engine computed for its model",
    ConfigError,
    "hits end inside a block, or the manager cannot be built",
)
RETENTION_FITS = Rule(
    "retention-fits",
    "a retention interval is 0 or a multiple of the scheduler's block size, and some group forgets",
    "retention_interval",
    "leave it out, or set it only for models with a sliding window",
    ConfigError,
    "the boundaries that are kept are none where a hit can end",
)
GROUP_COUNT = Rule(
    "group-count",
    "with prefix caching this coordinator has exactly one group",
    "kv_cache_groups",
    "turn prefix caching off, or use the coordinator for several groups",
    ConfigError,
    "a hit in one group is taken for a hit in all",
)
NAME_GIVEN = Rule(
    "name-given",
    "a LoRA name, a cache salt and an identifier are not empty",
    "name",
    "pass None where there is none",
    RequestContentError,
    "a request that asked to be kept apart shares blocks: wrong data",
)
ITEMS_IN_ORDER = Rule(
    "items-in-order",
    "multimodal items are sorted by offset, each with at least one token and all within the tokens",
    "mm_features",
    "sort them, leave out empty ones, and truncate in front of an item or behind it",
    RequestContentError,
    "a key leaves out an item, and a request reads another image: wrong data",
)
WITHIN_TOKENS = Rule(
    "within-tokens",
    "what is kept, embedded or hashed of a request lies within its tokens",
    "num_tokens",
    "cut the hashes with `kept` when the request is truncated",
    TokenCountError,
    "a hash of tokens that are gone stays, and later ones are chained to it: wrong data",
)

MANAGER_RULES: dict[str, Rule] = {
    rule.name: rule for rule in list(globals().values()) if isinstance(rule, Rule)
}
"""The rules of the managers, by name."""
