"""The rules that a caller of the managers must keep (see `kvproof.spec.rules`)."""

from kvproof.spec.rules import KVCacheError, Rule


class NothingToAllocateError(KVCacheError, ValueError):
    """Slots were asked for no token at all."""


class LateHitError(KVCacheError, AssertionError):
    """A prefix hit was given to a request that has blocks already."""


class ForeignHitError(KVCacheError, AssertionError):
    """Blocks were given for a hit that do not make it up."""


class ConfigError(KVCacheError, ValueError, AssertionError):
    """The groups, sizes or settings of a cache do not fit together."""


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

MANAGER_RULES: dict[str, Rule] = {
    rule.name: rule for rule in list(globals().values()) if isinstance(rule, Rule)
}
"""The rules of the managers, by name."""
