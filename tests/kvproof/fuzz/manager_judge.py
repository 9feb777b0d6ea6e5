"""Which property a manager's answer or state breaks, from what was seen of it alone.

Nothing here depends on a policy: which block is taken or evicted, and what is kept, is the
manager's own affair. What is compared with the specification is in `manager_run`.
"""

from collections.abc import Sequence
from typing import Any

from kvproof.fuzz import judge
from kvproof.fuzz.calls import Call, to_wire
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.ledger import Ledger
from kvproof.fuzz.manager_model import spec_of
from kvproof.fuzz.manager_target import ManagerConfig, ManagerObservation
from kvproof.fuzz.model import Model
from kvproof.fuzz.statements import Statements
from kvproof.fuzz.target import PoolConfig
from kvproof.spec.attention import longest_hit, needed_blocks, peak_blocks
from kvproof.spec.kv_cache_coordinator import attention_of
from kvproof.spec.pool_properties import STATE_PROPERTIES
from kvproof.spec.quantities import NumTokens

Tables = dict[str, list[list[int]]]


def pool_config(config: ManagerConfig) -> PoolConfig:
    """Return the configuration of the manager's pool."""
    sizes = {number: group.block_size for number, group in enumerate(config.groups)}
    unit = config.hash_block_size if config.enable_caching else 1
    return PoolConfig(config.num_blocks, config.enable_caching, unit, sizes)


