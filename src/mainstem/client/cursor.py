"""The place of an embedded log's reader in one partition."""

from __future__ import annotations

import threading

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.groups.cursors import SHARED_CURSOR
from mainstem.broker.read import Record
from mainstem.client.loop import LoopThread
from mainstem.client.reader import read_on
from mainstem.errors import OffsetOutOfRange, RecordsLost

# Decoded in one go, so that reading one by one neither decodes nor waits for each. The bytes are the bound:
# to leave out records of a fetched batch would mean fetching it again for them.
_AHEAD_BYTES = 256 * limits.KIB
_AHEAD_RECORDS = limits.BATCH_RECORDS_MAX


class ReadCursor:
    """Where the next read starts, and the records read ahead of it. Thread-safe.

    The directory belongs to this process, so the place in memory is the truth. The stored place follows it:
    with every read (`persist_every` 1), or every so many."""

    def __init__(
        self, thread: LoopThread, broker: Broker, topic: str, partition: int, persist_every: int
    ) -> None:
        self._thread = thread
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._persist_every = persist_every
        self._place = broker.committed(SHARED_CURSOR, topic, partition) or 0
        self._unstored_reads = 0
        self._ahead: list[Record] = []
        self._taken = 0  # records of `_ahead` that lie behind the place
        self._turn = threading.Lock()  # a read and its step forward are one

    def read(self, max_records: int, max_bytes: int, checkpoint: bool) -> list[bytes]:
        """Values from the place on, at least one if there is any. With `checkpoint` the place moves past."""
        with self._turn:
            try:
                chosen = self._choose(max_records, max_bytes)
            except RecordsLost as lost:
                if checkpoint:  # told once; the next read goes on behind the gap
                    self._move(lost.end, 0, 1)
                    self._ahead, self._taken = [], 0
                raise
            if checkpoint and chosen:
                last = self._ahead[self._taken + len(chosen) - 1]
                self._move(last.offset + 1, self._taken + len(chosen), len(chosen))
            return chosen

    async def store(self) -> None:
        """Make the place durable. Only when nobody reads any more."""
        if self._unstored_reads:
            await self._broker.commit_offset(SHARED_CURSOR, self._topic, self._place, self._partition)
            self._unstored_reads = 0

    def _choose(self, max_records: int, max_bytes: int) -> list[bytes]:
        chosen: list[bytes] = []
        size = 0
        index = self._taken
        while len(chosen) < max_records:
            if index == len(self._ahead):
                # What was already found is given before a loss behind it is told.
                if not self._read_ahead(max_bytes - size, quiet=bool(chosen)):
                    break
                index = self._taken + len(chosen)
            value = self._ahead[index].value or b""
            size += len(value)
            if chosen and size > max_bytes:
                break
            chosen.append(value)
            index += 1
        return chosen

    def _read_ahead(self, max_bytes: int, quiet: bool) -> bool:
        """Drop what lies behind the place and add what comes next. False: nothing does."""
        self._ahead = self._ahead[self._taken :]
        self._taken = 0
        start = self._ahead[-1].offset + 1 if self._ahead else self._place
        try:
            records = self._thread.call(
                read_on(
                    self._broker,
                    self._topic,
                    start,
                    partition=self._partition,
                    max_records=_AHEAD_RECORDS,
                    max_bytes=min(max(max_bytes, _AHEAD_BYTES), limits.READ_BYTES_MAX),
                )
            )
        except RecordsLost:
            if quiet:
                return False
            raise
        except OffsetOutOfRange as gone:
            if self._ahead or start >= gone.start:
                return False
            # Retention took what the place pointed at: the oldest record there is comes next.
            self._place = gone.start
            return self._read_ahead(max_bytes, quiet)
        self._ahead += records
        return bool(records)

    def _move(self, place: int, taken: int, reads: int) -> None:
        # Stored first: if that fails the place stays, and the same records are read again.
        if self._unstored_reads + reads >= self._persist_every:
            self._thread.call(self._broker.commit_offset(SHARED_CURSOR, self._topic, place, self._partition))
            self._unstored_reads = 0
        else:
            self._unstored_reads += reads
        self._place = place
        self._taken = taken
