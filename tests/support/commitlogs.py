"""A commit log whose appends and syncs wait until the test lets them go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from mainstem.ports.commitlog.port import (
    Buffer,
    Checkpoint,
    CommitLog,
    Committed,
    LogObject,
    Piece,
    Placement,
)
from tests.support.waiting import until


class GatedCommitLog:
    """Passes everything on to another commit log. Closed gates hold calls back; errors can be put in line."""

    def __init__(self, inner: CommitLog) -> None:
        self.inner = inner
        self.append_gate = asyncio.Event()
        self.sync_gate = asyncio.Event()
        self.append_gate.set()
        self.sync_gate.set()
        self.appends: list[int] = []  # slices of each commit that was asked for
        self.syncs = 0
        self.one_sync_at_a_time = False  # the gate closes behind each sync that waited at it
        self.reads: list[tuple[int, int, int]] = []  # (object, start, length)
        self.index_reads: list[int] = []
        self.append_errors: list[Exception] = []  # raised by the next appends, instead of writing
        self.sync_errors: list[Exception] = []
        self._running_syncs = 0
        self._kept_back: int | None = (
            None  # what the newest sync told, if it was held: the inner log has synced more
        )

    async def append(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        self.appends.append(len(slices))
        await self.append_gate.wait()
        if self.append_errors:
            raise self.append_errors.pop(0)
        return await self.inner.append(entry, slices, crc)

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        """Never in one go, or the gate of the syncs would be passed by."""
        return await self.append(entry, slices, crc), None

    def writes_now(self, size: int, *, may_block: bool = False) -> bool:
        return self.append_gate.is_set() and self.inner.writes_now(size, may_block=may_block)

    def append_now(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        self.appends.append(len(slices))
        if self.append_errors:
            raise self.append_errors.pop(0)
        return self.inner.append_now(entry, slices, crc)

    def syncs_now(self) -> bool:
        return False  # or the gate of the syncs would be passed by

    def sync_now(self, position: int) -> float | None:
        return self.inner.sync_now(position)

    def sync_soon(self, ended: Callable[[int, Exception | None], None]) -> bool:
        return False  # as above

    async def hold_syncs(self) -> None:
        """Close the gate and let the syncs that passed it before come to their end."""
        self.sync_gate.clear()
        await until(lambda: not self._running_syncs)

    async def sync(self) -> int:
        self.syncs += 1
        if self.sync_errors:
            raise self.sync_errors.pop(0)
        if self.sync_gate.is_set():
            self._running_syncs += 1
            try:
                self._kept_back = None
                return await self.inner.sync()
            finally:
                self._running_syncs -= 1
        # What is written while the gate is closed is not covered by this sync.
        covered = self._kept_back = self.inner.end
        await self.sync_gate.wait()
        if self.one_sync_at_a_time:
            self.sync_gate.clear()
        await self.inner.sync()
        return covered

    @property
    def identity(self) -> bytes:
        return self.inner.identity

    @property
    def end(self) -> int:
        return self.inner.end

    @property
    def synced(self) -> int:
        return self.inner.synced if self._kept_back is None else min(self.inner.synced, self._kept_back)

    @property
    def suspect(self) -> bool:
        return self.inner.suspect

    async def clear_suspicion(self) -> None:
        await self.inner.clear_suspicion()

    def follow(self, position: int) -> AsyncIterator[list[Committed]]:
        return self.inner.follow(position)

    def read(self, object: int, start: int, length: int) -> bytearray:
        self.reads.append((object, start, length))
        return self.inner.read(object, start, length)

    async def roll(self) -> None:
        await self.inner.roll()

    async def seal(self, object: int, index: bytes) -> None:
        await self.inner.seal(object, index)

    def read_index(self, object: int) -> bytes:
        self.index_reads.append(object)
        return self.inner.read_index(object)

    def url(self, object: int) -> str | None:
        return self.inner.url(object)

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        return await self.inner.pieces(object, ranges)

    async def distrust(self, object: int, start: int, length: int) -> None:
        await self.inner.distrust(object, start, length)

    def objects(self) -> list[LogObject]:
        return self.inner.objects()

    async def drop(self, object: int) -> None:
        await self.inner.drop(object)

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        await self.inner.save_checkpoint(checkpoint)

    def load_checkpoint(self) -> Checkpoint | None:
        return self.inner.load_checkpoint()

    async def close(self) -> None:
        await self.inner.close()
