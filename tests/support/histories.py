"""What clients of several brokers saw, and whether it is consistent.

A history is what the outside saw, in the order it saw it: writes with their outcome, reads, committed cursors, leases,
fences. `check` compares it with itself and with what the streams hold in the end, and names everything that breaks a
promise. It knows nothing of brokers, so it judges a simulation, a real cluster or a recorded trace alike.

Every value is written once, so that a record names the write it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from mainstem.errors import InvariantBroken

Record = tuple[int, bytes]  # offset, value


class Broken(Enum):
    """The promises."""

    LOST = "a write that was acknowledged is not there"
    MISPLACED = "a write that was acknowledged is at another offset"
    DUPLICATE = "one write is there twice"
    TWO_CONTENTS = "one offset had two contents"
    INVENTED = "a value that nobody wrote"
    REFUSED_VISIBLE = "a write that was refused is there"
    ABORTED_READ = "a record of an aborted transaction was read"
    UNCOMMITTED_READ = "a record of a transaction was read before it was committed"
    READ_BACKWARDS = "a reader went backwards, or saw less than it had seen"
    CURSOR_BACKWARDS = "a committed cursor went backwards, or was forgotten"
    LEASE_SHARED = "two held one lease at the same time"
    FENCED_VISIBLE = "a fenced writer's later write is there"


@dataclass(frozen=True, slots=True)
class Finding:
    broken: Broken
    detail: str

    def __str__(self) -> str:
        return f"{self.broken.value}: {self.detail}"


class Outcome(Enum):
    OPEN = "open"  # no response yet, or an unknown outcome: it may exist, or appear later
    ACKED = "acked"
    REFUSED = "refused"  # definitely: it does not exist and never will


@dataclass(slots=True)
class Write:
    """One value that a client wrote, with its outcome."""

    writer: str
    stream: str
    value: bytes
    transaction: str | None
    started: int
    outcome: Outcome = Outcome.OPEN
    offset: int = -1

    def acked(self, offset: int) -> None:
        self.outcome, self.offset = Outcome.ACKED, offset

    def refused(self) -> None:
        self.outcome = Outcome.REFUSED


@dataclass(slots=True)
class _Transaction:
    committing: bool = False  # somebody asked to commit it: from then on it may be read
    committed: bool = False  # … and was told that it is: from then on it must be there
    aborted: bool = False


@dataclass(slots=True)
class _Hold:
    lease: str
    holder: str
    since: float
    until: float


@dataclass
class ClusterHistory:
    """What was seen from outside. Calls are noted in the order they happen."""

    writes: dict[bytes, Write] = field(default_factory=dict)
    _findings: list[Finding] = field(default_factory=list)
    _steps: int = 0
    _contents: dict[tuple[str, int], bytes] = field(default_factory=dict)
    _places: dict[tuple[str, bytes], int] = field(default_factory=dict)
    _readers: dict[tuple[str, str], int] = field(default_factory=dict)
    _cursors: dict[tuple[str, str], int] = field(default_factory=dict)
    _cursors_asked: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    _transactions: dict[str, _Transaction] = field(default_factory=dict)
    _fences: dict[str, int] = field(default_factory=dict)
    _holds: list[_Hold] = field(default_factory=list)
    _removed: dict[str, int] = field(default_factory=dict)
    _repeating: set[str] = field(default_factory=set)

    # Writes

    def write(self, writer: str, stream: str, value: bytes, *, transaction: str | None = None) -> Write:
        """Somebody asks for a write. Tell the outcome by `acked` or `refused`; unknown stays as it is."""
        if value in self.writes:
            raise ValueError(f"{value!r} is written twice: a value must name its write")
        self._steps += 1
        noted = self.writes[value] = Write(writer, stream, value, transaction, self._steps)
        return noted

    def fenced(self, writer: str) -> None:
        """From now on nothing that the writer starts may become visible."""
        self._steps += 1
        self._fences.setdefault(writer, self._steps)

    def committing(self, transaction: str) -> None:
        """Somebody asks to commit it: it may be committed from now on, whatever the answer."""
        self._transactions.setdefault(transaction, _Transaction()).committing = True

    def committed(self, transaction: str) -> None:
        """It was told to be committed."""
        self.committing(transaction)
        self._transactions[transaction].committed = True

    def aborted(self, transaction: str) -> None:
        """It was told to be aborted."""
        self._transactions.setdefault(transaction, _Transaction()).aborted = True

    def removed(self, stream: str, below: int) -> None:
        """Retention or a trim was asked for: records below may be gone."""
        self._removed[stream] = max(below, self._removed.get(stream, 0))

    def repeats(self, stream: str) -> None:
        """Its writers may send a value again, whatever they were told: it may be there more than once."""
        self._repeating.add(stream)

    # Reads

    def read(self, reader: str, stream: str, records: Iterable[Record]) -> None:
        """A reader that only goes forward got these; a reader that starts over takes a new name."""
        self._steps += 1
        at = self._readers.get((reader, stream), -1)
        for offset, value in records:
            if offset <= at:
                self._find(Broken.READ_BACKWARDS, f"{reader} got {stream}[{offset}] after {stream}[{at}]")
            at = max(at, offset)
            self._see(stream, offset, value, f"{reader} read")
        self._readers[reader, stream] = at

    def end_seen(self, reader: str, stream: str, end: int) -> None:
        """The reader was told where the stream ends."""
        at = self._readers.get((reader, stream), -1)
        if end <= at:
            self._find(Broken.READ_BACKWARDS, f"{reader} was told {stream} ends at {end} after [{at}]")

    # Cursors

    def cursor_asked(self, group: str, stream: str, offset: int) -> None:
        """A commit was asked for: until it is answered, it may hold or not."""
        self._cursors_asked.setdefault((group, stream), set()).add(offset)

    def cursor_committed(self, group: str, stream: str, offset: int) -> None:
        """It was acknowledged. A group that rewinds on purpose uses `cursor_reset` first."""
        before = self._cursors.get((group, stream), 0)
        if offset < before:
            self._find(Broken.CURSOR_BACKWARDS, f"{group} committed {offset} of {stream} after {before}")
        self._cursors[group, stream] = offset
        self._cursors_asked.pop((group, stream), None)

    def cursor_reset(self, group: str, stream: str) -> None:
        self._cursors.pop((group, stream), None)
        self._cursors_asked.pop((group, stream), None)

    def cursor_fetched(self, group: str, stream: str, offset: int) -> None:
        """Somebody asked where the group is."""
        before = self._cursors.get((group, stream), 0)
        asked = self._cursors_asked.get((group, stream), set())
        if offset != before and offset not in asked:
            self._find(Broken.CURSOR_BACKWARDS, f"{group} is at {offset} of {stream}, committed was {before}")

    # Leases

    def lease_taken(self, lease: str, holder: str, now: float, until: float) -> None:
        """The holder may act on it up to `until` by the one true clock, unless it gives it back earlier."""
        if now >= until:  # it was told too late to act on it, and another may have it by now
            return
        for hold in self._holds:
            shared = hold.lease == lease and hold.holder != holder
            if shared and hold.since <= now < hold.until:
                self._find(Broken.LEASE_SHARED, f"{holder} got {lease} at {now:g}, held by {hold.holder}")
        self._holds.append(_Hold(lease, holder, now, until))

    def lease_left(self, lease: str, holder: str, now: float) -> None:
        for hold in self._holds:
            if (hold.lease, hold.holder) == (lease, holder) and hold.until > now:
                hold.until = now

    # Judgement

    def findings(self, final: Mapping[str, Sequence[Record]]) -> list[Finding]:
        """Everything that breaks a promise, given what every stream holds in the end."""
        before = len(self._findings)
        for stream, records in final.items():
            self._check_order(stream, records)
            for offset, value in records:
                self._see(stream, offset, value, "in the end there is")
        self._check_acked(final)
        self._check_removed_from_view(final)
        found = list(dict.fromkeys(self._findings))
        del self._findings[before:]
        return found

    def check(self, final: Mapping[str, Sequence[Record]]) -> None:
        """Raises InvariantBroken with all findings."""
        found = self.findings(final)
        if found:
            raise InvariantBroken("\n".join(map(str, found)))

    def _check_order(self, stream: str, records: Sequence[Record]) -> None:
        offsets = [offset for offset, _ in records]
        if offsets != sorted(set(offsets)):
            self._find(Broken.READ_BACKWARDS, f"{stream} lists its offsets out of order")

    def _check_acked(self, final: Mapping[str, Sequence[Record]]) -> None:
        places: dict[tuple[str, bytes], list[int]] = {}
        for stream, records in final.items():
            for at, value in records:
                places.setdefault((stream, value), []).append(at)
        for write in self.writes.values():
            if write.outcome is not Outcome.ACKED or self._may_be_gone(write):
                continue
            found = places.get((write.stream, write.value))
            if found is None:
                self._find(Broken.LOST, f"{write.value!r} acked at {write.stream}[{write.offset}]")
            elif write.offset not in found:
                detail = f"{write.value!r} acked at {write.stream}[{write.offset}] is at {found}"
                self._find(Broken.MISPLACED, detail)

    def _may_be_gone(self, write: Write) -> bool:
        if write.offset < self._removed.get(write.stream, 0):
            return True
        if write.transaction is None:
            return False
        transaction = self._transactions.get(write.transaction)
        return transaction is None or not transaction.committed

    def _check_removed_from_view(self, final: Mapping[str, Sequence[Record]]) -> None:
        """What was once read stays readable, until it is removed on purpose."""
        held = {(stream, offset) for stream, records in final.items() for offset, _ in records}
        for (stream, offset), value in self._contents.items():
            if stream in final and (stream, offset) not in held and offset >= self._removed.get(stream, 0):
                self._find(Broken.LOST, f"{stream}[{offset}] = {value!r} was read and is gone")

    def _see(self, stream: str, offset: int, value: bytes, how: str) -> None:
        where = f"{how} {stream}[{offset}] = {value!r}"
        known = self._contents.setdefault((stream, offset), value)
        if known != value:
            self._find(Broken.TWO_CONTENTS, f"{where}, which was {known!r}")
        place = self._places.setdefault((stream, value), offset)
        if place != offset and stream not in self._repeating:
            self._find(Broken.DUPLICATE, f"{where}, which is at [{place}] too")
        write = self.writes.get(value)
        if write is None or write.stream != stream:
            self._find(Broken.INVENTED, where)
            return
        self._check_allowed(write, where)

    def _check_allowed(self, write: Write, where: str) -> None:
        if write.outcome is Outcome.REFUSED:
            self._find(Broken.REFUSED_VISIBLE, where)
        fence = self._fences.get(write.writer)
        if fence is not None and write.started > fence:
            self._find(Broken.FENCED_VISIBLE, f"{where} by {write.writer}")
        if write.transaction is None:
            return
        transaction = self._transactions.get(write.transaction, _Transaction())
        if transaction.aborted:
            self._find(Broken.ABORTED_READ, f"{where} of {write.transaction}")
        elif not transaction.committing:
            self._find(Broken.UNCOMMITTED_READ, f"{where} of {write.transaction}")

    def _find(self, broken: Broken, detail: str) -> None:
        self._findings.append(Finding(broken, detail))
