"""The block pool of whatever vLLM is installed, as a target.

The real `BlockPool`, fed with real `Request` objects that vLLM hashes itself. Nothing of
vLLM is imported before the first pool is built; that import takes seconds.
"""

from collections.abc import Sequence
from typing import Any

from kvproof.fuzz.target import (
    Event,
    Hash,
    NotExpressible,
    Observation,
    PoolConfig,
    RequestView,
)
from kvproof.fuzz.vllm_release import Release, VllmUnavailable, installed

__all__ = ["VllmPool", "VllmUnavailable", "factory", "version"]


class HashNames:
    """The names of hashes, for one hash unit: what they stand for, as the protocol writes it."""

    def __init__(self, release: Release, hash_block_size: int) -> None:
        self.parts = release.parts
        self.unit = hash_block_size
        self.texts: dict[bytes | int, Hash] = {}
        self.keys: dict[bytes, tuple[Hash, int]] = {}
        self.tokens: dict[Hash, tuple[int, ...]] = {}

    def learn(
        self, block_hashes: Sequence[Any], tokens: Sequence[int], real: Sequence[int]
    ) -> None:
        """Take note of what hashes stand for: what is named `tokens` is `real` to the engine. A
        hash that stands for something already keeps its name.
        """
        for index, block_hash in enumerate(block_hashes):
            if block_hash not in self.texts:
                text = ".".join(map(str, tokens[: (index + 1) * self.unit]))
                self.texts[block_hash] = text
                self.texts[self.parts.maybe_convert_block_hash(block_hash)] = text
                self.tokens[text] = tuple(real[: (index + 1) * self.unit])

    def named(self, text: Hash | None, real: list[int]) -> list[int]:
        """Return what tokens are named that an event tells with this hash. Tokens that are not
        those that it stands for stay as they are.
        """
        known = self.tokens.get(text or "", ())
        if not real or list(known[-len(real) :]) != real:
            return real
        return [int(token) for token in (text or "").split(".")[-len(real) :]]

    def text(self, value: bytes | int | None) -> Hash | None:
        """Return the name of a hash as it stands in an event."""
        return None if value is None else self.texts.get(value, f"?{value!r}")

    def key(self, key: bytes) -> tuple[Hash, int]:
        """Return the name of a hash and its group."""
        found = self.keys.get(key)
        if found is None:
            block_hash = self.parts.get_block_hash(key)
            text = self.texts.get(block_hash, f"?{block_hash!r}")
            found = self.keys[key] = (text, self.parts.get_group_id(key))
        return found


class Hashing(HashNames):
    """Requests of tokens alone, and the names of their hashes."""

    LIMIT = 20_000
    """How many requests are kept before `hashing` starts afresh."""

    def __init__(self, release: Release, hash_block_size: int) -> None:
        super().__init__(release, hash_block_size)
        self.requests: dict[tuple[int, ...], Any] = {}
        options: dict[str, Any] = {
            "block_hasher": self.parts.get_request_block_hasher(self.unit, self.parts.sha256),
            "eos_token_id": None,
        }
        self.options = {name: options[name] for name in release.options["Request"]}
        self.sampling = self.parts.SamplingParams(max_tokens=1)

    def request(self, tokens: Sequence[int]) -> Any:
        """Return vLLM's request with these tokens, the same one each time."""
        found = self.requests.get(tuple(tokens))
        if found is not None:
            return found
        made = self.parts.Request("kvproof", list(tokens), self.sampling, None, **self.options)
        self.requests[tuple(tokens)] = made
        self.learn(made.block_hashes, tokens, tokens)
        return made

    def block_hash(self, text: Hash) -> Any:
        """Return vLLM's hash of a prefix. Raises NotExpressible when it has none."""
        tokens = [int(token) for token in text.split(".")]
        if len(tokens) % self.unit:
            raise NotExpressible(f"{text} is not a whole number of hash units")
        return self.request(tokens).block_hashes[-1]


_hashings: dict[int, Hashing] = {}


