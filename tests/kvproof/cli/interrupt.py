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

_seen = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Handle Control-C while the command runs. Processes that it has started are ended."""
    _seen.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
