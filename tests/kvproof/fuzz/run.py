"""One run: a target, the model and the ledger, in lockstep.

The target is compared with the model after every call. While they agree, properties are
evaluated of what the call changed (`statements`). When they differ, the model adopts what was
seen, and every property is evaluated on all of that.
"""

from dataclasses import dataclass, replace

from kvproof.fuzz import judge
from kvproof.fuzz.branches import branches
from kvproof.fuzz.calls import Call, Outcome
from kvproof.fuzz.handle import Handle
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.ledger import Ledger, published, told_each
from kvproof.fuzz.model import Model
from kvproof.fuzz.properties import PROPERTIES
from kvproof.fuzz.statements import Statements
from kvproof.fuzz.target import (
    NotExpressible,
    Observation,
    PoolConfig,
    PoolFactory,
)
from kvproof.fuzz.view import WireKey
from kvproof.spec import rules
from kvproof.spec.concrete import ConcreteIndex
from kvproof.spec.full_attention import NO_STRANDED_SUFFIX, no_stranded_suffix
from kvproof.spec.properties import Class
from kvproof.spec.quantities import BlockId

HARMLESS = {"events-mirror-cache"}
"""Safety properties whose breach leaves the pool itself sound: the run goes on."""

TAKE = Call("take_events", {})

NONE: frozenset[str] = frozenset()

ASKING = {"get_cached_block", "take_events", "get_num_free_blocks", "get_usage"}
"""Operations that change nothing that can be observed."""


@dataclass(frozen=True)
class Flags:
    """Which classes of properties are judged besides safety. `misuse` allows illegal calls."""

    policy: bool = False
    misuse: bool = False
    quality: bool = False


@dataclass(slots=True)
class Verdict:
    """What one call came to: its branches, the rule that it breaks (None for a legal call),
    the target's answer, and what the answer breaks.
    """

    call: Call
    branches: frozenset[str]
    rule: rules.Rule | None
    answer: Outcome
    finding: Finding | None

    @property
    def legal(self) -> bool:
        """The call keeps the rules, or asks for more blocks than there are."""
        return self.rule is None or self.rule is rules.ENOUGH_FREE


