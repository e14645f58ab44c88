"""A local commit log whose older objects are in an object store; cold.py describes them there.

What is written, replayed and recovered is always on this disk. An object may go cold once it is sealed, stored and
covered by every kept checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

from mainstem import limits
from mainstem.errors import invariant
from mainstem.ports.commitlog.local.cold import ColdObject, ColdObjects
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.local.segments import segment_path
from mainstem.ports.commitlog.port import LogObject, Piece
from mainstem.ports.files import Files, read_up_to
from mainstem.ports.objectstore.port import ObjectStore


class TieredCommitLog(LocalCommitLog):
    """Use `open_tiered`."""

    cold: ColdObjects

    @classmethod
    async def open_tiered(
        cls,
        directory: Path,
        reads: ObjectStore,
        *,
        files: Files | None = None,
        segment_bytes: int = limits.SEGMENT_BYTES,
        prepare_ahead: bool = True,
    ) -> Self:
        """As `open`. `reads`: the object store behind a cache."""
        log = await cls.open(directory, files=files, segment_bytes=segment_bytes, prepare_ahead=prepare_ahead)
        try:
            log.cold = await asyncio.to_thread(ColdObjects, log._files, directory, log._log, reads)
        except BaseException:
            await LocalCommitLog.close(log)
            raise
        return log

    def is_cold(self, object: int) -> bool:
        """Whether only the store has the object."""
        return object not in self._segments and object in self.cold

    def read(self, object: int, start: int, length: int) -> bytearray:
        """As a local log; also raises ObjectMissing or Unavailable for a cold object."""
        try:
            return super().read(object, start, length)
        except FileNotFoundError:
            return self.cold.read(object, start, length)

    def read_index(self, object: int) -> bytes:
        """As a local log; also raises ObjectMissing or Unavailable for a cold object."""
        return self.cold.index(object) if self.is_cold(object) else super().read_index(object)

    def url(self, object: int) -> str | None:
        """None for a cold object."""
        return None if self.is_cold(object) else super().url(object)

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """For a cold object."""
        return self.cold.pieces(object, ranges)

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Remove bytes of a cold object from the cache: the next read asks the store."""
        if self.is_cold(object):
            await self.cold.distrust(object, start, length)

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, here or in the store, by number."""
        here = super().objects()
        numbers = {one.number for one in here}
        cold = [one for one in self.cold.described() if one.number not in numbers]
        return sorted([*here, *cold], key=lambda one: one.number)

    def local_objects(self) -> list[LogObject]:
        """Those on this disk."""
        return super().objects()

    async def content(self, object: int) -> AsyncIterator[tuple[int, bytes]]:
        """A sealed file in the parts that go to the store: their numbers and bytes."""
        segment = self._segment(object)
        invariant(segment.sealed, "only a sealed object goes to the store")
        size = segment.size_bytes
        for part, start in enumerate(range(0, size, limits.STORE_OBJECT_BYTES_MAX)):
            length = min(limits.STORE_OBJECT_BYTES_MAX, size - start)
            yield part, await asyncio.to_thread(self._raw, object, start, length)

    def _raw(self, object: int, start: int, length: int) -> bytes:
        file = self._files.open(segment_path(self._wal, object))
        try:
            return bytes(read_up_to(file, start, length))
        finally:
            file.close()

    async def demote(self, object: int, token: bytes) -> None:
        """Make an object cold, which the store has under this token: write the note, then delete the file."""
        segment = self._segment(object)
        invariant(segment.sealed, "only a sealed object goes cold")
        index = await asyncio.to_thread(super().read_index, object)
        cold = ColdObject(object, segment.first, segment.end, segment.size_bytes, token)
        await self._chore_lane.run(lambda: self.cold.add(cold, index))
        await super().drop(object)

    async def drop(self, object: int) -> None:
        """As a local log. The tiering job deletes what the store has."""
        await super().drop(object)
        await self._chore_lane.run(lambda: self.cold.remove(object))

    def link_files(self, into: Path) -> list[tuple[Path, int]]:
        """As a local log, with the notes of cold objects."""
        linked = super().link_files(into)
        return linked + self._link(
            into, [(path.relative_to(self._directory), -1) for path in self.cold.note_paths()]
        )

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self.cold.close)
