"""The state machine: sequences of moves on a fresh pool, drawn by Hypothesis.

A rule is a move of `kvproof.fuzz.moves`, with the choices left to Hypothesis; `burst` makes
many moves with choices left to a generator that Hypothesis seeds. Nothing raises here: a
verdict that breaks a property goes to the session, and the run is over when nothing is left
to compare with.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvproof.fuzz.layouts import Layout
from kvproof.fuzz.moves import MOVES, Moves
from kvproof.fuzz.picks import HypothesisPick, RandomPick
from kvproof.fuzz.session import Session

SIZES = (*range(2, 13), *range(2, 13), 1)
"""Numbers of blocks; a pool of the null block alone has little to do."""


def possible(name: str) -> Callable[[Any], bool]:
    """Say whether the move is possible for a machine."""
    enabled = MOVES[name][1]
    return lambda machine: enabled(machine.moves)


class PoolRules(RuleBasedStateMachine):
    """A block pool under test. `session` gives the target and takes the verdicts."""

    session: ClassVar[Session]

    @initialize(
        data=st.data(),
        num_blocks=st.sampled_from(SIZES),
        drain=st.booleans(),
        careful=st.booleans(),
        silent=st.sampled_from([False] * 4 + [True]),
    )
    def start(
        self, data: st.DataObject, num_blocks: int, drain: bool, careful: bool, silent: bool
    ) -> None:
        """Build a fresh pool of one of the layouts; a silent one tells no events."""
        layout: Layout = data.draw(st.sampled_from(self.session.layouts))
        self.run_ = self.session.start(layout.config(num_blocks, not silent), layout, drain)
        self.moves = Moves(self.session, self.run_, layout, careful)

    @precondition(possible("get_new_blocks"))
    @rule(data=st.data())
    def get_new_blocks(self, data: st.DataObject) -> None:
        """Take blocks, more than there are now and then."""
        self.make("get_new_blocks", data)

    @precondition(possible("free_blocks"))
    @rule(data=st.data())
    def free_blocks(self, data: st.DataObject) -> None:
        """Release some references."""
        self.make("free_blocks", data)

    @precondition(possible("free_everything"))
    @rule(data=st.data())
    def free_everything(self, data: st.DataObject) -> None:
        """End all requests; then, perhaps, reset."""
        self.make("free_everything", data)

    @precondition(possible("touch"))
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        """Hold readable blocks once more."""
        self.make("touch", data)

    @precondition(possible("hit"))
    @rule(data=st.data())
    def hit(self, data: st.DataObject) -> None:
        """Look a prefix up, and hold what is found."""
        self.make("hit", data)

    @precondition(possible("cache_full_blocks"))
    @rule(data=st.data())
    def cache_full_blocks(self, data: st.DataObject) -> None:
        """Publish consecutive blocks of a request."""
        self.make("cache_full_blocks", data)

    @precondition(possible("cache_in_all_groups"))
    @rule(data=st.data())
    def cache_in_all_groups(self, data: st.DataObject) -> None:
        """Publish one prefix in every group."""
        self.make("cache_in_all_groups", data)

    @precondition(possible("cache_partial_block"))
    @rule(data=st.data())
    def cache_partial_block(self, data: st.DataObject) -> None:
        """Publish a block for a prefix that ends inside it."""
        self.make("cache_partial_block", data)

    @precondition(possible("promote"))
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        """Publish a block that has partial keys as a full one."""
        self.make("promote", data)

    @precondition(possible("cache_partial_again"))
    @rule(data=st.data())
    def cache_partial_again(self, data: st.DataObject) -> None:
        """Publish a block again for a prefix that it was published for before."""
        self.make("cache_partial_again", data)

    @precondition(possible("evict_blocks"))
    @rule(data=st.data())
    def evict_blocks(self, data: st.DataObject) -> None:
        """Take the keys from any blocks."""
        self.make("evict_blocks", data)

    @precondition(possible("admit"))
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        """Start a request with a table."""
        self.make("admit", data)

    @precondition(possible("fill"))
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        """Publish the next blocks of a table."""
        self.make("fill", data)

    @precondition(possible("finish"))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """Free a table from its last block to its first."""
        self.make("finish", data)

    @precondition(possible("ask"))
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """Ask for what any caller may ask for."""
        self.make("ask", data)

    @precondition(possible("reset_prefix_cache"))
    @rule(data=st.data())
    def reset_prefix_cache(self, data: st.DataObject) -> None:
        """Reset, also while blocks are in use."""
        self.make("reset_prefix_cache", data)

    @precondition(possible("misuse"))
    @rule(data=st.data())
    def misuse(self, data: st.DataObject) -> None:
        """Make a call that breaks a rule."""
        self.make("misuse", data)

    @precondition(lambda self: not self.run_.over)
    @rule(seed=st.binary(min_size=8, max_size=8), length=st.sampled_from((5, 20, 60, 180)))
    def burst(self, seed: bytes, length: int) -> None:
        """Make many moves, each drawn as often as it weighs."""
        pick = RandomPick(seed)
        for _ in range(length):
            possible = self.moves.possible()
            if not possible:
                return
            self.moves.make(pick.one(possible), pick)

    @precondition(lambda self: self.run_.over)
    @rule()
    def over(self) -> None:
        """Do nothing more."""

    def make(self, name: str, data: st.DataObject) -> None:
        """Make a move, with Hypothesis choosing."""
        self.moves.make(name, HypothesisPick(data))

    def teardown(self) -> None:
        """Take the remaining events, so that every sequence has its stream judged."""
        if hasattr(self, "moves"):
            self.moves.do("take_events")
