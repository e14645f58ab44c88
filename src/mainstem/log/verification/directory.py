"""Checking a whole data directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mainstem.errors import DirectoryUnusable
from mainstem.ledger.ledger import Ledger
from mainstem.log.verification.chain import Chain, Durable
from mainstem.log.verification.cold import ColdNotes
from mainstem.log.verification.coverage import Coverage
from mainstem.log.verification.parts import OBJECTS, PartsCheck
from mainstem.log.verification.problems import Problem, Problems, Severity
from mainstem.log.verification.repacked import RepackedCheck
from mainstem.log.verification.segment import SegmentCheck
from mainstem.log.verification.state import StateCheck, StoredStates
from mainstem.log.verification.windows import WindowedFile
from mainstem.ports.commitlog import identity, segments
from mainstem.ports.commitlog.identity import LogId
from mainstem.ports.commitlog.layout import FORMAT, QUARANTINE, WAL
from mainstem.ports.commitlog.segments import segment_path
from mainstem.ports.commitlog.surveys import SegmentSurvey, survey_file
from mainstem.ports.files import Files, OsFiles


@dataclass(slots=True)
class VerificationReport:
    """What a check found."""

    directory: Path
    quick: bool
    whole: bool  # False: a live owner goes on writing, and what it may change was left out
    segments: int = 0
    commits: int = 0
    records: int = 0  # in the commits that were read, refused ones included
    bytes: int = 0
    topics: int = 0
    part_files: int = 0
    repacked_files: int = 0
    problems: list[Problem] = field(default_factory=list)
    counts: dict[Severity, int] = field(default_factory=dict)  # of all problems, listed or not
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """No record is lost and the log can be opened."""
        return not self.counts[Severity.DAMAGED]


def _no_progress(total: int) -> Callable[[int], None]:
    return lambda _: None


class DirectoryCheck:
    """Checks a data directory. `owned`: a live process owns it, so only what never changes is checked."""

    def __init__(
        self, directory: Path, *, files: Files | None = None, owned: bool = False, quick: bool = False
    ) -> None:
        self._files = files or OsFiles()
        self._directory = directory
        self._wal = directory / WAL
        self._owned = owned
        self._problems = Problems()
        self._report = VerificationReport(directory, quick, not owned)

    def run(self, progress: Callable[[int], Callable[[int], None]] = _no_progress) -> VerificationReport:
        """`progress` is told how many bytes there are, and gives what is called for some of them at a time.

        Raises DirectoryUnusable or NewerVersion."""
        if not self._files.exists(self._wal):
            raise DirectoryUnusable(
                f"there is no log at {self._directory}: name its directory with --data-dir"
            )
        stored = StoredStates(self._files, self._directory, self._problems)
        numbers = sorted(filter(None, map(segments.number_of, self._files.listdir(self._wal))))
        log = self._identify(numbers)
        state = StateCheck(stored, self._problems)
        if log is not None:
            found, unread = self._survey(log, numbers)
            durable = Durable(stored.base, stored.named)
            chain = Chain(self._files, self._directory, log, durable, self._problems)
            kept = chain.check(found, unread)
            self._check_segments(log, kept, unread, state, stored, progress)
        final = state.final()
        self._check_parts(final)
        self._problems.settle(final)
        self._finish(final)
        return self._report

    def _identify(self, numbers: list[int]) -> LogId | None:
        """The log id: from FORMAT, or else from a segment's header."""
        log = identity.read_format(self._files, self._directory)
        if log is not None:
            return log
        path = self._directory / FORMAT
        size = self._files.facts(path).size_bytes if self._files.exists(path) else 0
        for number in numbers:
            file = self._files.open(segment_path(self._wal, number))
            try:
                header = segments.read_header(file)
            finally:
                file.close()
            if header is not None:
                self._problems.add(
                    Problem(
                        Severity.REPAIRABLE,
                        FORMAT,
                        0,
                        size,
                        "the file is missing or damaged",
                        "the headers of the log files tell the log id as well, so nothing is lost",
                        "the next start writes it again",
                    )
                )
                return LogId(header.log)
        if numbers:
            self._problems.add(
                Problem(
                    Severity.DAMAGED,
                    FORMAT,
                    0,
                    size,
                    "the file is missing or damaged, and so is the header of every log file",
                    "nothing tells which log this is, so it cannot be opened or checked further",
                    "restore FORMAT from a backup",
                )
            )
        return None

    def _survey(self, log: LogId, numbers: list[int]) -> tuple[list[SegmentSurvey], set[int]]:
        """Every file as found, and the numbers of those that a live owner may still change."""
        found: list[SegmentSurvey] = []
        unread: set[int] = set()
        for number in numbers:
            try:
                if self._owned and not self._is_sealed(log, number):
                    unread.add(number)
                    continue
                found.append(survey_file(self._files, self._wal, log, number))
            except FileNotFoundError:  # dropped by the owner since it was listed
                continue
        if self._owned:
            self._report.notes.append(
                f"a live process owns the directory: files it may still write to ({len(unread)}) were not "
                "checked, nor whether every record is in some file"
            )
        return found, unread

    def _is_sealed(self, log: LogId, number: int) -> bool:
        file = self._files.open(segment_path(self._wal, number))
        try:
            return segments.read_footer(file, log, number) is not None
        finally:
            file.close()

    def _check_segments(
        self,
        log: LogId,
        kept: list[SegmentSurvey],
        unread: set[int],
        state: StateCheck,
        stored: StoredStates,
        progress: Callable[[int], Callable[[int], None]],
    ) -> None:
        advance = progress(sum(one.size for one in kept))
        coverage = Coverage(stored.load(stored.base) or Ledger())
        cold = ColdNotes(
            self._files, self._directory, log, self._problems, skip={one.number for one in kept} | unread
        )
        for one in kept:
            self._check_cold(cold, coverage, one.number)
            try:
                file = WindowedFile(self._files.open(segment_path(self._wal, one.number)))
            except FileNotFoundError:  # dropped by the owner since it was listed
                continue
            try:
                facts = SegmentCheck(
                    file,
                    one,
                    log,
                    state,
                    self._problems,
                    base=stored.base,
                    quick=self._report.quick,
                    progress=advance,
                ).run()
            finally:
                file.close()
            self._report.segments += 1
            self._report.commits += facts.commits
            self._report.records += facts.records
            self._report.bytes += one.size
            if facts.spans is not None:
                coverage.add(one.number, facts.spans)
        self._check_cold(cold, coverage, None)
        final = state.final()
        covered = self._check_repacked(coverage, final)
        if not self._owned:
            if covered:
                coverage.finish(final, self._problems)
            cold.finish(final)

    def _check_parts(self, final: Ledger) -> None:
        if len(final.tiers) and not self._files.exists(self._directory / OBJECTS):
            if any(final.generations.streams()):
                self._report.notes.append(
                    "files of parts are in an object store, where they were not checked"
                )
            return
        check = PartsCheck(
            self._files, self._directory, self._problems, owned=self._owned, quick=self._report.quick
        )
        self._report.part_files = check.run(final)

    def _check_repacked(self, coverage: Coverage, final: Ledger) -> bool:
        """Take in what repacked files hold. False if they are elsewhere, so that nobody knows."""
        if final.repacked.rounds and not self._files.exists(self._directory / OBJECTS):
            self._report.notes.append(
                "repacked files are in an object store: they were not checked, nor whether every record is in a file"
            )
            return False
        check = RepackedCheck(
            self._files, self._directory, self._problems, owned=self._owned, quick=self._report.quick
        )
        self._report.repacked_files = check.run(final, coverage)
        return True

    def _check_cold(self, cold: ColdNotes, coverage: Coverage, before: int | None) -> None:
        """Take in what the notes say of objects in the object store, up to the number given."""
        for number, spans in cold.take(before):
            coverage.add(number, spans)
        if before is None and cold.objects:
            self._report.notes.append(
                f"{cold.objects} older files of the log ({cold.bytes} bytes) are in an object store, where they were "
                "not read: their notes in cold/ are what was checked"
            )

    def _finish(self, final: Ledger) -> None:
        report = self._report
        report.topics = len(final.topics)
        order = {severity: rank for rank, severity in enumerate(Severity)}
        report.problems = sorted(self._problems.found, key=lambda problem: order[problem.severity])
        report.counts = self._problems.counts()
        unlisted = sum(self._problems.more.values())
        if unlisted:
            report.notes.append(f"{unlisted} more problems are counted but not listed")
        quarantine = self._directory / QUARANTINE
        if self._files.exists(quarantine) and (held := self._files.listdir(quarantine)):
            report.notes.append(f"{QUARANTINE}/ holds {len(held)} files that earlier starts cut off the log")
