"""Stores of streams: in the log, or in the memory of this process only.

Both kinds answer the same calls, so readers and writers need not know which one a stream is.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from mainstem.errors import NotFound
from mainstem.ledger.idempotency import key_number
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.queues import Ack, Bury, Claim, ExpireLeases, Extend, Nack, Queues
from mainstem.ledger.streams import DeleteRecords, RecordsRemoved, Streams, Trim, TrimReason
from mainstem.log.read.extents import ReadChunk
from mainstem.log.read.missing import MissingRecords
from mainstem.log.read.offset_search import OffsetSearch
from mainstem.log.read.reader import RecordReader
from mainstem.log.read.views import View
from mainstem.log.read.visibility import Visibility
from mainstem.log.write.append import AppendRequest, Waiter
from mainstem.log.write.committer import Committer
from mainstem.records.header import SliceFacts

QueueCommand = Claim | Ack | Nack | Extend | ExpireLeases | Bury


class Usage(NamedTuple):
    """The extent of a stream."""

    records: int
    bytes: int
    max_timestamp_ms: int  # -1: unknown, or never written


class StreamStore(Protocol):
    """The streams of one kind. Every method raises NotFound once the stream's topic is deleted."""

    def append(self, request: AppendRequest, waiter: Waiter) -> None:
        """Append batches. The waiter learns their base offset once they are durable to the stream's class."""
        ...

    def start(self, stream: int) -> int:
        """The start offset."""
        ...

    def bounds(self, stream: int) -> tuple[int, int]:
        """The start offset and the visible end."""
        ...

    def stable_end(self, stream: int) -> int:
        """The first offset that an open transaction wrote; the visible end if there is none."""
        ...

    def read_cached(
        self, stream: int, offset: int, max_bytes: int, view: View = View.COMMITTED
    ) -> ReadChunk | None:
        """What `read` returns, if it is in memory; otherwise None. Raises as `read` does."""
        ...

    async def read(
        self,
        stream: int,
        offset: int,
        max_bytes: int,
        max_wait_s: float = 0.0,
        view: View = View.COMMITTED,
    ) -> ReadChunk:
        """Whole batches from `offset` on; at the end it waits for an append. Raises OffsetOutOfRange, RecordsLost."""
        ...

    async def stored(self, stream: int, offset: int, max_bytes: int) -> ReadChunk:
        """As `read`, but batches come as they were written, deleted records included."""
        ...

    async def offset_at(self, stream: int, time_ms: int) -> int:
        """The first offset whose record time is `time_ms` or later; the end if there is none."""
        ...

    async def latest_time(self, stream: int) -> int | None:
        """The latest record time in the stream, accurate to the slice; None if the stream is empty."""
        ...

    async def trim(self, stream: int, offset: int, reason: TrimReason, size: int = 0) -> int:
        """Remove the records below `offset`, `size` bytes if that is known. Returns the number of removed records."""
        ...

    async def delete(self, stream: int, ranges: tuple[tuple[int, int], ...], size: int) -> int:
        """Delete the records in half-open ranges, `size` bytes in all. Returns the number of removed records."""
        ...

    def keyed_count(self, stream: int, facts: SliceFacts, base: int) -> int | None:
        """The number of records in the write that a retry with the same idempotency key repeats."""
        ...

    def usage(self, stream: int) -> Usage:
        """The number of records and bytes in the stream."""
        ...

    def state(self, stream: int) -> tuple[Streams, int]:
        """The state machine that keeps the stream's floors, holes and counts, and the stream's number in it."""
        ...

    def queue(self, stream: int) -> tuple[Queues, int]:
        """The state machine that keeps the leases of a queue, and the stream's number in it."""
        ...

    async def change_queue(self, command: QueueCommand) -> Any:
        """Apply a command to a queue. Returns its result; raises the reason if it is refused."""
        ...


class DurableStreams:
    """Streams whose records go through the commit log."""

    def __init__(
        self,
        ledger: Ledger,
        committer: Committer,
        reader: RecordReader,
        searching: OffsetSearch,
        missing: MissingRecords,
    ) -> None:
        self._ledger = ledger
        self._missing = missing
        self._committer = committer
        self.append = committer.append
        self.bounds = reader.bounds
        self.stable_end = reader.stable_end
        self.read = reader.read
        self.read_cached = reader.read_cached
        self.stored = reader.stored
        self.offset_at = searching.offset_at
        self.latest_time = searching.latest_time

    def start(self, stream: int) -> int:
        return self._ledger.streams.start(stream)

    async def trim(self, stream: int, offset: int, reason: TrimReason, size: int = 0) -> int:
        command = Trim(stream, offset, reason, size, keeps_losses=reason == "delete")
        removed: RecordsRemoved = await self._committer.propose(command)
        return removed.records

    async def delete(self, stream: int, ranges: tuple[tuple[int, int], ...], size: int) -> int:
        removed: RecordsRemoved = await self._committer.propose(DeleteRecords(stream, ranges, size))
        return removed.records

    def keyed_count(self, stream: int, facts: SliceFacts, base: int) -> int | None:
        key = key_number(facts.producer, facts.base_sequence, facts.producer_epoch)
        return self._ledger.idempotency.count_of(stream, key, base)

    def usage(self, stream: int) -> Usage:
        streams, _ = self.state(stream)
        records = int(streams.records[stream]) - self._missing.count(stream)
        return Usage(records, int(streams.bytes[stream]), int(streams.max_timestamp[stream]))

    def state(self, stream: int) -> tuple[Streams, int]:
        if not self._ledger.streams.exists(stream):
            raise NotFound("the topic was deleted")
        return self._ledger.streams, stream

    def queue(self, stream: int) -> tuple[Queues, int]:
        if not self._ledger.streams.exists(stream):
            raise NotFound("the topic was deleted")
        return self._ledger.queues, stream

    async def change_queue(self, command: QueueCommand) -> Any:
        return await self._committer.propose(command)


class LogStreams:
    """Every stream of a log, of either kind."""

    def __init__(
        self, ledger: Ledger, visibility: Visibility, durable: DurableStreams, ephemeral: StreamStore
    ) -> None:
        self._ledger = ledger
        self._relaxed = visibility.relaxed
        self.durable = durable
        self._ephemeral = ephemeral

    def of(self, stream: int) -> StreamStore:
        """The kind that a stream is of. Streams of deleted topics keep theirs."""
        relaxed = self._relaxed
        # No stream but a relaxed one can be ephemeral, and a list is read faster than a column of the ledger.
        if stream < len(relaxed) and relaxed[stream] and self._ledger.streams.ephemeral(stream):
            return self._ephemeral
        return self.durable
