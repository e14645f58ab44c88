"""Record batches for tests, and their contents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from mainstem import limits
from mainstem.broker.append import AppendRequest, Placed, promise
from mainstem.broker.broker import Broker
from mainstem.ledger.topics import Topic
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import SliceFacts, check_slice

TIME_MS = 1_700_000_000_000


def batch(*values: bytes, times: int | Sequence[int] = TIME_MS) -> tuple[bytearray, SliceFacts]:
    """One batch, with the facts an append of it needs."""
    return with_facts(build_batch(values, timestamps_ms=times))


def batches(*groups: Sequence[bytes], times: int | Sequence[int] = TIME_MS) -> tuple[bytearray, SliceFacts]:
    """Several batches in one slice."""
    return with_facts(bytearray(b"".join(build_batch(values, timestamps_ms=times) for values in groups)))


def with_facts(slice: bytearray) -> tuple[bytearray, SliceFacts]:
    return slice, check_slice(memoryview(slice), batch_bytes_max=limits.BATCH_BYTES_MAX)


def produced(
    producer: int, sequence: int, *values: bytes, epoch: int = 0, times: int | Sequence[int] = TIME_MS
) -> bytearray:
    """One batch of an idempotent producer."""
    return build_batch(
        values, timestamps_ms=times, producer=producer, producer_epoch=epoch, base_sequence=sequence
    )


def records_of(slices: Iterable[memoryview], offset: int = 0) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from `offset` on."""
    return [
        (record.offset, record.value or b"") for slice in slices for record in decode_records(slice, offset)
    ]


def placed_in_line(
    broker: Broker, topic: Topic, batch: bytearray, partition: int = 0, joins: str | None = None
) -> asyncio.Future[Placed]:
    """Append a batch. Later appends come after it in the log, even if it is not awaited."""
    placed = promise()
    broker.appends.batches(topic, partition, batch, placed, joins, resumes=False)
    return placed


async def append_unchecked(
    broker: Broker, topic: Topic, slice: bytearray, facts: SliceFacts, size: int
) -> None:
    """Append batches without the checks of the broker."""
    placed = promise()
    request = AppendRequest(topic.streams[0], slice, facts, size)
    broker.log.streams.of(request.stream).append(request, placed)
    await placed
