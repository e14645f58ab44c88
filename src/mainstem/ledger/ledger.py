"""The ledger: applies entries in log order and holds all durable state. No I/O, no clock, no randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mainstem import limits
from mainstem.errors import LedgerDiverged, invariant
from mainstem.ledger import checkpoint, registry
from mainstem.ledger.aliases import Aliases
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.brokers import Admission, AdmitBroker, Boot
from mainstem.ledger.digest import combine
from mainstem.ledger.entry import NO_RECORDS, AppendRun, Entry, Part, Rows
from mainstem.ledger.placement import AppendPlacer, refused
from mainstem.ledger.registry import Sections
from mainstem.ledger.section import Buffer, Moment, Outcome, Section

_STARTS = (Boot, AdmitBroker)


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The entry is a retry of one that was applied; nothing changed now."""


_REPEATED = AlreadyApplied()


class Ledger(Moment, Sections):
    """The state after `position` entries. The same entries give the same state everywhere, bit for bit."""

    def __init__(self) -> None:
        super().__init__()
        self._sections: dict[str, Section[Any]] = {}
        self._appliers: dict[type[Any], Callable[[Any, Moment], Outcome]] = {}
        self._admissions: dict[type[Any], Callable[[Any], bool]] = {}
        self._build()
        self._placement = AppendPlacer(self.streams, self.producers, self.transactions, self.idempotency)
        self.last_digest: tuple[int, int] | None = None  # (position, digest) at the last multiple
        self.trusts_log = False  # apply what the log says even if a digest in it disagrees
        self.mismatches: list[tuple[int, int, int]] = []  # ignored: (position, recorded, replayed)
        self.digests_skipped = 0  # recorded digests that cannot be compared

    def _build(self) -> None:
        """Make the sections of the registry, in order, and collect what they declare."""
        made: dict[type[Section[Any]], Section[Any]] = {}
        reactions: dict[type[Any], list[Callable[[Any, Moment], None]]] = {}
        for name, cls in registry.REGISTRY.sections.items():
            section = made[cls] = self._sections[name] = cls(*(made[needed] for needed in cls.requires))
            setattr(self, name, section)
            for command, method in cls.appliers.items():
                self._appliers[command] = getattr(section, method)
            for command, method in cls.admissions.items():
                self._admissions[command] = getattr(section, method)
            for event, method in cls.reactions.items():
                reactions.setdefault(event, []).append(getattr(section, method))
        self._reactions = reactions

    @property
    def aliases(self) -> Aliases:
        """Which records of which streams are stored as those of another stream."""
        return self.routers.legs.aliases

    # Applying

    def apply(self, entry: Entry) -> list[Outcome]:
        """One outcome per part. Raises only LedgerDiverged, before anything changes."""
        if entry.digest is not None:
            self._compare(entry.digest)
        elif entry.old_digest:
            self.digests_skipped += 1
        parts = entry.parts
        admission = self.brokers.admit(entry.broker, entry.broker_epoch, entry.commit_id, entry.commit_id)
        if admission and len(parts) == 1 and type(parts[0]) in _STARTS:
            admission = Admission.APPLY  # a broker without an epoch requests one
        outcomes: list[Outcome]
        if admission == Admission.REPEATED:
            outcomes = [_REPEATED] * len(parts)
        elif admission == Admission.FENCED:
            outcomes = [self._refuse(part, entry) for part in parts]
        else:
            self._advance_time(entry.time_ms)
            if len(parts) == 1:
                outcomes = [self._apply_part(parts[0])]
            else:
                outcomes = self._apply_parts(entry)
        self._step(1)
        return outcomes

    def apply_plain(
        self, rows: Rows, *, broker: int, broker_epoch: int, last_commit_id: int, time_ms: int, entries: int
    ) -> AppendOutcome:
        """Apply the rows of several consecutive PLAIN entries at once, as if one by one (see replay.py).

        Their commit ids are consecutive and end at `last_commit_id`, none carries record rows or a digest,
        and their times lie in one PRODUCER_TIME_STEP_MS, `time_ms` being the latest."""
        until_digest = limits.DIGEST_EVERY_COMMITS - self.position % limits.DIGEST_EVERY_COMMITS
        invariant(0 < entries <= until_digest, "plain entries are joined within one digest interval")
        admission = self.brokers.admit(broker, broker_epoch, last_commit_id - entries + 1, last_commit_id)
        invariant(admission != Admission.REPEATED, "plain entries that repeat a commit id are not joined")
        if admission == Admission.APPLY:
            self._advance_time(time_ms)
            outcome = self._placement.place(rows, NO_RECORDS, self.time_ms)
        else:
            outcome = refused(len(rows), AppendCode.BROKER_FENCED)
        self._step(entries)
        return outcome

    def apply_lone(
        self, fields: tuple[int, ...], *, broker: int, broker_epoch: int, commit_id: int, time_ms: int
    ) -> tuple[int, int]:
        """As `apply` of an entry whose only part is one slice, without record rows and digest.

        `fields`: the SLICE row, unpacked. Returns the base offset and an AppendCode."""
        admission = self.brokers.admit(broker, broker_epoch, commit_id, commit_id)
        if admission:
            invariant(admission != Admission.REPEATED, "the writer numbers its commits")
            placed = -1, int(AppendCode.BROKER_FENCED)
        else:
            if time_ms > self.time_ms:
                self.time_ms = time_ms
            placed = self._placement.place_lone(fields, self.time_ms)
        self.position += 1
        if not self.position % limits.DIGEST_EVERY_COMMITS:
            self.last_digest = (self.position, self.digest())
        return placed

    def _apply_parts(self, entry: Entry) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part, after in zip(entry.parts, [*entry.parts[1:], None], strict=True):
            # An earlier part may have ended this broker's own epoch.
            if not self.brokers.live(entry.broker, entry.broker_epoch):
                outcomes.append(self._refuse(part, entry))
            elif isinstance(part, AppendRun) and not self._admits(after):
                outcomes.append(refused(len(part.slices), AppendCode.OVERTAKEN))
            else:
                outcomes.append(self._apply_part(part))
            self.before = outcomes[-1]
        self.before = None
        return outcomes

    def _admits(self, after: Part | None) -> bool:
        """Whether an append run applies, given the part that follows it."""
        admits = self._admissions.get(type(after))
        return admits is None or admits(after)

    def _apply_part(self, part: Part) -> Outcome:
        if isinstance(part, AppendRun):
            return self._placement.place(part.slices, part.records, self.time_ms)
        return self._appliers[type(part)](part, self)

    def _refuse(self, part: Part, entry: Entry) -> Outcome:
        if isinstance(part, AppendRun):
            return refused(len(part.slices), AppendCode.BROKER_FENCED)
        return self.brokers.refusal(entry.broker, entry.broker_epoch)

    def _advance_time(self, time_ms: int) -> None:
        if time_ms > self.time_ms:
            self.time_ms = time_ms

    def _step(self, entries: int) -> None:
        self.position += entries
        if not self.position % limits.DIGEST_EVERY_COMMITS:
            self.last_digest = (self.position, self.digest())

    def _compare(self, recorded: tuple[int, int]) -> None:
        if not self.last_digest or recorded[0] != self.last_digest[0] or recorded[1] == self.last_digest[1]:
            return
        if self.trusts_log:
            if len(self.mismatches) < limits.DIVERGENCES_SHOWN:
                self.mismatches.append((*recorded, self.last_digest[1]))
            return
        raise LedgerDiverged(
            f"after {recorded[0]} entries the log recorded the digest {recorded[1]:016x}, but this replay gives "
            f"{self.last_digest[1]:016x}: another version of Mainstem wrote the log, or its bytes were changed"
        )

    # State as a whole

    def digest(self) -> int:
        """64 bits that are equal wherever the same commands were applied, however they were split into entries."""
        return combine(self.digests())

    def digests(self) -> dict[str, int]:
        """The digest of each section."""
        return {name: section.digest for name, section in self._sections.items()}

    def encode(self) -> bytes:
        """A checkpoint: the whole state, to continue from with `decode`."""
        state = self.state()
        return checkpoint.pack(state, combine(state.digests))

    def state(self) -> checkpoint.LedgerState[Any]:
        sections = {name: section.encode() for name, section in self._sections.items()}
        return checkpoint.LedgerState(self.position, self.time_ms, self.last_digest, self.digests(), sections)

    @classmethod
    def decode(cls, data: Buffer, *, trust: bool = False) -> Ledger:
        """Raises NewerVersion, OlderVersion, LogDamaged, or LedgerDiverged if the digest of the state differs.

        `trust`: accept the state as stored, whatever its digest."""
        state, digest = checkpoint.unpack(data)
        ledger = cls()
        for name, section in ledger._sections.items():
            section.load(getattr(state.sections, name))
        ledger.position, ledger.time_ms, ledger.last_digest = state.position, state.time_ms, state.last_digest
        if digest is None:
            ledger.last_digest = None
            ledger.digests_skipped = 1
        elif not trust:
            ledger._check(digest, state.digests)
        return ledger

    def _check(self, digest: int, recorded: dict[str, int]) -> None:
        """Compare the digest of a checkpoint with that of its state."""
        found = self.digests()
        if combine(found) != digest:
            differ = [name for name in found if found[name] != recorded.get(name)]
            raise LedgerDiverged(
                f"the checkpoint at position {self.position} has the digest {digest:016x}, but its state gives "
                f"{combine(found):016x}" + (f"; sections that differ: {', '.join(differ)}" if differ else "")
            )
