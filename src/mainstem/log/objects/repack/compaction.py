"""Compaction: rewrites repacked files without records that have a newer one with the same key.

A compaction takes some streams at once, in two passes. The first reads what was never compacted, and enters each key
into an index of bounded size. The second reads all that repacked files hold of the streams, round by round, oldest
first, and writes files without the superseded records; files of a round without any stay. Each round is published on
its own: whenever a record is removed, the newer one is in the log, and a tombstone goes only after every older record
of its key. A crash in between leaves rounds of both kinds, and the next compaction does the rest.

Damaged slices, and those that cannot be decoded, are copied as they are: they remove nothing, and keep their records.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mainstem import events
from mainstem.errors import MainstemError, StalePlan
from mainstem.ledger.compactions import CompactedStream, FinishCompaction
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import PublishRepack, RepackedFile, RepackRound
from mainstem.log.host import LogHost
from mainstem.log.objects.repack import layout
from mainstem.log.objects.repack.compaction_plan import CompactionPlanner
from mainstem.log.objects.repack.copying import (
    REPACKED_FILE_EXTENTS_MAX,
    CopiedFile,
)
from mainstem.log.objects.repack.layout import Origin
from mainstem.log.objects.repack.liveness import Liveness, liveness
from mainstem.log.objects.repack.plan import StreamEnds
from mainstem.log.objects.repack.rewriting import (
    SliceBlock,
    SlicePiece,
    decoded,
    extents,
    in_order,
    raw_piece,
    read_blocks,
    rows_to_compact,
)
from mainstem.log.objects.repack.shrinking import ShrunkObjects, shrink
from mainstem.log.read.extents import EXTENT, Rows, SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.metrics import Metric
from mainstem.metrics import one as metric
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.port import Buffer
from mainstem.records.compacting import (
    KEY_INDEX_BYTES,
    KeyIndex,
    StreamCompaction,
)

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SHRINK_AGAIN_ROUNDS = 16  # a stream with many keys may have fewer by then

_log = events.named("compaction")


class RepackIO(Protocol):
    """Reads and stores repacked files, at the rate of repacking."""

    async def read(self, number: int, start: int, length: int, again: bool) -> Buffer: ...

    async def read_index(self, number: int) -> SealedExtents: ...

    async def store_file(self, first: int, end: int, copied: CopiedFile) -> RepackedFile: ...

    async def drop_files(self, files: Sequence[RepackedFile]) -> None: ...


@dataclass(slots=True)
class CompactionCounts:
    """Totals of this process."""

    compactions: int = 0
    read_records: int = 0
    removed_records: int = 0
    removed_bytes: int = 0


@dataclass(slots=True)
class _RewrittenFile:
    pieces: list[SlicePiece] = field(default_factory=list)  # of the streams that are compacted
    removed: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # stream → base, end, live records
    changed: bool = False


class Compactor:
    def __init__(
        self,
        host: LogHost,
        ledger: Ledger,
        index: ExtentIndex,
        io: RepackIO,
        clock: Clock,
        *,
        log: int,
        file_bytes: int,
        key_index_bytes: int = KEY_INDEX_BYTES,
    ) -> None:
        self._host = host
        self._ledger = ledger
        self._index = index
        self._io = io
        self._clock = clock
        self._log_id = log
        self._file_bytes = file_bytes
        self.key_index_bytes = key_index_bytes
        self.planner = CompactionPlanner(ledger, index, clock, io.read_index)
        self.counts = CompactionCounts()
        self._unshrunk: dict[int, int] = {}  # stream with many keys → rounds in which it is copied as it is

    async def step(self) -> bool:
        """Compact the streams that are due. False if there are none."""
        if any(map(self._index.unreadable, self._ledger.repacked.rounds)):
            return False
        streams = self.planner.compactions(await self.planner.look())
        if not streams:
            return False
        keys = KeyIndex(self.key_index_bytes)
        taken = [stream for stream in streams if await self._add_keys(stream, keys)]
        if not taken:
            return False
        targets = {stream.stream: stream for stream in taken}
        removed = self.counts.removed_records
        for made in list(self._ledger.repacked.rounds):
            if not await self._compact_round(made, targets, keys):
                return True  # another broker was faster: plan again
        await self._finish(taken)
        self.counts.compactions += 1
        _log.info(
            "compacted", streams=len(taken), keys=len(keys), removed=self.counts.removed_records - removed
        )
        return True

    async def _finish(self, taken: Sequence[StreamCompaction]) -> None:
        now = self._clock.now_ms()
        done = []
        for stream in taken:
            topic = self._ledger.topics.of_stream(stream.stream)
            if topic is not None:
                forget = max(0, now - topic.config.delete_retention_ms)
                done.append(
                    CompactedStream(
                        stream.stream, stream.end, 0 if stream.unsure else stream.tombstones, forget
                    )
                )
        await self._host.propose(FinishCompaction(now, tuple(done)))

    async def shrink(self, indexes: Sequence[SealedExtents]) -> ShrunkObjects | None:
        """Leave out superseded records of the log's own objects before they are copied. None if none is due."""
        streams = [one for one in self.planner.early(indexes) if not self._unshrunk.get(one.stream)]
        self._unshrunk = {stream: left - 1 for stream, left in self._unshrunk.items() if left > 1}
        if not streams:
            return None
        shrunk = await shrink(indexes, streams, self._io.read, KeyIndex(self.key_index_bytes))
        self.counts.read_records += shrunk.read_records
        self._unshrunk |= dict.fromkeys(shrunk.many_keys, SHRINK_AGAIN_ROUNDS)
        return shrunk

    def shrunk(self, objects: ShrunkObjects) -> None:
        """The objects were repacked."""
        self.counts.removed_records += sum(count for *_, count in objects.removed)
        self.counts.removed_bytes += objects.removed_bytes

    # The first pass

    async def _add_keys(self, stream: StreamCompaction, keys: KeyIndex) -> bool:
        """Enter the part of a stream that was never compacted. False if there is no room for any of it."""
        async for block in self._dirty_blocks(stream):
            if not await asyncio.to_thread(_add_block, stream, keys, block):
                break
        return stream.end > stream.base or self.planner.tombstones_are_due(stream.stream)

    async def _dirty_blocks(self, stream: StreamCompaction) -> AsyncIterator[SliceBlock]:
        for made in self._ledger.repacked.rounds:
            for span in self.planner.spans(made, stream.stream):
                if span.end > stream.base and span.base < stream.end:
                    index = await self._io.read_index(span.number)
                    async for block in read_blocks(
                        self._io.read, span.number, index.rows_of(stream.stream, stream.base, stream.end)
                    ):
                        yield block

    # The second pass

    async def _compact_round(
        self, made: RepackRound, targets: dict[int, StreamCompaction], keys: KeyIndex
    ) -> bool:
        """Rewrite the files of a round that hold superseded records. False: the round was replaced meanwhile."""
        numbers = {span.number for stream in targets for span in self.planner.spans(made, stream)}
        if not numbers:
            return True
        files: list[RepackedFile] = []
        fresh: list[RepackedFile] = []
        removed: dict[int, tuple[int, int, int]] = {}
        run: _FileRun | None = None
        origin = Origin(self._log_id, made.first, made.end)
        before = made.bytes
        try:
            for number, file in enumerate(made.files, made.number):
                rewritten = None
                if number in numbers:
                    index = await self._io.read_index(number)
                    live = await liveness(self._ledger, [index])
                    rewritten = await self._rewrite(number, index, live, targets, keys)
                if rewritten is None or not rewritten.changed:
                    if run is not None:
                        files += await self._store(made, await asyncio.to_thread(run.finish), fresh)
                        run = None
                    files.append(file)
                    continue
                for stream, (base, end, count) in rewritten.removed.items():
                    low, high, total = removed.get(stream, (base, end, 0))
                    removed[stream] = min(low, base), max(high, end), total + count
                if run is None:
                    run = _FileRun((file.stream, file.offset), origin, self._file_bytes)
                run.cover(index)
                async for piece in self._all_pieces(number, index, live, targets, rewritten):
                    files += await self._store(made, await asyncio.to_thread(run.add, piece), fresh)
            if run is not None:
                files += await self._store(made, await asyncio.to_thread(run.finish), fresh)
        except BaseException:
            with contextlib.suppress(MainstemError, OSError):
                await self._io.drop_files(fresh)
            raise
        if not fresh:
            return True
        return await self._publish(made, files, fresh, removed, before)

    async def _publish(
        self,
        made: RepackRound,
        files: Sequence[RepackedFile],
        fresh: Sequence[RepackedFile],
        removed: dict[int, tuple[int, int, int]],
        before: int,
    ) -> bool:
        ranges = tuple((stream, *one) for stream, one in sorted(removed.items()) if one[2])
        command = PublishRepack(made.first, made.end, made.keys, tuple(files), ranges)
        try:
            await self._host.propose(command)
        except StalePlan as stale:
            _log.info("compaction discarded", reason=str(stale))
            await self._io.drop_files(fresh)
            return False
        self.counts.removed_records += sum(count for *_, count in ranges)
        self.counts.removed_bytes += max(0, before - sum(file.bytes for file in files))
        return True

    async def _store(
        self, made: RepackRound, copied: Sequence[CopiedFile], fresh: list[RepackedFile]
    ) -> list[RepackedFile]:
        stored = [await self._io.store_file(made.first, made.end, one) for one in copied]
        fresh += stored
        return stored

    async def _rewrite(
        self,
        number: int,
        index: SealedExtents,
        live: Liveness,
        targets: dict[int, StreamCompaction],
        keys: KeyIndex,
    ) -> _RewrittenFile:
        """What a file holds of the streams to compact, without superseded records."""
        found = _RewrittenFile()
        needed = live.needed(index.rows)
        for number_of_stream in sorted(targets):
            stream = targets[number_of_stream]
            rows = index.rows[rows_to_compact(index, stream, needed)]
            async for block in read_blocks(self._io.read, number, rows):
                pieces, count = await asyncio.to_thread(_rewrite_block, stream, keys, block)
                self.counts.read_records += count.read
                found.pieces += pieces
                found.changed |= count.dropped > 0
                base, end = int(block.rows["base"][0]), int(block.rows["base"][-1] + block.rows["count"][-1])
                if count.removed:
                    low, high, total = found.removed.get(stream.stream, (base, end, 0))
                    found.removed[stream.stream] = min(low, base), max(high, end), total + count.removed
        return found

    async def _all_pieces(
        self,
        number: int,
        index: SealedExtents,
        live: Liveness,
        targets: dict[int, StreamCompaction],
        rewritten: _RewrittenFile,
    ) -> AsyncIterator[SlicePiece]:
        """All that stays of a file, in order: other extents as they are."""
        needed = live.needed(index.rows)
        others = needed.copy()
        for stream in targets.values():
            others[rows_to_compact(index, stream, needed)] = False
        rest = index.rows[others]
        waiting = sorted(
            (piece for piece in rewritten.pieces if len(piece.rows)), key=lambda piece: _place(piece.rows[0])
        )
        for some in _between(rest, waiting):
            if isinstance(some, SlicePiece):
                yield some
                continue
            async for block in read_blocks(self._io.read, number, some):
                rows = block.rows.copy()
                rows["start"] -= block.start
                yield SlicePiece(rows, block.data)

    def metrics(self) -> list[Metric]:
        counts, dirty = self.counts, self.planner.dirty
        return [
            metric("mainstem_compactions_total", "counter", "Finished compactions.", counts.compactions),
            metric(
                "mainstem_compaction_read_records_total",
                "counter",
                "Records that compaction read to rewrite them.",
                counts.read_records,
            ),
            metric(
                "mainstem_compaction_removed_records_total",
                "counter",
                "Records that compaction removed.",
                counts.removed_records,
            ),
            metric(
                "mainstem_compaction_removed_bytes_total",
                "counter",
                "Bytes that compaction removed from repacked files.",
                counts.removed_bytes,
            ),
            metric(
                "mainstem_compaction_backlog_bytes",
                "gauge",
                "Bytes that are due for compaction.",
                self.planner.backlog_bytes,
            ),
            metric(
                "mainstem_compaction_dirty_ratio",
                "gauge",
                "Largest share of a compacted partition's repacked bytes that were never compacted.",
                max((stream.ratio for stream in dirty), default=0.0),
            ),
        ]


