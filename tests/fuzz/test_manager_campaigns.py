"""Fuzzing managers: what holds, what is found, and how it is reported, saved and replayed."""

import contextlib
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvproof.fuzz import ManagerMachine
from kvproof.fuzz.campaign import Limits, run_campaign
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.impl_manager import ImplManager
from kvproof.fuzz.manager_calls import manager_call_from_json
from kvproof.fuzz.manager_defects import load_manager_defect
from kvproof.fuzz.manager_layouts import MANAGER_LAYOUTS
from kvproof.fuzz.manager_model import SpecManager
from kvproof.fuzz.manager_report import manager_program
from kvproof.fuzz.manager_target import ManagerConfig, ManagerObservation
from kvproof.fuzz.replay import BadReplay, load, replay, save
from kvproof.fuzz.report import render
from kvproof.fuzz.run import Flags
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.target import NotExpressible, Observation, TargetBroken

ALL = Flags(policy=True, quality=True)


def fuzz(factory: Any, target: str = "own", **options: Any) -> Tally:
    """Fuzz a manager a little."""
    given = {"flags": ALL, "limits": Limits(examples=30), "seed": 1, **options}
    return run_campaign(factory, target, level="manager", **given)


class Enough(KeyboardInterrupt):
    """The failure that was looked for. Hypothesis lets it through."""


def stop(failure: Failure) -> None:
    """End a campaign with its first failure."""
    raise Enough


@cache
def found(name: str) -> Failure:
    """Return the first failure of a defect."""
    failures: list[Failure] = []

    def take(failure: Failure) -> None:
        failures.append(failure)
        raise Enough

    with contextlib.suppress(Enough):
        limits = Limits(examples=300)
        fuzz(load_manager_defect(name), f"defect:{name}", limits=limits, on_failure=take)
    return failures[0]


@pytest.mark.parametrize("seed", range(3))
def test_our_manager_does_what_the_specification_does(seed: int) -> None:
    session = fuzz(ImplManager, seed=seed, limits=Limits(examples=60))
    assert not session.failures
    assert session.runs == 60


@pytest.mark.parametrize("layout", MANAGER_LAYOUTS)
def test_the_specification_reads_and_writes_what_it_should(layout: str) -> None:
    session = fuzz(SpecManager, layouts=[MANAGER_LAYOUTS[layout]])
    assert not session.failures


def test_every_situation_comes_about() -> None:
    session = fuzz(ImplManager, limits=Limits(examples=150), seed=7)
    assert not session.never_taken()


class Shy(ImplManager):
    """A manager that shows its tables only."""

    def observe(self) -> ManagerObservation:
        """Show less."""
        return ManagerObservation(Observation(), super().observe().tables)


def test_what_is_not_shown_is_not_judged() -> None:
    assert not fuzz(Shy).failures


class Other(ImplManager):
    """A manager with a policy of its own: it forgets what it has cached now and then."""

    def __init__(self, config: ManagerConfig) -> None:
        super().__init__(config)
        self.count = 0

    def free(self, request: str) -> None:
        """Free, and evict something."""
        super().free(request)
        self.count += 1
        super().evict_blocks([1 + self.count % (len(self.manager.block_pool.ref_cnt) - 1)])


def test_another_policy_is_no_failure() -> None:
    session = fuzz(Other, flags=Flags(), limits=Limits(examples=60))
    assert not session.failures
    with pytest.raises(Enough):
        fuzz(Other, on_failure=stop)


class Ends(ImplManager):
    """A manager that raises when it is full."""

    def allocate_slots(self, *args: Any, **options: Any) -> Any:
        """Raise where None is due."""
        given = super().allocate_slots(*args, **options)
        if given is None:
            raise MemoryError("no slots")
        return given


def test_a_manager_that_raises_is_judged() -> None:
    names = {failure.property for failure in fuzz(Ends).failures.values()}
    assert names == {"prediction-exact"}


class NoHit(ImplManager):
    """A manager that answers nothing."""

    def get_computed_blocks(self, request: str) -> Any:
        """Return no hit at all."""


