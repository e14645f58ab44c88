"""Recovery: load the newest checkpoint, then apply the commits after it in order.

Replay merges small plain commits before it applies them, so a million single appends replay in a second or two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem import events
from mainstem.errors import LogDamaged, OlderVersion, invariant
from mainstem.ledger.appends import AppendOutcome
from mainstem.ledger.entry import SLICE, AppendRun, Entry, Rows
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.replay import PlainRun, merge_plain
from mainstem.log.read.extents import SealedExtents, extents_of
from mainstem.log.read.index import ExtentIndex
from mainstem.ports.commitlog.port import Checkpoint, CommitLog, Committed, SharedCommitLog

_log = events.named("recovery")

Int64s = npt.NDArray[np.int64]

_NO_ROWS = np.empty(0, SLICE)
_NO_STARTS = np.empty(0, np.int64)
_NO_OUTCOME = AppendOutcome(np.empty(0, np.int64), np.empty(0, np.uint8))


class Followed(Protocol):
    """The part of a commit log that replay needs; a read-only view implements it too."""

    def follow(self, position: int) -> AsyncIterator[list[Committed]]: ...

    def load_checkpoint(self) -> Checkpoint | None: ...


@dataclass(slots=True)
class RecoveredLog:
    ledger: Ledger
    index: ExtentIndex
    checkpoint_position: int
    replayed_bytes: int = 0  # size of the objects with commits after the checkpoint
    unsealed: list[SealedExtents] = field(default_factory=list)  # complete objects without an index
    damaged: list[tuple[int, int, int]] = field(default_factory=list)  # (stream, start, end) of lost offsets


@dataclass(slots=True)
class RecoveryProgress:
    """How far replay is, in commits of the log."""

    start: int = 0
    position: int = 0
    end: int = 0  # 0: not known yet

    @property
    def done(self) -> float:
        """From 0 to 1."""
        if not self.end:
            return 0.0
        return min(1.0, (self.position - self.start) / max(1, self.end - self.start))


@dataclass(frozen=True, slots=True)
class Replayed:
    """Slices that were applied: their outcome, and where their bytes are."""

    rows: Rows  # of SLICE
    outcome: AppendOutcome
    object: int
    starts: Int64s  # byte where each slice starts in the object
    intact: bool  # False: a slice of these commits does not match its checksum


def load_ledger(port: Followed, *, trust: bool = False) -> Ledger:
    """The ledger of the newest checkpoint, or an empty one.

    `trust`: neither the checkpoint nor replay fails when digests disagree."""
    checkpoint = port.load_checkpoint()
    ledger = Ledger()
    if checkpoint is not None:
        try:
            ledger = Ledger.decode(checkpoint.state, trust=trust)
        except OlderVersion as error:
            _log.warning(
                "checkpoint not readable", reason=str(error), action="replaying the log from its start"
            )
            checkpoint = None
    ledger.trusts_log = trust
    if checkpoint is None:
        return ledger
    if ledger.position != checkpoint.position:
        raise LogDamaged(
            f"the checkpoint of position {checkpoint.position} holds the state of position {ledger.position}: "
            "restore the checkpoint from a backup"
        )
    return ledger


async def replay(port: Followed, ledger: Ledger, until: int | None = None) -> AsyncIterator[Replayed]:
    """Apply the commits from the ledger's position on, and yield where their slices are."""
    async for chunk in port.follow(ledger.position):
        if until is not None and ledger.position + len(chunk) > until:
            chunk = chunk[: until - ledger.position]
        for replayed in apply_commits(chunk, ledger):
            yield replayed
        if ledger.position == until:
            return


def apply_commits(commits: list[Committed], ledger: Ledger) -> Iterator[Replayed]:
    """Apply commits that start at the ledger's position, and yield where their slices are."""
    for run in _by_object(commits):
        yield from _apply(run, ledger)


def _by_object(commits: list[Committed]) -> list[list[Committed]]:
    """Split where the object or the payload's integrity changes: merged commits share both."""
    runs: list[list[Committed]] = []
    last: tuple[int, bool] | None = None
    for commit in commits:
        kind = (commit.placement.object, commit.payload_intact)
        if kind != last:
            runs.append([])
            last = kind
        runs[-1].append(commit)
    return runs


def _apply(commits: list[Committed], ledger: Ledger) -> list[Replayed]:
    found: list[Replayed] = []
    at = 0
    object, intact = commits[0].placement.object, commits[0].payload_intact
    for work in merge_plain([commit.entry for commit in commits], ledger):
        if isinstance(work, PlainRun):
            outcome = ledger.apply_plain(
                work.rows,
                broker=work.broker,
                broker_epoch=work.broker_epoch,
                last_commit_id=work.last_commit_id,
                time_ms=work.time_ms,
                entries=work.entries,
            )
            payloads = [commit.placement.start for commit in commits[at : at + work.entries]]
            starts = _starts(work.rows, work.slices, np.array(payloads, np.int64))
            found.append(Replayed(work.rows, outcome, object, starts, intact))
            at += work.entries
        else:
            found += _apply_entry(work, commits[at], ledger)
            at += 1
    invariant(at == len(commits), "every commit of a chunk is applied")
    return found


