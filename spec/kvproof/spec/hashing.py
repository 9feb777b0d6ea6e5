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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple, NewType

from kvproof.spec import rules
from kvproof.spec.logic import requires
from kvproof.spec.properties import Class, Consequence, Kind, Property
from kvproof.spec.quantities import GroupId, NumTokens, TokenId
from kvproof.spec.rules import KVCacheError, Rule, TokenCountError

LoraName = NewType("LoraName", str)
"""Names an adapter. One name is one set of weights for as long as the cache lives."""

CacheSalt = NewType("CacheSalt", str)
"""Keeps requests apart that would share blocks: they do only if their salts are equal."""

Identifier = NewType("Identifier", str)
"""Names a multimodal item: its contents, its modality and its length. Never cut short."""

EmbedRow = NewType("EmbedRow", bytes)
"""The embedding that a position reads instead of its token's, in the model's data type."""


class ExtraKind(Enum):
    """The kinds of extra keys, in the order in which a unit lists them."""

    LORA = "lora"
    MULTIMODAL = "multimodal"
    CACHE_SALT = "cache salt"
    PROMPT_EMBEDS = "prompt embeddings"


class LoraKey(NamedTuple):
    """In every unit of a request that uses an adapter."""

    lora_name: LoraName
    kind: Literal[ExtraKind.LORA] = ExtraKind.LORA


class MultimodalKey(NamedTuple):
    """In every unit that the item has a token in.

    `offset` is the item's first token counted from the unit's first: negative in a unit that
    the item only continues into. So it says which part of the item the unit holds.
    """

    identifier: Identifier
    offset: int
    kind: Literal[ExtraKind.MULTIMODAL] = ExtraKind.MULTIMODAL


class CacheSaltKey(NamedTuple):
    """In the first unit only; the chain carries it to the others."""

    cache_salt: CacheSalt
    kind: Literal[ExtraKind.CACHE_SALT] = ExtraKind.CACHE_SALT


class PromptEmbedsKey(NamedTuple):
    """In every unit of a request with prompt embeddings, also in one behind its prompt.

    `rows` has one entry for each token of the unit that is in the prompt, None where the
    token itself is read.
    """

    rows: tuple[EmbedRow | None, ...]
    kind: Literal[ExtraKind.PROMPT_EMBEDS] = ExtraKind.PROMPT_EMBEDS


ExtraKey = LoraKey | MultimodalKey | CacheSaltKey | PromptEmbedsKey
"""What keys and values depend on besides tokens. Equal means equal in value and in kind:
the tag is a part of the tuple, and a bare string never stands for two things."""


class Unit(NamedTuple):
    """One hash unit: `hash_block_size` tokens, and the extra keys that apply to them."""

    tokens: tuple[TokenId, ...]
    extra_keys: tuple[ExtraKey, ...]


ChainedHash = tuple[Unit, ...]
"""A block hash: all units of the prefix, the first one first; never empty.

The pool's `BlockHash` is the same idea with tokens for units. Of a hash the pool asks only
whether two are equal, whether one is a prefix of another, and how long it is. Those answers
stay the same when each token is numbered together with the extra keys of its unit.
"""


class ChainedKey(NamedTuple):
    """A hash qualified by its group, as `quantities.Key` is for the pool."""

    block_hash: ChainedHash
    group: GroupId


class EmptyNameError(KVCacheError, ValueError):
    """A LoRA name, a cache salt or an identifier is the empty string."""


class ItemPlaceError(KVCacheError, ValueError):
    """A multimodal item lies where it cannot lie."""


class GroupIdError(KVCacheError, OverflowError):
    """A group id cannot be a part of a key."""


