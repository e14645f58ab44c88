"""Read a local log: follow commits, read payloads and indexes. For the owner and for readers beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from mainstem import limits
from mainstem.errors import DirectoryUnusable, LogDamaged
from mainstem.ports.commitlog.local import identity, segments
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import CHECKPOINTS, FORMAT, WAL
from mainstem.ports.commitlog.local.open_files import OpenFiles
from mainstem.ports.commitlog.local.segment_cursor import SegmentCursor
from mainstem.ports.commitlog.local.segments import HEADER_BYTES, Segment
from mainstem.ports.commitlog.port import Checkpoint, Committed, LogObject
from mainstem.ports.files import Files, OsFiles, read_up_to


class LogReader:
    """The known segments of a log. Never writes to them."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        log: LogId,
        found: dict[int, Segment],
        checkpoints: LocalCheckpoints,
    ) -> None:
        self._directory = directory
        self._log = log
        self._segments = found
        self._open = OpenFiles(files, directory / WAL)
        self._checkpoints = checkpoints

    @property
    def end(self) -> int:
        """One past the last readable commit."""
        return max((segment.end for segment in self._segments.values()), default=0)

    async def follow(self, position: int) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks, up to the tail. Raises LogDamaged."""
        while (segment := self._segment_of(position)) is not None:
            end = segment.end
            with self._open.reading(segment.number) as file:
                walk = SegmentCursor(
                    file,
                    segment.number,
                    self._log.low,
                    at=HEADER_BYTES,
                    position=segment.first,
                    limit=segment.data_end,
                )
                while walk.position < end:
                    chunk = await asyncio.to_thread(self._chunk, segment, walk, position, end)
                    if chunk:
                        position = chunk[-1].placement.position + 1
                        yield chunk

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes in a new, writable buffer. Raises FileNotFoundError if the object was dropped."""
        with self._open.reading(object) as file:
            found = read_up_to(file, start, length)
        if len(found) != length:
            raise LogDamaged(
                f"{self._path(object)} ends before byte {start + length}: restore it from a backup"
            )
        return found

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object, from either copy. Raises LogDamaged."""
        with self._open.reading(object) as file:
            footer = segments.read_footer(file, self._log, object)
            for at in (footer.index_a, footer.index_b) if footer else ():
                found = segments.read_index_at(file, at, self._log, object)
                if found is not None:
                    return found[0]
        raise LogDamaged(
            f"both copies of the index in {self._path(object)} are damaged: "
            f"run `mainstem check --data-dir {self._directory}`, and restore the file from a backup"
        )

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, by number."""
        known = sorted(self._segments.copy().items())
        return [segment.described() for _, segment in known if segment.end > segment.first]

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest intact checkpoint."""
        return self._checkpoints.load()

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint durably and delete all but the newest few."""
        await asyncio.to_thread(self._checkpoints.save, checkpoint)

    async def close(self) -> None:
        self.close_files()

    def close_files(self) -> None:
        self._open.close()

    def forget(self, number: int) -> None:
        """The segment is dropped: accept no more readers."""
        self._segments.pop(number, None)
        self._open.forget(number)

    def _segment_of(self, position: int) -> Segment | None:
        """The segment that holds `position`; None at the tail. Raises LogDamaged if it is missing."""
        later = [segment for segment in self._segments.copy().values() if segment.end > position]
        if not later:
            return None
        segment = min(later, key=lambda candidate: candidate.number)
        if segment.first > position:
            raise LogDamaged(
                f"{self._directory / WAL} lacks the file with positions {position} to {segment.first - 1}: "
                "restore it from a backup"
            )
        return segment

    def _chunk(self, segment: Segment, walk: SegmentCursor, position: int, end: int) -> list[Committed]:
        """The next commits at or past `position`. Empty while the cursor is still below it."""
        found = walk.run(position if walk.position < position else end)
        if not found:
            seen = walk.examine()
            if seen is None:
                raise LogDamaged(
                    f"{self._path(segment.number)} is damaged from byte {walk.at} on in both copies of "
                    f"position {walk.position}: run `mainstem check --data-dir {self._directory}`, "
                    "and restore the file from a backup"
                )
            walk.step(seen[0])
            found = [seen[1]]
        return found if found[0].placement.position >= position else []

    def _path(self, number: int) -> Path:
        return segments.segment_path(self._directory / WAL, number)


def open_reader(directory: Path, *, files: Files | None = None) -> LogReader:
    """Read a log without its lock, while its owner runs: sealed segments only, which never change.

    `follow` ends at the first segment that is not sealed."""
    files = files or OsFiles()
    log = identity.read_format(files, directory)
    if log is None:
        raise DirectoryUnusable(f"{directory} does not hold a log: its {FORMAT} file is missing or damaged")
    found: dict[int, Segment] = {}
    for name in files.listdir(directory / WAL):
        number = segments.number_of(name)
        if number is None:
            continue
        segment = _sealed(files, directory / WAL, log, number)
        if segment is None:
            break
        found[number] = segment
    checkpoints = LocalCheckpoints(files, directory / CHECKPOINTS, limits.CHECKPOINTS_KEPT)
    return LogReader(files, directory, log, found, checkpoints)


def _sealed(files: Files, wal: Path, log: LogId, number: int) -> Segment | None:
    try:
        file = files.open(segments.segment_path(wal, number))
    except FileNotFoundError:  # dropped since it was listed
        return None
    try:
        footer = segments.read_footer(file, log, number)
        if footer is None:
            return None
        return Segment(number, footer.first, footer.end, footer.index_a, sealed=True, size_bytes=file.size())
    finally:
        file.close()
