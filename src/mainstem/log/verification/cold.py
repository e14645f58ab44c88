"""The notes of objects in an object store: their offsets count as present, and damaged notes are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mainstem.errors import LogDamaged
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import Rows, SealedExtents
from mainstem.log.verification.problems import Problem, Problems, Severity
from mainstem.ports.commitlog.local.cold import SUFFIX, note_numbers, read_note
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import COLD
from mainstem.ports.files import Files


class ColdNotes:
    """Read in order of the objects' numbers, between the files of the log. `skip`: objects whose file is on disk."""

    def __init__(
        self, files: Files, directory: Path, log: LogId, problems: Problems, *, skip: set[int]
    ) -> None:
        self._files = files
        self._folder = directory / COLD
        self._log = log
        self._problems = problems
        self._left = sorted(set(note_numbers(files, self._folder)) - skip, reverse=True)
        self._seen = set(skip)
        self.objects = 0
        self.bytes = 0

    def take(self, before: int | None) -> Iterator[tuple[int, Rows]]:
        """Number and spans of each further object whose number is less than `before`; None: of all."""
        while self._left and (before is None or self._left[-1] < before):
            number = self._left.pop()
            spans = self._spans(number)
            if spans is not None:
                yield number, spans

    def finish(self, ledger: Ledger) -> None:
        """Report missing and damaged notes, after the last `take`: the ledger knows what is in the store."""
        for tier in ledger.tiers:
            if ledger.tiers.stored(tier.object) == tier and tier.object not in self._seen:
                path = self._path(tier.object)
                size = self._files.facts(path).size_bytes if self._files.exists(path) else 0
                self._problems.add(
                    Problem(
                        Severity.REPAIRABLE,
                        f"{COLD}/{path.name}",
                        0,
                        size,
                        "the note of a file in the object store is missing or damaged",
                        "the file itself is in the store, so nothing is lost",
                        "the next start restores it if it reaches the store",
                    )
                )

    def _spans(self, number: int) -> Rows | None:
        noted = read_note(self._files, self._path(number), self._log, number)
        if noted is None:
            return None
        try:
            spans = SealedExtents.decode(number, noted[1]).spans
        except LogDamaged:
            return None
        self._seen.add(number)
        self.objects += 1
        self.bytes += noted[0].size_bytes
        return spans

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}{SUFFIX}"
