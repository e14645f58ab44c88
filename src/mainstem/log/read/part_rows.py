"""Rows of one part in offset order, merged from its files; damaged or missing files become losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.api.lake import DataFile, Part
from mainstem.errors import LogDamaged, NotFound, RecordsLost, invariant
from mainstem.records.parquet import RowFile

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = "missing"
DAMAGED = "damaged"

_UNREAD = ("_partition_id",)  # batches do not carry the partition

_NO_OFFSETS: npt.NDArray[np.int64] = np.empty(0, np.int64)

Open = Callable[[DataFile], RowFile]  # raises NotFound, LogDamaged


class Rows(NamedTuple):
    """The remaining rows of a part, from the end of the previous rows up to `reach`."""

    table: pa.Table | None
    reach: int


class _Source:
    """One open file, and the rows it yields next."""

    def __init__(self, file: DataFile, reading: RowFile, offset: int) -> None:
        self.file = file
        self.reading = reading
        at_a_time = max(1, limits.PART_CHUNK_BYTES // max(1, reading.row_bytes))
        self._batches: Iterator[pa.RecordBatch] = reading.rows(offset, unread=_UNREAD, at_a_time=at_a_time)
        self._rows: pa.RecordBatch | None = None  # read, not taken yet
        self._offsets: npt.NDArray[np.int64] = _NO_OFFSETS
        self._taken_to = 0

    def fill(self) -> bool:
        """Buffer rows. False if there are no more."""
        if not len(self._offsets):
            self._rows = next(self._batches, None)
            self._offsets = _NO_OFFSETS if self._rows is None else self._rows.column("_offset").to_numpy()
        return self._rows is not None

    @property
    def first(self) -> int:
        return int(self._offsets[0])

    @property
    def last(self) -> int:
        return int(self._offsets[-1])

    @property
    def done(self) -> bool:
        """Whether the last row of the file was taken."""
        return self._taken_to >= self.file.end

    def offsets_below(self, limit: int) -> npt.NDArray[np.int64]:
        return self._offsets[: int(self._offsets.searchsorted(limit))]

    def below(self, limit: int) -> pa.RecordBatch:
        """Take the buffered rows whose offsets are below `limit`."""
        rows = self._rows
        invariant(rows is not None, "rows are taken of a file that has some")
        cut = len(self.offsets_below(limit))
        self._taken_to = int(self._offsets[cut - 1]) + 1 if cut else self._taken_to
        self._rows, self._offsets = rows.slice(cut), self._offsets[cut:]  # type: ignore[union-attr]
        return rows.slice(0, cut)  # type: ignore[union-attr]


class _UnreadableFile(NamedTuple):
    """A file that cannot be read at the current offset."""

    file: DataFile
    resumes: int  # from this offset on it may be readable
    what: str


class PartRows:
    """Reads a part from an offset on. Blocks: use it in a thread, one read at a time."""

    def __init__(self, part: Part, offset: int, open_file: Open) -> None:
        self.part = part
        self.at = max(offset, part.base)
        self._open_file = open_file
        self._waiting = [file for file in part.files if file.end > self.at]
        self._waiting.sort(key=lambda file: file.base, reverse=True)  # the next one last
        self._sources: list[_Source] = []
        self._broken: list[_UnreadableFile] = []

    @property
    def held_bytes(self) -> int:
        """Approximate memory use: the compressed row group that each open file is in."""
        return sum(source.reading.group_bytes for source in self._sources)

    def next(self, stop: int) -> Rows:
        """The next rows below `stop`, or none. Raises RecordsLost where damage begins."""
        limit = min(self._gather(), stop)
        if self._broken:
            limit = self._up_to_damage(limit)
        taken = [source.below(limit) for source in self._sources if source.first < limit]
        self._close([source for source in self._sources if source.done])
        left = self._sources or self._waiting or self._broken
        self.at = limit if left else min(stop, self.part.end)
        return Rows(_merged(taken), self.at)

    def close(self) -> None:
        self._close(list(self._sources))

    def _gather(self) -> int:
        """Open the files that are due. Returns the offset up to which the buffered rows are complete."""
        self._retry_files()
        while True:
            for source in list(self._sources):
                self._attempt(source.file, source.fill, source)
            limit = min((source.last + 1 for source in self._sources), default=self.part.end)
            if not self._waiting or self._waiting[-1].base >= limit:
                return limit
            first = min((source.first for source in self._sources), default=self.part.end)
            # Buffered rows can be taken up to where the next file begins; a file that begins before them is opened.
            if self._waiting[-1].base > max(first, self.at):
                return self._waiting[-1].base
            self._open(self._waiting.pop())

    def _retry_files(self) -> None:
        """Try unreadable files again behind their damage."""
        passed = [one for one in self._broken if one.resumes <= self.at]
        self._broken = [one for one in self._broken if one.resumes > self.at]
        self._waiting += [one.file for one in passed if one.file.end > self.at]
        self._waiting.sort(key=lambda file: file.base, reverse=True)

    def _open(self, file: DataFile) -> None:
        def open_source() -> bool:
            reading = self._open_file(file)
            if len(reading) != file.records:
                reading.close()
                raise LogDamaged(f"{file.key} has {len(reading)} records, not {file.records}")
            self._sources.append(_Source(file, reading, self.at))
            return True

        self._attempt(file, open_source, None)

    def _attempt(self, file: DataFile, step: Callable[[], bool], source: _Source | None) -> None:
        try:
            more = step()
        except (LogDamaged, NotFound) as error:
            gone = isinstance(error, NotFound)
            resumes = file.end
            if source is not None and not gone:
                resumes = source.reading.next_group(self.at) or file.end
            self._broken.append(_UnreadableFile(file, resumes, MISSING if gone else DAMAGED))
            more = False
        if not more and source is not None:
            self._close([source])

    def _up_to_damage(self, limit: int) -> int:
        """Where to stop among the rows of intact files while others are unreadable. Raises RecordsLost."""
        damage = min(one.file.base for one in self._broken)
        limit = min(limit, *(one.resumes for one in self._broken))
        if self.at < damage:
            return min(limit, damage)
        # Any gap may have held a record of an unreadable file, so only rows with adjacent offsets count.
        offsets = np.concatenate([_NO_OFFSETS, *(one.offsets_below(limit) for one in self._sources)])
        offsets.sort()
        reach = self.at + int(np.count_nonzero(offsets == self.at + np.arange(len(offsets))))
        if reach == self.at:
            end = min(limit, int(offsets[0])) if len(offsets) else limit
            raise RecordsLost(
                self.at, end, next(one.what for one in self._broken if one.file.base <= self.at)
            )
        return reach

    def _close(self, sources: list[_Source]) -> None:
        for source in sources:
            self._sources.remove(source)
            source.reading.close()


def _merged(taken: list[pa.RecordBatch]) -> pa.Table | None:
    import pyarrow as pa

    if not taken:
        return None
    rows = pa.Table.from_batches(taken)
    return rows.sort_by("_offset") if len(taken) > 1 else rows