class ManagerJudge:
    """Judges one run of a manager. `popped` are blocks that a request gave up and that are
    still held.
    """

    def __init__(self, config: ManagerConfig, quality: bool) -> None:
        self.config, self.quality = config, quality
        self.attentions = [attention_of(spec_of(group)) for group in config.groups]
        self.ledger = Ledger(pool_config(config))
        self.popped: list[list[int]] = []
        self._model = Model(pool_config(config))

    def note(self, call: Call, value: Any) -> None:
        """Keep count of blocks that were popped and not freed yet."""
        if call.name == "pop_blocks_for_free" and value:
            self.popped.append(list(value))
        elif call.name == "free_blocks":
            given = sorted(call.args["blocks"])
            self.popped = [one for one in self.popped if sorted(one) != given]

    def answer(
        self,
        call: Call,
        value: Any,
        tokens: Sequence[int] | None,
        before: ManagerObservation,
        after: ManagerObservation,
    ) -> Finding | None:
        """Judge what a legal call answered, on the states `before` and `after` it. `tokens` are
        what stands for the request's tokens in hashes.
        """
        if call.name == "allocate_slots" and value is None:
            return self._refusal(call, before, after)
        if call.name == "get_computed_blocks":
            assert tokens is not None
            return self._hit(value, tuple(tokens), before)
        if call.name == "get_num_common_prefix_blocks":
            return self._common(call.args["request"], value, before.tables)
        if call.name == "reset_prefix_cache":
            used = any(any(map(any, rows)) for rows in before.tables.values()) or self.popped
            if value and used:
                return _finding("failed-is-noop", "reset while blocks are in use", False, value)
            if not value and not used:
                return _finding(
                    "all-returned", "no block is in use, but reset refuses", True, value
                )
        return None

    def state(self, seen: ManagerObservation) -> Finding | None:
        """Judge a state that was seen."""
        pool, held = seen.pool, self._held(seen.tables)
        if held is None:
            says = "a table names a block that the pool does not have"
            return Finding("blocks-conserved", says, "blocks of the pool", str(seen.tables))
        finding = judge.judge_queue(pool, self.config.num_blocks)
        if finding is not None:
            return finding
        if pool.ref_cnt is not None and pool.ref_cnt[1:] != held[1:]:
            return self._refs(held, pool.ref_cnt)
        if pool.free is not None and set(pool.free) != _unheld(held):
            says = STATE_PROPERTIES["free-iff-unreferenced"].says
            wanted, queued = sorted(_unheld(held)), sorted(pool.free)
            return Finding("free-iff-unreferenced", says, f"queued {wanted}", f"queued {queued}")
        return None

    def statements(self, seen: ManagerObservation) -> Finding | None:
        """Evaluate the specification's statements of states on what was seen."""
        held = self._held(seen.tables)
        if held is None:
            return self.state(seen)
        self._model.adopt(held, seen.pool, self.ledger.consumer)
        name = Statements(self._model, policy=False).every()
        if name is None:
            return None
        shown = ", ".join(
            f"{field} {judge.text(getattr(seen.pool, field))}"
            for field in ("free", "ref_cnt", "keys", "index")
        )
        return Finding(name, STATE_PROPERTIES[name].says, f"held {held}", shown)

    def events(self, told: Any, seen: ManagerObservation) -> Finding | None:
        """Judge events that were taken."""
        form = judge.malformed(Call("take_events", {}), told)
        if form is not None:
            return Finding("legal-accepted", "an answer of the wrong form", "events", form)
        self.ledger.record(Call("take_events", {}), told)
        if seen.pool.index is None:
            return judge.judge_lies(self.ledger)
        resident = {key for key, blocks in seen.pool.index.items() if blocks}
        finding = judge.judge_events(self.ledger, resident)
        if finding is not None:
            self.ledger.consumer = dict.fromkeys(sorted(resident))
            self.ledger.lies = []
        return finding

    def _hit(
        self, value: Any, tokens: tuple[int, ...], before: ManagerObservation
    ) -> Finding | None:
        blocks, num_tokens = value
        groups = self.config.groups
        if num_tokens > max(len(tokens) - 1, 0):
            most = f"at most {len(tokens) - 1}"
            return _finding("hit-below-prompt", "no token is left to compute", most, num_tokens)
        if any(num_tokens % group.block_size for group in groups):
            sizes = [group.block_size for group in groups]
            return _finding("hit-aligned", "a hit ends inside a block", sizes, num_tokens)
        index = before.pool.index
        for number, (group, row) in enumerate(zip(groups, blocks, strict=True)):
            size, attention = group.block_size, self.attentions[number]
            if len(row) * size != num_tokens:
                says = "the entries are not as many as the tokens fill"
                return _finding("hit-backed", says, num_tokens // size, row)
            for entry in needed_blocks(attention, num_tokens, size):
                key = to_wire(tokens[: (entry + 1) * size]), number
                if row[entry] == 0 or (index is not None and row[entry] not in index.get(key, ())):
                    says = f"entry {entry} is not a block of this prefix"
                    return _finding("hit-backed", says, judge.text(key), row)
        if self.quality and index is not None and len(groups) == 1 and self.config.enable_caching:
            return self._longest(num_tokens, tokens, index)
        return None

    def _longest(self, found: int, tokens: tuple[int, ...], index: Any) -> Finding | None:
        size = self.config.groups[0].block_size

        def is_keyed(block: int) -> bool:
            return bool(index.get((to_wire(tokens[: (block + 1) * size]), 0)))

        limit = NumTokens(max(len(tokens) - 1, 0))
        longest = longest_hit(self.attentions[0], limit, size, size, is_keyed)
        if longest <= found:
            return None
        return _finding("hit-longest", "a longer prefix is cached", longest, found)

    def _refusal(
        self, call: Call, before: ManagerObservation, after: ManagerObservation
    ) -> Finding | None:
        """Judge that there were no slots: nothing has changed, and somebody else has the blocks."""
        name = call.args["request"]
        for other in {**before.tables, **after.tables}:
            was, now = (tables.get(other, []) for tables in (before.tables, after.tables))
            if was != now and (other != name or not _only_skipped(was, now)):
                says = f"no slots for {name}, but the table of {other} has changed"
                return _finding("failed-is-noop", says, was, now)
        if before.pool.index != after.pool.index:
            kept, changed = judge.describe(before.pool, after.pool)
            return Finding("failed-is-noop", "no slots, but the cache has changed", kept, changed)
        alone = not self.popped and set(before.tables) <= {name}
        if not alone or not self._should_fit(call):
            return None
        broken = "bound-covers-peak" if name in before.tables else "admission-live"
        says = f"{name} is alone, its bound fits the pool, and it gets no slots"
        return _finding(broken, says, "slots", "None")

    def _should_fit(self, call: Call) -> bool:
        """The request has never more blocks than the pool has."""
        args, config = call.args, self.config
        asks = (args["reserved_blocks"], args["num_unsettled_tokens"])
        if any(asks) or (args["has_scheduled_reqs"] and not args["is_running"]):
            return False
        if args["num_new_tokens"] > config.max_num_batched_tokens or not config.groups:
            return False
        peaks = (
            peak_blocks(
                attention,
                config.max_num_batched_tokens,
                config.max_model_len,
                group.block_size,
                args["num_lookahead_tokens"],
            )
            for attention, group in zip(self.attentions, config.groups, strict=True)
        )
        return sum(peaks) <= config.num_blocks - 1

    def _common(self, request: str, value: list[int], tables: Tables) -> Finding | None:
        rows = tables.get(request, [[] for _ in self.config.groups])
        for group, (count, own) in enumerate(zip(value, rows, strict=True)):
            common = 0
            while common < len(own) and all(
                table[group][common : common + 1] == [own[common]] for table in tables.values()
            ):
                common += 1
            if count > common:
                says = "a block that is said to be common is not in the table of every request"
                return _finding("common-prefix-true", says, f"at most {common}", count)
        return None

    def _held(self, tables: Tables) -> list[int] | None:
        held = [0] * self.config.num_blocks
        named = [block for rows in tables.values() for row in rows for block in row]
        for block in [*named, *(block for one in self.popped for block in one)]:
            if not 0 <= block < len(held):
                return None
            held[block] += 1
        held[0] = 0
        return held

    def _refs(self, held: list[int], counts: list[int]) -> Finding:
        wrong = {b: held[b] for b in range(1, len(held)) if counts[b] != held[b]}
        name = "refs-nonnegative" if min(counts[1:], default=0) < 0 else "refs-exact"
        shown = {block: counts[block] for block in wrong}
        return Finding(name, STATE_PROPERTIES[name].says, f"counts {wrong}", f"counts {shown}")


def _only_skipped(was: list[list[int]], now: list[list[int]]) -> bool:
    """The tables differ by entries that have become null."""
    return len(was) == len(now) and all(
        len(old) == len(new) and all(b in (0, a) for a, b in zip(old, new, strict=True))
        for old, new in zip(was, now, strict=True)
    )


def _unheld(held: list[int]) -> set[int]:
    return {block for block, count in enumerate(held) if block and not count}


def _finding(name: str, says: str, expected: object, actual: object) -> Finding:
    return Finding(name, says, f"{expected}", f"{actual}")
