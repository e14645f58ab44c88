"""Check one WAL file: header, frames, record bytes, footer and index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from crc32c import crc32c

from mainstem import limits
from mainstem.errors import LogDamaged
from mainstem.ledger.entry import AppendRun, Entry
from mainstem.log.read.extents import OpenExtents, Rows, SealedExtents
from mainstem.log.verification.chain import RESTORE, name_of
from mainstem.log.verification.indexes import ExtentRow, IndexCheck, extent_rows
from mainstem.log.verification.problems import LostRange, Problem, Problems, Severity
from mainstem.log.verification.scan import FoundFrame, FrameGap, scan_frames
from mainstem.log.verification.slices import SliceRow, slice_fault, slice_rows, written_rows
from mainstem.log.verification.state import StateCheck
from mainstem.ports.commitlog.local import segments
from mainstem.ports.commitlog.local.frames import Frame
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.segment_scan import SegmentScan
from mainstem.ports.commitlog.local.segments import HEADER_BYTES
from mainstem.ports.files import File, read_up_to

_CHUNK_BYTES = 4 * limits.MIB  # entries are replayed in chunks of this size


@dataclass(slots=True)
class SegmentFacts:
    """What a file holds, as far as it can be determined."""

    commits: int = 0
    records: int = 0
    spans: Rows | None = None  # None: its offsets are unknown


@dataclass(slots=True)
class _UnsoundSlice:
    """A slice with damaged bytes."""

    row: SliceRow
    position: int
    fault: str


@dataclass(slots=True)
class _FrameFacts:
    """What the frames of the file contain."""

    taken: list[Rows] = field(default_factory=list)  # extents from replay
    replayed: bool = True  # whether all frames were replayed
    written: list[Rows] = field(default_factory=list)  # every slice, accepted or rejected, base unknown
    bad: list[_UnsoundSlice] = field(default_factory=list)
    gaps: list[FrameGap] = field(default_factory=list)


class SegmentCheck:
    def __init__(
        self,
        file: File,
        survey: SegmentScan,
        log: LogId,
        state: StateCheck,
        problems: Problems,
        *,
        base: int,
        quick: bool,
        progress: Callable[[int], None],
    ) -> None:
        self._file = file
        self._survey = survey
        self._log = log
        self._state = state
        self._problems = problems
        self._base = base  # a start replays from this position on
        self._quick = quick
        self._progress = progress
        self._name = name_of(survey.number)
        self._seen = _FrameFacts()
        self._facts = SegmentFacts()

    def run(self) -> SegmentFacts:
        self._check_header()
        self._check_frames()
        seen, taken = self._seen, self._taken()
        checks = IndexCheck(self._file, self._survey, self._log, self._problems)
        index = checks.read(taken)
        if index is not None:
            if seen.replayed and not seen.gaps:
                checks.compare(index, taken)
            else:
                checks.compare_some(index, seen.taken, seen.written, seen.gaps)
            self._facts.spans = index.spans
        elif seen.replayed or seen.taken:
            self._facts.spans = taken.spans
        known = index or (taken if seen.taken else None)
        self._report_gaps(known)
        self._report_bad_slices(known)
        return self._facts

    def _add(
        self,
        severity: Severity,
        start: int,
        end: int,
        what: str,
        meaning: str,
        advice: str,
        lost: list[LostRange],
    ) -> None:
        self._problems.add(Problem(severity, self._name, start, end, what, meaning, advice, lost))

    def _check_header(self) -> None:
        header = segments.read_header(self._file)
        survey = self._survey
        if header == segments.SegmentHeader(self._log.whole, survey.number, survey.first or 0):
            return
        meaning = "the file's name and commits have the same facts, so nothing is lost"
        advice = "no action needed" if survey.sealed else "the next start rewrites it"
        self._add(Severity.REPAIRABLE, 0, HEADER_BYTES, "the header is damaged", meaning, advice, [])

    # Frames

    def _check_frames(self) -> None:
        survey = self._survey
        chunk: list[FoundFrame] = []
        chunk_bytes, at = 0, 0
        for found in scan_frames(
            self._file, self._log.low, at=HEADER_BYTES, limit=survey.data_end, position=survey.first
        ):
            if isinstance(found, FrameGap):
                self._seen.gaps.append(found)
                continue
            self._check_copies(found)
            self._check_payload(found)
            self._facts.commits += 1
            chunk.append(found)
            chunk_bytes += len(found.entry)
            if len(chunk) >= limits.FOLLOW_CHUNK_COMMITS or chunk_bytes >= _CHUNK_BYTES:
                self._replay(chunk)
                chunk, chunk_bytes = [], 0
                self._progress(found.frame.end - at)
                at = found.frame.end
        if chunk:
            self._replay(chunk)
        self._progress(max(0, survey.size - at))

    def _replay(self, chunk: list[FoundFrame]) -> None:
        replay = self._state.take(self._name, self._survey.number, chunk)
        self._seen.taken += replay.extents
        if not replay.complete:
            self._seen.replayed = False
            self._seen.written += _written(chunk)

    def _check_copies(self, found: FoundFrame) -> None:
        frame = found.frame
        if found.leading_whole and found.trailing_whole:
            return
        if not found.leading_whole:
            which, other, start, end = "first", "second", frame.start, frame.payload_start
        else:
            which, other, start, end = "second", "first", frame.payload_end, frame.end
        self._add(
            Severity.REPAIRABLE,
            start,
            end,
            f"the {which} copy of the entry of commit {frame.position} is damaged",
            f"the {other} copy is intact and is used instead, so nothing is lost",
            "no action needed; if it happens again, check the disk",
            [],
        )

    def _check_payload(self, found: FoundFrame) -> None:
        """Check the slices one by one, then the whole payload."""
        frame = found.frame
        try:
            parts = [part for part in Entry.decode(found.entry).parts if isinstance(part, AppendRun)]
        except LogDamaged:
            return  # replay reports it
        if not parts:
            return
        payload = None if self._quick else read_up_to(self._file, frame.payload_start, frame.payload_length)
        intact = payload is None or crc32c(payload) == frame.payload_crc
        start, faults = frame.payload_start, len(self._seen.bad)
        for part in parts:
            self._facts.records += int(part.slices["count"].sum(dtype=np.int64))
            if payload is not None:
                self._check_slices(frame, memoryview(payload), part, start)
            start += int(part.slices["length"].sum(dtype=np.int64))
        if start != frame.payload_end or (not intact and faults == len(self._seen.bad)):
            self._add(
                Severity.DAMAGED,
                frame.payload_start,
                frame.payload_end,
                f"commit {frame.position} does not hold the bytes that its entry lists",
                "some of its records may be lost",
                RESTORE,
                [],
            )

    def _check_slices(self, frame: Frame, payload: memoryview, run: AppendRun, start: int) -> None:
        for row in slice_rows(run, start):
            at = row.start - frame.payload_start
            fault = slice_fault(payload[at : at + row.length], row)
            if fault is not None and len(self._seen.bad) < limits.CHECK_PROBLEMS_MAX:
                self._seen.bad.append(_UnsoundSlice(row, frame.position, fault))

    # Extents

    def _taken(self) -> SealedExtents:
        """The extents from replay."""
        extents = OpenExtents(self._survey.number)
        for rows in self._seen.taken:
            extents.extend(rows)
        return extents.sealed()

    def _report_gaps(self, index: SealedExtents | None) -> None:
        """Report commits of which both copies are damaged. Their records may still be intact."""
        if not self._survey.sealed:
            return  # `Chain` reports them
        for gap in self._seen.gaps:
            rows = [] if index is None else _between(index, gap)
            lost = [] if self._quick else [_lost(row) for row in rows if not self._row_is_whole(row)]
            position = gap.position or 0
            last = (gap.next_position or self._survey.end) - 1
            what = f"both copies of the entries of positions {position} to {last} are damaged"
            if self._base > last:
                kept = f"the checkpoint of position {self._base} includes their effect"
                severity = Severity.DAMAGED if lost else Severity.REPAIRABLE
                advice = RESTORE if lost else "no action needed; if it happens again, check the disk"
                self._add(severity, gap.start, gap.end, what, kept, advice, lost)
            else:
                self._problems.add(
                    Problem(
                        Severity.DAMAGED,
                        self._name,
                        gap.start,
                        gap.end,
                        what,
                        "the log cannot be opened without them",
                        RESTORE,
                        [_lost(row) for row in rows],
                        certain=True,
                    )
                )

    def _row_is_whole(self, row: ExtentRow) -> bool:
        return bool(crc32c(read_up_to(self._file, row.start, row.length)) == row.crc)

    def _report_bad_slices(self, index: SealedExtents | None) -> None:
        known = {} if index is None or not self._seen.bad else {row.start: row for row in extent_rows(index)}
        for bad in self._seen.bad:
            row = bad.row
            what = f"records of commit {bad.position} {bad.fault}"
            place = known.get(row.start)
            if place is not None:
                self._add(
                    Severity.DAMAGED, row.start, row.start + row.length, what, "", RESTORE, [_lost(place)]
                )
            elif index is not None and not self._seen.gaps:
                meaning = "the log rejected them, so nothing is lost"
                self._add(Severity.HARMLESS, row.start, row.start + row.length, what, meaning, "", [])
            else:
                meaning = f"{row.count} records of stream {row.stream} are lost; their offsets are unknown"
                self._add(Severity.DAMAGED, row.start, row.start + row.length, what, meaning, RESTORE, [])


def _written(chunk: list[FoundFrame]) -> list[Rows]:
    """The slices of commits that could not be replayed."""
    rows: list[Rows] = []
    for found in chunk:
        try:
            parts = Entry.decode(found.entry).parts
        except LogDamaged:
            continue  # replay reports it
        start = found.frame.payload_start
        for part in parts:
            if isinstance(part, AppendRun):
                rows.append(written_rows(part, start))
                start += int(part.slices["length"].sum(dtype=np.int64))
    return rows


def _between(index: SealedExtents, gap: FrameGap) -> list[ExtentRow]:
    inside = (index.rows["start"] >= gap.start) & (index.rows["start"] < gap.end)
    return [ExtentRow(*row) for row in index.rows[inside].tolist()]


def _lost(row: ExtentRow) -> LostRange:
    return LostRange(row.stream, row.base, row.base + row.count)