class _FileRun:
    """Consecutive new files of a round, of about `file_bytes` each."""

    def __init__(self, place: tuple[int, int], origin: Origin, file_bytes: int) -> None:
        self._place = place  # of the first file: it takes over the range of the one it replaces
        self._origin = origin
        self._file_bytes = file_bytes
        self._spans: list[Rows] = []
        self._pieces: list[SlicePiece] = []
        self._size = self._extents = 0
        self._listed = 0  # streams below are listed in earlier files

    def cover(self, index: SealedExtents) -> None:
        """Also stand for this file."""
        self._spans.append(index.spans)

    def add(self, piece: SlicePiece) -> list[CopiedFile]:
        """Returns a file that is full now."""
        full: list[CopiedFile] = []
        too_many = self._extents + len(piece.rows) > REPACKED_FILE_EXTENTS_MAX
        if self._pieces and (self._size >= self._file_bytes or too_many):
            # Streams of this file are listed up to where the next one begins.
            full = [self._file(int(piece.rows["stream"][0]))]
            self._place = _place(piece.rows[0])
        self._pieces.append(piece)
        self._size += len(piece.data)
        self._extents += len(piece.rows)
        return full

    def finish(self) -> list[CopiedFile]:
        """The last file. There is one even without records: it says where streams continue."""
        return [self._file(1 << 32)]

    def _file(self, next_stream: int) -> CopiedFile:
        place, rows = self._place, np.empty(0, EXTENT)
        if self._pieces:
            at, placed = 0, []
            for piece in self._pieces:
                moved = piece.rows.copy()
                moved["start"] += at
                placed.append(moved)
                at += len(piece.data)
            rows = np.concatenate(placed)
        ends = _ends(self._spans).between(self._listed, next_stream)
        streams = np.union1d(ends.streams, rows["stream"].astype(np.int64))
        reach = np.zeros(len(streams), np.int64)
        reach[np.searchsorted(streams, ends.streams)] = ends.ends
        payload = b"".join(piece.data for piece in self._pieces)
        buffers = layout.encode(rows, streams, reach, payload, self._origin)
        self._pieces, self._size, self._extents = [], 0, 0
        self._listed = next_stream
        return CopiedFile(*place, buffers)


