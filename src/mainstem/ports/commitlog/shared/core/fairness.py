"""Fairness among the writers of one log: a writer that loses two races asks the others to wait, and they do.

The writer that takes position N is the first to know it, and so the first to try N + 1. A writer at full speed would
leave the others to luck. So a writer that has lost twice publishes its commit's id under one key. A writer that finds
another's request there stops until that commit is in the log, or until it has looked at the tail a few times in vain.
This is not a lock: a request that gets lost costs time and nothing else.

A request is the commit's id, then a counter (u2, big-endian). Two writers may each wait in vain because the other did
not; a request with a new count makes them wait again.
"""

from __future__ import annotations

from collections.abc import Container

_LOSSES_MAX = 2  # before a writer asks
_LOOKS_MAX = 8  # at the tail, for the commit of the writer that asked: about as many round trips
_COUNT_BYTES = 2


class Fairness:
    """One writer's part. `newest`: ids of the last commits of the log, as far as they are known."""

    def __init__(self, newest: Container[bytes]) -> None:
        self._newest = newest
        self._losses = 0  # races lost in a row
        self._own: bytes | None = None  # the commit that we asked the others to wait for
        self._requests = 0
        self._waiting: bytes | None = None  # another writer's request that we have yet to honour
        self._honoured: bytes | None = None  # the last one that we did honour
        self._looks = 0  # at the tail, for the one that waits

    def won(self) -> None:
        self._losses = 0

    def lost(self) -> None:
        self._losses += 1

    def request(self, commit: bytes) -> bytes | None:
        """What to publish so that the others wait for the commit; None while it has not lost often enough."""
        if self._losses < _LOSSES_MAX:
            return None
        self._own = commit
        self._requests = (self._requests + 1) % (1 << 8 * _COUNT_BYTES)
        return commit + self._requests.to_bytes(_COUNT_BYTES, "big")

    def heard(self, request: bytes) -> None:
        """The newest published request, from any writer, of any age."""
        if request[:-_COUNT_BYTES] != self._own and request not in (self._honoured, self._waiting):
            self._waiting, self._looks = request, 0

    def must_wait(self, own: bytes) -> bool:
        """Whether to look at the tail once more before writing one's own commit."""
        if self._waiting is None or self._own == own:
            return False
        if self._waiting[:-_COUNT_BYTES] in self._newest or self._looks == _LOOKS_MAX:
            self._honoured, self._waiting = self._waiting, None
            return False
        self._looks += 1
        return True
