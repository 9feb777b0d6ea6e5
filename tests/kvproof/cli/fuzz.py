"""`kvproof fuzz`: find out whether an implementation is right."""

import secrets
from time import monotonic
from typing import Any

import click

from kvproof.cli import interrupt
from kvproof.cli.abilities import Ability, ability_of
from kvproof.cli.errors import PipeClosed, Stop
from kvproof.cli.output import Progress, counted, say
from kvproof.cli.plan import SWITCHES, Plan, plan_from
from kvproof.cli.records import VERSION, Result, reason, recorded
from kvproof.cli.summary import Fuzzed, summarise
from kvproof.cli.target import find_target
from kvproof.fuzz.calls import Outcome
from kvproof.fuzz.campaign import run_campaign
from kvproof.fuzz.failure import Failure
from kvproof.fuzz.parallel import JobCrashed, JobFailed, blame_target, run_jobs
from kvproof.fuzz.replay import replay, save
from kvproof.fuzz.report import render
from kvproof.fuzz.tally import Tally
from kvproof.fuzz.targets import Target


@click.command()
@click.argument("target")
@click.option(
    "--level",
    type=click.Choice(["pool", "manager", "all"]),
    default="all",
    help="What is fuzzed: the block pool, the manager above it, or all that the target has.",
)
@click.option("--layout", "layouts", multiple=True, metavar="NAME", help="Only this layout.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME", help="Report only this property."
)
@click.option("--policy", is_flag=True, help="Judge vLLM's own choices too.")
@click.option("--quality", is_flag=True, help="Judge lost hits and capacity too.")
@click.option("--misuse", is_flag=True, help="Make calls that break a rule too.")
@click.option("--seconds", type=float, metavar="S", help="How long (60 when nothing is said).")
@click.option("--examples", type=click.IntRange(min=1), metavar="N", help="How many sequences.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Random when not given.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, metavar="N", help="Processes.")
@click.option("--known", metavar="FILE", help="Signatures that are not reported.")
@click.option("--expect", metavar="FILE", help="Signatures that must be seen, and no others.")
@click.option("--save", default=".kvproof", metavar="DIR", help="Where failures are saved.")
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON.")
def fuzz(target: str, json_file: str | None, **options: Any) -> int:
    """Find out whether an implementation is right.

    TARGET is impl, vllm, module:factory, exec:COMMAND or defect:NAME. Exit status 0 when every
    property that was judged holds, 1 when one is violated, 2 when there is no verdict.
    """
    seed = options["seed"] if options["seed"] is not None else secrets.randbelow(2**31)
    with recorded(json_file, Result("fuzz", target, seed)) as result:
        plan = plan_from(target, seed, options)
        return _Campaign(plan).run(result)


class _Leave(BaseException):
    """Ends a campaign from within: what is raised there as an Exception is the target's."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Campaign:
    """A run of the command: one campaign for each level."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.session: Tally | None = None
        self.level = ""
        self.found: dict[str, Failure] = {}
        self.began = monotonic()
        self.progress = Progress(self._line)

    def run(self, result: Result) -> int:
        targets = {level: find_target(self.plan.target, level) for level in self.plan.layouts}
        fuzzed: dict[str, Fuzzed] = {}
        try:
            for level, target in targets.items():
                fuzzed[level] = self._fuzz_level(level, target)
        except _Leave as leave:
            raise leave.error from None
        except JobFailed as error:
            raise Stop(str(error)) from None
        except JobCrashed as error:
            raise RuntimeError(f"in another process:\n{error}") from None
        except Exception as error:
            blamed = blame_target(error)
            if blamed is None:
                raise
            raise Stop(blamed) from None
        finally:
            for target in targets.values():
                target.close()
        return summarise(self.plan, fuzzed, self.found, result)

    def _fuzz_level(self, level: str, target: Target) -> Fuzzed:
        self.level, self.session = level, None
        ability = self._head(target)
        self.began = monotonic()
        with self.progress:
            session = self._fuzz(target)
            interrupt.check()
        return Fuzzed(session, ability, monotonic() - self.began)

    def _head(self, target: Target) -> Ability:
        """Say what begins. Return what the target does not have and does not show."""
        ability = ability_of(self.level, target)
        flags = self.plan.flags
        classes = ["safety", *(name for name in SWITCHES if getattr(flags, name))]
        say(f"kvproof {VERSION} fuzzes {target.name}: {target.about}")
        say(f"layouts {', '.join(one.name for one in self.plan.layouts[self.level])}")
        say(f"properties of class {', '.join(classes)}")
        if ability.lacks:
            say(f"the target does not have {', '.join(ability.lacks)}")
        if ability.hidden:
            say(f"the target does not show {', '.join(ability.hidden)}")
        say(f"seed {self.plan.seed}: repeat with --seed {self.plan.seed}")
        say()
        return ability

    def _fuzz(self, target: Target) -> Tally:
        plan = self.plan
        layouts = plan.layouts[self.level]
        if plan.jobs > 1:
            return run_jobs(
                plan.target,
                plan.flags,
                plan.limits,
                layouts,
                plan.known,
                plan.seed,
                plan.jobs,
                lambda failure: self._failure(failure, target),
                self._progress,
                self.level,
            )
        return run_campaign(
            target.factory,
            plan.target,
            plan.flags,
            plan.limits,
            layouts,
            plan.known,
            plan.seed,
            lambda failure: self._failure(failure, target),
            self._progress,
            self.level,
        )

    def _failure(self, failure: Failure, target: Target) -> None:
        plan = self.plan
        if plan.properties and failure.property not in plan.properties:
            return
        self.found[failure.signature] = failure
        try:
            failure.file = str(save(failure, plan.save))
        except OSError as error:
            raise _Leave(Stop(f"cannot write to {plan.save}: {reason(error)}")) from None
        try:
            with self.progress.paused():
                if plan.expected is not None and failure.signature in plan.expected:
                    say(f"as expected: {failure.signature}, saved to {failure.file}")
                    return
                _print_failure(failure, target, len(self.found), plan.command(failure.seed))
        except PipeClosed as error:
            raise _Leave(error) from None

    def _progress(self, session: Tally) -> None:
        self.session = session
        self.progress.tick()
        interrupt.check()

    def _line(self) -> str:
        seconds = monotonic() - self.began
        calls = 0 if self.session is None else sum(self.session.operations.values())
        limit = self.plan.limits.seconds
        of = "" if limit is None else f" of {limit:.0f}"
        return (
            f"{seconds:.0f}{of} s, {calls:,} operations, {calls / max(seconds, 0.001):,.0f} a"
            f" second, {counted(len(self.found), 'failure')}"
        )


def _print_failure(failure: Failure, target: Target, number: int, command: str) -> None:
    say(f"-- failure {number} " + "-" * 60)
    say(render(failure, _answers(failure, target), command).rstrip())
    if target.script is not None:
        say(f"for {target.name}'s engineers: kvproof replay {failure.file} --script")
    say()


def _answers(failure: Failure, target: Target) -> list[Outcome]:
    """Make the calls once more, to print what each returned; nothing when that fails."""
    try:
        verdicts, _ = replay(failure, target.factory)
    except Exception:  # the target's own
        return []
    return [verdict.answer for verdict in verdicts]