def _apply_entry(entry: Entry, commit: Committed, ledger: Ledger) -> list[Replayed]:
    object, start, intact = commit.placement.object, commit.placement.start, commit.payload_intact
    # Never empty: the index must also list an object that holds only commands.
    found = [Replayed(_NO_ROWS, _NO_OUTCOME, object, _NO_STARTS, True)]
    for part, outcome in zip(entry.parts, ledger.apply(entry), strict=True):
        if isinstance(part, AppendRun):
            slices = np.array([len(part.slices)])
            starts = _starts(part.slices, slices, np.array([start], np.int64))
            start += int(part.slices["length"].sum(dtype=np.int64))
            if isinstance(outcome, AppendOutcome):  # else it repeats a commit whose slices are indexed
                found.append(Replayed(part.slices, outcome, object, starts, intact))
    return found


def _starts(rows: Rows, slices: Int64s, payloads: Int64s) -> Int64s:
    """Where each slice starts: the slices of an entry are contiguous from the start of its payload."""
    before = np.cumsum(rows["length"], dtype=np.int64) - rows["length"]
    firsts = np.cumsum(slices) - slices
    starts: Int64s = before + np.repeat(payloads - before[np.minimum(firsts, len(rows) - 1)], slices)
    return starts


async def recover(
    port: CommitLog,
    shared: SharedCommitLog | None = None,
    *,
    trust: bool = False,
    progress: RecoveryProgress | None = None,
) -> RecoveredLog:
    """Rebuild the state; write nothing. `shared`: the same port, if other brokers write to it meanwhile.

    `trust`: as for `load_ledger`."""
    ledger = load_ledger(port, trust=trust)
    _check_reaches_back(port, ledger)
    if shared is not None:
        await shared.refresh()  # the checkpoint may cover objects that this port has not listed yet
    recovered = RecoveredLog(ledger, ExtentIndex(ledger.repacked), ledger.position)
    sealed = set()
    for object in port.objects():
        if object.sealed:
            sealed.add(object.number)
        if object.number < ledger.repacked.frontier:
            continue  # repacked files serve it, or it was repacked and deleted
        if object.end_position <= ledger.position:
            try:
                index = port.read_index(object.number)
            except FileNotFoundError:
                if shared is None:
                    raise
                continue  # the broker that maintains the log has just deleted it
            recovered.index.add_sealed(SealedExtents.decode(object.number, index))
        else:
            recovered.replayed_bytes += object.size_bytes
    damaged: list[tuple[int, list[tuple[int, int, int]]]] = []  # by object
    progress = progress or RecoveryProgress()
    progress.start = progress.position = ledger.position
    progress.end = port.end if shared is None else await shared.tail()
    async for replayed in replay(port, ledger):
        progress.position = ledger.position
        if recovered.index.open_number not in (None, replayed.object):
            _finish(recovered, sealed)
        extents = extents_of(replayed.rows, replayed.outcome, replayed.starts)
        recovered.index.open_object(replayed.object).extend(extents)
        if not replayed.intact:
            damaged.append((replayed.object, _damaged(port, replayed.object, extents)))
    if recovered.index.open_number in sealed:
        _finish(recovered, sealed)
    recovered.index.follow_repack()
    for number, lost in damaged:
        if number >= ledger.repacked.frontier:  # else the repacked copy is intact
            recovered.damaged += lost
    if ledger.position != port.end:
        raise LogDamaged(
            f"the log ends at position {port.end}, but its commits end at position {ledger.position}: "
            "restore the missing files from a backup"
        )
    if ledger.digests_skipped:
        _log.warning(
            "digests not comparable",
            digests=ledger.digests_skipped,
            position=ledger.position,
            reason="a development build wrote them; the state is intact, and new digests are compared again",
        )
    return recovered


def _check_reaches_back(port: CommitLog, ledger: Ledger) -> None:
    """Raises OlderVersion if the only checkpoint is one that cannot be read and the log alone is not enough."""
    first = min((one.first_position for one in port.objects()), default=0)
    if ledger.position == 0 < first and port.load_checkpoint() is not None:
        raise OlderVersion(
            f"a development build wrote the checkpoint, and the log no longer has the commits before {first}: "
            "open the log with the build that wrote it, make a backup, and copy the topics to a new log"
        )


def _finish(recovered: RecoveredLog, sealed: set[int]) -> None:
    extents = recovered.index.finish()
    if extents is None:
        return
    if extents.number in sealed:
        recovered.index.mark_sealed(extents.number)
    else:
        recovered.unsealed.append(extents)


def _damaged(port: CommitLog, object: int, extents: Rows) -> list[tuple[int, int, int]]:
    """The offsets of the slices that do not match their checksum."""
    found = []
    for stream, count, base, start, length, crc, _ in extents.tolist():
        if crc32c(port.read(object, start, length)) != crc:
            found.append((stream, base, base + count))
    return found