NAME_GIVEN = Rule(
    "name-given",
    "a LoRA name, a cache salt and an identifier are not empty",
    "name",
    "pass None where there is none",
    EmptyNameError,
    "a request that asked to be kept apart shares blocks: wrong data",
)
ITEMS_IN_ORDER = Rule(
    "items-in-order",
    "multimodal items have at least one token each, lie within the tokens, and are sorted by"
    " offset; they may overlap",
    "mm_features",
    "sort them by offset, and leave out empty ones",
    ItemPlaceError,
    "an item is left out of the keys, and a request reads another one's image: wrong data",
)
ITEM_WHOLE = Rule(
    "item-whole",
    "a request is not truncated inside a multimodal item",
    "num_tokens",
    "keep the item, or drop all of it",
    ItemPlaceError,
    "tokens that follow are taken for the item's: wrong data",
)
EMBEDS_IN_PROMPT = Rule(
    "embeds-in-prompt",
    "there are no more prompt embeddings than tokens",
    "prompt_embeds",
    "pass a placeholder token for each embedding",
    TokenCountError,
    "embeddings and tokens part ways, and a key is made of the wrong ones: wrong data",
)
KEPT_KNOWN = Rule(
    "kept-known",
    "what is kept of a request lies within its tokens",
    "num_tokens",
    "pass 0 <= num_tokens <= the number of tokens",
    TokenCountError,
    "hashes are kept for tokens that the request does not have: wrong data",
)
HASHES_KNOWN = Rule(
    "hashes-known",
    "a request has at most one hash for each full unit of its tokens",
    "hashes",
    "drop hashes with `kept` when the request is truncated",
    TokenCountError,
    "a hash of tokens that are gone stays, and later units are chained to it: wrong data",
)
GROUP_PACKS = Rule(
    "group-packs",
    "a group id fits into four bytes, unsigned",
    "group",
    "number the groups from 0",
    GroupIdError,
    "two groups share a key: wrong data",
)


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
    """All of a request that its keys and values depend on.

    `prompt_embeds` has an entry for each prompt token, None where the token itself is read;
    it is None for a request without embeddings. What it replaces are still tokens, as
    placeholders. Raises EmptyNameError, ItemPlaceError, or TokenCountError.
    """

    tokens: tuple[TokenId, ...]
    lora_name: LoraName | None = None
    cache_salt: CacheSalt | None = None
    mm_features: tuple[MultimodalFeature, ...] = ()
    prompt_embeds: tuple[EmbedRow | None, ...] | None = None

    def __post_init__(self) -> None:
        names = (self.lora_name, self.cache_salt, *(item.identifier for item in self.mm_features))
        requires("" not in names, NAME_GIVEN)
        requires(_are_placed(self.mm_features, len(self.tokens)), ITEMS_IN_ORDER, self.mm_features)
        num_rows = len(self.prompt_embeds or ())
        requires(num_rows <= len(self.tokens), EMBEDS_IN_PROMPT, num_rows)

    def append_tokens(
        self, tokens: Iterable[TokenId], mm_features: Iterable[MultimodalFeature] = ()
    ) -> "RequestContent":
        """Return the request with more tokens: what was sampled, or a session's next input.

        The offsets of `mm_features` count from the first of the new tokens.
        """
        base = len(self.tokens)
        moved = tuple(item._replace(offset=item.offset + base) for item in mm_features)
        return replace(self, tokens=(*self.tokens, *tokens), mm_features=self.mm_features + moved)

    def truncate(self, num_tokens: NumTokens) -> "RequestContent":
        """Return the request with its first `num_tokens` tokens and what belongs to them.

        Hashes that were computed before must be cut with `kept`. Raises TokenCountError when
        there are not so many tokens, ItemPlaceError when the cut goes through an item.
        """
        requires(0 <= num_tokens <= len(self.tokens), KEPT_KNOWN, num_tokens)
        is_cut = any(item.offset < num_tokens < item.end for item in self.mm_features)
        requires(not is_cut, ITEM_WHOLE, num_tokens)

        return replace(
            self,
            tokens=self.tokens[:num_tokens],
            mm_features=tuple(item for item in self.mm_features if item.end <= num_tokens),
            prompt_embeds=self.prompt_embeds and self.prompt_embeds[:num_tokens],
        )


