"""What is known of a target from its calls and answers alone, whatever its policy.

Who holds which block, which keys a block was given and may still carry, and what a
consumer of the event stream believes.
"""

from typing import Any

from kvproof.fuzz.calls import Call, to_wire
from kvproof.fuzz.target import Event, PoolConfig
from kvproof.fuzz.view import WireKey
from kvproof.spec.quantities import BlockHash


class Ledger:
    """`held`: holders of each block. `promised`: for each block, the keys it was given since
    it was handed out, evicted or reset. `consumer`: the keys a consumer takes for resident.
    `lies`: what events said of a stored key that is not so.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.held = [0] * config.num_gpu_blocks
        self.promised: list[dict[WireKey, None]] = [{} for _ in self.held]
        self.consumer: dict[WireKey, None] = {}
        self.lies: list[str] = []

    def record(self, call: Call, value: Any) -> None:
        """Write down a call that the target accepted, and what it returned."""
        name, args, held = call.name, call.args, self.held
        if name == "get_new_blocks":
            for block in value:
                if 0 <= block < len(held):
                    held[block] += 1
                    self.promised[block] = {}
        elif name == "touch":
            for block in args["blocks"]:
                held[block] += 1
        elif name == "free_blocks":
            for block in args["blocks"]:
                held[block] -= 1
        elif name == "cache_full_blocks":
            for block, key in published(call):
                self.promised[block][key] = None
        elif name == "cache_partial_block":
            if args["block"]:
                end: BlockHash = tuple(args["request"]["tokens"][: args["num_tokens"]])
                self.promised[args["block"]][to_wire(end), args["group"]] = None
        elif name == "evict_blocks":
            for block in args["blocks"]:
                self.promised[block] = {}
        elif name == "reset_prefix_cache":
            if value:
                self.promised = [{} for _ in held]
        elif name == "take_events":
            for event in value:
                self._fold(event)

    def _fold(self, event: Event) -> None:
        kind = event[0]
        if kind == "cleared":
            self.consumer.clear()
        elif kind == "removed":
            for block_hash in event[1]:
                self.consumer.pop((block_hash, event[2]), None)
        else:
            hashes, parent, tokens, group, *size = event[1:]
            for block_hash in hashes:
                self.consumer[block_hash, group] = None
            if tokens is not None and hashes:
                self._compare(hashes, parent, tokens, size[0] if size else None)

    def _compare(
        self, hashes: list[str], parent: str | None, tokens: list[int], size: int | None
    ) -> None:
        """Compute each hash again as a consumer does, from the parent and the tokens.

        Tokens behind the last hash are ignored, as consumers ignore them.
        """
        size = len(tokens) // len(hashes) if size is None else size
        before = parent
        for number, block_hash in enumerate(hashes):
            text = ".".join(map(str, tokens[number * size : (number + 1) * size]))
            told = ".".join(part for part in (before, text) if part)
            if told != block_hash:
                self.lies.append(f"{block_hash!r} is told to be {told!r}")
            before = block_hash


Told = tuple[str, WireKey | None]
"""What one event tells of one key: stored or removed; of None: cleared."""


def told_each(events: list[Event]) -> list[Told]:
    """Return what the events tell, each key on its own.

    >>> told_each([["removed", ["0", "0.1"], 2], ["cleared"]])
    [('removed', ('0', 2)), ('removed', ('0.1', 2)), ('cleared', None)]
    """
    told: list[Told] = []
    for kind, *rest in events:
        if kind == "cleared":
            told.append((kind, None))
        else:
            group = rest[3] if kind == "stored" else rest[1]
            told += [(kind, (block_hash, group)) for block_hash in rest[0]]
    return told


def published(call: Call) -> list[tuple[int, WireKey]]:
    """Return the blocks that a `cache_full_blocks` publishes, each with its key."""
    args = call.args
    first, last, size = args["num_cached_blocks"], args["num_full_blocks"], args["block_size"]
    mask, blocks, group = args["block_mask"], args["blocks"], args["group"]
    tokens: BlockHash = tuple(args["request"]["tokens"])
    return [
        (blocks[index], (to_wire(tokens[: (index + 1) * size]), group))
        for index in range(first, last)
        if blocks[index] != 0 and (mask is None or mask[index - first])
    ]
