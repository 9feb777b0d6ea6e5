"""A small scheduler: it drives requests through their life, and calls a manager as vLLM's does.

Requests arrive, are admitted with what is hit and what another store has, are computed in steps
(`kvproof.fuzz.scheduler_step`), preempted, aborted, and end. Steps may overlap. Whatever is left
open is drawn, and nothing that a manager keeps for itself is looked at.

Source: vLLM 0.25.1, sched/scheduler.py, `Scheduler`.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from kvproof.fuzz.calls import Call
from kvproof.fuzz.lives import Life
from kvproof.fuzz.manager_calls import ARGUMENTS, DEFAULTS
from kvproof.fuzz.manager_target import ManagerConfig
from kvproof.fuzz.picks import Pick
from kvproof.fuzz.scheduler_habits import (
    MOST_SAMPLED,
    DrawExtra,
    Habits,
    Job,
    draw_request,
    room_of,
)
from kvproof.fuzz.scheduler_step import Stepper
from kvproof.fuzz.world import World

MOST_WAITING = 4

_FILLED = {
    name: {argument: DEFAULTS[argument] for argument in kinds if argument in DEFAULTS}
    for name, kinds in ARGUMENTS.items()
}

BRANCHES = (
    "hit",
    "hit-in-the-step-that-publishes",
    "no-slots",
    "preempted",
    "preempted-in-its-own-step",
    "resumed",
    "prefill-in-chunks",
    "accepted-all",
    "accepted-some",
    "rejected-all",
    "scheduled-with-drafts-in-flight",
    "loaded-at-once",
    "loaded-later",
    "load-failed",
    "load-failed-at-once",
    "rolled-back",
    "aborted-waiting",
    "aborted-running",
    "aborted-in-flight",
    "aborted-loading",
    "deferred-free",
    "freed-in-flight",
    "evicted",
    "reset-done",
    "reset-refused",
    "two-in-flight",
    "ended",
)
"""The situations that a run of decent length comes to."""


class Scheduler:
    """Schedules requests on a manager that is called through `make`, which returns its answer.

    `world` says what is computed and what is legal; `has`, which operations the manager has;
    `pick` may be replaced at any time.
    `branches` counts the situations.
    """

    def __init__(
        self,
        config: ManagerConfig,
        make: Callable[[Call], Any],
        world: World,
        pick: Pick,
        draw_extra: DrawExtra | None,
        has: Callable[[str], bool] = lambda operation: True,
    ) -> None:
        self.config, self.world, self.pick = config, world, pick
        self._make, self._draw_extra = make, draw_extra
        self._pops = has("pop_blocks_for_free") and has("free_blocks")
        self.habits = Habits.draw(pick)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.loading: list[Job] = []
        self.deferred: list[tuple[list[int], list[object]]] = []
        self.branches: Counter[str] = Counter()
        self._stepper = Stepper(self)

    def call(self, name: str, **args: Any) -> Any:
        """Make a call, with what goes without saying filled in."""
        return self._make(Call(name, {**_FILLED[name], **args}))

    def life(self, job: Job) -> Life:
        """Return what is known of a request."""
        return self.world.lives[job.name]

    def act(self) -> None:
        """Do one thing that may happen next."""
        choice = self.pick.number(0, 19)
        if choice < 4 and len(self.waiting) < MOST_WAITING:
            self.arrive()
        elif choice < 7 and self.loading:
            self.load_ends(self.pick.one(self.loading))
        elif choice < 13 and self.world.steps_in_flight < self.habits.depth:
            self._stepper.step()
        elif choice < 17 and self.world.steps:
            self.settle()
        elif choice == 17 and self.pick.flag():
            self._abort()
        elif choice == 18:
            self._aside()
        elif self.world.steps_in_flight < self.habits.depth:
            self._stepper.step()

    def finish(self) -> None:
        """Let every request end, so that what is left over is seen."""
        while self.loading:
            self.load_ends(self.loading[0])
        while self.world.steps:
            self.settle()
        for job in [*self.running]:
            self.leave(job)
        for job in [*self.waiting]:
            self.leave(job)
        self._reset()

    def arrive(self) -> None:
        """A request arrives, and waits."""
        tokens, extra = draw_request(self.world, self.pick, self._draw_extra)
        number = len(self.world.lives)
        job = Job(
            f"r{number}",
            min(len(tokens) + self.pick.number(1, MOST_SAMPLED), room_of(self.config, self.pick)),
            (self.pick.number(0, 2) if self.habits.by_priority else 0, number),
        )
        self.call("new_request", request=job.name, tokens=tokens, extra=extra)
        if job.name in self.world.lives:  # a manager may know no such requests
            self.waiting.append(job)

    def settle(self) -> None:
        """The oldest step in flight comes back."""
        drafts = [
            (entry.drafts, len(entry.sampled) - 1)
            for entry in self.world.steps[0].entries
            if entry.drafts and not entry.stale
        ]
        self.call("update_from_output")
        for drafted, accepted in drafts:
            kind = "all" if accepted == drafted else "some" if accepted else ""
            self.branches[f"accepted-{kind}" if kind else "rejected-all"] += 1
        for job in [*self.running]:
            life = self.life(job)
            if life.fallen:
                self._take_back(job, life)
            elif life.due:
                self.call("append_tokens", request=job.name, tokens=[*life.due])
                if len(life.tokens) >= job.goal:
                    self.branches["ended"] += 1
                    self.leave(job)
        self._free_deferred()

    def leave(self, job: Job) -> None:
        """A request ends. Its blocks are freed, later when a step in flight may write them."""
        self._give_back(job)
        for jobs in (self.running, self.waiting, self.loading):
            if job in jobs:
                jobs.remove(job)

    def preempt(self, job: Job) -> None:
        """A request gives up its blocks, and waits at the front."""
        self._give_back(job)
        self.running.remove(job)
        job.num_preemptions += 1
        self.waiting.insert(0, job)

    def load_ends(self, job: Job) -> None:
        """Tokens that were loaded while other steps ran have arrived, or not."""
        life = self.life(job)
        assert life.loading is not None
        start, end = life.loading.start, life.loading.stop
        failed = self.pick.number(start, end - 1) if self.pick.number(0, 3) == 0 else None
        self.call("load", request=job.name, start=start, end=end, failed_from=failed)
        self.loading.remove(job)
        self.waiting.insert(0, job)
        if failed is None:
            self.branches["loaded-later"] += 1
            self.call("cache_blocks", request=job.name, num_computed_tokens=end)
        else:
            self.branches["load-failed"] += 1
            if life.num_computed:
                there = life.num_computed
                self.call("cache_blocks", request=job.name, num_computed_tokens=there)
            else:
                self._give_back(job)
        if job.doomed:
            self.leave(job)

    def _take_back(self, job: Job, life: Life) -> None:
        """A load of a step that has come back has failed."""
        self.branches["rolled-back"] += 1
        self.call("unschedule", request=job.name, num_computed_tokens=life.num_computed)
        if self.pick.number(0, 3) == 0:
            self.leave(job)

    def _give_back(self, job: Job) -> None:
        life = self.life(job)
        if not life.admitted:
            return
        if life.num_in_flight and self.habits.defers and self._pops:
            self.branches["deferred-free"] += 1
            steps: list[object] = [*self.world.steps]
            blocks = self.call("pop_blocks_for_free", request=job.name)
            self.deferred.append((blocks, steps))
            return
        self.branches["freed-in-flight"] += bool(life.num_in_flight)
        self.call("free", request=job.name)

    def _free_deferred(self) -> None:
        for blocks, steps in [*self.deferred]:
            if not any(step in steps for step in self.world.steps):
                self.deferred.remove((blocks, steps))
                self.call("free_blocks", blocks=blocks[::-1])

    def _abort(self) -> None:
        """A client goes away."""
        jobs = [*self.waiting, *self.running, *self.loading]
        if not jobs:
            return
        job = self.pick.one(jobs)
        if job in self.loading:
            self.branches["aborted-loading"] += 1
            job.doomed = True
            return
        kind = "waiting" if job in self.waiting else "running"
        self.branches[
            "aborted-in-flight" if self.life(job).num_in_flight else f"aborted-{kind}"
        ] += 1
        self.leave(job)

    def _aside(self) -> None:
        """Do what happens beside the schedule."""
        choice = self.pick.number(0, 5)
        held = [job for job in self.running if not self.life(job).fallen]
        if choice == 0:
            self.branches["evicted"] += 1
            blocks = self.pick.some(range(1, self.config.num_blocks), 0, 3)
            self.call("evict_blocks", blocks=blocks)
        elif choice == 1:
            for job in [*self.running] if self.pick.flag() else []:
                self.preempt(job)
            self._reset()
        elif choice == 2 and held:
            job = self.pick.one(held)
            known = self.life(job).arrived
            self.call("cache_blocks", request=job.name, num_computed_tokens=known)
        elif choice == 3 and held:
            job = self.pick.one(held)
            settled = self.life(job).settled
            self.call("remove_skipped_blocks", request=job.name, total_computed_tokens=settled)
        elif choice == 4 and held:
            self.call("get_num_common_prefix_blocks", request=self.pick.one(held).name)
        else:
            self.call("take_new_block_ids")

    def _reset(self) -> None:
        done = self.call("reset_prefix_cache")
        self.branches["reset-done" if done else "reset-refused"] += 1
