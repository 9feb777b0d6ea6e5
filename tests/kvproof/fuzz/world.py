"""The world around a manager: which requests there are, what runs, and what a step writes.

Steps run in the order of dispatch, and what they write and read is executed when they are
dispatched; the scheduler hears of it later, when a step comes back. A step that is scheduled
while drafts are in flight is computed from where its request really is: the worker knows what
was rejected.
"""

from dataclasses import dataclass
from math import lcm
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.chains import Chains
from kvproof.fuzz.elements import elements
from kvproof.fuzz.legality import Legality
from kvproof.fuzz.lives import Entry, Life, Popped, Step, WorldState
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.spec.rules import Rule

_LEAVES_HIT = {"get_computed_blocks", "allocate_slots", "take_events", "take_new_block_ids"}


@dataclass(slots=True)
class Work:
    """What is done to a request's slots: `contents` are written from position `start` on, and
    the tokens at the positions `readers` read. `own` is the request's own prefix, by position.
    `void`: a load has failed, and until that is known there may be keys that say otherwise.
    """

    request: str
    start: int
    contents: list[int]
    readers: range
    own: list[int]
    void: bool = False


class World(WorldState):
    """Keeps count of requests and steps, and says which calls are legal."""

    def __init__(self, config: ManagerConfig) -> None:
        super().__init__(config)
        self.unit = lcm(*(group.block_size for group in config.groups)) if config.groups else 1
        self.chains = Chains()
        self._legality = Legality(self)

    def rule(self, call: Call) -> Rule | None:
        """Return the rule that a call would break, were it made now; None when it is legal."""
        return self._legality.broken(call)

    def record(self, call: Call, answer: Any) -> None:
        """Take note of a call that was made, and of its answer."""
        self.order += 1
        if call.name not in _LEAVES_HIT:
            self.hit = None
        noted = getattr(self, f"_{call.name}", None)
        if noted is not None:
            noted(answer, **call.args)

    def own(self, life: Life, more: list[int]) -> list[int]:
        """Return the contents of a request's slots, by position, with tokens that follow."""
        tokens = [*life.true, *more]
        return self.chains.of(elements(tokens, life.extra, self.config.hash_block_size))

    def expectations(self) -> dict[str, list[int]]:
        """Return what each request expects in its slots, as far as it is computed or scheduled."""
        found = {}
        for life in self.lives.values():
            if life.admitted:
                end = min(life.num_computed - life.rejected, len(life.true))
                end = end if life.failed_at is None else min(end, life.failed_at)
                found[life.name] = self.own(life, [])[:end]
        return found

    def work(self, call: Call) -> list[Work]:
        """Return what a call makes the device do, in order. Ask before the call is recorded."""
        if call.name == "load":
            life = self.lives[call.args["request"]]
            return [self._loaded(life, **call.args)]
        if call.name != "run_step":
            return []
        sampled = call.args["sampled"]
        return [self._computed(entry, sampled.get(entry.life.name, [])) for entry in self.pending]

    def _loaded(
        self, life: Life, request: str, start: int, end: int, failed_from: int | None
    ) -> Work:
        own = self.own(life, [])
        good = end if failed_from is None else failed_from
        contents = own[start:good] + [self.chains.poison() for _ in range(good, end)]
        return Work(request, start, contents, range(0), own, failed_from is not None)

    def _computed(self, entry: Entry, sampled: list[int]) -> Work:
        """Return the work of one request in a step. What follows a failed load, or a draft that
        is rejected, is poison, and what it reads does not matter.
        """
        life = entry.life
        own = self.own(life, sampled)
        start = entry.start - life.rejected
        end = entry.end - life.rejected
        if entry.failed_from is not None or life.failed_at is not None:
            contents = [self.chains.poison() for _ in range(start, end)]
            return Work(life.name, start, contents, range(0), own, True)
        valid = len(own) - 1 if sampled else end
        contents = own[start:valid] + [self.chains.poison() for _ in range(valid, end)]
        return Work(life.name, start, contents, range(start, valid), own)

    def _new_request(
        self, answer: Any, request: str, tokens: list[int], extra: dict[str, Any] | None
    ) -> None:
        self.lives[request] = Life(request, [*tokens], extra, [*tokens])

    def _append_tokens(self, answer: Any, request: str, tokens: list[int]) -> None:
        life = self.lives[request]
        life.tokens += tokens
        life.due = []

    def _get_computed_blocks(self, answer: Any, request: str) -> None:
        self.hit = (request, answer[1])

    def _allocate_slots(self, answer: Any, request: str, **args: Any) -> None:
        life = self.lives[request]
        hits = self.hit[1] if self.hit is not None and args["use_hit"] else 0
        self.hit = None
        if answer is None:
            return
        if hits:
            self.last_hit = self.order
        before, drafts = life.num_computed, args["num_draft_tokens"]
        start = before + hits + args["num_external_computed_tokens"]
        loads = range(before + hits, start) if args["num_external_computed_tokens"] else None
        life.admitted = True
        life.forgotten = max(life.forgotten, min(start, life.expected - 1) - life.num_unsettled)
        if args["delay_cache_blocks"]:
            life.num_computed, life.loading = start, loads
            return
        end = start + args["num_new_tokens"]
        life.in_step = Entry(life, before, start, end, drafts, self.order, loads)
        life.num_computed, life.running = end, True
        self.pending.append(life.in_step)

    def _unschedule(self, answer: Any, request: str, num_computed_tokens: int) -> None:
        life = self.lives[request]
        life.num_computed = num_computed_tokens
        if life.in_step is None:
            life.fallen, life.failed_at = False, None
        else:
            self.pending.remove(life.in_step)
            life.in_step, life.unscheduled = None, True

    def _free(self, answer: Any, request: str) -> None:
        for step in self._steps_of(self.lives[request]):
            step.freed = True
        self.lives[request].leave()

    def _pop_blocks_for_free(self, answer: Any, request: str) -> None:
        life = self.lives[request]
        self.popped.append(Popped([*answer], self._steps_of(life)))
        life.leave()

    def _free_blocks(self, answer: Any, blocks: list[int]) -> None:
        popped = next(one for one in self.popped if one.blocks[::-1] == blocks)
        self.popped.remove(popped)
        for step in popped.steps:
            step.freed = True

    def _run_step(self, answer: Any, sampled: dict[str, list[int]]) -> None:
        for entry in self.pending:
            life = entry.life
            if entry.failed_from is not None:
                life.failed_at = entry.failed_from
            tokens = sampled.get(life.name, [])
            entry.sampled = [*tokens]
            entry.rejected = entry.drafts - len(tokens) + 1 if tokens else 0
            life.true += tokens
            life.flights.append(entry)
            life.in_step = None
        self.steps.append(Step(self.pending))
        self.pending = []

    def _load(
        self, answer: Any, request: str, start: int, end: int, failed_from: int | None
    ) -> None:
        life = self.lives[request]
        entry = life.in_step
        if entry is not None:
            entry.loaded, entry.failed_from = True, failed_from
            return
        life.loading = None
        if failed_from is not None:
            life.num_computed = failed_from // self.unit * self.unit
            return
        life.loaded = life.num_computed
        if life.num_computed == len(life.tokens):
            life.num_computed -= 1  # its last token is computed again, for its logits

    def _update_from_output(self, answer: Any) -> None:
        for entry in self.steps.pop(0).entries:
            if entry.stale:
                continue
            life = entry.life
            life.flights.remove(entry)
            if entry.failed_from is not None:
                life.fall(entry.failed_from // self.unit * self.unit)
            else:
                life.num_computed -= entry.rejected
                life.due += entry.sampled

    def _steps_of(self, life: Life) -> list[Step]:
        return [step for step in self.steps if any(one in life.flights for one in step.entries)]
