"""Concrete containers that refuse what their protocol forbids, for replaying.

The ordinary ones are fast and trust their caller. On a replay, taking a block from an empty
queue or queueing it twice has to show.
"""

from typing import Any

from kvproof.proofs.specification import Specification


class ContainerMisuse(Exception):
    """A transition asked of a container what its protocol forbids."""


def make_strict(specification: Specification, state: Any) -> Any:
    """Replace the queue and the index of a concrete state by strict ones. Returns the state."""
    concrete = specification.concrete

    class StrictQueue(concrete.ConcreteQueue):  # type: ignore[name-defined,misc]
        def popleft(self) -> Any:
            _demand(self.nonempty(), "a block is taken from a queue that has one")
            return super().popleft()

        def prepend(self, block: Any) -> None:
            _demand(not self.has(block), "a block that is queued is not queued yet")
            super().prepend(block)

        def append(self, block: Any) -> None:
            _demand(not self.has(block), "a block that is queued is not queued yet")
            super().append(block)

        def remove(self, block: Any) -> None:
            _demand(self.has(block), "a block that leaves the queue is queued")
            super().remove(block)

    class StrictIndex(concrete.ConcreteIndex):  # type: ignore[name-defined,misc]
        def get_one_block(self, key: Any) -> Any:
            _demand(self.lists(key), "the first block of a list that has one")
            return super().get_one_block(key)

        def insert(self, key: Any, block: Any) -> None:
            _demand(not self.contain(key, block), "a block is listed under a key once")
            super().insert(key, block)

    queue = StrictQueue(state.free_queue.as_list())
    index = StrictIndex()
    index.lists_of = state.cached.lists_of
    state.free_queue, state.cached = queue, index
    return state


def _demand(condition: bool, says: str) -> None:
    if not condition:
        raise ContainerMisuse(says)
