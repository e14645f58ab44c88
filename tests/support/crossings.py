"""Which files of the package a request crosses.

A file counts once a function of it is called, on whatever thread: from the first bytes that a connection receives to
the system call that writes the batch, or to the answer of a read. Two files do not count, because no data passes
through them: errors.py, whose `invariant` only asserts, and ports/clock.py, which only tells the time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import mainstem

ANSWER = object()  # no function: record until the answer is there

_PACKAGE = str(Path(mainstem.__file__).parent) + os.sep
_NOT_COUNTED = frozenset((f"{_PACKAGE}errors.py", f"{_PACKAGE}ports{os.sep}clock.py"))
_RECEIVES = ("buffer_updated", "data_received")  # of a connection


class Crossed:
    """The package's files in which a function was called, each with the first one."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._until: object = None
        self._on = False

    def trace(self, frame: FrameType, event: str, called: object) -> None:
        if self._until is None:
            return
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(_PACKAGE) and path not in _NOT_COUNTED:
            self._on = self._on or frame.f_code.co_name in _RECEIVES
            if self._on:
                self.files.setdefault(path.removeprefix(_PACKAGE), frame.f_code.co_name)
        elif event == "c_call" and called is self._until:
            self._on, self._until = False, None

    @contextmanager
    def until(self, called: object) -> Iterator[None]:
        """Record from the first bytes that the door receives to a call of a built-in function."""
        self.files, self._until = {}, called
        yield
        self._on, self._until = False, None


@contextmanager
def tracing() -> Iterator[Crossed]:
    """Traces threads that start later: enter it before the broker opens."""
    found = Crossed()
    before = sys.getprofile()
    threading.setprofile(found.trace)
    sys.setprofile(found.trace)
    yield found
    sys.setprofile(before)
    threading.setprofile(None)


def fewest(found: list[dict[str, str]]) -> dict[str, str]:
    """Leaves out what the broker happens to do in its background meanwhile."""
    return min(found, key=len)
