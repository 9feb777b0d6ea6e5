"""The rules that a caller must keep, and the error that names each one when it is broken.

A rule is what a `requires` asserts. Every error is a subclass of `KVCacheError` and of
what vLLM 0.25.1 raises in the nearest situation, so that an `except` written for vLLM
still catches it. An operation that raises leaves the state unchanged.
"""

from dataclasses import dataclass


class KVCacheError(Exception):
    """A call broke a rule. `rule` is the rule, `subject` the offending argument's value."""

    def __init__(self, rule: "Rule", subject: object = None) -> None:
        self.rule = rule
        self.subject = subject
        about = "" if subject is None else f" ({rule.argument} = {subject})"
        super().__init__(f"{rule.name}: {rule.says}{about}; {rule.advice}")


class OutOfBlocksError(KVCacheError, ValueError):
    """More blocks were asked for than are free."""


class NegativeCountError(KVCacheError, ValueError, AssertionError):
    """A number of blocks is too small: negative, or a pool of none."""


class UnheldBlockError(KVCacheError, AssertionError):
    """A reference that nobody holds was released (a double free)."""


class HeldSlotError(KVCacheError, AssertionError):
    """A table entry that already names a block was filled again."""


class BlockIdError(KVCacheError, AssertionError, IndexError):
    """A block id is outside the pool."""


class NullBlockError(KVCacheError, AssertionError):
    """The null block was used where a real block is needed."""


class UnreadableBlockError(KVCacheError, RuntimeError):
    """A block that is neither held nor keyed was touched."""


class UnheldKeyError(KVCacheError, AssertionError):
    """A key was given to a block that nobody holds."""


class BlockAlreadyHashedError(KVCacheError, AssertionError):
    """A full key was given to a block that has one."""


class ForeignKeyError(KVCacheError, AssertionError):
    """A key of another chain was given to a block."""


class CachingDisabledError(KVCacheError, AssertionError):
    """A key was published in a pool whose prefix caching is off."""


class TokenCountError(KVCacheError, AssertionError, IndexError):
    """A number of tokens or blocks does not fit the request or the block size."""


class BlockSizeError(KVCacheError, AssertionError):
    """A block size does not fit the hash unit, or a group was given two sizes."""


class MaskLengthError(KVCacheError, AssertionError):
    """A mask has not one entry for each new full block."""


class TableOrderError(KVCacheError, AssertionError):
    """A block table was filled, published or freed out of order."""


class BlocksInUseError(KVCacheError, RuntimeError):
    """The prefix cache was reset while blocks are in use."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One precondition: its name, its sentence, what to do, and the error that it raises."""

    name: str
    says: str
    argument: str
    advice: str
    error: type[KVCacheError]
    consequence: str


