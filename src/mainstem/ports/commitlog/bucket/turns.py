"""Turns: a writer that lost two races for its commit asks the others to let it pass, and they do.

Whoever has position N knows it first, and is the first to go for N + 1: a writer at full speed would leave the others
nothing but luck. So one that lost twice puts the id of its commit under one key. Writers look there while they put, and
one that finds another's id there puts nothing more until that commit is in the log, or a few looks at the tail
were in vain. It is courtesy, not a lock: whatever is lost of it costs time and nothing else.

Behind the id stands how often was asked (u2, big-endian): two others may each wait in vain because the other one
did not, and whoever is asked anew waits anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container

from mainstem.errors import MainstemError
from mainstem.ports.commitlog.bucket.keys import TOKEN_BYTES
from mainstem.ports.objectstore.port import ObjectStore

LOSSES_MAX = 2  # before a writer asks
_LOOKS_MAX = 8  # at the tail, for the commit of who asked: about so many round trips
_APPENDS_WATCHED = 4_096  # since another writer was seen; one that is alone need not look


class Turns:
    """One writer's part in it. `newest`: the ids of the last commits of the log, as far as they are known."""

    def __init__(self, store: ObjectStore, key: str, newest: Container[bytes]) -> None:
        self._store = store
        self._key = key
        self._newest = newest
        self._asking: bytes | None = None  # our own commit, if it was put there
        self._asked = 0  # how often
        self._waiting: bytes | None = None  # what another asked for, that we have not let pass yet
        self._passed: bytes | None = None  # the last one that we did
        self._looks = 0  # at the tail, while it waits
        self._watched = 0  # appends left before which others are asked after
        self._looking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None

    def others_seen(self) -> None:
        """Another writer's commit came by."""
        self._watched = _APPENDS_WATCHED

    def look(self) -> None:
        """Find out whether somebody waits, beside what the caller does."""
        if self._watched and (self._looking is None or self._looking.done()):
            self._watched -= 1
            self._looking = asyncio.ensure_future(self._look())

    def ask(self, commit: bytes) -> None:
        """Have the others wait for it, beside what the caller does; again, each time that it lost once more."""
        if self._telling is None or self._telling.done():
            self._asking = commit
            self._asked = (self._asked + 1) % (1 << 16)
            self._telling = asyncio.ensure_future(self._tell(commit + self._asked.to_bytes(2, "big")))

    def lets_pass(self, own: bytes) -> bool:
        """Whether to look at the log's tail once more before one's own commit goes there."""
        if self._waiting is None or self._asking == own:
            return False
        if self._waiting[:TOKEN_BYTES] in self._newest or self._looks == _LOOKS_MAX:
            self._passed, self._waiting = self._waiting, None
            return False
        self._looks += 1
        return True

    async def close(self) -> None:
        under_way = [task for task in (self._looking, self._telling) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _tell(self, asked: bytes) -> None:
        with contextlib.suppress(MainstemError):  # a store in trouble has worse to tell
            await self._store.put(self._key, asked)

    async def _look(self) -> None:
        with contextlib.suppress(MainstemError):  # most of the time nobody waits and nothing is there
            found = await self._store.get(self._key)
            if found[:TOKEN_BYTES] != self._asking and found not in (self._passed, self._waiting):
                self._waiting, self._looks = found, 0
