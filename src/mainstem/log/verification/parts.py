"""Check the files of parts: they exist, are intact, and match the ledger."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mainstem import extras
from mainstem.api.lake import DataFile
from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ledger.ledger import Ledger
from mainstem.log.verification.problems import LostRange, Problem, Problems, Severity
from mainstem.ports.files import Files, read_up_to
from mainstem.ports.objectstore.range_file import RangeFile

OBJECTS = "objects"  # the store's folder in a data directory


class PartsCheck:
    """`owned`: a live process may delete files meanwhile, so missing files are not a problem."""

    def __init__(
        self, files: Files, directory: Path, problems: Problems, *, owned: bool, quick: bool
    ) -> None:
        self._files = files
        self._directory = directory
        self._problems = problems
        self._owned = owned
        self._quick = quick

    def run(self, ledger: Ledger) -> int:
        """Check every file that a part names. Returns how many there are."""
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
            return self._wrong_inside(file, RangeFile(partial(read_up_to, opened), size))
        finally:
            opened.close()

    def _wrong_inside(self, file: DataFile, source: RangeFile) -> str:
        extras.require("lake", "checking Parquet files", "pyarrow")
        from mainstem.records.parquet import RowFile  # imports Arrow, so only if there are parts

        try:
            rows = RowFile(source)
            try:
                if (len(rows), rows.facts.base, rows.facts.end) != (file.records, file.base, file.end):
                    return f"the file holds {len(rows)} records of [{rows.facts.base}, {rows.facts.end})"
                if not self._quick:
                    for _ in rows.rows():
                        continue  # reading a page verifies its checksum
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
