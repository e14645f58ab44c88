"""Writes to several partitions and commits of group offsets in one call: all of it takes effect, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from mainstem.broker.append import Appends, promise
from mainstem.broker.groups.offsets import OWN_PREFIX
from mainstem.broker.streams import stream_of
from mainstem.broker.transactions.service import ProducerStamp, TransactionService
from mainstem.broker.writes import NewRecords
from mainstem.errors import InvalidInput, MainstemError
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.building import build_batch

ATOMIC_WRITE_TIMEOUT_MS = 30_000  # then the ledger aborts what a broker left open when it crashed


class PartitionWrite(NamedTuple):
    topic: Topic
    partition: int
    records: NewRecords
    timestamps_ms: Sequence[int]


class OffsetCommit(NamedTuple):
    group: str
    offsets: tuple[tuple[int, int, str], ...]  # stream, next offset, metadata


class AtomicWrites:
    def __init__(self, log: Log, clock: Clock, appends: Appends, transactions: TransactionService) -> None:
        self._log = log
        self._clock = clock
        self._appends = appends
        self._transactions = transactions

    async def commit(
        self, id: str, key: str, writes: Sequence[PartitionWrite], offsets: Sequence[OffsetCommit]
    ) -> list[int] | None:
        """Returns the base offset of each write; None if a call with this key was committed before.

        The key is stored with the transaction, as metadata of a cursor of the broker's own. A partition occurs in
        `writes` once. Raises ProducerFenced if another call with the same id began later."""
        streams = [stream_of(write.topic, write.partition) for write in writes]
        streams_seen = [*streams, *(stream for commit in offsets for stream, _, _ in commit.offsets)]
        if not streams_seen:
            raise InvalidInput("a transaction writes records or commits offsets: give at least one")
        stamp = ProducerStamp(id, *await self._transactions.initialise(id, ATOMIC_WRITE_TIMEOUT_MS))
        marker = f"{OWN_PREFIX}transaction/{id}"
        cursors = self._log.ledger.cursors.of_group(marker)
        if any(cursor.metadata == key for cursor in cursors.values()):
            return None
        try:
            if streams:
                await self._transactions.add_partitions(stamp, streams)
            bases = [await self._append(stamp, write) for write in writes]
            for commit in offsets:
                await self._transactions.commit_offsets(stamp, commit.group, commit.offsets, joins=True)
            noted = ((streams_seen[0], 0, key),)
            await self._transactions.commit_offsets(stamp, marker, noted, joins=True)
            await self._transactions.end(stamp, commit=True)
        except BaseException:
            with contextlib.suppress(MainstemError):  # the ledger aborts it after its timeout
                await self._transactions.end(stamp, commit=False)
            raise
        return bases

    async def _append(self, stamp: ProducerStamp, write: PartitionWrite) -> int:
        batch = build_batch(
            write.records.values,
            keys=write.records.keys,
            headers=write.records.headers,
            timestamps_ms=write.timestamps_ms,
            producer=stamp.producer,
            producer_epoch=stamp.epoch,
            base_sequence=0,
            transactional=True,
        )
        placed = promise()
        self._appends.batches(write.topic, write.partition, batch, placed, resumes=False)
        base, _ = await placed
        return base
