"""Check that the log's positions continue from file to file, and what follows its last commit.

The verdicts predict those of the next start (ports/commitlog/local/recovery.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mainstem.log.verification.problems import Problem, Problems, Severity
from mainstem.ports.commitlog.local import frame_scan as searches
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.segment_scan import SegmentScan
from mainstem.ports.commitlog.local.segments import FOOTER_BYTES, HEADER_BYTES, file_name, segment_path
from mainstem.ports.files import Files

RESTORE = "restore the file from a backup"
_CANNOT_OPEN = "the log cannot be opened"


def name_of(number: int) -> str:
    """A segment's file, relative to the data directory."""
    return f"{WAL}/{file_name(number)}"


@dataclass(frozen=True, slots=True)
class Durable:
    """Which positions were durable for certain."""

    base: int  # position of the newest intact checkpoint: a start replays from here
    named: int  # position of the newest checkpoint file, intact or not


class Chain:
    def __init__(
        self, files: Files, directory: Path, log: LogId, durable: Durable, problems: Problems
    ) -> None:
        self._files = files
        self._wal = directory / WAL
        self._log = log
        self._durable = durable
        self._problems = problems

    def check(self, found: list[SegmentScan], unread: set[int]) -> list[SegmentScan]:
        """Returns the files that remain part of the log. `unread`: files that a live owner still changes."""
        kept: list[SegmentScan] = []
        present = {one.number for one in found}
        for index, one in enumerate(found):
            if one.empty:
                continue
            previous = kept[-1] if kept else None
            if one.first is None:
                start = previous.end if previous else self._durable.base
                self._break(found, index, HEADER_BYTES, start)
                return kept
            numbers = range(previous.number + 1 if previous else 1, one.number)
            if unread.isdisjoint(numbers):
                missing = [number for number in numbers if number not in present]
                if not self._follows(one, previous, found, missing):
                    return kept
            if one.doubtful is not None:
                self._settle(one, followed=any(not later.empty for later in found[index + 1 :]))
            kept.append(one)
            if one.beyond:
                if self._break(found, index, one.data_end, one.end):
                    return kept
                last = max(one.beyond)
                one.end, one.data_end = last.position + 1, last.end  # check what follows nevertheless
            else:
                self._check_tail(one)
        if not unread:
            self._check_end(kept, found)
        return kept

    def _follows(
        self,
        one: SegmentScan,
        previous: SegmentScan | None,
        found: list[SegmentScan],
        missing: list[int],
    ) -> bool:
        """Whether the log continues in this file, even if files before it are missing."""
        first, end = one.first or 0, previous.end if previous else 0
        if first < end:
            self._report_overlap(one, first, end)
        elif first > end and (missing or previous is None):
            self._check_hole(max(end, self._durable.base), first, missing)
        elif first > end and previous is not None:
            return not self._break(found, found.index(previous), previous.data_end, end)
        return True

    def _check_hole(self, start: int, end: int, missing: list[int]) -> None:
        """Files that retention deleted are normal: a checkpoint covers them."""
        if end <= start:
            return
        self._problems.add(
            Problem(
                Severity.DAMAGED,
                name_of(missing[-1]) if missing else WAL,
                0,
                0,
                f"the file with positions {start} to {end - 1} is missing, and no checkpoint covers them",
                _CANNOT_OPEN,
                RESTORE,
            )
        )

    def _report_overlap(self, one: SegmentScan, first: int, end: int) -> None:
        self._problems.add(
            Problem(
                Severity.DAMAGED,
                name_of(one.number),
                0,
                HEADER_BYTES,
                f"it starts at position {first}, but the previous file ends at {end}",
                _CANNOT_OPEN,
                "remove the file that does not belong here",
            )
        )

    def _settle(self, one: SegmentScan, *, followed: bool) -> None:
        """An intact entry, a damaged payload and no second copy: torn if it was written last, else damaged."""
        frame, one.doubtful = one.doubtful, None
        if frame is not None and (followed or self._durable.named > frame.position):
            one.end, one.data_end = frame.position + 1, frame.end

    def _break(self, found: list[SegmentScan], index: int, at: int, position: int) -> bool:
        """Positions are missing although intact frames follow. True if a start truncates the log here."""
        broken = found[index]
        following = min(broken.beyond, default=None)
        end = following.start if following else broken.size
        durable = self._durable_after(found, index)
        if durable <= position:
            last = max([frame.end for frame in broken.beyond], default=broken.litter_end)
            self._problems.add(
                Problem(
                    Severity.TORN,
                    name_of(broken.number),
                    at,
                    max(at, last, broken.litter_end),
                    f"position {position} was never completely written, but later positions were",
                    "none of it was durable",
                    "the next start moves it to quarantine",
                )
            )
            return True
        lost_end = following.position if following else durable
        self._problems.add(
            Problem(
                Severity.DAMAGED,
                name_of(broken.number),
                at,
                end,
                f"both copies of positions {position} to {lost_end - 1} are damaged",
                f"they were durable, so {_CANNOT_OPEN}",
                RESTORE,
            )
        )
        return False

    def _durable_after(self, found: list[SegmentScan], index: int) -> int:
        synced = [frame.synced for frame in found[index].beyond]
        for one in found[index + 1 :]:
            synced.append(one.end if one.sealed else self._highest_synced(one))
        return max([self._durable.named, *synced])

    def _highest_synced(self, one: SegmentScan) -> int:
        file = self._files.open(segment_path(self._wal, one.number))
        try:
            whole = searches.find_frames(file, HEADER_BYTES, one.size, self._log.low, -1)
            return max((frame.synced for frame in whole), default=0)
        finally:
            file.close()

    def _check_tail(self, one: SegmentScan) -> None:
        """What follows the last commit of a file without a footer."""
        if one.sealed:
            return
        name = name_of(one.number)
        if one.index is not None:
            self._problems.add(
                Problem(
                    Severity.REPAIRABLE,
                    name,
                    max(one.data_end, one.size - FOOTER_BYTES),
                    one.size,
                    "the footer is damaged",
                    "an intact index precedes it, so nothing is lost",
                    "the next start rewrites it",
                )
            )
        elif one.end <= self._durable.base:
            self._problems.add(
                Problem(
                    Severity.DAMAGED,
                    name,
                    one.data_end,
                    max(one.data_end, one.size),
                    "the index is missing or damaged, and the newest checkpoint is after this file",
                    f"its commits are intact, but {_CANNOT_OPEN}",
                    RESTORE,
                )
            )
        elif one.litter_bytes:
            self._problems.add(
                Problem(
                    Severity.TORN,
                    name,
                    one.data_end,
                    one.litter_end,
                    "the bytes after the last commit are not a complete commit",
                    "a write was interrupted here",
                    "the next start truncates them",
                )
            )

    def _check_end(self, kept: list[SegmentScan], found: list[SegmentScan]) -> None:
        """The log must reach its newest checkpoint."""
        if not kept and found and found[-1].number > 1:
            return  # older files were deleted, which a checkpoint of all of them allows
        end = kept[-1].end if kept else max((one.first or 0 for one in found), default=0)
        if end < self._durable.named:
            self._problems.add(
                Problem(
                    Severity.DAMAGED,
                    name_of(kept[-1].number) if kept else WAL,
                    kept[-1].data_end if kept else 0,
                    kept[-1].size if kept else 0,
                    f"the log ends at position {end}, but a checkpoint covers all positions before "
                    f"{self._durable.named}",
                    f"positions {end} to {self._durable.named - 1} are missing, so {_CANNOT_OPEN}",
                    RESTORE,
                )
            )
