"""The named shapes of a pool that the fuzzer draws from."""

from dataclasses import dataclass

from kvproof.fuzz.target import PoolConfig


@dataclass(frozen=True)
class Layout:
    """A name, and the settings of `PoolConfig` that it fixes; sizes are in tokens.

    `protocol`: blocks are used as a full-attention manager uses them, table by table.
    """

    name: str
    says: str
    hash_block_size: int
    block_sizes: dict[int, int]
    enable_caching: bool = True
    protocol: bool = False

    def config(self, num_gpu_blocks: int, enable_kv_cache_events: bool = True) -> PoolConfig:
        """Return the configuration of a pool of so many blocks."""
        return PoolConfig(
            num_gpu_blocks,
            self.enable_caching,
            self.hash_block_size,
            dict(self.block_sizes),
            enable_kv_cache_events,
        )


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout("one-size", "one group, one hash unit to a block", 2, {0: 2}),
        Layout("partial", "one group, three hash units to a block: partial keys", 2, {0: 6}),
        Layout("two-groups", "two groups of one block size: partial keys", 2, {0: 4, 1: 4}),
        Layout("two-sizes", "two groups of different block size", 2, {0: 2, 1: 4}),
        Layout("caching-off", "prefix caching off", 2, {0: 2}, enable_caching=False),
        Layout("full", "one full-attention group, used table by table", 2, {0: 2}, protocol=True),
    )
}
