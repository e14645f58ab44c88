"""Reads forward through one partition."""

from __future__ import annotations

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.read import Record


async def read_on(
    broker: Broker,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_records: int = 1024,
    max_bytes: int = limits.READ_BYTES_DEFAULT,
) -> list[Record]:
    """The next records at or after `offset`, past ranges without records. Empty only at the end.

    Raises OffsetOutOfRange, RecordsLost."""
    while True:
        records = await broker.read(
            topic, offset, partition=partition, max_records=max_records, max_bytes=max_bytes
        )
        if records or offset >= broker.partition(topic, partition).end:
            return records
        fetched = await broker.fetch(topic, offset, partition=partition, max_bytes=max_bytes)
        if fetched.next_offset <= offset:
            return []
        offset = fetched.next_offset
