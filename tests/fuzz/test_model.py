"""The oracle: it shows what the implementation shows, can follow a target, and is judged as
fully when only what a call changed is judged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from kvproof.fuzz import judge
from kvproof.fuzz.calls import Call
from kvproof.fuzz.handle import Handle
from kvproof.fuzz.impl_target import ImplPool
from kvproof.fuzz.judge import FIELDS, Finding
from kvproof.fuzz.layouts import LAYOUTS
from kvproof.fuzz.ledger import Ledger
from kvproof.fuzz.model import Model
from kvproof.fuzz.run import Flags, Run
from kvproof.fuzz.statements import READS, WHOLE, Statements
from kvproof.fuzz.target import OPERATIONS, Event, Observation, PoolConfig
from kvproof.spec import transitions
from kvproof.spec.concrete import ConcreteIndex, ConcreteKeySet, ConcreteMap, ConcreteQueue
from kvproof.spec.pool_properties import INVARIANT, STATE_PROPERTIES
from kvproof.spec.quantities import NO_KEY, BlockId, GroupId, Key, TokenId
from kvproof.spec.state import PoolState
from kvproof.spec.universe import KeySet

Drawn = Callable[..., list[Call]]
LAYOUT_NAMES = sorted(LAYOUTS)


def config_of(layout: str) -> PoolConfig:
    return LAYOUTS[layout].config(6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_it_shows_what_the_implementation_shows(layout: str, seed: int, drawn: Drawn) -> None:
    model, handle = Model(config_of(layout)), Handle(ImplPool, config_of(layout))
    for call in drawn(layout, seed, 120, misuse=layout != "full"):
        outcome, rule = model.apply(call)
        answer = handle.make(call)
        assert answer.refused == (rule is not None)
        if rule is None and call.name != "take_events":
            assert answer.value == outcome.value
        assert not judge.differences(model.view(), handle.first_look())


def followed(model: Model, ledger: Ledger, shows: tuple[str, ...]) -> None:
    """Let the model follow what it shows itself."""
    view = model.view()
    believed = {
        (".".join(map(str, key.block_hash)), int(key.group)): None
        for key in model.state.events.folded  # type: ignore[attr-defined]
    }
    seen = Observation(**{field: getattr(view, field) for field in shows})
    model.adopt(ledger.held, seen, believed)


@pytest.mark.parametrize("shows", [FIELDS, ("keys", "free"), ("index", "free"), ("free",)], ids=str)
@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_following_what_it_does_already_changes_nothing(
    layout: str, shows: tuple[str, ...], drawn: Drawn
) -> None:
    straight, follows = Model(config_of(layout)), Model(config_of(layout))
    ledger = Ledger(config_of(layout))
    for number, call in enumerate(drawn(layout, 7, 150)):
        expected, rule = straight.apply(call)
        outcome, other = follows.apply(call)
        assert other is rule
        if call.name != "take_events":
            assert outcome == expected
        if rule is None:
            ledger.record(call, expected.value)
        if number % 5 == 0:
            followed(follows, ledger, shows)
        wanted, found = straight.view(), follows.view()
        wanted.hooks = found.hooks = None
        assert not judge.differences(wanted, found), call
        statements = {n: p.statement for n, p in STATE_PROPERTIES.items() if p.statement}
        for name, statement in statements.items():
            assert statement(follows.state), name


class ModelPool:
    """The specification as a target, so that what is wrong with it goes to model and target."""

    operations: tuple[str, ...] = OPERATIONS

    def __init__(self, config: PoolConfig) -> None:
        self.model = Model(config)

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(name)

        def answer(**args: Any) -> Any:
            if "request" in args:
                args["request"] = {"tokens": args["request"].tokens}
            outcome, _ = self.model.apply(Call(name, args))
            if outcome.refused:
                raise ValueError(outcome.error)
            return outcome.value

        return answer

    def take_events(self) -> list[Event]:
        value: list[Event] = self.model.apply(Call("take_events", {}))[0].value
        return value

    def observe(self) -> Observation:
        return self.model.view()


class FullRun(Run):
    """A run that evaluates every statement on everything after every call."""

    def _judge_change(self, *args: Any) -> Finding | None:
        return self._broken(self._statements.every(), args[-1])


SPEC_DEFECTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "a free block is not counted": (transitions, "count_free", lambda state, block: None),
    "a used block is not counted": (transitions, "count_used", lambda state, block: None),
    "a touched block stays queued": (ConcreteQueue, "remove", lambda self, block: None),
    "a freed block is not queued": (ConcreteQueue, "append", lambda self, block: None),
    "a key is not listed": (ConcreteIndex, "insert", lambda self, key, block: None),
    "an entry stays": (ConcreteIndex, "pop", lambda self, keys, block: None),
    "a reset keeps the index": (ConcreteIndex, "clear", lambda self: None),
    "keys are not retired": (transitions, "_retire_keys", lambda state, block: None),
}


@pytest.mark.parametrize("layout", ["one-size", "partial", "two-groups", "full"])
@pytest.mark.parametrize("defect", [None, *SPEC_DEFECTS])
def test_judging_what_changed_finds_what_judging_everything_finds(
    defect: str | None, layout: str, drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences = [drawn(layout, seed, 80) for seed in range(5)]
    if defect is not None:
        owner, name, wrong = SPEC_DEFECTS[defect]
        monkeypatch.setattr(owner, name, wrong)
    found = 0
    for calls in sequences:
        quick = Run(ModelPool, config_of(layout), Flags(policy=True))
        full = FullRun(ModelPool, config_of(layout), Flags(policy=True))
        for call in calls:
            outcomes = []
            for run in (quick, full):
                try:
                    outcomes.append(run.step(call).finding)
                except (KeyError, StopIteration) as error:  # the wrong specification gets stuck
                    outcomes.append(type(error))  # type: ignore[arg-type]
            assert (outcomes[0] is None) == (outcomes[1] is None), (call, outcomes)
            if outcomes[0] is not None:
                found += isinstance(outcomes[0], Finding)
                break
    if defect is None:
        assert found == 0
    elif defect not in ("keys are not retired", "a touched block stays queued"):
        assert found > 0 or layout == "full"


FIELD_NAMES = ("free", "ref_cnt", "keys", "index", "num_free_blocks")
OTHER_KEYS = [
    Key(tuple(map(TokenId, [token] * end)), GroupId(0)) for token in (0, 1) for end in (2, 6)
]


@contextmanager
def tampered(state: PoolState, fields: list[str], random: Random) -> Iterator[None]:
    """Give what these fields of an observation show values that have nothing to do with it.

    The null block's count is left alone: it is never compared.
    """
    kept = {name: getattr(state, name) for field in fields for name in HOLDS[field]}
    for field in fields:
        _tamper(state, field, random)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(state, name, value)


HOLDS = {
    "free": ["free_queue"],
    "ref_cnt": ["ref_cnt"],
    "keys": ["block_hash", "partial_keys"],
    "index": ["cached"],
    "num_free_blocks": ["num_free_blocks"],
}
"""The fields of the state that a field of an observation shows."""


def _tamper(state: PoolState, field: str, random: Random) -> None:
    count = state.universe.num_blocks
    blocks = [BlockId(block) for block in range(count)]
    if field == "free":
        state.free_queue = ConcreteQueue(random.choices(blocks, k=random.randint(0, count)))
    elif field == "ref_cnt":
        counts: ConcreteMap[BlockId, int] = ConcreteMap(0)
        counts.update({block: random.randint(-1, 2) for block in blocks[1:]})
        state.ref_cnt = counts
    elif field == "num_free_blocks":
        state.num_free_blocks = random.randint(-1, count + 1)
    elif field == "keys":
        own: ConcreteMap[BlockId, Key] = ConcreteMap(NO_KEY)
        others: ConcreteMap[BlockId, KeySet] = ConcreteMap(ConcreteKeySet())
        for block in blocks:
            own[block] = random.choice([NO_KEY, *OTHER_KEYS])
            others[block] = ConcreteKeySet(tuple(random.sample(OTHER_KEYS, random.randint(0, 1))))
        state.block_hash, state.partial_keys = own, others
    else:
        index = ConcreteIndex()
        for key in random.sample(OTHER_KEYS, 2):
            index.lists_of[key] = dict.fromkeys(random.sample(blocks, random.randint(0, 2)))
        state.cached = index


@pytest.mark.parametrize("name", READS)
def test_a_statement_reads_what_the_table_says(name: str, drawn: Drawn) -> None:
    statement, reads = STATE_PROPERTIES[name].statement, list(READS[name])
    assert statement is not None
    unread = [field for field in FIELD_NAMES if field not in reads]
    matters = set()
    for seed in range(4):
        for layout in ("one-size", "partial"):
            random, model = Random(seed), Model(config_of(layout))
            for call in drawn(layout, seed, 60):
                model.apply(call)
                model.pool.universe.known_keys.update(dict.fromkeys(OTHER_KEYS))
                honest = statement(model.state)
                with tampered(model.state, random.sample(reads, 1), random):
                    value = statement(model.state)
                    matters.add(value != honest)
                    with tampered(model.state, unread, random):
                        assert statement(model.state) == value
                with tampered(model.state, unread, random):
                    assert statement(model.state) == honest
    assert True in matters, "a field that the table names makes no difference"


@pytest.mark.parametrize("layout", ["partial", "two-sizes"])
def test_statements_about_keys_read_nothing_beyond_a_block_s_situation(
    layout: str, drawn: Drawn
) -> None:
    about_keys = [INVARIANT[name] for name, fields in READS.items() if "keys" in fields]
    random, model = Random(layout), Model(config_of(layout))
    statements, blocks = Statements(model, policy=True), range(6)
    seen: dict[tuple[Any, ...], list[bool]] = {}
    for seed in range(6):
        model.adopt([0] * 6, Model(config_of(layout)).view(), {})
        for call in drawn(layout, seed, 60):
            model.apply(call)
            for fields in ([], ["keys"], ["index"], ["keys", "index"]):
                keys = dict.fromkeys(random.sample(OTHER_KEYS, 2))
                with tampered(model.state, fields, random):
                    for block in map(BlockId, blocks):
                        situation = statements._situation(block, keys)
                        with model.pool.universe.focus((block,), keys, ()):
                            found = [bool(s and s(model.state)) for s in about_keys]
                        assert seen.setdefault(situation, found) == found
    assert any(not all(values) for values in seen.values())
    assert any(all(values) for values in seen.values())


def test_the_table_has_every_property_that_is_evaluated() -> None:
    assert set(READS) == set(STATE_PROPERTIES) - WHOLE
