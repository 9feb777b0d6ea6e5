"""One run at manager level: a manager, the specification's, the world and the ghost contents.

While the manager does what the specification's does, one comparison judges it. When it goes
another way, it is judged from what is seen of it: by the specification's statements of states,
and by what the tokens of its requests read and write.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvproof.fuzz import judge
from kvproof.fuzz.calls import Call, Outcome
from kvproof.fuzz.contents import Contents, Wrong
from kvproof.fuzz.hash_judge import HashJudge
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.ledger import told_each
from kvproof.fuzz.manager_calls import WORLD
from kvproof.fuzz.manager_handle import ManagerHandle
from kvproof.fuzz.manager_judge import ManagerJudge
from kvproof.fuzz.manager_model import SpecManager
from kvproof.fuzz.manager_target import ManagerConfig, ManagerFactory, ManagerObservation
from kvproof.fuzz.run import Flags
from kvproof.fuzz.target import NotExpressible
from kvproof.fuzz.world import World
from kvproof.spec.rules import Rule

HARMLESS = {"events-mirror-cache", "common-prefix-true"}
"""Properties whose breach leaves the manager itself sound: the run goes on."""

ALWAYS = {"new_request", "append_tokens"}
"""Calls that the specification's manager is told also when the other went another way."""

TAKE = Call("take_events", {})


@dataclass(slots=True)
class ManagerVerdict:
    """What one call came to. `rule`: the rule that it would have broken; then it was not made.
    `made` is False when the target cannot be given such a call.
    """

    call: Call
    rule: Rule | None = None
    answer: Outcome = field(default_factory=Outcome)
    finding: Finding | None = None
    made: bool = True


class ManagerRun:
    """A fresh manager. `over` is set when a broken property leaves nothing to judge; `agreed`
    says that the manager has done all that the specification's did.
    """

    def __init__(self, factory: ManagerFactory, config: ManagerConfig, flags: Flags) -> None:
        self.config, self.flags = config, flags
        self.handle = ManagerHandle(factory, config)
        self.spec = SpecManager(config)
        self.world = World(config)
        self.contents = Contents(config, self.world.chains)
        self.judge = ManagerJudge(config, flags.quality)
        self.hashes = HashJudge(config)
        self.seen = self.handle.first_look()
        judge.differences(self.spec.observe().pool, self.seen.pool)  # raises TargetBroken
        self.agreed, self.over = True, False
        self._told_alike = True
        self._compares_policy = flags.policy

    def step(self, call: Call) -> ManagerVerdict:
        """Make a call, and judge it. A call that breaks a rule is not made."""
        rule = self.world.rule(call)
        if rule is not None:
            return ManagerVerdict(call, rule, made=False)
        if call.name in WORLD:
            return self._happen(call)
        self.over = True  # should this call come to no verdict, nothing more can be judged
        try:
            actual = self._make(call)
        except NotExpressible:
            self.over = False
            return ManagerVerdict(call, made=False)
        before = self.seen
        expected = self._expected(call)
        shown = self.handle.observe()
        if isinstance(shown, Outcome):
            says = "the target cannot be observed after the call"
            return ManagerVerdict(
                call, None, actual, Finding("legal-accepted", says, "", f"{shown}")
            )
        self.seen = shown
        finding = self._judge(call, expected, actual, before)
        self.over = finding is not None and finding.property not in HARMLESS
        if not self.over:
            self.world.record(call, actual.value)
        return ManagerVerdict(call, None, actual, finding)

    def _make(self, call: Call) -> Outcome:
        """Make the call. An engine without `unschedule` makes none there, as 0.25.1's does."""
        if call.name == "unschedule" and not self.handle.has("unschedule"):
            return Outcome()
        return self.handle.make(call)

    def _happen(self, call: Call) -> ManagerVerdict:
        """Something happens in the world: tokens are computed or loaded."""
        work = self.world.work(call)
        self.world.record(call, None)
        if not work:
            return ManagerVerdict(call)
        expects = self.world.expectations()
        wrong = self.contents.run(work, self.seen.tables, self.seen.pool.keys, expects)
        self.over = wrong is not None
        return ManagerVerdict(call, None, Outcome(), None if wrong is None else _found(wrong))

    def _expected(self, call: Call) -> Outcome | None:
        """Return what the specification answers; None when it is not asked."""
        if not self.agreed and call.name not in ALWAYS:
            return None
        return Outcome(self.spec.call(call.name, call.args))

    def _judge(
        self, call: Call, expected: Outcome | None, actual: Outcome, before: ManagerObservation
    ) -> Finding | None:
        if actual.refused:
            return self._refused(call, expected, actual)
        form = malformed(call, actual.value, len(self.config.groups))
        if form is not None:
            wanted = "" if expected is None else str(expected)
            return Finding("legal-accepted", "an answer of the wrong form", wanted, form)
        self.judge.note(call, actual.value)
        tokens = self._tokens(call)
        finding = self.judge.answer(call, actual.value, tokens, before, self.seen)
        if finding is None:
            finding = self.judge.state(self.seen)
        agreed = self._agree(call, expected, actual) if self.agreed else False
        if finding is None and not agreed:
            finding = self.judge.statements(self.seen)
        if finding is None:
            finding = self._hashes(call)
        if finding is None:
            finding = self._events()
        if finding is None and self.agreed and not agreed:
            finding = self._differs(call, expected, actual)
        harmless = finding is not None and finding.property in HARMLESS
        asked = call.name == "get_num_common_prefix_blocks"
        self.agreed = self.agreed and (agreed or ((harmless or asked) and self._same_state()))
        return finding

    def _refused(self, call: Call, expected: Outcome | None, actual: Outcome) -> Finding:
        name = "prediction-exact" if call.name == "allocate_slots" else "legal-accepted"
        return Finding(name, "a legal call raised", str(expected or ""), str(actual))

    def _tokens(self, call: Call) -> Sequence[int] | None:
        if call.name != "get_computed_blocks":
            return None
        return self.spec.requests[call.args["request"]].tokens

    def _agree(self, call: Call, expected: Outcome | None, actual: Outcome) -> bool:
        same = expected is not None and expected.value == actual.value
        return (same or call.name == "take_events") and self._same_state()

    def _same_state(self) -> bool:
        view = self.spec.observe()
        if view.tables != self.seen.tables:
            return False
        return view.pool == self.seen.pool or not judge.differences(view.pool, self.seen.pool)

    def _hashes(self, call: Call) -> Finding | None:
        if call.name not in ALWAYS or not self.handle.has("block_hashes"):
            return None
        name = call.args["request"]
        shown = []
        for asked in ("block_hashes", "fresh_block_hashes"):
            answer = (
                self.handle.make(Call(asked, {"request": name}))
                if self.handle.has(asked)
                else Outcome()
            )
            if answer.refused:
                return Finding("legal-accepted", "a legal call raised", "hashes", str(answer))
            shown.append(answer.value)
        given, fresh = shown
        return self.hashes.judge(name, self.spec.contents[name], given, fresh)

    def _events(self) -> Finding | None:
        if not self.handle.has("take_events"):
            return None
        told = self.handle.make(TAKE)
        if told.refused:
            return Finding("legal-accepted", "a legal call raised", "returns events", str(told))
        due = self.spec.take_events() if self.agreed else []
        finding = self.judge.events(told.value, self.seen)
        if finding is not None:
            self._told_alike = False
        elif self._compares_policy and self.agreed and self._told_alike:
            finding = judge.judge_told(told_each(due), told_each(told.value))
        return finding

    def _differs(self, call: Call, expected: Outcome | None, actual: Outcome) -> Finding | None:
        """Judge a difference from the specification: as a lost hit, or as another policy."""
        assert expected is not None
        view = self.spec.observe()
        if self.flags.quality:
            finding = _lost(view, self.seen)
            if finding is not None:
                return finding
        if not self._compares_policy:
            return None
        if expected.value != actual.value and call.name != "take_events":
            name = "decision-equal"
            return Finding(
                name, "another answer than the specification's", *_texts(expected, actual)
            )
        if view.tables != self.seen.tables:
            says = "other tables than the specification's"
            return Finding("decision-equal", says, str(view.tables), str(self.seen.tables))
        if call.name == "free_blocks":
            wanted, found = judge.describe(view.pool, self.seen.pool)
            return Finding("deferral-neutral", "another state than after free", wanted, found)
        fake = Outcome()
        return judge.judge_policy(_as_pool_call(call), fake, fake, view.pool, self.seen.pool)


