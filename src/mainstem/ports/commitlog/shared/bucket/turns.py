"""Turns: the courtesy among writers of a bucket (courtesy.py), whose word stands under one key.

Writers look there while they put, and leave theirs beside what they do: neither costs them time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container

from mainstem.errors import MainstemError
from mainstem.ports.commitlog.shared.core.fairness import Courtesy
from mainstem.ports.objectstore.port import ObjectStore

_APPENDS_WATCHED = 4_096  # since another writer was seen; one that is alone need not look


class Turns:
    """One writer's part in it. `newest`: the ids of the last commits of the log, as far as they are known."""

    def __init__(self, store: ObjectStore, key: str, newest: Container[bytes]) -> None:
        self._store = store
        self._key = key
        self._courtesy = Courtesy(newest)
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
            self._telling = asyncio.ensure_future(self._tell(self._courtesy.word(commit)))

    def lets_pass(self, own: bytes) -> bool:
        """Whether to look at the log's tail once more before one's own commit goes there."""
        return self._courtesy.lets_pass(own)

    async def close(self) -> None:
        under_way = [task for task in (self._looking, self._telling) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _tell(self, word: bytes) -> None:
        with contextlib.suppress(MainstemError):  # a store in trouble has worse to tell
            await self._store.put(self._key, word)

    async def _look(self) -> None:
        with contextlib.suppress(MainstemError):  # most of the time nobody waits and nothing is there
            self._courtesy.heard(await self._store.get(self._key))
