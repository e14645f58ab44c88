"""The position of an embedded log's reader in one partition."""

from __future__ import annotations

import threading

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.groups.cursors import SHARED_CURSOR
from mainstem.client.direct_commits import DirectCommits
from mainstem.client.gate import LoopGate
from mainstem.client.loop import LoopThread
from mainstem.client.reader import read_on
from mainstem.errors import OffsetOutOfRange, RecordsLost

# Records are decoded in bulk, so that a read of one record neither decodes nor waits. Only bytes limit it: to omit
# records of a fetched batch would mean fetching the batch again.
_AHEAD_BYTES = 256 * limits.KIB
_AHEAD_RECORDS = limits.BATCH_RECORDS_MAX


class ReadCursor:
    """Where the next read starts, and the records read ahead of it. Thread-safe.

    The directory belongs to this process, so the position in memory is authoritative. It is stored with every read
    (`persist_every` 1), or every `persist_every` reads."""

    def __init__(
        self,
        thread: LoopThread,
        gate: LoopGate,
        commits: DirectCommits,
        broker: Broker,
        topic: str,
        partition: int,
        persist_every: int,
    ) -> None:
        self._thread = thread
        self._gate = gate
        self._commits = commits
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._persist_every = persist_every
        self._position = broker.committed(SHARED_CURSOR, topic, partition) or 0
        self._unstored_reads = 0
        self._ahead: list[tuple[int, bytes]] = []  # offsets and values
        self._taken = 0  # records of `_ahead` that are before the position
        self._lock = threading.Lock()  # makes a read and its step forward atomic

    def read(self, max_records: int, max_bytes: int, checkpoint: bool) -> list[bytes]:
        """Values from the position on, at least one if there is any. With `checkpoint` the position moves past them."""
        with self._lock:
            try:
                chosen = self._choose(max_records, max_bytes)
            except RecordsLost as lost:
                if checkpoint:  # reported once; the next read continues after the gap
                    self._move(lost.end, 0, 1)
                    self._ahead, self._taken = [], 0
                raise
            if checkpoint and chosen:
                last = self._ahead[self._taken + len(chosen) - 1]
                self._move(last[0] + 1, self._taken + len(chosen), len(chosen))
            return chosen

    async def store(self) -> None:
        """Make the position durable. Call it only when no reads are running."""
        if self._unstored_reads:
            await self._broker.commit_offset(SHARED_CURSOR, self._topic, self._position, self._partition)
            self._unstored_reads = 0

    def _choose(self, max_records: int, max_bytes: int) -> list[bytes]:
        chosen: list[bytes] = []
        size = 0
        index = self._taken
        while len(chosen) < max_records:
            if index == len(self._ahead):
                # Return what was found, and report the loss after it on the next read.
                if not self._read_ahead(max_bytes - size, quiet=bool(chosen)):
                    break
                index = self._taken + len(chosen)
            value = self._ahead[index][1]
            size += len(value)
            if chosen and size > max_bytes:
                break
            chosen.append(value)
            index += 1
        return chosen

    def _read_ahead(self, max_bytes: int, quiet: bool) -> bool:
        """Drop records before the position and add the next ones. False: there are none."""
        self._ahead = self._ahead[self._taken :]
        self._taken = 0
        start = self._ahead[-1][0] + 1 if self._ahead else self._position
        max_bytes_ahead = min(max(max_bytes, _AHEAD_BYTES), limits.READ_BYTES_MAX)
        try:
            records = self._read_now(start, max_bytes_ahead)
            if records is None:
                found = self._thread.call(
                    read_on(
                        self._broker,
                        self._topic,
                        start,
                        partition=self._partition,
                        max_records=_AHEAD_RECORDS,
                        max_bytes=max_bytes_ahead,
                    )
                )
                records = [(record.offset, record.value or b"") for record in found]
        except RecordsLost:
            if quiet:
                return False
            raise
        except OffsetOutOfRange as gone:
            if self._ahead or start >= gone.start:
                return False
            # Retention removed the record at the position: continue with the oldest one.
            self._position = gone.start
            return self._read_ahead(max_bytes, quiet)
        self._ahead += records
        return bool(records)

    def _read_now(self, start: int, max_bytes: int) -> list[tuple[int, bytes]] | None:
        """Read without the event loop. None: the loop has to do it."""
        gate = self._gate
        if gate.loop_waits:
            return None
        with gate.lock:
            if self._thread.closed:
                return None
            return self._broker.reads.values_now(
                self._topic, start, partition=self._partition, max_bytes=max_bytes
            )

    def _move(self, position: int, taken: int, reads: int) -> None:
        # Store first: if that fails, the position stays and the same records are read again.
        if self._unstored_reads + reads >= self._persist_every:
            if not self._commits.commit_offset(SHARED_CURSOR, self._topic, position, self._partition):
                self._thread.call(
                    self._broker.commit_offset(SHARED_CURSOR, self._topic, position, self._partition)
                )
            self._unstored_reads = 0
        else:
            self._unstored_reads += reads
        self._position = position
        self._taken = taken
