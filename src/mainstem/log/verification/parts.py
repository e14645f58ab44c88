"""Checking the files of parts: that they are there, whole, and hold what the ledger says."""

from __future__ import annotations

import io
from pathlib import Path

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.parts import DataFile
from mainstem.log.verification.problems import LostRange, Problem, Problems, Severity
from mainstem.ports.files import File, Files, read_up_to

OBJECTS = "objects"  # the store's folder in a data directory


class PartsCheck:
    """`owned`: a live process may delete files meanwhile, so those that are missing are no problem."""

    def __init__(
        self, files: Files, directory: Path, problems: Problems, *, owned: bool, quick: bool
    ) -> None:
        self._files = files
        self._directory = directory
        self._problems = problems
        self._owned = owned
        self._quick = quick

    def run(self, ledger: Ledger) -> int:
        """Look at every file that a part names. Returns how many there are."""
        checked = 0
        for stream in ledger.generations.streams():
            for part in ledger.generations.parts(stream, ledger.streams.start(stream)):
                for file in part.files:
                    checked += 1
                    wrong = self._wrong(file)
                    if wrong:
                        self._report(stream, file, wrong)
        return checked

    def _wrong(self, file: DataFile) -> str:
        path = self._directory / OBJECTS / file.key
        try:
            opened = self._files.open(path)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            return "" if missing and self._owned else f"the file cannot be opened: {error.strerror}"
        try:
            size = opened.size()
            if size != file.bytes:
                return f"the file has {size} bytes, not {file.bytes}"
            return self._wrong_inside(file, _Seekable(opened, size))
        finally:
            opened.close()

    def _wrong_inside(self, file: DataFile, source: _Seekable) -> str:
        from mainstem.records.parquet import RowFile  # Arrow, only where there are parts

        try:
            rows = RowFile(source)
            try:
                if (len(rows), rows.facts.base, rows.facts.end) != (file.records, file.base, file.end):
                    return f"the file holds {len(rows)} records of [{rows.facts.base}, {rows.facts.end})"
                if not self._quick:
                    for _ in rows.rows():
                        continue  # every page has its checksum
            finally:
                rows.close()
        except (LogDamaged, NewerVersion, OSError) as error:
            return str(error)
        return ""

    def _report(self, stream: int, file: DataFile, wrong: str) -> None:
        self._problems.add(
            Problem(
                Severity.DAMAGED,
                f"{OBJECTS}/{file.key}",
                0,
                file.bytes,
                wrong,
                advice="restore the file from a backup: the log no longer has these records",
                lost=[LostRange(stream, file.base, file.end)],
                in_parts=True,
            )
        )


class _Seekable(io.RawIOBase):
    """A file of the port as Arrow reads one."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        found = bytes(read_up_to(self._file, self._at, left if size is None or size < 0 else min(size, left)))
        self._at += len(found)
        return found
