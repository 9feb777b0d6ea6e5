"""What the installed vLLM has: found by name and signature, not by version.

So a fork, a local version or a build for any device will do, and what an older release
lacks is left out. `HOMES` and `SIGNATURES` are all that is assumed of a release. Where a
later one differs, add its names there.
"""

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from kvproof.fuzz.target import OPERATIONS

ENVIRONMENT = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"}
"""Set before vLLM is imported, unless set already."""

HOMES: dict[str, tuple[str, ...]] = {
    "BlockPool": ("vllm.v1.core.block_pool",),
    "Request": ("vllm.v1.request",),
    "SamplingParams": ("vllm.sampling_params",),
    "sha256": ("vllm.utils.hashing", "vllm.utils"),
    "get_request_block_hasher": ("vllm.v1.core.kv_cache_utils",),
    "init_none_hash": ("vllm.v1.core.kv_cache_utils",),
    "get_block_hash": ("vllm.v1.core.kv_cache_utils",),
    "get_group_id": ("vllm.v1.core.kv_cache_utils",),
    "maybe_convert_block_hash": ("vllm.v1.core.kv_cache_utils",),
    "BlockStored": ("vllm.distributed.kv_events",),
    "BlockRemoved": ("vllm.distributed.kv_events",),
    "AllBlocksCleared": ("vllm.distributed.kv_events",),
}
"""The modules that may define each name, the newest release's first."""

SIGNATURES: dict[str, tuple[str, str]] = {
    "BlockPool": (
        "num_gpu_blocks enable_caching",
        "hash_block_size enable_kv_cache_events metrics_collector",
    ),
    "BlockPool.get_new_blocks": ("num_blocks", ""),
    "BlockPool.touch": ("blocks", ""),
    "BlockPool.free_blocks": ("ordered_blocks", ""),
    "BlockPool.get_cached_block": ("block_hash kv_cache_group_ids", ""),
    "BlockPool.cache_full_blocks": (
        "request blocks num_cached_blocks num_full_blocks block_size kv_cache_group_id",
        "block_mask",
    ),
    "BlockPool.cache_partial_block": (
        "request block num_tokens kv_cache_group_id block_size",
        "",
    ),
    "BlockPool.evict_blocks": ("block_ids", ""),
    "BlockPool.reset_prefix_cache": ("", ""),
    "BlockPool.take_events": ("", ""),
    "BlockPool.get_num_free_blocks": ("", ""),
    "BlockPool.get_usage": ("", ""),
    "Request": (
        "request_id prompt_token_ids sampling_params pooling_params",
        "block_hasher eos_token_id",
    ),
    "get_request_block_hasher": ("hash_block_size|block_size caching_hash_fn", ""),
    "init_none_hash": ("hash_fn|hash_function", ""),
}
"""For each callable the parameters that are passed by position, `old|new` where a name has
changed, and those that are passed by name when the release has them."""

OPTIONAL_OPERATIONS = ("cache_partial_block", "evict_blocks", "take_events", "get_usage")
"""What a release may lack."""


class VllmUnavailable(Exception):
    """There is no vLLM here that can be driven. The message is one line and says why."""


@dataclass(frozen=True)
class Release:
    """What is known of the installed release: its version, the parts that are used, the
    operations of its pool, for each callable the optional parameters that it has, and
    whether `touch` takes one list for each group.
    """

    version: str
    parts: SimpleNamespace
    operations: tuple[str, ...]
    options: dict[str, frozenset[str]]
    touch_takes_groups: bool


def probe(import_module: Callable[[str], Any] = importlib.import_module) -> Release:
    """Find out what the installed release has. Raises VllmUnavailable."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    package = _import("vllm", import_module)
    version = getattr(package, "__version__", None)
    if package is None or version is None:
        raise VllmUnavailable(
            "vLLM is not installed in this environment (no package `vllm`); in the repository,"
            " make vllm VERSION=0.25.1 builds one that has it"
        )

    parts = SimpleNamespace()
    for name, homes in HOMES.items():
        found = [getattr(_import(home, import_module), name, None) for home in homes]
        part = next((part for part in found if part is not None), None)
        if part is None:
            raise _unsupported(version, f"`{homes[0]}` has no `{name}`")
        setattr(parts, name, part)

    operations = []
    options = {}
    for name, (required, optional) in SIGNATURES.items():
        owner, _, method = name.partition(".")
        target = getattr(parts, owner)
        if method:
            target = getattr(target, method, None)
        if target is None and method in OPTIONAL_OPERATIONS:
            continue
        if target is None:
            raise _unsupported(version, f"`{owner}` has no `{method}`")
        options[name] = _options(version, name, target, required.split(), optional.split())
        if method in OPERATIONS:
            operations.append(method)
    blocks = inspect.signature(parts.BlockPool.touch).parameters["blocks"].annotation
    nested = str(blocks).startswith("tuple[")
    return Release(version, parts, tuple(operations), options, nested)


def _import(name: str, import_module: Callable[[str], Any]) -> Any:
    """Return a module, or None when there is none of that name."""
    try:
        return import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and name.startswith(error.name or "?"):
            return None
        why = (str(error).splitlines() or [""])[0]
        raise VllmUnavailable(
            f"vLLM is installed, but `import {name}` fails: {type(error).__name__}: {why}"
        ) from error


def _options(
    version: str, name: str, target: Any, required: list[str], optional: list[str]
) -> frozenset[str]:
    """Check a signature; return which of the optional parameters are there."""
    empty = inspect.Parameter.empty
    found = {
        parameter.name: parameter.default is not empty or "VAR" in parameter.kind.name
        for parameter in inspect.signature(target).parameters.values()
        if parameter.name != "self"
    }
    names = list(found)
    for place, names_here in enumerate(required):
        if place >= len(names) or names[place] not in names_here.split("|"):
            raise _unsupported(version, f"`{name}` has no `{names_here}` at place {place + 1}")
    for other in names[len(required) :]:
        if other not in optional and not found[other]:
            raise _unsupported(version, f"`{name}` needs `{other}`, which is not known")
    return frozenset(optional) & frozenset(names)


def _unsupported(version: str, why: str) -> VllmUnavailable:
    return VllmUnavailable(f"vLLM {version} is not supported: {why}")


@cache
def installed() -> Release:
    """Return the installed release, ready to hash. Raises VllmUnavailable."""
    release = probe()
    seed = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = seed or "0"  # otherwise vLLM draws a random first hash
    try:
        release.parts.init_none_hash(release.parts.sha256)
    finally:
        if seed is None:
            del os.environ["PYTHONHASHSEED"]
    return release
