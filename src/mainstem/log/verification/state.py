"""Replaying the log beside the checkpoints: the states must agree, and the offsets with the indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mainstem import limits
from mainstem.errors import LedgerDiverged, LogDamaged, MainstemError
from mainstem.ledger.ledger import Ledger
from mainstem.log.extents import Rows, extents_of
from mainstem.log.recovery import apply_commits
from mainstem.log.verification.problems import Problem, Problems, Severity
from mainstem.log.verification.scan import FoundFrame
from mainstem.ports.commitlog.checkpoints import Checkpoints
from mainstem.ports.commitlog.layout import CHECKPOINTS
from mainstem.ports.commitlog.port import Committed, Placement
from mainstem.ports.files import Files

# Whole bytes that give another state are more often new code than a bad disk: nothing is to be thrown away.
_OTHER_VERSION = (
    "keep every file as it is; open the directory with the version that wrote it, or else restore a backup"
)


class StoredStates:
    """The checkpoints of a directory: which are whole, and their digests."""

    def __init__(self, files: Files, directory: Path, problems: Problems) -> None:
        self._files = files
        self._folder = directory / CHECKPOINTS
        self._checkpoints = Checkpoints(files, self._folder, limits.CHECKPOINTS_KEPT)
        self._problems = problems
        positions = self._checkpoints.positions() if files.exists(self._folder) else []
        self.named = max(positions, default=0)  # all before it was durable, whatever became of the file
        self.digests: dict[int, int] = {}  # of the whole ones, by position
        bad = [position for position in positions if not self._take(position)]
        for position in bad:
            self._report_damaged(position)

    @property
    def base(self) -> int:
        """Where a start begins to replay."""
        return max(self.digests, default=0)

    def load(self, position: int) -> Ledger | None:
        """The state of a whole checkpoint, or of an empty log at 0; None if there is no such."""
        if position not in self.digests:
            return Ledger() if position == 0 else None
        checkpoint = self._checkpoints.read(position)
        return None if checkpoint is None else Ledger.decode(checkpoint.state)

    def report_diverged(self, position: int, replayed: int) -> None:
        self._problems.add(
            self._problem(
                Severity.DAMAGED,
                position,
                f"the state has digest {self.digests[position]:016x}, but replay gives {replayed:016x}",
                "a start from it would not hold what the log says",
                _OTHER_VERSION,
            )
        )

    def _take(self, position: int) -> bool:
        """Check one file. False if it is not whole."""
        checkpoint = self._checkpoints.read(position)
        if checkpoint is None:
            return not self._files.exists(
                self._checkpoints.path(position)
            )  # gone since it was listed: no loss
        try:
            ledger = Ledger.decode(checkpoint.state)
            if ledger.position != position:
                raise LogDamaged(f"it holds the state of position {ledger.position}")
        except (LogDamaged, LedgerDiverged) as error:
            self._problems.add(
                self._problem(
                    Severity.DAMAGED,
                    position,
                    f"its bytes are whole, but they give another state than was saved: {error}",
                    "the log cannot be opened with this version of Mainstem",
                    _OTHER_VERSION,
                )
            )
            return True
        self.digests[position] = ledger.digest()
        return True

    def _report_damaged(self, position: int) -> None:
        instead = f"the checkpoint of position {self.base}" if self.digests else "the log from its start"
        self._problems.add(
            self._problem(
                Severity.REPAIRABLE,
                position,
                "the checkpoint does not match its checksum",
                f"a start uses {instead} instead",
                "nothing need be done: newer checkpoints take its place",
            )
        )

    def _problem(self, severity: Severity, position: int, what: str, meaning: str, advice: str) -> Problem:
        path = self._checkpoints.path(position)
        size = self._files.facts(path).size_bytes
        return Problem(severity, f"{CHECKPOINTS}/{path.name}", 0, size, what, meaning, advice)


@dataclass(slots=True)
class Replay:
    """What became of some frames: the extents they gave, and whether all could be replayed."""

    extents: list[Rows] = field(default_factory=list)
    complete: bool = True


class StateCheck:
    """Replays frames as they are scanned, from the first position whose state is known."""

    def __init__(self, stored: StoredStates, problems: Problems) -> None:
        self._stored = stored
        self._problems = problems
        self._ledger: Ledger | None = None

    def take(self, file: str, number: int, found: list[FoundFrame]) -> Replay:
        """Apply the frames of one file that come next, comparing with every checkpoint on the way."""
        replay = Replay()
        for piece in self._pieces(found):
            if not self._stands_at(piece[0].frame.position) or not self._apply(file, number, piece, replay):
                replay.complete = False
        return replay

    def final(self) -> Ledger:
        """The last state there is to know."""
        ledger = self._ledger
        if ledger is None or ledger.position < self._stored.base:
            ledger = self._stored.load(self._stored.base)
        return ledger or Ledger()

    def _pieces(self, found: list[FoundFrame]) -> Iterator[list[FoundFrame]]:
        """Runs of consecutive positions that end where a checkpoint stands."""
        piece: list[FoundFrame] = []
        for one in found:
            position = one.frame.position
            if piece and (position != piece[-1].frame.position + 1 or position in self._stored.digests):
                yield piece
                piece = []
            piece.append(one)
        if piece:
            yield piece

    def _stands_at(self, position: int) -> bool:
        """Whether the state before `position` is known; a checkpoint may have it."""
        if self._ledger is not None and self._ledger.position >= position:
            return self._ledger.position == position
        ledger = self._stored.load(position)
        if ledger is None:
            return False
        self._ledger = ledger
        return True

    def _apply(self, file: str, number: int, piece: list[FoundFrame], replay: Replay) -> bool:
        ledger = self._ledger
        if ledger is None:
            return False
        first = piece[0].frame.position
        commits = [
            Committed(
                Placement(one.frame.position, number, one.frame.payload_start),
                one.entry,
                one.frame.payload_length,
                True,
            )
            for one in piece
        ]
        try:
            for replayed in apply_commits(commits, ledger):
                replay.extents.append(extents_of(replayed.rows, replayed.outcome, replayed.starts))
        except (LogDamaged, LedgerDiverged) as error:
            self._report_failure(file, piece[ledger.position - first], error)
            return False
        self._compare(ledger)
        return True

    def _compare(self, ledger: Ledger) -> None:
        stored = self._stored.digests.get(ledger.position)
        if stored is None or stored == (replayed := ledger.digest()):
            return
        self._stored.report_diverged(ledger.position, replayed)
        self._ledger = self._stored.load(ledger.position)  # a start would go on from it

    def _report_failure(self, file: str, found: FoundFrame, error: MainstemError) -> None:
        frame = found.frame
        self._problems.add(
            Problem(
                Severity.DAMAGED,
                file,
                frame.start,
                frame.end,
                f"commit {frame.position} cannot be applied: {error}",
                "the log cannot be replayed past it"
                + (
                    f", but the checkpoint of position {self._stored.base} stands after it"
                    if self._stored.base > frame.position
                    else ""
                ),
                _OTHER_VERSION,
            )
        )
