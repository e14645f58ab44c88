"""Replay the log and compare it with the checkpoints: states must agree, and offsets must match the indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mainstem import limits
from mainstem.errors import LedgerDiverged, LogDamaged, MainstemError
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import Rows, extents_of
from mainstem.log.recovery import apply_commits
from mainstem.log.verification.problems import Problem, Problems, Severity
from mainstem.log.verification.scan import FoundFrame
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.local.layout import CHECKPOINTS
from mainstem.ports.commitlog.port import Committed, Placement
from mainstem.ports.files import Files

# Intact bytes that give another state are more often new code than a bad disk: advise to keep every file.
_OTHER_VERSION = (
    "keep every file as it is; open the directory with the version that wrote it, or else restore a backup"
)


class StoredStates:
    """The checkpoints of a directory: which are intact, and their digests."""

    def __init__(self, files: Files, directory: Path, problems: Problems) -> None:
        self._files = files
        self._folder = directory / CHECKPOINTS
        self._checkpoints = LocalCheckpoints(files, self._folder, limits.CHECKPOINTS_KEPT)
        self._problems = problems
        positions = self._checkpoints.positions() if files.exists(self._folder) else []
        # Every commit before `named` was durable, even if the file is damaged.
        self.named = max(positions, default=0)
        self.digests: dict[int, int] = {}  # of the intact ones, by position
        bad = [position for position in positions if not self._take(position)]
        for position in bad:
            self._report_damaged(position)

    @property
    def base(self) -> int:
        """Where a start begins to replay."""
        return max(self.digests, default=0)

    def load(self, position: int) -> Ledger | None:
        """The state of an intact checkpoint, or of an empty log at 0; None if there is no such checkpoint."""
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
                "recovery from it would not have the state of the log",
                _OTHER_VERSION,
            )
        )

    def _take(self, position: int) -> bool:
        """Check one file. False if it is damaged."""
        checkpoint = self._checkpoints.read(position)
        if checkpoint is None:
            # Deleted since it was listed: not a loss.
            return not self._files.exists(self._checkpoints.path(position))
        try:
            ledger = Ledger.decode(checkpoint.state)
            if ledger.position != position:
                raise LogDamaged(f"it holds the state of position {ledger.position}")
        except (LogDamaged, LedgerDiverged) as error:
            self._problems.add(
                self._problem(
                    Severity.DAMAGED,
                    position,
                    f"its bytes are intact, but they give another state than was saved: {error}",
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
                "no action needed: newer checkpoints replace it",
            )
        )

    def _problem(self, severity: Severity, position: int, what: str, meaning: str, advice: str) -> Problem:
        path = self._checkpoints.path(position)
        size = self._files.facts(path).size_bytes
        return Problem(severity, f"{CHECKPOINTS}/{path.name}", 0, size, what, meaning, advice)


@dataclass(slots=True)
class Replay:
    """The result of replaying frames: their extents, and whether all frames could be replayed."""

    extents: list[Rows] = field(default_factory=list)
    complete: bool = True


class StateCheck:
    """Replays frames as they are scanned, from the first position whose state is known."""

    def __init__(self, stored: StoredStates, problems: Problems) -> None:
        self._stored = stored
        self._problems = problems
        self._ledger: Ledger | None = None

    def take(self, file: str, number: int, found: list[FoundFrame]) -> Replay:
        """Apply the next frames of one file, and compare with every checkpoint on the way."""
        replay = Replay()
        for piece in self._pieces(found):
            if not self._stands_at(piece[0].frame.position) or not self._apply(file, number, piece, replay):
                replay.complete = False
        return replay

    def final(self) -> Ledger:
        """The last known state."""
        ledger = self._ledger
        if ledger is None or ledger.position < self._stored.base:
            ledger = self._stored.load(self._stored.base)
        return ledger or Ledger()

    def _pieces(self, found: list[FoundFrame]) -> Iterator[list[FoundFrame]]:
        """Runs of consecutive positions that end at checkpoints."""
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
        """Whether the state before `position` is known, possibly from a checkpoint."""
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
        self._ledger = self._stored.load(ledger.position)  # a start would continue from it

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
                    f", but the checkpoint of position {self._stored.base} is after it"
                    if self._stored.base > frame.position
                    else ""
                ),
                _OTHER_VERSION,
            )
        )
