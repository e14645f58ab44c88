"""Record batches as clients make them, appended and read whole, with the promises of the HTTP door's writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from mainstem import limits
from mainstem.broker.partition_summaries import stream_of
from mainstem.broker.writes import WriteOutcome
from mainstem.errors import InvalidBatch, NotFound, TooLarge, TopicNotFound
from mainstem.ledger.appends import RECORD
from mainstem.ledger.idempotency import slice_fields
from mainstem.ledger.topics import Topic
from mainstem.records.decoding import record_sizes_and_times
from mainstem.records.header import check_slice
from mainstem.records.rewrite import with_append_time

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker


async def append_batch(
    broker: Broker,
    topic: Topic,
    batch: bytearray,
    *,
    partition: int = 0,
    idempotency_key: bytes | None = None,
) -> WriteOutcome:
    """Append one batch as it came. Raises InvalidBatch, TooLarge, TopicFull, TopicNotFound."""
    stream = stream_of(topic, partition)
    config = topic.config
    if len(batch) > config.max_message_bytes:
        raise TooLarge(
            f"the batch has {len(batch)} bytes, over the topic's max.message.bytes of "
            f"{config.max_message_bytes}: send fewer records at once, or raise that setting"
        )
    facts = check_slice(memoryview(batch), batch_bytes_max=config.max_message_bytes)
    if facts.batches != 1 or facts.control or facts.transactional or facts.producer != -1:
        raise InvalidBatch("send one batch of plain records: its producer's fields are -1")
    if config.timestamp_type == "LogAppendTime":
        now = broker.clock.now_ms()
        batch = bytearray(with_append_time(memoryview(batch), now))
        facts = facts._replace(max_timestamp=now)
    if len(batch) > limits.RENDERED_ON_LOOP_BYTES_MAX:
        rows, size = await asyncio.to_thread(_rows, batch)
    else:
        rows, size = _rows(batch)
    if idempotency_key is not None and config.idempotency_window_ms:
        producer, sequence, epoch = slice_fields(idempotency_key)
        facts = facts._replace(producer=producer, base_sequence=sequence, producer_epoch=epoch, keyed=True)
    try:
        base, duplicate = await broker.place_sized(
            topic, stream, batch, facts, size, rows if config.tracked else b""
        )
    except NotFound:
        raise TopicNotFound(topic.name) from None
    count = (broker.log.keyed_count(stream, facts, base) if duplicate else None) or facts.count
    return WriteOutcome(base, count, facts.max_timestamp, False, duplicate, config.durability == "fsync")


def _rows(batch: bytearray) -> tuple[bytes, int]:
    """A size and a time for each record, packed as the ledger takes them, and the sum of the sizes.

    Raises InvalidBatch: whoever sent it may be anybody, and what is stored must be readable."""
    sizes, times = record_sizes_and_times(memoryview(batch))
    rows = np.empty(len(sizes), RECORD)
    rows["size"] = sizes
    rows["time"] = times
    return rows.tobytes(), int(sizes.sum())
