"""One step of the small scheduler: who computes which tokens.

Every running request gets its next tokens, in the order of arrival, as far as the budget goes;
when there are no slots, somebody is preempted: the last that runs, or the one of the lowest
priority, which may have been scheduled in this very step. Then waiting requests are admitted.

Source: vLLM 0.25.1, sched/scheduler.py, `Scheduler.schedule`.
"""

from typing import TYPE_CHECKING, Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.lives import Life
from kvproof.fuzz.scheduler_habits import Job
from kvproof.spec.protocol_rules import LOAD_NOT_INFLIGHT, ROLLBACK_WINDOW

if TYPE_CHECKING:
    from kvproof.fuzz.scheduler import Scheduler

MOST_RUNNING = 6


class Stepper:
    """Puts steps together for a scheduler."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self.owner = scheduler
        self.budget = 0

    def step(self) -> None:
        """Schedule one step, and let it run."""
        owner = self.owner
        self.budget = owner.config.max_num_batched_tokens
        preempted = self._run_on()
        while not preempted and owner.waiting and self.budget > 0:
            if len(owner.running) >= MOST_RUNNING or not self._admit(self._next()):
                break
        if owner.world.pending:
            self._dispatch()

    def _run_on(self) -> bool:
        """Give running requests their next tokens. Return whether somebody was preempted."""
        owner, preempted = self.owner, False
        for job in [*owner.running]:
            if job not in owner.running or owner.life(job).scheduled:
                continue
            count, drafts = self._wanted(job, owner.life(job))
            if count <= 0:
                continue
            while not self._slots(job, count, drafts):
                preempted = True
                victim = self._victim()
                self._preempt(victim)
                if victim is job:
                    break
        return preempted

    def _wanted(self, job: Job, life: Life) -> tuple[int, int]:
        """Return how many tokens a running request computes, and how many of them are drafts."""
        owner = self.owner
        room = min(self.budget, owner.config.max_model_len - 1 - life.num_computed)
        chunk = owner.habits.chunk
        known = life.expected - life.num_computed
        count = min(known, room if chunk is None else min(room, chunk))
        if count < known or life.expected >= job.goal + owner.habits.drafts:
            return (count if count < known else 0), 0
        drafts = min(owner.habits.drafts, room - count)
        return count, owner.pick.number(0, drafts) if drafts > 0 else 0

    def _slots(self, job: Job, count: int, drafts: int) -> bool:
        """Ask for slots for a running request."""
        owner, life = self.owner, self.owner.life(job)
        call = self._call(job, life, num_new_tokens=count, num_draft_tokens=drafts)
        if owner.world.rule(call) is ROLLBACK_WINDOW:
            owner.preempt(job)
            return True
        flying = life.num_unsettled > 0
        if owner.call(call.name, **call.args) is None:
            owner.branches["no-slots"] += 1
            return False
        owner.branches["scheduled-with-drafts-in-flight"] += flying
        owner.branches["prefill-in-chunks"] += life.num_computed < life.expected
        self.budget -= count + drafts
        return True

    def _call(self, job: Job, life: Life, **args: Any) -> Call:
        owner = self.owner
        full = {
            "request": job.name,
            "num_computed_tokens": life.num_computed,
            "num_unsettled_tokens": life.num_unsettled,
            "is_running": life.running,
            "num_preemptions": job.num_preemptions,
            "num_lookahead_tokens": owner.habits.lookahead,
            "use_hit": False,
            "num_draft_tokens": 0,
            "num_external_computed_tokens": 0,
            "delay_cache_blocks": False,
            "full_sequence_must_fit": False,
            "reserved_blocks": 0,
            "has_scheduled_reqs": True,
        }
        args["num_new_tokens"] += args.get("num_draft_tokens", 0)
        return Call("allocate_slots", {**full, **args})

    def _victim(self) -> Job:
        """The last that runs gives way, or the one of the lowest priority."""
        running = self.owner.running
        return (
            max(running, key=lambda job: job.rank) if self.owner.habits.by_priority else running[-1]
        )

    def _preempt(self, job: Job) -> None:
        owner, life = self.owner, self.owner.life(job)
        owner.branches["preempted"] += 1
        if life.in_step is not None:
            owner.branches["preempted-in-its-own-step"] += 1
            self.budget += life.in_step.end - life.in_step.start
            before = life.in_step.before
            owner.call("unschedule", request=job.name, num_computed_tokens=before)
        owner.preempt(job)

    def _next(self) -> Job:
        waiting = self.owner.waiting
        return (
            min(waiting, key=lambda job: job.rank) if self.owner.habits.by_priority else waiting[0]
        )

    def _admit(self, job: Job) -> bool:
        """Admit a request that waits; False when it gets no slots."""
        owner, life = self.owner, self.owner.life(job)
        if life.admitted:
            return self._resume_loaded(job, life)
        hits = owner.call("get_computed_blocks", request=job.name)[1]
        external, later = self._external(life, hits)
        count = 0 if later else self._prefill(len(life.tokens) - hits - external)
        call = self._admission(job, life, count, use_hit=True, num_external=external, later=later)
        if owner.world.rule(call) is LOAD_NOT_INFLIGHT:
            return False
        published = any(entry.life is not life for entry in owner.world.pending)
        if owner.call(call.name, **call.args) is None:
            owner.branches["no-slots"] += 1
            return False
        owner.waiting.remove(job)
        owner.branches["hit"] += hits > 0
        owner.branches["hit-in-the-step-that-publishes"] += hits > 0 and published
        owner.branches["resumed"] += job.num_preemptions > 0
        (owner.loading if later else owner.running).append(job)
        self._started(life, count)
        return True

    def _resume_loaded(self, job: Job, life: Life) -> bool:
        """Go on behind what was loaded; start anew when the window is gone."""
        owner = self.owner
        count = self._prefill(life.expected - life.num_computed)
        call = self._admission(job, life, count)
        if owner.world.rule(call) is ROLLBACK_WINDOW:
            owner.branches["rolled-back"] += 1
            owner.call("free", request=job.name)
            return True
        if owner.call(call.name, **call.args) is None:
            owner.branches["no-slots"] += 1
            return False
        owner.waiting.remove(job)
        owner.running.append(job)
        self._started(life, count)
        return True

    def _started(self, life: Life, count: int) -> None:
        self.budget -= count
        self.owner.branches["prefill-in-chunks"] += (
            bool(count) and life.num_computed < life.expected
        )

    def _admission(
        self,
        job: Job,
        life: Life,
        count: int,
        use_hit: bool = False,
        num_external: int = 0,
        later: bool = False,
    ) -> Call:
        owner = self.owner
        return self._call(
            job,
            life,
            num_new_tokens=count,
            use_hit=use_hit,
            num_external_computed_tokens=num_external,
            delay_cache_blocks=later,
            num_lookahead_tokens=0 if later else owner.habits.lookahead,
            full_sequence_must_fit=owner.habits.gate,
            reserved_blocks=owner.habits.reserved if later else 0,
            has_scheduled_reqs=bool(owner.running),
        )

    def _prefill(self, count: int) -> int:
        chunk = self.owner.habits.chunk
        return min(count, self.budget if chunk is None else min(self.budget, chunk))

    def _external(self, life: Life, hits: int) -> tuple[int, bool]:
        """Draw how many tokens another store has, and whether they come later."""
        owner, rest = self.owner, len(life.tokens) - hits
        if not owner.habits.connector or owner.pick.flag():
            return 0, False
        if owner.pick.flag():
            return owner.pick.number(1, rest), True
        return (owner.pick.number(1, rest - 1), False) if rest > 1 else (0, False)

    def _dispatch(self) -> None:
        """Let what was scheduled run; before it, what is loaded at once arrives."""
        owner, world = self.owner, self.owner.world
        failed = False
        for entry in world.pending:
            if entry.loads is not None:
                failed = self._load(entry.life, entry.loads, failed) or failed
        sampled = {}
        for entry in world.pending:
            if entry.samples:
                accepted = owner.pick.number(0, entry.drafts) if entry.drafts else 0
                sampled[entry.life.name] = [owner.pick.number(0, 1) for _ in range(accepted + 1)]
        if owner.running:
            running = owner.pick.one(owner.running).name
            owner.call("get_num_common_prefix_blocks", request=running)
        owner.call("run_step", sampled=sampled)
        owner.branches["two-in-flight"] += world.steps_in_flight > 1
        while failed and world.steps:
            owner.settle()

    def _load(self, life: Life, span: range, failed: bool) -> bool:
        """Let external tokens arrive before the step runs. Return whether that failed."""
        owner = self.owner
        args = {"request": life.name, "start": span.start, "end": span.stop}
        if not failed and owner.pick.number(0, 3) == 0:
            place = owner.pick.number(span.start, span.stop - 1)
            call = Call("load", {**args, "failed_from": place})
            if owner.world.rule(call) is None:
                owner.branches["load-failed-at-once"] += 1
                owner.call(call.name, **call.args)
                return True
        owner.branches["loaded-at-once"] += 1
        owner.call("load", **args)
        return False
