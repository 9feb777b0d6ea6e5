"""What identifies the contents of a block: the hash of its prefix, and what is hashed.

A request's tokens are cut into hash units of `hash_block_size` tokens. A block hash is
chained over all units from the first one on, and besides the tokens it covers what else the
keys and values depend on: the extra keys. The hash function is taken to be injective, so
here a hash is what it hashes: two equal hashes are two equal prefixes, by construction. A
real engine starts the chain with a seed; engines that exchange hashes must share it.

Source: vLLM 0.25.1, kv_cache_utils.py (`generate_block_hash_extra_keys`, `hash_block_tokens`,
`get_request_block_hasher`, `BlockHashListWithBlockSize`, `make_block_hash_with_group_id`) and
request.py (`Request`). Extra keys are tagged by kind here, and in the release they are not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple, NewType

from kvproof.spec import manager_rules, rules
from kvproof.spec.logic import requires
from kvproof.spec.properties import Class, Consequence, Kind, Property
from kvproof.spec.quantities import GroupId, NumTokens, TokenId

LoraName = NewType("LoraName", str)
"""Names an adapter. One name is one set of weights for as long as the cache lives."""

CacheSalt = NewType("CacheSalt", str)
"""Keeps requests apart that would share blocks: they do only if their salts are equal."""

Identifier = NewType("Identifier", str)
"""Names a multimodal item: its contents, its modality and its length. Never cut short."""

EmbedRow = NewType("EmbedRow", bytes)
"""The embedding that a position reads instead of its token's, in the model's data type."""


class LoraKey(NamedTuple):
    """In every unit of a request that uses an adapter."""

    lora_name: LoraName
    kind: Literal["lora"] = "lora"


class MultimodalKey(NamedTuple):
    """In every unit that the item has a token in.

    `offset` is the item's first token counted from the unit's first: negative in a unit that
    the item only continues into. So it says which part of the item the unit holds.
    """

    identifier: Identifier
    offset: int
    kind: Literal["multimodal"] = "multimodal"


class CacheSaltKey(NamedTuple):
    """In the first unit only; the chain carries it to the others."""

    cache_salt: CacheSalt
    kind: Literal["cache salt"] = "cache salt"


class PromptEmbedsKey(NamedTuple):
    """In every unit of a request with prompt embeddings, also in one behind its prompt.

    `rows` has one entry for each prompt token of the unit, None where the token is read.
    """

    rows: tuple[EmbedRow | None, ...]
    kind: Literal["prompt embeds"] = "prompt embeds"


ExtraKey = LoraKey | MultimodalKey | CacheSaltKey | PromptEmbedsKey
"""What keys and values depend on besides tokens. Equal keys are equal in kind, too: the tag
is a part of the tuple, so no string stands for two things."""


class Unit(NamedTuple):
    """One hash unit: `hash_block_size` tokens, and the extra keys that apply to them."""

    tokens: tuple[TokenId, ...]
    extra_keys: tuple[ExtraKey, ...]


ChainedHash = tuple[Unit, ...]
"""A block hash: all units of the prefix, the first one first. It is never empty. The pool's
`BlockHash` is the same with tokens for units: the pool asks only whether two hashes are equal,
whether one is a prefix of another, and how long one is. The answers stay the same when each
token is numbered together with the extra keys of its unit."""

BlockHashes = tuple[ChainedHash, ...]
"""The hashes of a request, one for each full unit (or block, in a `view`)."""


class ChainedKey(NamedTuple):
    """A hash qualified by its group, as `quantities.Key` is for the pool."""

    block_hash: ChainedHash
    group: GroupId


class MultimodalFeature(NamedTuple):
    """A multimodal item in a request: its first token, and how many tokens it has."""

    identifier: Identifier
    offset: int
    length: NumTokens

    @property
    def end(self) -> int:
        """The first token behind the item."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class RequestContent:
    """All of a request that its keys and values depend on. Items may overlap.

    `prompt_embeds` has an entry for each prompt token, None where the token itself is read; it
    is None for a request without embeddings. Raises RequestContentError or TokenCountError.
    """

    tokens: tuple[TokenId, ...]
    lora_name: LoraName | None = None
    cache_salt: CacheSalt | None = None
    mm_features: tuple[MultimodalFeature, ...] = ()
    prompt_embeds: tuple[EmbedRow | None, ...] | None = None

    def __post_init__(self) -> None:
        items, num_rows = self.mm_features, len(self.prompt_embeds or ())
        names = (self.lora_name, self.cache_salt, *(item.identifier for item in items))
        requires("" not in names, manager_rules.NAME_GIVEN)
        is_sorted = list(items) == sorted(items, key=lambda item: item.offset)
        are_inside = all(0 <= item.offset < item.end <= len(self.tokens) for item in items)
        requires(is_sorted and are_inside, manager_rules.ITEMS_IN_ORDER, items)
        requires(num_rows <= len(self.tokens), manager_rules.WITHIN_TOKENS, num_rows)

    def append_tokens(
        self, tokens: Iterable[TokenId], mm_features: Iterable[MultimodalFeature] = ()
    ) -> "RequestContent":
        """Return the request with more tokens: what was sampled, or a session's next input.

        The offsets of `mm_features` count from the first new token. Raises RequestContentError.
        """
        new, base = RequestContent((*tokens,), mm_features=(*mm_features,)), len(self.tokens)
        moved = tuple(item._replace(offset=item.offset + base) for item in new.mm_features)
        return replace(self, tokens=self.tokens + new.tokens, mm_features=self.mm_features + moved)

    def truncate(self, num_tokens: NumTokens) -> "RequestContent":
        """Return the request with its first `num_tokens` tokens and what belongs to them.

        Cut its hashes with `kept`. Raises TokenCountError when there are not so many tokens,
        RequestContentError when the cut goes through an item.
        """
        requires(0 <= num_tokens <= len(self.tokens), manager_rules.WITHIN_TOKENS, num_tokens)

        return replace(
            self,
            tokens=self.tokens[:num_tokens],
            mm_features=tuple(item for item in self.mm_features if item.offset < num_tokens),
            prompt_embeds=self.prompt_embeds and self.prompt_embeds[:num_tokens],
        )


