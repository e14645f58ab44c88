"""Courtesy among writers of one log: who lost two races for a commit asks the others to let it pass, and they do.

Whoever has position N knows it first, and is the first to go for N + 1: a writer at full speed would leave the others
nothing but luck. So one that lost twice leaves word of its commit under one key. Whoever finds another's word there
puts nothing more until that commit is in the log, or a few looks at the tail were in vain. It is no lock: whatever is
lost of it costs time and nothing else.

A word is the commit's id and behind it how often was asked (u2, big-endian): two others may each wait in vain because
the other one did not, and whoever is asked anew waits anew.
"""

from __future__ import annotations

from collections.abc import Container

LOSSES_MAX = 2  # before a writer asks
_LOOKS_MAX = 8  # at the tail, for the commit of who asked: about so many round trips
_COUNT_BYTES = 2


class Courtesy:
    """One writer's part in it. `newest`: the ids of the last commits of the log, as far as they are known."""

    def __init__(self, newest: Container[bytes]) -> None:
        self._newest = newest
        self._asking: bytes | None = None  # our own commit, if word of it was left
        self._asked = 0  # how often
        self._waiting: bytes | None = None  # what another asked for, that we have not let pass yet
        self._passed: bytes | None = None  # the last one that we did
        self._looks = 0  # at the tail, while it waits

    def word(self, commit: bytes) -> bytes:
        """To have the others wait for it; another one each time that it lost once more."""
        self._asking = commit
        self._asked = (self._asked + 1) % (1 << 8 * _COUNT_BYTES)
        return commit + self._asked.to_bytes(_COUNT_BYTES, "big")

    def heard(self, word: bytes) -> None:
        """That is what was left last, by whomever and whenever."""
        if word[:-_COUNT_BYTES] != self._asking and word not in (self._passed, self._waiting):
            self._waiting, self._looks = word, 0

    def lets_pass(self, own: bytes) -> bool:
        """Whether to look at the log's tail once more before one's own commit goes there."""
        if self._waiting is None or self._asking == own:
            return False
        if self._waiting[:-_COUNT_BYTES] in self._newest or self._looks == _LOOKS_MAX:
            self._passed, self._waiting = self._waiting, None
            return False
        self._looks += 1
        return True
