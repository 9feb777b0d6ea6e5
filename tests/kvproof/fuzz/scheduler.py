"""A small scheduler: it drives requests through their life, and calls a manager as vLLM's does.

One step gives every running request its next tokens, in the order of arrival, as far as the
budget goes; when a request gets no slots, the last one that runs is preempted. Then waiting
requests are admitted, with what is hit and what another store has. Steps may overlap: a step
settles when its tokens are sampled and drafts are accepted or rejected.

Source: vLLM 0.25.1, sched/scheduler.py, `Scheduler.schedule` and `update_from_output`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.picks import Pick

MAKE = Callable[..., Any]
"""Makes a call on the target, by name and arguments, and returns the answer."""

LOAD = Callable[["Job", range], None]
"""Told when tokens of a request have been loaded, and at which positions."""

PROMPTS = ((0,) * 40, (0, 0, 0, 0, 1) * 8, (0, 0, 0, 0, 0, 0, 0, 0, 1, 1) * 4, (1, 0) * 20)
"""What prompts begin with: they share prefixes of 0, 4, 8 and more tokens."""


@dataclass
class Job:
    """A request as the scheduler knows it. `tokens` are known, `drafts` are guessed."""

    name: str
    tokens: list[int]
    goal: int
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)
    running: bool = False
    preemptions: int = 0
    in_flight: int = 0
    loading: int = 0
    ended: bool = False


@dataclass
class Scheduled:
    """What one step does for one request: it computes tokens from `start` to `end`."""

    job: Job
    start: int
    end: int
    drafts: list[int]


class Scheduler:
    """Schedules on a manager that is called through `make`.

    `on_load` is told of tokens that another store has written, `on_step` of each step when it
    is dispatched.
    """

    def __init__(
        self, config: ManagerConfig, make: MAKE, pick: Pick, on_load: LOAD = lambda job, span: None
    ) -> None:
        self.config, self.make, self.pick, self.on_load = config, make, pick, on_load
        self.on_step: Callable[[list[Scheduled]], None] = lambda done: None
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.flying: list[list[Scheduled]] = []
        self.deferred: list[list[int]] = []
        self.arrived = 0

    def act(self, depth: int) -> None:
        """Do one thing that may happen next; at most `depth` steps are in flight."""
        choice = self.pick.number(0, 11)
        if choice < 3 and len(self.waiting) < 4:
            self.arrive()
        elif choice < 8 and len(self.flying) < depth:
            self.step()
        elif choice < 10 and self.flying:
            self.settle()
        elif choice == 10 and (self.running or self.waiting):
            self.end(self.pick.one(self.running + self.waiting))
        else:
            self._aside()

    def _aside(self) -> None:
        """Do what happens beside the schedule."""
        loads = [job for job in self.running if job.loading]
        if loads:
            self.load_ends(self.pick.one(loads))
        choice = self.pick.number(0, 3)
        if choice == 0:
            blocks = self.pick.some(range(self.config.num_blocks), 0, 3)
            self.make("evict_blocks", blocks=blocks)
        elif choice == 1:
            self.make("reset_prefix_cache")
        elif choice == 2 and self.running:
            self.make("get_num_common_prefix_blocks", request=self.pick.one(self.running).name)
        else:
            self.make("take_new_block_ids")

    def arrive(self) -> None:
        """A request arrives, and waits."""
        prompt = list(self.pick.one(PROMPTS)[: self.pick.number(1, self.config.max_model_len // 2)])
        job = Job(f"r{self.arrived}", prompt, len(prompt) + self.pick.number(1, 12))
        self.arrived += 1
        self.make("new_request", request=job.name, tokens=prompt)
        self.waiting.append(job)

    def step(self) -> list[Scheduled]:
        """Schedule one step; return what it computes, in order."""
        budget = self.config.max_num_batched_tokens
        done: list[Scheduled] = []
        preempted = False
        for job in list(self.running):
            wanted = len(job.tokens) + len(job.drafts) - job.num_computed
            room = self.config.max_model_len - 1 - job.num_computed
            count = min(wanted, budget, room)
            if count <= 0 or job not in self.running or job.loading:
                continue
            given = self._slots(job, count, lookahead=self.pick.number(0, 2) if job.drafts else 0)
            while given is None:
                preempted = True
                victim = self.running[-1]
                self._preempt(victim, done)
                if victim is job:
                    break
                given = self._slots(job, count)
            if given is not None:
                done.append(self._schedule(job, count))
                budget -= count
        while self.waiting and not preempted and budget > 0 and len(self.running) < 6:
            scheduled = self._admit(self.waiting[0], budget, bool(done))
            if scheduled is None:
                break
            done += scheduled
            budget -= sum(one.end - one.start for one in scheduled)
        if done:
            self.flying.append(done)
            self.on_step(done)
        return done

    def settle(self) -> None:
        """The oldest step in flight comes back: tokens are sampled, drafts judged."""
        for one in self.flying.pop(0):
            job = one.job
            job.in_flight -= 1
            if job.ended or not job.running or one.end < len(job.tokens):
                continue
            accepted = self.pick.number(0, len(one.drafts)) if one.drafts else 0
            rejected = len(one.drafts) - accepted
            job.num_computed -= rejected
            sampled = [*one.drafts[:accepted], self.pick.number(0, 1)]
            job.tokens += sampled
            self.make("append_tokens", request=job.name, tokens=sampled)
            self._tell(job)
            job.drafts = []
            if len(job.tokens) >= min(job.goal, self.config.max_model_len - 1):
                self.end(job)
            elif self.pick.number(0, 2) == 0 and not job.in_flight:
                job.drafts = [self.pick.number(0, 1) for _ in range(self.pick.number(1, 3))]
        if not self.flying:
            for blocks in self.deferred:
                self.make("free_blocks", blocks=blocks[::-1])
            self.deferred = []

    def end(self, job: Job) -> None:
        """A request ends, or is aborted. With a step in flight its blocks are freed later."""
        job.ended = True
        for jobs in (self.running, self.waiting):
            if job in jobs:
                jobs.remove(job)
        if job.in_flight:
            self.deferred.append(self.make("pop_blocks_for_free", request=job.name))
        else:
            self.make("free", request=job.name)

    def load_ends(self, job: Job) -> None:
        """Tokens that were loaded asynchronously have arrived: publish them."""
        self.on_load(job, range(job.num_computed - job.loading, job.num_computed))
        job.loading = 0
        full = min(job.num_computed, len(job.tokens))
        self.make("cache_blocks", request=job.name, num_computed_tokens=full)

    def _slots(self, job: Job, count: int, lookahead: int = 0) -> Any:
        return self.make(
            "allocate_slots",
            request=job.name,
            num_new_tokens=count,
            use_hit=False,
            num_lookahead_tokens=lookahead,
            num_external_computed_tokens=0,
            delay_cache_blocks=False,
            full_sequence_must_fit=False,
            reserved_blocks=0,
            has_scheduled_reqs=True,
        )

    def _admit(self, job: Job, budget: int, others: bool) -> list[Scheduled] | None:
        """Admit a request that waits. None: it gets no slots; a load begins: nothing to compute."""
        hits: int = self.make("get_computed_blocks", request=job.name)[1]
        rest = len(job.tokens) - hits
        external = self.pick.number(1, rest - 1) if rest > 1 and self.pick.number(0, 4) == 0 else 0
        load = bool(external) and self.pick.flag()
        count = 0 if load else min(rest - external, budget)
        given = self.make(
            "allocate_slots",
            request=job.name,
            num_new_tokens=count,
            use_hit=True,
            num_lookahead_tokens=0,
            num_external_computed_tokens=external,
            delay_cache_blocks=load,
            full_sequence_must_fit=self.pick.flag(),
            reserved_blocks=self.pick.number(0, 1) if load else 0,
            has_scheduled_reqs=others or bool(self.running),
        )
        if given is None:
            return None
        self.waiting.remove(job)
        self.running.append(job)
        job.running, job.num_computed, job.loading = True, hits + external, external if load else 0
        self._tell(job)
        if not load:
            self.on_load(job, range(hits, hits + external))
        return [] if load else [self._schedule(job, count)]

    def _schedule(self, job: Job, count: int) -> Scheduled:
        start, end = job.num_computed, job.num_computed + count
        drafts = job.drafts[: max(end - len(job.tokens), 0)]
        job.num_computed, job.in_flight = end, job.in_flight + 1
        self._tell(job)
        return Scheduled(job, start, end, drafts)

    def _preempt(self, job: Job, done: list[Scheduled]) -> None:
        for one in [one for one in done if one.job is job]:
            done.remove(one)
            job.in_flight -= 1
        self.running.remove(job)
        self.make("free", request=job.name)
        job.running, job.num_computed, job.drafts, job.loading = False, 0, [], 0
        job.preemptions += 1
        self.waiting.insert(0, job)
        self._tell(job)

    def _tell(self, job: Job) -> None:
        self.make(
            "set_progress",
            request=job.name,
            num_computed_tokens=job.num_computed,
            is_running=job.running,
            num_preemptions=job.preemptions,
        )
