"""The entries of operations and transitions: what is done, what it requires, and its text."""

import inspect
from collections.abc import Callable
from typing import Any

from kvproof.cli.entries_of_rules import DOOR, GHOST, PROTOCOL, rules_of
from kvproof.cli.entry import Entry, first_sentence, place_of
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.manager_calls import ARGUMENTS as FUZZED
from kvproof.fuzz.target import OPERATIONS
from kvproof.impl.block_pool import BlockPool as ImplPool
from kvproof.impl.kv_cache_manager import KVCacheManager as ImplManager
from kvproof.spec import full_attention, hashing, transitions
from kvproof.spec.block_pool import BlockPool
from kvproof.spec.kv_cache_coordinator import KVCacheCoordinator, get_manager_for_kv_cache_spec
from kvproof.spec.kv_cache_manager import KVCacheManager
from kvproof.spec.single_type_manager import SingleTypeKVCacheManager

BELOW = (
    "find_longest_cache_hit",
    "get_num_blocks_to_allocate",
    "allocate_new_computed_blocks",
    "allocate_new_blocks",
    "add_local_computed_blocks",
    "allocate_external_computed_blocks",
    "get_blocks",
)
"""The operations of coordinators and of the managers of groups that nothing above them has."""

HASHING = ("block_hashes", "extend", "kept", "view", "extra_keys", "with_group")
"""The functions of `kvproof.spec.hashing`."""

LAYERS = (
    (KVCacheManager, "kv_cache_manager.py: KVCacheManager"),
    (KVCacheCoordinator, "kv_cache_coordinator.py: KVCacheCoordinator"),
    (SingleTypeKVCacheManager, "single_type_kv_cache_manager.py: SingleTypeKVCacheManager"),
    (BlockPool, "block_pool.py: BlockPool"),
)
"""The layers, from the scheduler down, and where vLLM has each."""

_NOT_IN_VLLM = {"unschedule": "no such call in vLLM 0.25.1: see free-no-promise"}

_ASKS = {
    "touch": "ref_cnt goes from 0 to 1 removes from free queue hit prefix count grows",
    "free_blocks": "ref_cnt falls decremented",
    "get_new_blocks": "physical allocation pops popleft_n",
    "get_cached_block": "look up each group_id any miss returns None",
    "cache_full_blocks": "fill filled full block content written cached_block_hash_to_block",
    "reset_prefix_cache": "clear cache after changing updating model weights",
    "get_num_blocks_to_allocate": "computes requirement needed before taken announce predict",
    "remove_skipped_blocks": "outside the sliding window replaced by null_block",
    "free": "request end ends finished complete releases its table in reverse order last first",
    "allocate_slots": "prefill decode slots route",
    "get_computed_blocks": "lookup longest prefix hit of a request",
    "get_num_common_prefix_blocks": "cascade",
    "find_longest_cache_hit": "longest prefix lookup",
    "cache_blocks": "publish after arrival",
}


def operation_entries() -> list[Entry]:
    """Return the entry of each operation, from the pool up to the hashes of a request."""
    return [
        *(_operation(name, BlockPool) for name in OPERATIONS),
        *(_operation(name, KVCacheManager) for name in DOOR),
        *(_operation(name, _lowest(name)) for name in BELOW),
        _function("operation", "get_manager_for_kv_cache_spec", get_manager_for_kv_cache_spec),
        *(_function("operation", name, getattr(hashing, name)) for name in HASHING),
    ]


def transition_entries() -> list[Entry]:
    """Return the entry of each transition: of the pool, a full-attention table, the ghosts."""
    named = {
        **{name: getattr(transitions, name) for name in transitions.__all__},
        **{name: getattr(full_attention, name) for name in PROTOCOL},
        **{f"ghost:{name}": function for name, function in GHOST.items()},
    }
    return [_function("transition", name, function) for name, function in named.items()]


def _lowest(name: str) -> type[Any]:
    return next(layer for layer, _ in reversed(LAYERS) if hasattr(layer, name))


def _operation(name: str, home: type[Any]) -> Entry:
    more = [("source", f"{_source(name, home)}")]
    above = [f"{layer.__name__}.{name}" for layer, _ in LAYERS if hasattr(layer, name)]
    if len(above) > 1:
        more.append(("layers", " > ".join(above)))
    more.append(("implemented", _implemented(name)))
    if name in OPERATIONS:
        more.append(("branches", ", ".join(BRANCHES.get(name, ()))))
    levels = [
        level for level, names in (("pool", OPERATIONS), ("manager", FUZZED)) if name in names
    ]
    if levels:
        more.append(("fuzzed", f"level {' and '.join(levels)}"))
    return _function("operation", name, getattr(home, name), more)


def _source(name: str, home: type[Any]) -> str:
    if name in _NOT_IN_VLLM:
        return _NOT_IN_VLLM[name]
    return f"vLLM 0.25.1, {dict(LAYERS)[home]}.{name}"


def _implemented(name: str) -> str:
    for kind in (ImplManager, ImplPool):
        if callable(getattr(kind, name, None)):
            return place_of(getattr(kind, name))
    return "not under this name"


def _function(
    kind: str,
    name: str,
    function: Callable[..., Any],
    more: list[tuple[str, str]] | None = None,
) -> Entry:
    doc = inspect.getdoc(function) or ""

    def lines() -> list[str]:
        rules = [f"requires     {rule.name}: {rule.says}" for rule in rules_of(function)]
        source = inspect.getsource(function).rstrip().splitlines()
        indent = len(source[0]) - len(source[0].lstrip())
        return [
            *doc.splitlines(),
            "",
            *(rules or ["requires     nothing"]),
            f"stated in    {place_of(function)}",
            *(f"{label:<13}{text}" for label, text in more or []),
            "",
            *(line[indent:] for line in source),
        ]

    return Entry(kind, name, first_sentence(function), doc, lines, _ASKS.get(name, ""))