def extra_keys(request: RequestContent, start: int, end: int) -> tuple[ExtraKey, ...]:
    """Return the extra keys of the tokens `start` .. `end - 1`, ordered by kind."""
    keys: list[ExtraKey] = []
    if request.lora_name is not None:
        keys.append(LoraKey(request.lora_name))
    keys += (
        MultimodalKey(item.identifier, item.offset - start)
        for item in request.mm_features
        if item.offset < end and start < item.end
    )
    if request.cache_salt is not None and start == 0:
        keys.append(CacheSaltKey(request.cache_salt))
    if request.prompt_embeds is not None:
        keys.append(PromptEmbedsKey(request.prompt_embeds[start:end]))
    return tuple(keys)


def block_hashes(request: RequestContent, hash_block_size: int) -> BlockHashes:
    """Return the hashes of all full units, computed at once. See `extend` for the errors."""
    return extend((), request, hash_block_size)


def extend(hashes: BlockHashes, request: RequestContent, hash_block_size: int) -> BlockHashes:
    """Return `hashes` and behind them those that are missing, as an engine does at each step.

    What is there is not looked at, only chained to: it must be this request's. Raises
    BlockSizeError for a unit that is not positive, TokenCountError for more hashes than units.
    """
    requires(hash_block_size > 0, rules.ONE_BLOCK_SIZE, hash_block_size)
    num_units = len(request.tokens) // hash_block_size
    requires(len(hashes) <= num_units, manager_rules.WITHIN_TOKENS, len(hashes) * hash_block_size)

    extended = list(hashes)
    for start in range(len(hashes) * hash_block_size, num_units * hash_block_size, hash_block_size):
        end = start + hash_block_size
        unit = Unit(request.tokens[start:end], extra_keys(request, start, end))
        extended.append((*extended[-1], unit) if extended else (unit,))
    return tuple(extended)


def kept(hashes: BlockHashes, num_tokens: NumTokens, hash_block_size: int) -> BlockHashes:
    """Return the hashes that are still right when the first `num_tokens` tokens are kept.

    A hash that covers a token at or behind `num_tokens` goes, even if its unit is full again a
    moment later (defect 'truncated-session'). Raises BlockSizeError and TokenCountError.
    """
    requires(hash_block_size > 0, rules.ONE_BLOCK_SIZE, hash_block_size)
    requires(num_tokens >= 0, manager_rules.WITHIN_TOKENS, num_tokens)

    return hashes[: num_tokens // hash_block_size]


def view(hashes: BlockHashes, hash_block_size: int, block_size: int) -> BlockHashes:
    """Return one hash for each full block of `block_size` tokens: that of its last unit. Raises
    BlockSizeError when the block is not a positive multiple of the unit.
    """
    fits = 0 < hash_block_size <= block_size and block_size % hash_block_size == 0
    requires(fits, rules.ONE_BLOCK_SIZE, block_size)

    units = block_size // hash_block_size
    return hashes[units - 1 :: units]


def with_group(block_hash: ChainedHash, group: GroupId) -> ChainedKey:
    """Return the key under which a group lists a block with this hash."""
    return ChainedKey(block_hash, group)


Hashed = tuple[RequestContent, Sequence[object]]
"""A request, and what an engine says are the hashes of its units, of whatever type."""


def key_injective(first: Hashed, second: Hashed, hash_block_size: int) -> bool:
    """Two requests have an equal hash only for equal prefixes, extra keys included."""
    one, other = (
        list(zip(block_hashes(request, hash_block_size), hashes, strict=False))
        for request, hashes in (first, second)
    )
    return all(a == b for (a, given), (b, twin) in product(one, other) if given == twin)


def incremental_equals_fresh(hashes: Sequence[object], fresh: Sequence[object]) -> bool:
    """The hashes that a request has come to are those that are computed for it at once."""
    return list(hashes) == list(fresh)


KEY_INJECTIVE = Property(
    "key-injective",
    Class.SAFETY,
    Kind.STATE,
    "equal keys mean equal tokens, equal extra keys and an equal kind of each, from the first"
    " token on",
    Consequence.WRONG_DATA,
    "a request hits blocks of other tokens, of another adapter, image or tenant",
    "vLLM 0.25.1, kv_cache_utils.py: generate_block_hash_extra_keys, hash_block_tokens",
)
INCREMENTAL_EQUALS_FRESH = Property(
    "incremental-equals-fresh",
    Class.SAFETY,
    Kind.STATE,
    "hashes built step by step equal hashes built at once",
    Consequence.WRONG_DATA,
    "blocks are published under a key of other contents, and whoever has those hits them",
    "vLLM 0.25.1, kv_cache_utils.py: get_request_block_hasher; request.py: update_block_hashes",
)

HASHING_PROPERTIES = {found.name: found for found in (KEY_INJECTIVE, INCREMENTAL_EQUALS_FRESH)}
"""The properties of block hashes, by name."""