class _RewriteCounts(NamedTuple):
    read: int
    dropped: int  # of them, left out
    removed: int  # of these, live ones


def _place(row: np.void) -> tuple[int, int]:
    return int(row["stream"]), int(row["base"])


def _ends(spans: Sequence[Rows]) -> StreamEnds:
    """Where files end the streams that they list."""
    rows = np.concatenate(spans)
    streams, which = np.unique(rows["stream"].astype(np.int64), return_inverse=True)
    ends = np.zeros(len(streams), np.int64)
    np.maximum.at(ends, which, rows["end"])
    return StreamEnds(streams, ends)


def _between(rest: Rows, pieces: Sequence[SlicePiece]) -> Iterator[Rows | SlicePiece]:
    """Extents and pieces, both sorted, in one order."""
    at = 0
    for piece in pieces:
        stream, base = _place(piece.rows[0])
        low, high = np.searchsorted(rest["stream"], (stream, stream + 1))
        to = int(low) + int(np.searchsorted(rest["base"][low:high], base))
        if to > at:
            yield rest[at:to]
        yield piece
        at = max(at, to)
    if at < len(rest):
        yield rest[at:]


def _add_block(stream: StreamCompaction, keys: KeyIndex, block: SliceBlock) -> bool:
    return all(stream.add_to(keys, one.slices) for one in decoded(block, 0, len(block.rows)))


def _rewrite_block(
    stream: StreamCompaction, keys: KeyIndex, block: SliceBlock
) -> tuple[list[SlicePiece], _RewriteCounts]:
    pieces: list[SlicePiece] = []
    read = dropped = removed = 0
    for one in decoded(block, 0, len(block.rows)):
        stream.unsure |= bool(one.raw.any())
        kept, superseded = stream.keep(keys, one.slices)
        read += len(kept)
        removed += superseded
        if kept.all():
            pieces.append(raw_piece(block, one.rows))
            continue
        dropped += len(kept) - int(kept.sum())
        written = one.slices.rewritten(kept, stream.last)
        pieces.append(SlicePiece(extents(stream, written), written.data))
        # In between come the extents that stay as they are, each on its own, in the order of offsets.
        pieces += [raw_piece(block, one.rows[at : at + 1]) for at in np.flatnonzero(one.raw).tolist()]
    return in_order(pieces), _RewriteCounts(read, dropped, removed)
