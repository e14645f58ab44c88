"""Check repacked files: they exist, are intact, and match their indexes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import RepackedFile
from mainstem.log.objects.repack import layout
from mainstem.log.read.extents import SealedExtents
from mainstem.log.verification.coverage import Coverage
from mainstem.log.verification.parts import OBJECTS
from mainstem.log.verification.problems import LostRange, Problem, Problems, Severity
from mainstem.ports.files import File, Files, read_up_to
from mainstem.records.slices import is_intact, salvage


class RepackedCheck:
    """`owned`: a live process may delete files meanwhile, so missing files are not a problem."""

    def __init__(
        self, files: Files, directory: Path, problems: Problems, *, owned: bool, quick: bool
    ) -> None:
        self._files = files
        self._directory = directory
        self._problems = problems
        self._owned = owned
        self._quick = quick

    def run(self, ledger: Ledger, coverage: Coverage) -> int:
        """Check every file that a round names, and add what it holds to the coverage. Returns the number of files."""
        checked = 0
        for made in ledger.repacked.rounds:
            for file in made.files:
                checked += 1
                self._check(file, coverage, ledger)
        return checked

    def _check(self, file: RepackedFile, coverage: Coverage, ledger: Ledger) -> None:
        try:
            opened = self._files.open(self._directory / OBJECTS / file.key)
        except OSError as error:
            if not (self._owned and isinstance(error, FileNotFoundError)):
                self._report(file, 0, file.bytes, f"the file cannot be opened: {error.strerror}")
            return
        try:
            self._look_inside(file, opened, coverage, ledger)
        except (LogDamaged, NewerVersion) as error:
            self._report(file, 0, file.bytes, str(error))
        finally:
            opened.close()

    def _look_inside(self, file: RepackedFile, opened: File, coverage: Coverage, ledger: Ledger) -> None:
        size = opened.size()
        if size != file.bytes:
            self._report(file, 0, size, f"the file has {size} bytes, not {file.bytes}")
            return

        def read(start: int, length: int) -> bytes:
            return bytes(read_up_to(opened, start, length))

        copies = [None if copy is None else copy[1] for copy in layout.index_copies(read, size, file.key)]
        extents = copies[0] or copies[1] or _repaired_index(read, size)
        if extents is None:
            raise layout.damaged(file.key)
        end = size - layout.HEAD.size
        for copy, which, at in zip(copies, ("first", "second"), (0, end), strict=True):
            if copy is None:
                self._report_copy(file, which, at)
        rows = extents.rows
        coverage.hold(rows)
        for stream, count, base, start, length, crc, _ in () if self._quick else rows.tolist():
            data = memoryview(read_up_to(opened, start, length))
            if is_intact(data, length, crc):
                continue
            lost = LostRange(stream, base, base + count)
            if len(data) == length and stream not in ledger.streams.transactions.touched:
                lost = LostRange(stream, *salvage(data, base, count)[2:])
            if lost.start < lost.end:
                self._report(file, start, start + length, "batches do not match their checksum", lost)
            else:
                self._report_stamps(file, start, start + length)

    def _report(
        self, file: RepackedFile, start: int, end: int, what: str, lost: LostRange | None = None
    ) -> None:
        self._problems.add(
            Problem(
                Severity.DAMAGED,
                f"{OBJECTS}/{file.key}",
                start,
                end,
                what,
                advice="restore the file from a backup: the log no longer has these records",
                lost=[] if lost is None else [lost],
                certain=lost is None,
            )
        )

    def _report_stamps(self, file: RepackedFile, start: int, end: int) -> None:
        self._problems.add(
            Problem(
                Severity.REPAIRABLE,
                f"{OBJECTS}/{file.key}",
                start,
                end,
                "the batches are intact, but not the header fields that readers overwrite",
                "no record is lost",
                "no action needed: the file is rewritten when it is repacked",
            )
        )

    def _report_copy(self, file: RepackedFile, which: str, at: int) -> None:
        self._problems.add(
            Problem(
                Severity.REPAIRABLE,
                f"{OBJECTS}/{file.key}",
                at,
                at + layout.HEAD.size,
                f"the {which} copy of the index is damaged",
                "the other copy is used, or both combined",
                "no action needed: the file is rewritten when it is repacked",
            )
        )


def _repaired_index(read: Callable[[int, int], bytes], size: int) -> SealedExtents | None:
    head, tail = read(0, layout.HEAD.size), read(size - layout.HEAD.size, layout.HEAD.size)
    for places in layout.copies_to_mend(head, tail, size):
        first, second = (read(*place) for place in places)
        found = layout.mended_index(0, (head, first), (tail, second))
        if found is not None:
            return found
    return None