POOL_HAS_NULL = Rule(
    "pool-has-null",
    "a pool has at least one block, the null block",
    "num_gpu_blocks",
    "create the pool with one block more than you want to use",
    NegativeCountError,
    "there is no placeholder for skipped entries",
)
ENOUGH_FREE = Rule(
    "enough-free",
    "no more blocks may be taken than are free",
    "num_blocks",
    "compare with get_num_free_blocks() first",
    OutOfBlocksError,
    "the counter and the queue part ways, and the free list's sentinel is handed out",
)
COUNT_NONNEGATIVE = Rule(
    "count-nonnegative",
    "a number of blocks is 0 or more",
    "num_blocks",
    "ask for 0 blocks when none are needed",
    NegativeCountError,
    "the counter grows beyond the queue, and later allocations run past its end",
)
RELEASE_HELD = Rule(
    "release-held",
    "only a reference that is held can be released",
    "block",
    "free each block once for each time it was handed out or touched",
    UnheldBlockError,
    "a count falls below zero or a block is freed under its reader: wrong data, or a crash"
    " at a later allocation far from the cause",
)
SLOT_EMPTY = Rule(
    "slot-empty",
    "a table entry is filled once",
    "slot",
    "release the entry before it is filled again",
    HeldSlotError,
    "the block that the entry named is never released: a leak",
)
REAL_BLOCK = Rule(
    "real-block",
    "the null block is never shared, skipped or keyed",
    "block",
    "leave null blocks out",
    NullBlockError,
    "the null block is handed out, or a hit returns it: wrong data",
)
ID_IN_RANGE = Rule(
    "id-in-range",
    "a block id lies in 0 .. num_gpu_blocks - 1",
    "block",
    "report only ids that this pool handed out",
    BlockIdError,
    "another block's keys are evicted, or the engine crashes half-way through a list",
)
SHARE_READABLE = Rule(
    "share-readable",
    "only a block that is held or keyed can be touched",
    "block",
    "touch what get_cached_block returned, with no allocation or eviction in between",
    UnreadableBlockError,
    "a request reads a block whose contents nobody promised: wrong data",
)
PUBLISH_HELD = Rule(
    "publish-held",
    "a key is given to a block only while somebody holds it",
    "block",
    "publish before the block is freed",
    UnheldKeyError,
    "a free block is keyed for contents that it no longer owns: wrong data",
)
PUBLISH_ONCE = Rule(
    "publish-once",
    "a block gets one full key",
    "block",
    "pass the number of blocks that are already cached",
    BlockAlreadyHashedError,
    "a block is listed under two prefixes: wrong data",
)
ONE_CHAIN = Rule(
    "one-chain",
    "all keys of a block are prefixes of one chain, in one group, and end in the same block of it",
    "block",
    "give a block only keys of the request that wrote it",
    ForeignKeyError,
    "a hit returns the contents of another prefix: wrong data",
)
FULL_ON_BOUNDARY = Rule(
    "full-on-boundary",
    "a full key ends on a block boundary",
    "key",
    "use cache_partial_block for a prefix that ends inside a block",
    TokenCountError,
    "a block that is not full is hit as if it were: wrong data",
)
PARTIAL_INSIDE = Rule(
    "partial-inside",
    "a partial key ends inside a block",
    "key",
    "use cache_full_blocks for a prefix that ends on a block boundary",
    TokenCountError,
    "a full block is registered as a partial one, and is never promoted",
)
CACHING_ON = Rule(
    "caching-on",
    "keys are published only when prefix caching is on",
    "block",
    "create the pool with enable_caching=True, or do not publish",
    CachingDisabledError,
    "the key is never retracted when the block is handed out: a stale hit, wrong data",
)
TOKENS_KNOWN = Rule(
    "tokens-known",
    "a key covers at least one token, whole hash units, and only tokens that have a hash",
    "num_tokens",
    "publish at most len(block_hashes) hash units",
    TokenCountError,
    "a key is made of tokens that the request does not have: wrong data",
)
BLOCKS_GIVEN = Rule(
    "blocks-given",
    "a range of blocks to cache lies within the request's table",
    "num_full_blocks",
    "pass 0 <= num_cached_blocks and num_full_blocks <= len(blocks)",
    TokenCountError,
    "keys are paired with the wrong blocks: wrong data",
)
ONE_BLOCK_SIZE = Rule(
    "one-block-size",
    "a group has one block size, a multiple of the hash unit",
    "block_size",
    "pass the block size of the group's KV cache spec",
    BlockSizeError,
    "a block is keyed for fewer or more tokens than it holds: wrong data",
)
MASK_FITS = Rule(
    "mask-fits",
    "a mask has one entry for each new full block",
    "block_mask",
    "build the mask for blocks[num_cached_blocks:num_full_blocks]",
    MaskLengthError,
    "the wrong blocks are left out of the cache: lost hits",
)
TABLE_IN_ORDER = Rule(
    "table-in-order",
    "a full-attention table is filled and published from the front and freed from the back",
    "slot",
    "go through the table in order",
    TableOrderError,
    "a cached block loses its parent and can never be hit: lost hits",
)
RESET_UNUSED = Rule(
    "reset-unused",
    "the prefix cache is reset only when every block but the null block is free",
    "num_used",
    "free all requests first",
    BlocksInUseError,
    "a running request's blocks lose their keys while they are shared: lost hits",
)

RULES: dict[str, Rule] = {
    rule.name: rule for rule in list(globals().values()) if isinstance(rule, Rule)
}
