"""Which rule a call would break, were it made now: the protocol between scheduler and manager.

The rules are the specification's (`kvproof.spec.scheduling_rules`, `protocol_rules`,
`manager_rules`); here it is said when a call keeps them, from what the world has seen.
"""

from collections.abc import Callable
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.elements import rule_of
from kvproof.fuzz.lives import Life, WorldState
from kvproof.fuzz.manager_model import spec_of
from kvproof.spec import manager_rules, protocol_rules, scheduling_rules
from kvproof.spec.kv_cache_coordinator import attention_of
from kvproof.spec.rules import Rule

Checks = Callable[..., Rule | None]


class Legality:
    """Looks at a world, and says of a call which rule it would break."""

    def __init__(self, world: WorldState) -> None:
        self.world, self.config = world, world.config
        kinds = [(attention_of(spec_of(group)), group.block_size) for group in self.config.groups]
        self.forgetful = [(kind, size) for kind, size in kinds if kind.forgets]

    def broken(self, call: Call) -> Rule | None:
        """Return the first rule that the call would break; None when it is legal."""
        name = call.args.get("request")
        if call.name == "new_request":
            return self._new_request(**call.args)
        if name is not None and name not in self.world.lives:
            return scheduling_rules.REQUEST_KNOWN
        check: Checks | None = getattr(self, f"_{call.name}", None)
        if check is None:
            return None
        if name is None:
            return check(**call.args)
        return check(
            self.world.lives[name], **{k: v for k, v in call.args.items() if k != "request"}
        )

    def _new_request(self, request: str, tokens: list[int], extra: Any) -> Rule | None:
        if request in self.world.lives:
            return scheduling_rules.REQUEST_KNOWN
        if not 0 < len(tokens) < self.config.max_model_len:
            return scheduling_rules.NOT_BEYOND_EXPECTED
        return rule_of(tokens, extra)

    def _append_tokens(self, life: Life, tokens: list[int]) -> Rule | None:
        if self.world.pending or not tokens or tokens != life.due:
            return scheduling_rules.STEP_COMPLETE
        return None

    def _get_computed_blocks(self, life: Life) -> Rule | None:
        if life.admitted:
            return manager_rules.HITS_COME_FIRST
        if self._failing():
            return protocol_rules.UNPROMISE_UNSHARED
        return None

    def _failing(self) -> bool:
        """A load has failed, and what was published of it has not been taken back."""
        failing = any(entry.failed_from is not None for entry in self.world.pending)
        return failing or any(life.failed_at is not None for life in self.world.lives.values())

    def _allocate_slots(self, life: Life, **args: Any) -> Rule | None:
        if life.scheduled or life.loading or life.due or life.fallen or life.unscheduled:
            return scheduling_rules.SCHEDULED_ONCE
        external, new = args["num_external_computed_tokens"], args["num_new_tokens"]
        if new <= 0 and external <= 0:
            return manager_rules.SOMETHING_NEW
        numbers = (new, external, args["num_lookahead_tokens"], args["reserved_blocks"])
        if min(*numbers, args["num_draft_tokens"]) < 0:
            return manager_rules.TOKENS_NONNEGATIVE
        told = (args["num_computed_tokens"], args["num_unsettled_tokens"], args["is_running"])
        if told != (life.num_computed, life.num_unsettled, life.running):
            return scheduling_rules.PROGRESS_TOLD
        return self._hit_legal(life, **args) or self._reach_legal(life, **args)

    def _hit_legal(self, life: Life, **args: Any) -> Rule | None:
        hit, external = args["use_hit"], args["num_external_computed_tokens"]
        if life.admitted and (hit or external):
            return manager_rules.HITS_COME_FIRST
        if hit and (self.world.hit is None or self.world.hit[0] != life.name):
            return scheduling_rules.HIT_AT_ONCE
        later = args["delay_cache_blocks"]
        if later and not (external > 0 and args["num_new_tokens"] == 0):
            return scheduling_rules.LOADED_AS_ASKED
        if later and any(step.freed for step in self.world.steps):
            return protocol_rules.LOAD_NOT_INFLIGHT
        most = len(life.tokens) - (0 if later else 1)
        if self._hits(life, hit) + external > most:
            return protocol_rules.HIT_BELOW_KNOWN
        return None

    def _hits(self, life: Life, use_hit: bool) -> int:
        hit = self.world.hit
        return hit[1] if use_hit and hit is not None and hit[0] == life.name else 0

    def _reach_legal(self, life: Life, **args: Any) -> Rule | None:
        """The tokens are there, and so is all that they read."""
        if args["delay_cache_blocks"]:
            return None
        new, drafts = args["num_new_tokens"], args["num_draft_tokens"]
        start = life.num_computed + self._hits(life, args["use_hit"])
        start += args["num_external_computed_tokens"]
        end = start + new
        fits = new > drafts and end - drafts <= life.expected and end <= self.config.max_model_len
        if not fits or (drafts and end - drafts != life.expected):
            return scheduling_rules.NOT_BEYOND_EXPECTED
        if self._gone(life, start - life.num_unsettled):
            return protocol_rules.ROLLBACK_WINDOW
        return None

    def _gone(self, life: Life, start: int) -> bool:
        """What the token at `start` reads may have been given back."""
        return any(
            kind.first_read(start) // size < kind.first_read(life.forgotten) // size
            for kind, size in self.forgetful
        )

    def _unschedule(self, life: Life, num_computed_tokens: int) -> Rule | None:
        entry = life.in_step
        if entry is not None:
            if self.world.last_hit > entry.order:
                return protocol_rules.UNPROMISE_UNSHARED
            legal = num_computed_tokens == entry.before
        else:
            legal = life.fallen and num_computed_tokens == life.num_computed
        return None if legal else scheduling_rules.PROGRESS_TOLD

    def _cache_blocks(self, life: Life, num_computed_tokens: int) -> Rule | None:
        if not 0 <= num_computed_tokens <= len(life.tokens):
            return manager_rules.CACHED_ARE_KNOWN
        there = life.admitted and not life.loading and not life.fallen
        if not there or life.failed_at is not None or num_computed_tokens > life.arrived:
            return protocol_rules.PUBLISH_SCHEDULED
        return None

    def _free(self, life: Life) -> Rule | None:
        if not life.admitted or life.scheduled or life.loading:
            return scheduling_rules.FREED_WHEN_IDLE
        if life.failed_at is not None:
            return protocol_rules.FREE_NO_PROMISE
        return None

    _pop_blocks_for_free = _free

    def _free_blocks(self, blocks: list[int]) -> Rule | None:
        known = any(one.blocks[::-1] == blocks for one in self.world.popped)
        return None if known else scheduling_rules.POPPED_ONCE

    def _remove_skipped_blocks(self, life: Life, total_computed_tokens: int) -> Rule | None:
        idle = life.admitted and not life.scheduled and not life.loading
        if not idle or not 0 <= total_computed_tokens <= life.settled:
            return protocol_rules.SKIP_INVISIBLE
        return None

    def _evict_blocks(self, blocks: list[int]) -> Rule | None:
        real = all(0 < block < self.config.num_blocks for block in blocks)
        return None if real else scheduling_rules.POPPED_ONCE

    def _get_num_common_prefix_blocks(self, life: Life) -> Rule | None:
        return None if life.admitted else scheduling_rules.FREED_WHEN_IDLE

    def _run_step(self, sampled: dict[str, list[int]]) -> Rule | None:
        entries = self.world.pending
        if any(entry.life.must_load for entry in entries):
            return scheduling_rules.LOADED_AS_ASKED
        due = {entry.life.name: entry.drafts for entry in entries if entry.samples}
        whole = entries and set(sampled) == set(due)
        if not whole or not all(0 < len(t) <= due[name] + 1 for name, t in sampled.items()):
            return scheduling_rules.STEP_COMPLETE
        return None

    def _load(self, life: Life, start: int, end: int, failed_from: int | None) -> Rule | None:
        asked = life.loading or life.must_load
        inside = failed_from is None or start <= failed_from < end
        if asked is None or (asked.start, asked.stop) != (start, end) or not inside:
            return scheduling_rules.LOADED_AS_ASKED
        if life.loading is not None:
            return scheduling_rules.LOADED_AS_ASKED if self.world.pending else None
        assert life.in_step is not None
        if failed_from is not None and self.world.last_hit > life.in_step.order:
            return protocol_rules.UNPROMISE_UNSHARED
        return None

    def _update_from_output(self) -> Rule | None:
        ready = self.world.steps and not self.world.pending
        return None if ready else scheduling_rules.STEP_COMPLETE
