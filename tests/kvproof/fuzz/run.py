"""One run: a target, the model and the ledger, in lockstep.

The target is compared with the model after every call. While they agree, the statements of
the state's properties are evaluated for what the call changed: each of them speaks of one
block, key or slot at a time, and held for all of them before. When they differ, the model
adopts what was seen, and all statements are evaluated on that.
"""

from dataclasses import dataclass

from kvproof.fuzz import judge
from kvproof.fuzz.branches import branches
from kvproof.fuzz.calls import Call, Outcome, make
from kvproof.fuzz.judge import Finding
from kvproof.fuzz.ledger import Ledger
from kvproof.fuzz.model import Model
from kvproof.fuzz.target import (
    NotExpressible,
    Observation,
    PoolConfig,
    PoolFactory,
    TargetBroken,
)
from kvproof.spec import rules
from kvproof.spec.concrete import ConcreteIndex
from kvproof.spec.full_attention import NO_STRANDED_SUFFIX, no_stranded_suffix
from kvproof.spec.pool_properties import STATE_PROPERTIES
from kvproof.spec.properties import Class, Property
from kvproof.spec.quantities import NO_KEY, BlockId, Key, Slot
from kvproof.spec.steps import STEP_PROPERTIES

PROPERTIES: dict[str, Property] = {
    **STEP_PROPERTIES,
    **STATE_PROPERTIES,
    NO_STRANDED_SUFFIX.name: NO_STRANDED_SUFFIX,
}
"""Every property of the block pool, by name."""

HARMLESS = {"events-mirror-cache"}
"""Safety properties whose breach leaves the pool itself sound: the run goes on."""

WHOLE = {"all-returned", "events-mirror-cache"}
"""Properties that speak of the whole state, and are judged by the ledger."""


@dataclass(frozen=True)
class Flags:
    """Which classes of properties are judged besides safety. `misuse` allows illegal calls."""

    policy: bool = False
    misuse: bool = False


