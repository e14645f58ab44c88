"""Leaving the process while the client of a bucket still has threads.

They hand each answer to the event loop, and when the last one is taken the program may end before the thread that
brought it is back out of Python. A thread that comes to an interpreter which is shutting down is ended by it there and
then, and that ends the process by SIGABRT, though all its work was done. So the exit waits for them, a moment at most.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time

from mainstem import limits

_PAUSE_S = 0.001


def wait_at_exit() -> None:
    """Have this process end only when no thread of the client is in Python any more."""
    atexit.register(_let_them_out)


def _let_them_out() -> None:
    until = time.monotonic() + limits.STORE_LEAVING_S
    time.sleep(_PAUSE_S)  # whoever waits to come in does so now
    while _inside() and time.monotonic() < until:
        time.sleep(_PAUSE_S)


def _inside() -> bool:
    """Whether a thread that Python did not start runs Python."""
    ours = {thread.ident for thread in threading.enumerate()}
    return bool(sys._current_frames().keys() - ours)