def malformed(call: Call, value: Any, groups: int) -> str | None:
    """Say what is wrong with the form of an answer, if anything is."""
    form = {
        "get_computed_blocks": lambda: (
            isinstance(value, tuple)
            and len(value) == 2
            and _rows(value[0], groups)
            and type(value[1]) is int
        ),
        "allocate_slots": lambda: value is None or _rows(value, groups),
        "pop_blocks_for_free": lambda: _ids(value),
        "take_new_block_ids": lambda: _ids(value),
        "get_num_common_prefix_blocks": lambda: _ids(value) and len(value) == groups,
        "reset_prefix_cache": lambda: isinstance(value, bool),
    }.get(call.name)
    return None if form is None or form() else f"{call.name} answered {value!r:.200}"


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)


def _rows(value: Any, groups: int) -> bool:
    return isinstance(value, list) and len(value) == groups and all(map(_ids, value))


def _found(wrong: Wrong) -> Finding:
    return Finding(wrong.property, wrong.says, wrong.expected, wrong.actual)


def _lost(view: ManagerObservation, seen: ManagerObservation) -> Finding | None:
    wanted, found = view.pool.index or {}, seen.pool.index
    if found is None:
        return None
    lost = [key for key in wanted if wanted[key] and not found.get(key)]
    if not lost:
        return None
    says = "a block that a lookup may need is not cached"
    return Finding("mask-covers-lookup", says, judge.text(lost), judge.text(found))


def _as_pool_call(call: Call) -> Call:
    """Return the call under the name by which the pool's judge knows what it may move."""
    moves = {"free": "free_blocks", "allocate_slots": "get_new_blocks"}
    return Call(moves.get(call.name, call.name), {})


def _texts(expected: Outcome, actual: Outcome) -> tuple[str, str]:
    return str(expected), str(actual)