def test_an_answer_of_the_wrong_form_is_a_failure() -> None:
    names = {
        failure.property for failure in fuzz(NoHit, limits=Limits(examples=3)).failures.values()
    }
    assert names == {"legal-accepted"}


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (ManagerObservation(Observation(), {"a": [3]}), "tables must have"),  # type: ignore
        (ManagerObservation(Observation(free="abc")), "free must be"),  # type: ignore
        (ManagerObservation(Observation(ref_cnt=[1])), "ref_cnt must be"),
        (3, "must return a ManagerObservation"),
    ],
)
def test_an_observation_of_the_wrong_form_is_refused(shown: Any, says: str) -> None:
    class Odd(ImplManager):
        def observe(self) -> Any:
            return shown

    with pytest.raises(TargetBroken, match=says):
        fuzz(Odd)


class Plain(ImplManager):
    """A manager that hashes tokens only, and defers no frees."""

    pop_blocks_for_free = None  # type: ignore[assignment]

    def new_request(self, request: str, tokens: list[int], extra: Any) -> None:
        """Refuse what is not known."""
        if extra is not None:
            raise NotExpressible("tokens only")
        super().new_request(request, tokens, None)


def test_what_a_manager_lacks_does_not_happen() -> None:
    session = fuzz(Plain, limits=Limits(examples=40))
    assert not session.failures
    assert "deferred-free" not in session.never_taken()
    assert not session.operations["pop_blocks_for_free"]


def test_two_campaigns_are_equal() -> None:
    first, second = (fuzz(load_manager_defect("leaf-unlocked"), seed=3) for _ in range(2))
    assert list(first.failures) == list(second.failures)
    assert first.operations == second.operations
    assert [one.calls for one in first.failures.values()] == [
        one.calls for one in second.failures.values()
    ]


def test_a_known_signature_is_counted_only() -> None:
    name = found("leaf-unlocked").signature
    session = fuzz(load_manager_defect("leaf-unlocked"), known=[name])
    assert name not in session.failures
    assert session.known_seen[name]


def test_it_is_saved_and_replayed(tmp_path: Path) -> None:
    failure = found("promise-stays")
    again = load(save(failure, tmp_path))
    assert again == failure
    verdict = replay(again, load_manager_defect("promise-stays"))[1]
    assert verdict is not None
    assert verdict.finding == failure.finding
    assert replay(again, ImplManager)[1] is None


def test_the_report_has_a_program_that_runs(tmp_path: Path) -> None:
    failure = found("whole-prompt")
    text = render(failure)
    assert "hit-below-prompt is violated" in text
    done = subprocess.run(
        [sys.executable, "-c", manager_program(failure)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ManagerObservation(" in done.stdout


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("manager", "num_blocks"), 0, "num_blocks"),
        (("manager", "num_blocks"), True, "num_blocks"),
        (("manager", "groups"), [{"kind": "full"}], "groups must have exactly"),
        (("manager", "groups"), [{"kind": "huh", "block_size": 4, "reach": 0}], "kind"),
        (("manager", "watermark"), 1.5, "watermark"),
        (("manager", "retention_interval"), False, "retention_interval"),
        (("manager",), 3, "manager must be an object"),
        (("operations",), [{"op": "nonsense"}], "unknown operation"),
        (("operations",), [{"op": "free"}], "free takes the arguments"),
        (("operations",), [{"op": "free", "request": 3}], "request must be"),
        (("operations",), [{"op": "run_step", "sampled": {"a": [True]}}], "sampled must be"),
        (
            ("operations",),
            [{"op": "new_request", "request": "a", "tokens": [0], "extra": {"x": 1}}],
            "extra must be",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(
    tmp_path: Path, path: tuple[str, ...], value: Any, says: str
) -> None:
    file = save(found("whole-prompt"), tmp_path)
    saved = json.loads(file.read_text())
    inner = saved
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    file.write_text(json.dumps(saved))
    with pytest.raises(BadReplay, match=says):
        load(file)


def test_a_machine_for_ones_own_suite() -> None:
    good = type("Good", (ManagerMachine,), {"target": ImplManager, "examples": 10})
    good().test_manager()
    bad = type("Bad", (ManagerMachine,), {"target": "defect:leaf-unlocked", "examples": 25})
    with pytest.raises(AssertionError, match="refs-exact is violated"):
        bad().test_manager()


def test_calls_are_read_back_as_they_are_written() -> None:
    for call in found("leaf-unlocked").calls:
        assert manager_call_from_json(call.as_json()) == call