class Run:
    """A fresh target and a fresh model. `drain` takes the events after every call.

    `over` is set when a broken property leaves nothing to compare with. `agreed` says that
    the target has done what the model did, as far as was seen, and `_told_alike` that it has
    since the events were last taken.
    """

    def __init__(
        self,
        factory: PoolFactory,
        config: PoolConfig,
        flags: Flags,
        drain: bool = True,
        protocol: bool = False,
    ) -> None:
        self.config = config
        self.flags = flags
        self.protocol = protocol
        self._handle = Handle(factory, config)
        self.target = self._handle.target
        self.model = Model(config)
        self.ledger = Ledger(config)
        self.drain = drain and "take_events" in self.target.operations
        self.over = False
        self.agreed = True
        self._told_alike = True
        self.seen = self._handle.first_look()
        self._statements = Statements(self.model, flags.policy)
        self._view = self.model.view()
        self.start = self._judge_start()

    def branches(self, call: Call) -> frozenset[str]:
        """Return the branches that the call would take now."""
        return branches(self.model, call)

    def step(self, call: Call, took: frozenset[str] = NONE) -> Verdict:
        """Make a call on both, and judge. `took` are its branches, for the verdict."""
        self.over = True  # should this call come to no verdict, nothing more can be judged
        try:
            actual = self._handle.make(call)
        except NotExpressible:  # nothing was called: the model must not move either
            self.over = False
            return Verdict(call, NONE, None, Outcome(error="not expressible"), None)
        expected, rule = self.model.apply(call)
        shown = self._handle.observe()
        if isinstance(shown, Outcome):
            self.seen = Observation()
            finding: Finding | None = Finding(
                "legal-accepted" if rule is None else "misuse-refused",
                "the target cannot be observed after the call",
                str(expected),
                f"{actual}; observe {shown}",
            )
            self.over = True
            return Verdict(call, took, rule, actual, finding)
        self.seen = shown
        if rule is None and actual.error is None:
            finding = self._judge_legal(call, expected, actual)
        elif rule is not None:
            finding = self._judge_refusal(rule, expected, actual)
        else:
            finding = Finding("legal-accepted", "a legal call raised", str(expected), str(actual))
        self.over = False
        if finding is not None:
            self._go_on_after(finding)
        return Verdict(call, took, rule, actual, finding)

    def _go_on_after(self, finding: Finding) -> None:
        """Let the model follow the target where that repairs everything; else end the run."""
        self._told_alike = False
        if finding.property == NO_STRANDED_SUFFIX.name:
            self.protocol = False
        elif PROPERTIES[finding.property].klass is Class.POLICY:
            self.model.accept_retired()
        elif finding.property not in HARMLESS:
            self.over = True

    def _judge_start(self) -> Finding | None:
        view = self.model.view()
        if not judge.differences(view, self.seen):
            return None
        finding = judge.judge_queue(self.seen, self.config.num_gpu_blocks)
        if finding is not None:
            return finding
        expected, actual = judge.describe(view, self.seen)
        self._adopt(self.seen)
        finding = self._broken(self._statements.every(), view)
        if finding is None and self.flags.policy:
            finding = Finding("decision-equal", "a new pool differs", expected, actual)
        return finding

    def _judge_refusal(
        self, rule: rules.Rule, expected: Outcome, actual: Outcome
    ) -> Finding | None:
        before = self._view
        before.hooks = self.seen.hooks  # of a call that is refused nothing is expected
        asked = rule is rules.ENOUGH_FREE
        name = "failed-is-noop" if asked else "misuse-refused"
        if not actual.refused and not (asked and actual.value is None):
            changed = judge.describe(before, self.seen)[1]
            return Finding(
                name,
                f"a call that breaks the rule {rule.name} was accepted: {rule.says}",
                str(expected),
                str(actual) + (f"; now {changed}" if changed else ""),
            )
        if judge.differences(before, self.seen):
            kept, changed = judge.describe(before, self.seen)
            return Finding(name, "refused, but something has changed", kept, changed)
        return None

    def _judge_legal(self, call: Call, expected: Outcome, actual: Outcome) -> Finding | None:
        form = judge.malformed(call, actual.value)
        if form is not None:
            return Finding("legal-accepted", "an answer of the wrong form", str(expected), form)
        finding = judge.judge_answer(call, expected, actual, self.ledger)
        if finding is not None:
            return finding
        self.ledger.record(call, actual.value)
        before, view = self._view, self._view
        if call.name not in ASKING:
            self._view = view = self.model.view()
        else:
            view.hooks = []
        agrees = (view == self.seen or not judge.differences(view, self.seen)) and (
            expected.value == actual.value or call.name == "take_events"
        )
        if not agrees:
            self._told_alike = False
            finding = self._judge_difference(call, actual, view)
        elif view is not before:
            finding = self._judge_change(call, actual, before, view)
        if finding is None and (self.drain or call.name == "take_events"):
            finding = self._judge_events(call, expected, actual, agrees)
        if finding is None and self.flags.policy and not agrees:
            finding = judge.judge_policy(call, expected, actual, view, self.seen)
        if finding is None and self.protocol and self.flags.policy:
            finding = self._judge_protocol()
        return finding

    def _judge_difference(self, call: Call, actual: Outcome, view: Observation) -> Finding | None:
        self.agreed = False
        finding = judge.judge_queue(self.seen, self.config.num_gpu_blocks)
        finding = finding or judge.judge_promises(self.seen, self.ledger)
        if finding is not None:
            return finding
        if call.name == "get_new_blocks":
            self.model.forget_retired(actual.value)
        shown = self.shows_keys
        self._adopt(self.seen if shown else replace(self.seen, keys=self._guess(call, actual)))
        return self._broken(self._statements.every(), view)

    def _judge_change(
        self, call: Call, actual: Outcome, before: Observation, view: Observation
    ) -> Finding | None:
        if call.name == "reset_prefix_cache":
            blocks = [BlockId(block) for block in range(self.config.num_gpu_blocks)]
        else:
            blocks = _named(call, actual)
        return self._broken(self._statements.after(blocks, before, view), view)

    def _broken(self, name: str | None, view: Observation) -> Finding | None:
        if name is None:
            return None
        return Finding(name, PROPERTIES[name].says, *judge.describe(view, self.seen))

    @property
    def shows_keys(self) -> bool:
        """The target shows which block carries which key."""
        return self.seen.keys is not None or self.seen.index is not None

    def _guess(self, call: Call, actual: Outcome) -> list[list[WireKey]]:
        """Return the keys that blocks may carry, of a target that does not show them: what the
        model has and what was promised, as far as a lookup's answer does not say otherwise.
        """
        assert self._view.keys is not None
        promised = self.ledger.promised
        keys = [
            [key for key in mine if key in promised[block]]
            for block, mine in enumerate(self._view.keys)
        ]
        if call.name == "get_cached_block":
            asked = [(call.args["block_hash"], group) for group in call.args["groups"]]
            if actual.value is None and len(asked) == 1:
                keys = [[key for key in mine if key != asked[0]] for mine in keys]
            for block, key in zip(actual.value or (), asked, strict=False):
                if key not in keys[block]:
                    keys[block].append(key)
        return keys

    def _adopt(self, seen: Observation) -> None:
        self.model.adopt(self.ledger.held, seen, self.ledger.consumer)
        self._view = self.model.view()

    def _resident(self) -> set[WireKey] | None:
        """Return the keys that are resident, None when the target does not show them and may
        go its own way.
        """
        alike = self.agreed and self.flags.policy
        if not alike and not self.shows_keys:
            return None
        index = self._view.index if self.seen.index is None else self.seen.index
        return {key for key, blocks in (index or {}).items() if blocks}

    def _judge_events(
        self, call: Call, expected: Outcome, actual: Outcome, agrees: bool
    ) -> Finding | None:
        told = actual
        if call.name != "take_events":
            due = self.model.told()
            told = self._handle.make(TAKE)
            unseen = call.name == "get_cached_block" and not self.shows_keys
            if told.value == [] and not due and agrees and not unseen:
                self._told_alike = True
                return None  # nothing was told, and nothing was to be told
            form = judge.malformed(TAKE, told.value)
            if told.refused or form is not None:
                return Finding(
                    "legal-accepted", "a legal call raised", "returns events", str(form or told)
                )
            self.ledger.record(TAKE, told.value)
        else:
            due = told_each(expected.value)
        if not self.config.enable_kv_cache_events:
            return judge.judge_silence(told.value) if self.flags.policy else None
        resident = self._resident()
        if resident is None:
            finding = judge.judge_belief(call, actual, self.ledger)
            resident = set(self.ledger.consumer)
        else:
            finding = judge.judge_events(self.ledger, resident)
        if finding is None and self.flags.policy and self._told_alike:
            finding = judge.judge_told(due, told_each(told.value))
        self._told_alike = True
        if finding is not None:
            self.ledger.consumer, self.ledger.lies = dict.fromkeys(sorted(resident)), []
        return finding

    def _judge_protocol(self) -> Finding | None:
        index = self.model.state.cached
        assert isinstance(index, ConcreteIndex)
        with self.model.pool.universe.focus((), list(index.lists_of), ()):
            if no_stranded_suffix(self.model.state):
                return None
        found = judge.text(self._view.index)
        return Finding(
            NO_STRANDED_SUFFIX.name, NO_STRANDED_SUFFIX.says, "every parent is cached", found
        )


def _named(call: Call, actual: Outcome) -> list[BlockId]:
    """Return the blocks that a call is about."""
    if call.name == "get_new_blocks":
        named: list[BlockId] = actual.value
        return named
    if call.name == "cache_full_blocks":
        return [BlockId(block) for block, _ in published(call)]
    if "block" in call.args:
        return [call.args["block"]]
    return list(dict.fromkeys(call.args.get("blocks", ())))
