"""Ghost contents: what is written and read in blocks, seen without a device."""

from kvproof.fuzz.chains import Chains
from kvproof.fuzz.contents import Contents, Wrong
from kvproof.fuzz.manager_target import GroupConfig, ManagerConfig
from kvproof.fuzz.view import WireKey
from kvproof.fuzz.world import Work

NO_KEYS: list[list[WireKey]] = [[] for _ in range(8)]


class Ghosts:
    """Contents of one group, with the requests' own prefixes at hand."""

    def __init__(self, kind: str = "full", reach: int = 0) -> None:
        config = ManagerConfig(8, (GroupConfig(kind, 2, reach),))
        self.chains = Chains()
        self.contents = Contents(config, self.chains)

    def compute(
        self,
        tokens: tuple[int, ...],
        table: list[int],
        start: int = 0,
        others: dict[str, tuple[tuple[int, ...], list[int]]] | None = None,
        keys: list[list[WireKey]] | None = None,
    ) -> Wrong | None:
        """Compute the tokens from `start` on; `others` hold tables of their own."""
        own = self.chains.of(tokens)
        work = Work("a", start, own[start:], range(start, len(own)), own)
        held = others or {}
        tables = {"a": [table], **{name: [row] for name, (_, row) in held.items()}}
        expects = {"a": own, **{name: self.chains.of(known) for name, (known, _) in held.items()}}
        return self.contents.run([work], tables, NO_KEYS if keys is None else keys, expects)


def broken(wrong: Wrong | None) -> str:
    """Return the property that was broken."""
    assert wrong is not None
    return wrong.property


def test_a_prefix_computed_in_parts_is_read_back() -> None:
    ghosts = Ghosts()
    assert ghosts.compute((0, 1, 0), [1, 2]) is None
    assert ghosts.compute((0, 1, 0, 1, 1), [1, 2, 3], start=3) is None


def test_what_was_never_written_is_not_read() -> None:
    wrong = Ghosts().compute((0, 1, 0, 1), [1, 2], start=2)
    assert broken(wrong) == "reads-own-prefix"
    assert wrong is not None
    assert wrong.actual == "never written, never written"


def test_another_prefix_is_told_from_ones_own() -> None:
    ghosts = Ghosts()
    assert ghosts.compute((0, 1), [1]) is None
    wrong = ghosts.compute((1, 1, 0), [1, 2], start=2)
    assert broken(wrong) == "reads-own-prefix"
    assert wrong is not None
    assert wrong.actual == "0, 0.1"


def test_a_window_reads_no_further_back() -> None:
    ghosts = Ghosts("sliding-window", 3)
    assert ghosts.compute((0, 0, 0, 0), [1, 2]) is None
    assert ghosts.compute((0, 0, 0, 0, 1), [0, 2, 3], start=4) is None
    wrong = ghosts.compute((0, 0, 0, 0, 1, 1), [0, 0, 3], start=5)
    assert broken(wrong) == "window-kept"


def test_a_chunk_reads_from_its_own_beginning() -> None:
    ghosts = Ghosts("chunked-local", 4)
    assert ghosts.compute((0, 0, 0, 0, 1), [0, 0, 3], start=4) is None
    wrong = Ghosts("chunked-local", 4).compute((0, 0, 0, 1), [0, 2], start=3)
    assert broken(wrong) == "window-kept"


def test_a_token_is_not_written_to_the_null_block() -> None:
    assert broken(Ghosts().compute((0, 1, 0), [1, 0])) == "window-kept"
    assert broken(Ghosts().compute((0, 1, 0), [1])) == "writes-exclusive"


def test_a_shared_block_is_written_with_the_same_only() -> None:
    same: dict[str, tuple[tuple[int, ...], list[int]]] = {"b": ((0, 1, 1), [1, 3])}
    assert Ghosts().compute((0, 1), [1], others=same) is None
    assert broken(Ghosts().compute((1, 1), [1], others=same)) == "writes-exclusive"


def test_a_slot_that_nobody_has_computed_yet_may_be_written() -> None:
    assert Ghosts().compute((1,), [1], others={"b": ((), [1])}) is None


def test_a_keyed_block_is_written_with_what_it_is_keyed_for() -> None:
    keys: list[list[WireKey]] = [[], [], [("0.1.1.1", 0)], *NO_KEYS[3:]]
    ghosts = Ghosts()
    assert ghosts.compute((0, 1, 1, 1), [1, 2], keys=keys) is None
    assert broken(ghosts.compute((0, 1, 1, 0), [1, 2], keys=keys)) == "writes-exclusive"


def test_poison_is_like_nothing_else() -> None:
    chains = Chains()
    assert chains.poison() != chains.poison()
    assert chains.of((0, 1)) == chains.of_key("0.1")
    assert chains.shown(chains.of((0, 1))[-1]) == "0.1"