def _are_placed(mm_features: Sequence[MultimodalFeature], num_tokens: int) -> bool:
    offsets = [item.offset for item in mm_features]
    return offsets == sorted(offsets) and all(
        0 <= item.offset < item.end <= num_tokens for item in mm_features
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


def block_hashes(request: RequestContent, hash_block_size: int) -> tuple[ChainedHash, ...]:
    """Return the hashes of all full units, computed at once. Tokens behind them have none.

    Raises BlockSizeError when the unit is not positive.
    """
    return extend((), request, hash_block_size)


def extend(
    hashes: Sequence[ChainedHash], request: RequestContent, hash_block_size: int
) -> tuple[ChainedHash, ...]:
    """Return `hashes` and behind them those that are missing, as an engine does at each step.

    What is there already is not looked at, only chained to: it must be of this request.
    Raises BlockSizeError when the unit is not positive, TokenCountError when there are more
    hashes than full units.
    """
    requires(hash_block_size > 0, rules.ONE_BLOCK_SIZE, hash_block_size)
    num_units = len(request.tokens) // hash_block_size
    requires(len(hashes) <= num_units, HASHES_KNOWN, len(hashes))

    extended = list(hashes)
    for index in range(len(hashes), num_units):
        start, end = index * hash_block_size, (index + 1) * hash_block_size
        unit = Unit(request.tokens[start:end], extra_keys(request, start, end))
        extended.append((*extended[-1], unit) if extended else (unit,))
    return tuple(extended)


def kept(
    hashes: Sequence[ChainedHash], num_tokens: NumTokens, hash_block_size: int
) -> tuple[ChainedHash, ...]:
    """Return the hashes that are still right when the first `num_tokens` tokens are kept.

    A hash that covers a token at or behind `num_tokens` must go, although the unit may be full
    again a moment later: with other tokens. (Defect 'truncated-session'.) Raises
    BlockSizeError when the unit is not positive, TokenCountError for a negative number.
    """
    requires(hash_block_size > 0, rules.ONE_BLOCK_SIZE, hash_block_size)
    requires(num_tokens >= 0, KEPT_KNOWN, num_tokens)
    return tuple(hashes[: num_tokens // hash_block_size])


def view(
    hashes: Sequence[ChainedHash], hash_block_size: int, block_size: int
) -> tuple[ChainedHash, ...]:
    """Return one hash for each full block of `block_size` tokens: that of its last unit.

    Raises BlockSizeError when the block is not a positive multiple of the unit.
    """
    requires(hash_block_size > 0, rules.ONE_BLOCK_SIZE, hash_block_size)
    fits = block_size > 0 and block_size % hash_block_size == 0
    requires(fits, rules.ONE_BLOCK_SIZE, block_size)
    units = block_size // hash_block_size
    return tuple(hashes[units - 1 :: units])


def with_group(block_hash: ChainedHash, group: GroupId) -> ChainedKey:
    """Return the key of a hash in a group. Raises GroupIdError when the group does not fit."""
    requires(0 <= group < 2**32, GROUP_PACKS, group)
    return ChainedKey(block_hash, group)


def key_injective(
    first: RequestContent,
    first_hashes: Sequence[object],
    second: RequestContent,
    second_hashes: Sequence[object],
    hash_block_size: int,
) -> bool:
    """Two requests have an equal hash only where their prefixes are equal, extra keys included.

    The hashes are an engine's, of whatever type, one for each full unit of `hash_block_size`
    tokens. Raises TokenCountError when there are more of them than full units.
    """
    meant = block_hashes(first, hash_block_size), block_hashes(second, hash_block_size)
    requires(len(first_hashes) <= len(meant[0]), HASHES_KNOWN, len(first_hashes))
    requires(len(second_hashes) <= len(meant[1]), HASHES_KNOWN, len(second_hashes))
    return all(
        meant[0][i] == meant[1][j]
        for i, one in enumerate(first_hashes)
        for j, other in enumerate(second_hashes)
        if one == other
    )


Hasher = Callable[[RequestContent, int], Sequence[object]]
"""Computes all hashes of a request at once, for a number of tokens in a unit."""


def incremental_equals_fresh(
    request: RequestContent,
    hashes: Sequence[object],
    hash_block_size: int,
    fresh: Hasher = block_hashes,
) -> bool:
    """The hashes that a request has come to are those that `fresh` computes at once."""
    return list(hashes) == list(fresh(request, hash_block_size))


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
