"""Check the index of a WAL file: its two copies, and whether it matches the commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mainstem.errors import LogDamaged
from mainstem.log.read.extents import Rows, SealedExtents
from mainstem.log.verification.chain import RESTORE, name_of
from mainstem.log.verification.problems import LostRange, Problem, Problems, Severity
from mainstem.log.verification.scan import FrameGap
from mainstem.ports.commitlog.local import segments
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.segment_scan import SegmentScan
from mainstem.ports.commitlog.local.segments import FOOTER_BYTES
from mainstem.ports.files import File


class ExtentRow(NamedTuple):
    """One row of an index."""

    stream: int
    count: int  # type: ignore[assignment]  # offsets covered; hides tuple.count
    base: int
    start: int
    length: int
    crc: int
    max_timestamp: int


def extent_rows(extents: SealedExtents) -> Iterator[ExtentRow]:
    return (ExtentRow(*row) for row in extents.rows.tolist())


class IndexCheck:
    def __init__(self, file: File, survey: SegmentScan, log: LogId, problems: Problems) -> None:
        self._file = file
        self._survey = survey
        self._log = log
        self._problems = problems
        self._name = name_of(survey.number)

    def read(self, taken: SealedExtents) -> SealedExtents | None:
        """The index from either intact copy. `taken`: the extents that replay gave, as far as it got."""
        survey = self._survey
        if not survey.sealed:
            return None if survey.index is None else self._decoded(survey.index)
        start, middle, end = self._places()
        copies = [self._copy(start), self._copy(middle)]
        first = copies[0] if copies[0] is not None else copies[1]
        if first is None:
            what = "both copies of the index are damaged"
            self._report(start, end, what, "its records cannot be looked up", _spanned(taken))
            return None
        for copy, which, at, until in zip(
            copies, ("first", "second"), (start, middle), (middle, end), strict=True
        ):
            if copy is None:
                self._report_copy(which, at, until)
        if copies[1] is not None and copies[1] != first:
            self._report(
                start, end, "the two copies of the index differ", "one of them was written incorrectly", []
            )
        return self._decoded(first)

    def compare(self, index: SealedExtents, taken: SealedExtents) -> None:
        """All commits of the file were replayed: the index must match them exactly."""
        if index.encode() == taken.encode():
            return
        wrong = set(extent_rows(taken)) ^ set(extent_rows(index))
        self._report_wrong([LostRange(row.stream, row.base, row.base + row.count) for row in sorted(wrong)])

    def compare_some(
        self, index: SealedExtents, taken: list[Rows], written: list[Rows], gaps: list[FrameGap]
    ) -> None:
        """Not all commits were replayed: every row of the index must be in the intact commits."""
        indexed = {row.start: row for row in extent_rows(index)}
        replayed = {row[3]: ExtentRow(*row) for rows in taken for row in rows.tolist()}
        listed = {row[3]: ExtentRow(*row) for rows in written for row in rows.tolist()}
        wrong = [row for start, row in replayed.items() if indexed.get(start) != row]
        for start, row in indexed.items():
            if start in replayed or any(gap.start <= start < gap.end for gap in gaps):
                continue
            if start not in listed or listed[start]._replace(base=row.base) != row:
                wrong.append(row)
        if wrong:
            self._report_wrong(
                [LostRange(row.stream, row.base, row.base + row.count) for row in sorted(wrong)]
            )

    def _places(self) -> tuple[int, int, int]:
        """The starts of the two copies, and their end."""
        start, end = self._survey.data_end, self._survey.size - FOOTER_BYTES
        return start, (start + end) // 2, end

    def _copy(self, at: int) -> bytes | None:
        found = segments.read_index_at(self._file, at, self._log, self._survey.number)
        whole = found is not None and found[1:] == (self._survey.first, self._survey.end)
        return found[0] if found is not None and whole else None

    def _decoded(self, index: bytes) -> SealedExtents | None:
        try:
            return SealedExtents.decode(self._survey.number, index)
        except LogDamaged as error:
            start, _, end = self._places()
            self._report(
                start,
                end,
                f"the index was written incorrectly: {error}",
                "its records cannot be looked up",
                [],
            )
            return None

    def _report_copy(self, which: str, start: int, end: int) -> None:
        self._problems.add(
            Problem(
                Severity.REPAIRABLE,
                self._name,
                start,
                end,
                f"the {which} copy of the index is damaged",
                "the other copy is intact and is used instead, so nothing is lost",
                "no action needed; if it happens again, check the disk",
            )
        )

    def _report_wrong(self, lost: list[LostRange]) -> None:
        start, _, end = self._places()
        what = "the index does not match the commits in this file"
        self._report(start, end, what, "reads use the index and miss records", lost)

    def _report(self, start: int, end: int, what: str, meaning: str, lost: list[LostRange]) -> None:
        self._problems.add(
            Problem(Severity.DAMAGED, self._name, start, end, what, meaning, RESTORE, lost, certain=True)
        )


def _spanned(extents: SealedExtents) -> list[LostRange]:
    spans = extents.spans
    columns = (spans[name].tolist() for name in ("stream", "base", "end"))
    return [LostRange(*span) for span in zip(*columns, strict=True)]
