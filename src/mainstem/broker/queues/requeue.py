"""Requeue: moves dead letters back to their queue for another attempt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainstem import limits
from mainstem.broker.namespaces import within
from mainstem.broker.queues.dead_letters import META, UNDECODABLE
from mainstem.broker.queues.jobs import JobReader
from mainstem.broker.streams import stream_of
from mainstem.broker.writes import NewRecords
from mainstem.errors import InvalidInput, NotAQueue, TooLarge
from mainstem.ledger.leases import ranges_of
from mainstem.ledger.topics import Topic
from mainstem.records.decoding import Headers, StoredRecord

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

_ORIGIN = "$dead_letter_from"
_STAMPS = (_ORIGIN, "$dead_letter_deliveries", "$dead_letter_src_seq", "$dead_letter_error")


class Requeued(NamedTuple):
    moved: dict[int, tuple[str, int]]  # offset → the queue it went to, and its offset there
    skipped: list[int]  # missing, not a dead letter, or its queue is not allowed


async def requeue(
    broker: Broker,
    topic: Topic,
    offsets: Sequence[int],
    queue: str | None = None,
    allowed: Callable[[str], bool] = lambda name: True,
) -> Requeued:
    """Append each record to its queue (or to `queue`) if that is allowed, then delete it here.

    A crash in between leaves it in both; a retry within the idempotency window finds the copy and only deletes.
    Raises TopicNotFound, NotAQueue, TooLarge."""
    if len(offsets) > limits.CLAIM_JOBS_MAX:
        raise TooLarge(f"a request names at most {limits.CLAIM_JOBS_MAX} records, not {len(offsets)}")
    stream = stream_of(topic, 0)
    start, end = broker.streams.bounds(stream)
    there = sorted({offset for offset in offsets if start <= offset < end})
    records = await JobReader(broker.streams).read(stream, there)
    moved: dict[int, tuple[str, int]] = {}
    for record in records:
        if record is None:
            continue
        origin, headers = _returned(record)
        target = queue or (origin and within(topic.namespace, origin))
        if target is None or not allowed(target):
            continue
        moved[record.offset] = target, await _append(broker, topic, target, record, headers)
        await broker.log.streams.of(stream).delete(stream, tuple(ranges_of([record.offset])), _size(record))
    return Requeued(moved, sorted(set(offsets) - moved.keys()))


async def _append(broker: Broker, topic: Topic, target: str, record: StoredRecord, headers: Headers) -> int:
    destination = broker.streams.topic(target)
    if destination.config.type != "queue":
        raise NotAQueue(target)
    if destination.topic_id == topic.topic_id:
        raise InvalidInput(f"the records are already in {target!r}")
    written = await broker.writes.write(
        target,
        NewRecords([record.value], [record.key], [headers], [_size(record)]),
        idempotency_key=b"requeue:%b:%d" % (topic.topic_id.hex().encode(), record.offset),
        create=False,
        config=lambda: destination.config,
    )
    return written.base


def _returned(record: StoredRecord) -> tuple[str | None, Headers]:
    """The queue of a dead letter, and its headers without the dead-letter fields."""
    origin: str | None = None
    headers: list[tuple[str, bytes | None]] = []
    for name, content in record.headers:
        if name == META and content is not None:
            with contextlib.suppress(*UNDECODABLE):  # a meta that is not an object has no dead-letter fields
                meta = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
                if _ORIGIN in meta:
                    origin = msgspec.json.decode(meta[_ORIGIN], type=str)
                    meta = {key: value for key, value in meta.items() if key not in _STAMPS}
                    content = msgspec.json.encode(meta) if meta else None
            if content is None:
                continue
        headers.append((name, content))
    return origin, tuple(headers)


def _size(record: StoredRecord) -> int:
    meta = next((content for name, content in record.headers if name == META), None)
    return len(record.value or b"") + len(meta or b"")
