"""What is known of each request of a run, and of the steps that compute it.

Counts are kept as vLLM's scheduler keeps them: a token counts as computed when it is scheduled,
and a draft when it is in a step, until it is rejected.
"""

from dataclasses import dataclass, field
from typing import Any

from kvproof.fuzz.manager_target import ManagerConfig


@dataclass(slots=True, eq=False)
class Entry:
    """A request's part of one step: it computes the tokens from `start` to `end`, the last
    `drafts` of them guessed. `before` is what was computed when it was scheduled, `order` counts
    the calls, and `loads` are external tokens that arrive before the step runs.
    """

    life: "Life"
    before: int
    start: int
    end: int
    drafts: int
    order: int
    loads: range | None = None
    loaded: bool = False
    failed_from: int | None = None
    sampled: list[int] = field(default_factory=list)
    rejected: int = 0
    stale: bool = False

    @property
    def samples(self) -> bool:
        """It reaches the last token that is expected, so the next one is sampled."""
        return self.end - self.drafts == self.life.expected


@dataclass(slots=True, eq=False)
class Step:
    """A step in flight. `freed`: blocks that it may still write have been freed."""

    entries: list[Entry]
    freed: bool = False


@dataclass(slots=True, eq=False)
class Popped:
    """Blocks that a request gave up, and the steps that may still write to them."""

    blocks: list[int]
    steps: list[Step]


@dataclass(slots=True, eq=False)
class Life:
    """A request. `tokens` are known; `true` has what was sampled in steps in flight, too.

    `num_computed` counts drafts in flight as accepted. `loading` are external tokens on their
    way. `due` was sampled, and is to be appended. `fallen`: a load has failed, and
    `unschedule` is due. `forgotten` is the least position from which tokens can still be
    computed when blocks that nobody reads are given back; `loaded` is up to
    where another store has brought what it has.
    """

    name: str
    tokens: list[int]
    extra: dict[str, Any] | None
    true: list[int]
    num_computed: int = 0
    admitted: bool = False
    running: bool = False
    loading: range | None = None
    due: list[int] = field(default_factory=list)
    fallen: bool = False
    unscheduled: bool = False
    failed_at: int | None = None
    forgotten: int = 0
    loaded: int = 0
    in_step: Entry | None = None
    flights: list[Entry] = field(default_factory=list)

    @property
    def num_unsettled(self) -> int:
        """Drafts in flight, which may be rejected."""
        return sum(entry.drafts for entry in self.flights)

    @property
    def num_in_flight(self) -> int:
        """Steps in flight that compute it."""
        return len(self.flights)

    @property
    def expected(self) -> int:
        """How many tokens it has when all drafts in flight are accepted."""
        coming = sum(entry.drafts + 1 for entry in self.flights if entry.sampled)
        return len(self.tokens) + len(self.due) + coming

    @property
    def rejected(self) -> int:
        """Drafts that were rejected in steps in flight: the worker knows it, nobody else does."""
        return sum(entry.rejected for entry in self.flights)

    @property
    def scheduled(self) -> bool:
        """It is in the step that is being put together."""
        return self.in_step is not None

    @property
    def must_load(self) -> range | None:
        """External tokens that must arrive before the step runs."""
        entry = self.in_step
        return None if entry is None or entry.loaded else entry.loads

    @property
    def settled(self) -> int:
        """Tokens that are computed, or will be, whatever is rejected."""
        return self.num_computed - self.num_unsettled

    @property
    def arrived(self) -> int:
        """Known tokens that are in the cache, or will be when the steps in flight have run."""
        return max(self.loaded, min(self.settled, len(self.tokens)))

    def leave(self) -> None:
        """It has no blocks any more, and starts anew when it comes back."""
        for entry in self.flights:
            entry.stale = True
        self.true = [*self.tokens]
        self.num_computed, self.forgotten, self.loaded = 0, 0, 0
        self.admitted = self.running = self.fallen = self.unscheduled = False
        self.failed_at, self.loading = None, None
        self.due, self.flights = [], []

    def fall(self, failed_from: int) -> None:
        """A load has failed, and its step has come back: what was computed since is void."""
        for entry in self.flights:
            entry.stale = True
        self.true, self.flights, self.due = [*self.tokens], [], []
        self.num_computed, self.fallen = failed_from, True


@dataclass
class WorldState:
    """Requests and steps. `lives` has every request that ever arrived; `pending` is the step that
    is being put together, `steps` are in flight, oldest first; `hit` waits for its slots: its
    request and its tokens. `order` counts the calls, and `last_hit` is that of the last hit.
    """

    config: ManagerConfig
    lives: dict[str, Life] = field(default_factory=dict)
    pending: list[Entry] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    popped: list[Popped] = field(default_factory=list)
    hit: tuple[str, int] | None = None
    order: int = 0
    last_hit: int = 0

    @property
    def steps_in_flight(self) -> int:
        """How many steps run and have not come back."""
        return len(self.steps)
