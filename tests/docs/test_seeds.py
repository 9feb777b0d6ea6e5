"""docs/seeds.md: every name of the seeds is in it, and everything that it names exists."""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.disputes_of_seeds import SEED_DISPUTES
from kvproof.fuzz.branches import BRANCHES
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.misuse import MISUSES
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.scheduler import BRANCHES as SITUATIONS
from kvproof.proofs.theorems import theorems

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")

COLUMNS = ["specified", "proved", "fuzzed", "implemented"]

NAMED_BY_SEED_1 = [
    "BlockPool",
    "ref_cnt",
    "null_block",
    "metrics_collector",
    "get_new_blocks",
    "cached_block_hash_to_block",
    "LRU",
    "KVCacheCoordinator",
    "KVCacheBlock",
    "FreeKVCacheBlockQueue",
    "hash_block_size",
    "group_id",
    "get_cached_block",
    "free_blocks",
    "allocate_new_blocks",
    "UnitaryKVCacheCoordinator",
    "SpecGroup",
    "KVCacheCoordinatorNoPrefixCache",
    "HybridKVCacheCoordinator",
    "retention_interval",
    "reset_prefix_cache",
    "remove_skipped_blocks",
    "on_block_allocated",
    "get_num_blocks_to_allocate",
    "get_kv_cache_coordinator",
    "find_longest_cache_hit",
    "enable_caching",
    "cache_full_blocks",
    "cache_blocks",
    "block_id",
    "SingleTypeKVCacheManager",
    "NoPrefix",
    "KVCacheManager",
    "verify_and_split_kv_cache_groups",
    "set_block_hash",
    "scheduler_block_size",
    "req_to_blocks",
    "popleft_n",
    "pcp_world_size",
    "num_prompt_tokens",
    "num_gpu_blocks",
    "make_block_hash_with_group_id",
    "is_null",
    "hit_lengths_per_group",
    "blocks_per_group",
    "get_num_free_blocks",
    "get_num_common_prefix_blocks",
    "get_manager_for_kv_cache_spec",
    "free_block_queue",
    "find_longest_cache_hit_per_group",
    "evict_blocks",
    "dcp_world_size",
    "block_mask",
    "_block_hash",
    "attention_groups",
    "allocate_slots",
    "_validate_prefix_cache_retention_interval",
    "_maybe_evict_cached_block",
    "ValueError",
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
    "SlidingWindowManager",
    "SWA",
    "RSWAManager",
    "PCP",
    "DCP",
    "NamedTuple",
    "MLA",
    "FullAttentionManager",
    "BlockHashToBlockMap",
    "Mamba",
    "R-SWA",
    "cross-attention",
    "encoder",
    "touch",
    "Unitary",
    "Hybrid",
]

NAMED_BY_SEED_2 = [
    "block_pool",
    "SingleTypeKVCacheManager",
    "KVCacheManager",
    "ref_cnt",
    "find_longest_cache_hit",
    "block_table",
    "BlockPool",
    "get_new_blocks",
    "free_blocks",
    "free_block_queue",
    "SlidingWindowManager",
    "KVCacheCoordinator",
    "FullAttentionManager",
    "single_type_kv_cache_manager",
    "prefill_allocation",
    "popleft_n",
    "hash_block_size",
    "get_num_blocks_to_allocate",
    "get_cached_block",
    "append_slots",
    "allocate_slots",
    "_maybe_evict_cached_block",
    "prepend=False",
    "touch",
    "free",
    "Mamba",
]


def tables() -> Iterator[list[dict[str, str]]]:
    """Return the rows of each table, each as column -> cell."""
    for block in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines()
        ]
        yield [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def rows_with(column: str) -> list[dict[str, str]]:
    return [row for table in tables() for row in table if column in row]


def test_the_tables_are_read() -> None:
    assert len(rows_with("specified")) > 100
    assert all(column in row for row in rows_with("specified") for column in COLUMNS)


@pytest.mark.parametrize("name", dict.fromkeys([*NAMED_BY_SEED_1, *NAMED_BY_SEED_2]))
def test_every_name_of_the_seeds_is_in_a_table(name: str) -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("|") or "single_type" in line]
    assert any(name in line for line in lines)


def there(package: str) -> Callable[[str], bool]:
    def is_there(name: str) -> bool:
        module, *parts = name.split(".")
        value: Any = importlib.import_module(f"{package}.{module}")
        for part in parts:
            value = getattr(value, part, None)
        return value is not None

    return is_there


FUZZED = {
    *PROPERTIES,
    *LAYOUTS,
    *MANAGER_LAYOUTS,
    *MISUSES,
    *SITUATIONS,
    *(f"{operation}:{name}" for operation, names in BRANCHES.items() for name in names),
}

EXISTS: dict[str, Callable[[str], bool]] = {
    "specified": there("kvproof.spec"),
    "proved": lambda name: name in {theorem.name for theorem in theorems()},
    "fuzzed": lambda name: name in FUZZED,
    "implemented": there("kvproof.impl"),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_what_a_row_names_is_there(column: str) -> None:
    for row in rows_with(column):
        names = re.findall(r"`([^`]+)`", row[column])
        for name in names:
            assert EXISTS[column](name), f"{column}: {name} in {row}"
        said = ("not yet", "no: ", "hashes are opaque")
        assert names or row[column].startswith(said), f"{column} is empty: {row}"


def test_a_row_that_is_not_specified_is_nowhere() -> None:
    for row in rows_with("specified"):
        if row["specified"] == "not yet":
            assert {row[column] for column in COLUMNS} == {"not yet"}, row


def test_claims_are_numbered() -> None:
    numbers = [int(row["#"]) for row in rows_with("#")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_each_dispute_has_a_row_with_a_verdict() -> None:
    rows = rows_with("right, and why")
    assert [row["question"] for row in rows] == [one.question for one in SEED_DISPUTES]
    for row in rows:
        assert re.search(r"; `kvproof explain [^`]+`$", row["right, and why"]), row
