"""Checking repacked files: that they are there, whole, and hold what their indexes say."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repack_commands import RepackedFile
from mainstem.log.extents import SealedExtents
from mainstem.log.repack import layout
from mainstem.log.verification.coverage import Coverage
from mainstem.log.verification.parts import OBJECTS
from mainstem.log.verification.problems import Lost, Problem, Problems, Severity
from mainstem.ports.files import File, Files, read_up_to


class RepackedCheck:
    """`owned`: a live process may delete files meanwhile, so those that are missing are no problem."""

    def __init__(
        self, files: Files, directory: Path, problems: Problems, *, owned: bool, quick: bool
    ) -> None:
        self._files = files
        self._directory = directory
        self._problems = problems
        self._owned = owned
        self._quick = quick

    def run(self, ledger: Ledger, coverage: Coverage) -> int:
        """Look at every file that a round names, and tell what they hold. Returns how many there are."""
        checked = 0
        for made in ledger.repacked.rounds:
            for number, file in enumerate(made.files, made.number):
                checked += 1
                self._check(number, file, coverage)
        return checked

    def _check(self, number: int, file: RepackedFile, coverage: Coverage) -> None:
        try:
            opened = self._files.open(self._directory / OBJECTS / file.key)
        except OSError as error:
            if not (self._owned and isinstance(error, FileNotFoundError)):
                self._report(file, 0, file.bytes, f"the file cannot be opened: {error.strerror}")
            return
        try:
            self._look_inside(number, file, opened, coverage)
        except (LogDamaged, NewerVersion) as error:
            self._report(file, 0, file.bytes, str(error))
        finally:
            opened.close()

    def _look_inside(self, number: int, file: RepackedFile, opened: File, coverage: Coverage) -> None:
        size = opened.size()
        if size != file.bytes:
            self._report(file, 0, size, f"the file has {size} bytes, not {file.bytes}")
            return
        end = size - layout.HEAD.size
        copies = [
            _index(number, file, opened, 0, layout.HEAD.size),
            _index(number, file, opened, end, None),
        ]
        extents = copies[0] or copies[1]
        if extents is None:
            raise layout.damaged(file.key)
        for copy, which, at in zip(copies, ("first", "second"), (0, end), strict=True):
            if copy is None:
                self._report_copy(file, which, at)
        rows = extents.rows
        coverage.hold(rows)
        for stream, count, base, start, length, crc, _ in () if self._quick else rows.tolist():
            if crc32c(read_up_to(opened, start, length)) != crc:
                lost = Lost(stream, base, base + count)
                self._report(file, start, start + length, "slices do not match their checksum", lost)

    def _report(self, file: RepackedFile, start: int, end: int, what: str, lost: Lost | None = None) -> None:
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

    def _report_copy(self, file: RepackedFile, which: str, at: int) -> None:
        self._problems.add(
            Problem(
                Severity.REPAIRABLE,
                f"{OBJECTS}/{file.key}",
                at,
                at + layout.HEAD.size,
                f"the {which} copy of the index is damaged",
                "the other one serves",
                "nothing to do: the file is written anew when it is repacked",
            )
        )


def _index(number: int, file: RepackedFile, opened: File, at: int, start: int | None) -> SealedExtents | None:
    """The index that the head at `at` tells of: at `start`, or right before the head."""
    head = bytes(read_up_to(opened, at, layout.HEAD.size))
    facts = layout.index_facts(head, file.key)
    if facts is None or facts[0] > file.bytes - 2 * layout.HEAD.size:
        return None
    length, crc = facts
    index = bytes(read_up_to(opened, at - length if start is None else start, length))
    return layout.whole_index(number, head, index, crc)