@dataclass(frozen=True, slots=True)
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

    `over` is set when a broken property leaves nothing to compare with.
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
        self.target = factory(config)
        self.model = Model(config)
        self.ledger = Ledger(config)
        self.drain = drain and "take_events" in self.target.operations
        self.over = False
        self.seen = self.target.observe()
        self._names = [
            name
            for name, found in STATE_PROPERTIES.items()
            if name not in WHOLE and (flags.policy or found.klass is Class.SAFETY)
        ]
        self._statements = [(n, STATE_PROPERTIES[n].statement) for n in self._names]
        self.start = self._judge_start()

    def branches(self, call: Call) -> frozenset[str]:
        """Return the branches that the call would take now."""
        return branches(self.model, call)

    def step(self, call: Call) -> Verdict:
        """Make a call on both, and judge."""
        index = self.model.state.cached
        assert isinstance(index, ConcreteIndex)
        self._keys_before = list(index.lists_of)
        took = branches(self.model, call)
        expected, rule = self.model.apply(call)
        try:
            actual = self._make(call)
        except NotExpressible:
            return Verdict(call, took, rule, Outcome(error="not expressible"), None)
        before, shown = self.seen, self._observe()
        self.seen = Observation() if shown.refused else shown.value
        if shown.refused:
            says = "the target cannot be observed after the call"
            finding: Finding | None = Finding(
                "legal-accepted" if rule is None else "misuse-refused",
                says,
                str(expected),
                f"{actual}; observe {shown}",
            )
        elif rule is not None:
            finding = self._judge_refusal(call, rule, expected, actual, before)
        elif actual.refused:
            finding = Finding("legal-accepted", "a legal call raised", str(expected), str(actual))
        else:
            finding = self._judge_legal(call, expected, actual)
        if finding is not None:
            self._go_on_after(finding)
        return Verdict(call, took, rule, actual, finding)

    def _go_on_after(self, finding: Finding) -> None:
        """Let the model follow the target where that repairs everything; else end the run."""
        if finding.property == NO_STRANDED_SUFFIX.name:
            self.protocol = False
        elif PROPERTIES[finding.property].klass is Class.POLICY:
            self.model.accept_retired()
        elif finding.property not in HARMLESS:
            self.over = True

    def _judge_start(self) -> Finding | None:
        view = self.model.view()
        finding = judge.judge_queue(self.seen, self.config.num_gpu_blocks)
        if finding is not None or not judge.differences(view, self.seen):
            return finding
        expected, actual = judge.describe(view, self.seen)
        self._adopt()
        finding = self._judge_statements(view)
        if finding is None and self.flags.policy:
            finding = Finding("decision-equal", "a new pool differs", expected, actual)
        return finding

    def _make(self, call: Call) -> Outcome:
        try:
            return Outcome(make(self.target, call, self.config.hash_block_size))
        except (NotExpressible, TargetBroken):
            raise
        except Exception as error:  # a target may refuse with any exception
            return Outcome(error=_one_line(error))

    def _observe(self) -> Outcome:
        try:
            return Outcome(self.target.observe())
        except TargetBroken:
            raise
        except Exception as error:  # a target that has crashed shows nothing any more
            return Outcome(error=_one_line(error))

    def _judge_refusal(
        self,
        call: Call,
        rule: rules.Rule,
        expected: Outcome,
        actual: Outcome,
        before: Observation,
    ) -> Finding | None:
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
        self.seen.hooks = [] if self.seen.hooks is not None else None
        before.hooks = self.seen.hooks
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
        view = self.model.view()
        agrees = not judge.differences(view, self.seen) and (
            expected.value == actual.value or call.name == "take_events"
        )
        finding = self._judge_state(call, actual, view, agrees)
        if finding is None and (self.drain or call.name == "take_events"):
            finding = self._judge_events(call)
        if finding is None and self.flags.policy and not agrees:
            finding = judge.judge_policy(call, expected, actual, view, self.seen)
        if finding is None and self.protocol and self.flags.policy:
            finding = self._judge_protocol()
        return finding

    def _judge_state(
        self, call: Call, actual: Outcome, view: Observation, agrees: bool
    ) -> Finding | None:
        if agrees:
            blocks, keys, slots = self._changed(call, actual)
            with self.model.pool.universe.focus(blocks, keys, slots):
                return self._judge_statements(view)
        finding = judge.judge_queue(self.seen, self.config.num_gpu_blocks)
        finding = finding or judge.judge_promises(self.seen, self.ledger)
        if finding is not None:
            return finding
        self._adopt()
        return self._judge_statements(view)

    def _judge_statements(self, view: Observation) -> Finding | None:
        state = self.model.state
        for name, statement in self._statements:
            assert statement is not None
            if not statement(state):
                expected, actual = judge.describe(view, self.seen)
                return Finding(name, PROPERTIES[name].says, expected, actual)
        return None

    def _changed(self, call: Call, actual: Outcome) -> tuple[list[BlockId], list[Key], list[Slot]]:
        args, state = call.args, self.model.state
        if call.name == "reset_prefix_cache" and actual.value:
            universe = self.model.pool.universe
            return list(universe.blocks), self._keys_before, list(universe.slots)
        named = args.get("blocks") or (actual.value if call.name == "get_new_blocks" else ())
        if "block" in args:
            named = [args["block"]]
        blocks = [BlockId(block) for block in dict.fromkeys(named or ())]
        keys: dict[Key, None] = {}
        slots = []
        for block in blocks:
            own = state.block_hash[block]
            if own != NO_KEY:
                keys[own] = None
            keys.update(dict.fromkeys(state.partial_keys[block]))  # type: ignore[call-overload]
            keys.update(dict.fromkeys(state.retired[block]))  # type: ignore[call-overload]
            slots += [state.holder[block, rank] for rank in range(state.ref_cnt[block])]
        return blocks, list(keys), slots

    def _adopt(self) -> None:
        resident = self._resident()
        self.model.adopt(self.ledger.held, self.seen, dict.fromkeys(resident))

    def _resident(self) -> set[tuple[str, int]]:
        if self.seen.index is not None:
            return {key for key, blocks in self.seen.index.items() if blocks}
        return set(self.model.view().index or {})

    def _judge_events(self, call: Call) -> Finding | None:
        if not self.config.enable_kv_cache_events:
            return None
        if call.name != "take_events":
            take = Call("take_events", {})
            self.model.apply(take)
            told = self._make(take)
            form = judge.malformed(take, told.value)
            if told.refused or form is not None:
                return Finding(
                    "legal-accepted", "a legal call raised", "returns events", str(form or told)
                )
            self.ledger.record(take, told.value)
        resident = self._resident()
        finding = judge.judge_events(self.ledger, resident)
        self.ledger.consumer, self.ledger.lies = dict.fromkeys(sorted(resident)), []
        return finding

    def _judge_protocol(self) -> Finding | None:
        index = self.model.state.cached
        assert isinstance(index, ConcreteIndex)
        with self.model.pool.universe.focus((), list(index.lists_of), ()):
            if no_stranded_suffix(self.model.state):
                return None
        found = judge.text(self.model.view().index)
        return Finding(
            NO_STRANDED_SUFFIX.name, NO_STRANDED_SUFFIX.says, "every parent is cached", found
        )


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