def hashing(release: Release, hash_block_size: int) -> Hashing:
    """Return what is known about a hash unit; pools share it until it grows too large."""
    known = _hashings.get(hash_block_size)
    if known is None or known.parts is not release.parts or len(known.requests) > Hashing.LIMIT:
        known = _hashings[hash_block_size] = Hashing(release, hash_block_size)
    return known


class Recorder:
    """A metrics collector that writes down its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_block_allocated(self, block: Any) -> None:
        """Note that a block was handed out."""
        self.calls.append(("allocated", block.block_id))

    def on_block_accessed(self, block: Any) -> None:
        """Note that a block was touched."""
        self.calls.append(("accessed", block.block_id))

    def on_block_evicted(self, block: Any) -> None:
        """Note that what a block held is gone."""
        self.calls.append(("evicted", block.block_id))

    def reset(self) -> None:
        """Note that everything is gone."""
        self.calls.append(("reset", 0))


class VllmPool:
    """vLLM's `BlockPool` behind the target protocol. `version` is vLLM's.

    Raises VllmUnavailable when no vLLM is installed that can be driven, or when it is too
    old for the configuration.
    """

    def __init__(self, config: PoolConfig, release: Release | None = None) -> None:
        release = release or installed()
        sizes = set(config.block_sizes.values())
        if "hash_block_size" not in release.options["BlockPool"] and sizes != {
            config.hash_block_size
        }:
            raise VllmUnavailable(f"vLLM {release.version} has one block size for all groups")
        self.version = release.version
        self._parts = release.parts
        self._recorder = Recorder()
        self._hashing = hashing(release, config.hash_block_size)
        options = {
            "hash_block_size": config.hash_block_size,
            "enable_kv_cache_events": config.enable_kv_cache_events,
            "metrics_collector": self._recorder,
        }
        present = release.options["BlockPool"]
        self._pool: Any = self._parts.BlockPool(
            config.num_gpu_blocks,
            config.enable_caching,
            **{name: value for name, value in options.items() if name in present},
        )
        self._blocks: list[Any] = self._pool.blocks
        self._recording = "metrics_collector" in present
        self._masks = "block_mask" in release.options["BlockPool.cache_full_blocks"]
        self._nested = release.touch_takes_groups
        self._only_group = next(iter(config.block_sizes)) if len(config.block_sizes) == 1 else None
        self.operations = release.operations
        if self._only_group is None and not hasattr(self._parts.BlockRemoved, "group_idx"):
            self.operations = tuple(name for name in self.operations if name != "take_events")

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """See `PoolTarget`."""
        return [block.block_id for block in self._pool.get_new_blocks(num_blocks)]

    def touch(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        given = self._at(blocks)
        self._pool.touch((given,) if self._nested else given)

    def free_blocks(self, blocks: list[int]) -> None:
        """See `PoolTarget`."""
        self._pool.free_blocks(self._at(blocks))

    def get_cached_block(self, block_hash: Hash, groups: list[int]) -> list[int] | None:
        """See `PoolTarget`."""
        found = self._pool.get_cached_block(self._hashing.block_hash(block_hash), groups)
        return None if found is None else [block.block_id for block in found]

    def cache_full_blocks(
        self,
        request: RequestView,
        blocks: list[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        group: int,
        block_mask: list[bool] | None,
    ) -> None:
        """See `PoolTarget`."""
        if block_mask is not None and not self._masks:
            raise NotExpressible(f"vLLM {self.version} takes no block_mask")
        options = {} if block_mask is None else {"block_mask": block_mask}
        self._pool.cache_full_blocks(
            self._hashing.request(request.tokens),
            self._at(blocks),
            num_cached_blocks,
            num_full_blocks,
            block_size,
            group,
            **options,
        )

    def cache_partial_block(
        self, request: RequestView, block: int, num_tokens: int, group: int, block_size: int
    ) -> bool:
        """See `PoolTarget`."""
        made = self._hashing.request(request.tokens)
        (given,) = self._at([block])
        key = self._pool.cache_partial_block(made, given, num_tokens, group, block_size)
        return key is not None

    def evict_blocks(self, blocks: list[int]) -> None:
        """See `PoolTarget`. vLLM takes ids here, in a set."""
        self._pool.evict_blocks(set(blocks))

    def reset_prefix_cache(self) -> bool:
        """See `PoolTarget`."""
        return bool(self._pool.reset_prefix_cache())

    def take_events(self) -> list[Event]:
        """See `PoolTarget`."""
        return pool_events(self._pool.take_events(), self._hashing, self._only_group)

    def get_num_free_blocks(self) -> int:
        """See `PoolTarget`."""
        return int(self._pool.get_num_free_blocks())

    def get_usage(self) -> float:
        """See `PoolTarget`."""
        return float(self._pool.get_usage())

    def observe(self) -> Observation:
        """See `PoolTarget`."""
        hooks = self._recorder.calls
        self._recorder.calls = []
        seen = pool_observation(self._pool, self._hashing)
        seen.hooks = hooks if self._recording else None
        return seen

    def _at(self, ids: list[int]) -> list[Any]:
        blocks = self._blocks
        for block in ids:
            if not 0 <= block < len(blocks):
                raise NotExpressible(f"vLLM takes block objects, and there is none for {block}")
        return [blocks[block] for block in ids]


def pool_observation(pool: Any, hashing: HashNames) -> Observation:
    """Return what can be seen of vLLM's pool. A free list that does not end where it should
    ends in -1.
    """
    return Observation(
        free=_free(pool),
        ref_cnt=[block.ref_cnt for block in pool.blocks],
        keys=_keys(pool, hashing),
        index=_index(pool, hashing),
        num_free_blocks=pool.get_num_free_blocks(),
    )


def pool_events(events: list[Any], hashing: HashNames, only_group: int | None) -> list[Event]:
    """Return vLLM's events as the protocol has them. `only_group` is the group of those that
    name none.
    """
    return [_event(event, hashing, only_group) for event in events]


def _free(pool: Any) -> list[int] | None:
    queue = pool.free_block_queue
    head = getattr(queue, "fake_free_list_head", None)
    if head is None:
        return None
    tail, block = queue.fake_free_list_tail, head.next_free_block
    ids: list[int] = []
    for _ in range(len(pool.blocks) + 2):
        if block is tail:
            return ids
        if block is None:
            break
        ids.append(block.block_id)
        block = block.next_free_block
    return [*ids, -1]


def _keys(pool: Any, hashing: HashNames) -> list[list[tuple[Hash, int]]]:
    name = hashing.key
    more = getattr(pool, "cached_block_hashes_by_block", None) or {}
    keys = []
    for block in pool.blocks:
        own = block.block_hash
        mine = [] if own is None else [name(own)]
        if block.block_id in more:
            mine += sorted(map(name, more[block.block_id]))
        keys.append(mine)
    return keys


def _index(pool: Any, hashing: HashNames) -> dict[tuple[Hash, int], list[int]] | None:
    index = pool.cached_block_hash_to_block
    cache = getattr(index, "_cache", index)
    if not isinstance(cache, dict):
        return None
    name = hashing.key
    return {
        name(key): list(found) if isinstance(found, dict) else [found.block_id]
        for key, found in cache.items()
    }


def _event(event: Any, hashing: HashNames, only_group: int | None) -> Event:
    parts = hashing.parts
    if isinstance(event, parts.AllBlocksCleared):
        return ["cleared"]
    hashes = [hashing.text(value) for value in event.block_hashes]
    group = getattr(event, "group_idx", None)
    group = only_group if group is None else group
    if isinstance(event, parts.BlockRemoved):
        return ["removed", hashes, group]
    parent, size = hashing.text(event.parent_block_hash), event.block_size
    told = [
        token
        for place, text in enumerate(hashes)
        for token in hashing.named(text, list(event.token_ids[place * size :][:size]))
    ]
    told += event.token_ids[len(told) :]
    return ["stored", hashes, parent, told, group, size]


def factory(config: PoolConfig) -> VllmPool:
    """Build a pool of the installed vLLM. Raises VllmUnavailable."""
    return VllmPool(config)


def version() -> str:
    """Return the installed vLLM's version. Raises VllmUnavailable."""
    return installed().version
