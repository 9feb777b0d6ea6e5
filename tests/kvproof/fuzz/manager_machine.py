"""The state machine at manager level: requests live on a fresh manager, as a scheduler lets them.

A rule lets the scheduler do one thing, with the choices left to Hypothesis; `burst` lets it do
many, with choices left to a generator that Hypothesis seeds. Nothing raises here: a verdict
that breaks a property goes to the session, and the run is over when nothing is left to judge.
"""

import contextlib
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvproof.fuzz.elements import draw_extra
from kvproof.fuzz.manager_layouts import ManagerLayout
from kvproof.fuzz.manager_session import ManagerSession, RunOver
from kvproof.fuzz.picks import HypothesisPick, Pick, RandomPick
from kvproof.fuzz.scheduler import Scheduler


class ManagerRules(RuleBasedStateMachine):
    """A manager under test. `session` gives the target and takes the verdicts."""

    session: ClassVar[ManagerSession]

    @initialize(data=st.data(), seed=st.binary(min_size=8, max_size=8))
    def start(self, data: st.DataObject, seed: bytes) -> None:
        """Build a fresh manager of one of the layouts, and a scheduler for it."""
        layout: ManagerLayout = data.draw(st.sampled_from(self.session.layouts))
        pick = RandomPick(seed)
        config = layout.draw(pick)
        self.run_ = run = self.session.start(config, layout)
        self.midway = False
        self.scheduler = Scheduler(
            config,
            lambda call: self.session.call(run, call),
            run.world,
            pick,
            draw_extra if pick.number(0, 3) == 0 else None,
            run.handle.has,
        )

    @precondition(lambda self: not self.run_.over)
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Do the next thing, with Hypothesis choosing."""
        self._act(HypothesisPick(data), 1)

    @precondition(lambda self: not self.run_.over)
    @rule(seed=st.binary(min_size=8, max_size=8), length=st.sampled_from((5, 15, 40)))
    def burst(self, seed: bytes, length: int) -> None:
        """Do many things."""
        self._act(RandomPick(seed), length)

    def _act(self, pick: Pick, times: int) -> None:
        self.scheduler.pick, self.midway = pick, True
        with contextlib.suppress(RunOver):
            for _ in range(times):
                self.scheduler.act()
            self.midway = False

    @precondition(lambda self: self.run_.over)
    @rule()
    def over(self) -> None:
        """Do nothing more."""

    def teardown(self) -> None:
        """Let all requests end, so that what is left over is seen, and count the situations."""
        if hasattr(self, "scheduler"):
            if not self.midway:
                with contextlib.suppress(RunOver):
                    self.scheduler.finish()
            self.session.end(self.run_, self.scheduler.branches)
