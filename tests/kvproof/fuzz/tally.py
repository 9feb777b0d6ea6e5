"""What a campaign has counted, and the distinct failures that it has found."""

from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic

from kvproof.fuzz.failure import Failure
from kvproof.fuzz.run import Flags


class Tally:
    """`known` are signatures (texts) that are not reported. `deadline` is a monotonic time after
    which no more sequences are begun, and `most_runs` a number of them.
    """

    def __init__(
        self,
        target: str,
        flags: Flags,
        known: Sequence[str] = (),
        seed: int = 0,
        deadline: float | None = None,
        on_failure: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        self.target, self.flags, self.seed, self.deadline = target, flags, seed, deadline
        self.known = set(known)
        self.on_failure = on_failure
        self.failures: dict[str, Failure] = {}
        self.known_seen: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.branches: Counter[tuple[str, str]] = Counter()
        self.misuses: Counter[str] = Counter()
        self.runs = 0
        self.most_runs: int | None = None
        self.runs_over = 0
        self.seconds_shrinking = 0.0

    @property
    def stopped(self) -> bool:
        """The time is up, or there were enough sequences."""
        if self.most_runs is not None and self.runs >= self.most_runs:
            return True
        return self.deadline is not None and monotonic() > self.deadline

    def begin_batch(self) -> None:
        """A batch of sequences begins. What is drawn in it must depend on choices only."""

    def never_taken(self) -> list[str]:
        """Return the operations and branches that no legal call has taken."""
        return []

    def report(self, failure: Failure) -> None:
        """Take a failure for a new one."""
        self.failures[failure.signature] = failure
        self.on_failure(failure)

    def count(self, name: str) -> None:
        """Count a failure that is known by its signature."""
        if name in self.failures:
            self.failures[name].seen += 1
        else:
            self.known_seen[name] += 1
