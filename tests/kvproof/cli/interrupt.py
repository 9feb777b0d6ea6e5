"""Control-C, so that it stops the command wherever it comes.

Python loses a KeyboardInterrupt that is raised in a callback or a finaliser. So it is
remembered here as well, and asked for between two pieces of work.
"""

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)

_seen = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Handle Control-C, and SIGTERM alike, while the command runs. Processes that it has started
    are ended.
    """
    _seen.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupted) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seen() -> bool:
    """Say whether the user has asked to stop."""
    return _seen.is_set()


def check() -> None:
    """Stop here when the user has asked to. Raises KeyboardInterrupt."""
    if seen():
        raise KeyboardInterrupt


def _interrupted(number: int, frame: FrameType | None) -> None:
    _seen.set()
    for process in multiprocessing.active_children():
        process.terminate()
    raise KeyboardInterrupt
