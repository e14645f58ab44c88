"""Look-ups in the index, which load the indexes that are not in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mainstem.errors import LogDamaged
from mainstem.ledger.repacked_objects import FIRST_NUMBER
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.read.extents import Extent, SealedExtents
from mainstem.log.read.index import ExtentIndex, NotLoaded, Unreadable
from mainstem.log.read.object_reads import ObjectReads
from mainstem.ports.commitlog.port import CommitLog

_T = TypeVar("_T")


class ObjectGone(FileNotFoundError):
    """The file of an object is gone, although the index has the object."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the file of object {number} is gone")
        self.number = number


class IndexLookups:
    def __init__(
        self, index: ExtentIndex, port: CommitLog, repacked: RepackedFiles, object_reads: ObjectReads
    ) -> None:
        self._index = index
        self._port = port
        self._repacked = repacked
        self._object_reads = object_reads

    async def find(self, stream: int, offset: int, max_bytes: int, end: int) -> list[Extent]:
        """As `ExtentIndex.find`, but loads missing indexes."""
        return await self.resolve(lambda: self._index.find(stream, offset, max_bytes, end))

    async def resolve(self, look_up: Callable[[], _T]) -> _T:
        """Run a look-up; load missing indexes off the loop. Raises Unreadable."""
        while True:
            try:
                return look_up()
            except (NotLoaded, Unreadable) as miss:
                number, before = miss.number, miss
            try:
                extents = await self._read_index(number)
            except (FileNotFoundError, LogDamaged) as error:
                gone = isinstance(error, FileNotFoundError)
                if gone and not self._index.holds(number):
                    continue  # dropped meanwhile: the look-up finds another object now
                if number < FIRST_NUMBER:
                    raise (ObjectGone(number) if gone else error) from error
                if isinstance(before, Unreadable):
                    raise before from None
                self._index.cannot_load(number, gone=gone)
                continue
            if self._index.holds(number):
                self._index.load(extents)

    async def _read_index(self, number: int) -> SealedExtents:
        if number >= FIRST_NUMBER:
            return await self._repacked.read_index(number)
        data = await self._object_reads.run(number, self._port.read_index, number)
        return SealedExtents.decode(number, data)
