"""Append: the one way into the log, for every door and for what the broker appends itself.

| caller                       | has                            | calls             |
|------------------------------|--------------------------------|-------------------|
| Kafka Produce, the Spark sink | batches in a client's own bytes | `Appends.batches` |
| text door, embedded client   | values                         | `Appends.values`  |
| HTTP                         | values or one batch, perhaps of a topic to create | `WriteService.write` (writes.py) |

They all end in `Appends.append`. Routers and dead letters commit their copies together with a command, so they hand
the same `AppendRequest` to `Log.append_then`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.broker.namespaces import NamespaceService
from mainstem.broker.recompression import Recompression
from mainstem.broker.schemas.service import SchemaService
from mainstem.broker.schemas.validation import PayloadChecks
from mainstem.broker.streams import StreamService, stream_of
from mainstem.broker.transactions.producer_rights import ProducerRights
from mainstem.broker.transactions.service import TransactionService
from mainstem.errors import (
    BacklogFull,
    CapacityReached,
    InvalidBatch,
    InvalidInput,
    InvalidTimestamp,
    TooLarge,
    TopicTerminated,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import RECORD
from mainstem.ledger.publish_sequences import PublishExclusively, PublishSequence
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.write.append import AppendRequest, Placed, Waiter, promise
from mainstem.ports.clock import Clock
from mainstem.records.building import build_batch
from mainstem.records.decoding import record_sizes_and_times
from mainstem.records.header import Slice, SliceFacts, check_slice, walk
from mainstem.records.interpreted import build_lone
from mainstem.records.rewrite import with_append_time

__all__ = ["AppendRequest", "Appended", "Appends", "Placed", "Waiter", "promise", "record_rows", "sized"]


_NO_TIMESTAMP = -1  # a record without a timestamp


class Appended(NamedTuple):  # one for every append, where a frozen dataclass costs a microsecond more
    base_offset: int
    records: int
    timestamp_ms: int
    duplicate: bool = False  # an idempotent retry; the offset is the original one


class Appends:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        streams: StreamService,
        transactions: TransactionService,
        namespaces: NamespaceService,
        schemas: SchemaService,
        *,
        total_bytes_max: int,
    ) -> None:
        self._columns = log.ledger.streams
        self._ledger = log.ledger
        self._namespaces = namespaces
        self._byte_limits = log.ledger.namespaces.byte_limits
        self._total_bytes_max = total_bytes_max  # 0: unlimited
        self._producers = log.ledger.producers
        self._clock = clock
        self._streams = streams
        self._transactions = transactions
        self._recompression = Recompression(streams, log.barrier)
        self._payloads = PayloadChecks(schemas)
        self._append_now = log.direct.append_now
        self.refused: dict[int, BacklogFull] = {}  # by stream: a backlog that is over its quota

    def append(self, topic: Topic, request: AppendRequest, waiter: Waiter) -> None:
        """Put checked batches in line: what is appended later comes later in the log.

        Raises the reason if nothing can be written. The waiter learns the base offset, or what the ledger refuses."""
        if topic.config.limits_times:
            _check_times(request.batches, topic.config, self._clock.now_ms())
        if self._byte_limits or self._total_bytes_max:
            self._check_room(topic, request.size)
        if topic.config.terminated:
            raise TopicTerminated(topic.name)
        if self.refused and request.stream in self.refused:
            raise self.refused[request.stream]
        if self._stored_as_sent(request.stream, topic.config):
            self._streams.store(request.stream).append(request, waiter)
        else:
            self._recompression.append(request, topic.config, waiter, self._payloads.of(topic))

    def _stored_as_sent(self, stream: int, config: TopicConfig) -> bool:
        """Whether batches of the stream need neither be decoded nor compressed before they are stored."""
        return (
            config.compression_type == "producer"
            and not config.validates
            and stream not in self._recompression.lines
        )

    def _check_room(self, topic: Topic, size: int) -> None:
        """Raises CapacityReached if the server or the namespace of the topic holds too many bytes."""
        bound = self._total_bytes_max
        if bound and self._ledger.streams.total_bytes() + size > bound:
            raise CapacityReached(
                "max_total_bytes", bound, f"the server holds up to {bound} bytes of records: delete some"
            )
        if topic.namespace in self._byte_limits:
            self._namespaces.check_bytes(topic.namespace, size)

    def batches(
        self,
        topic: Topic,
        partition: int,
        batches: Slice,
        waiter: Waiter,
        joins: str | None = None,
        *,
        resumes: bool = True,
        rights: ProducerRights | None = None,
        sequence: tuple[str, int, int] | None = None,
        epoch: int = 0,
        built_here: bool = False,
        several: bool = False,
    ) -> SliceFacts:
        """Append record batches as a client sent them. Owns the buffer from now on. Raises what is wrong with them.

        `joins`: the transactional id whose transaction the partition becomes part of. `resumes`: a producer that the
        ledger does not know may be at any place in its sequence, as in Kafka: it was idle for long, or its topic was
        created again. A producer that joins starts at the beginning: each of its transactions does. `rights`: those of
        the sender; None: it may write as any producer. `sequence`: the name of a Pulsar producer, and the first and
        last of its sequence ids here: what it appended before is not appended again, except to a topic in memory.
        `epoch`: that of an exclusive Pulsar producer; nothing is appended once another one took over.
        `built_here`: the caller built the batches, so their checksums are right. `several`: they come from several
        requests, so they are appended only where the topic cannot accept some and refuse others; otherwise this raises
        InvalidBatch."""
        stream = stream_of(topic, partition)
        config = topic.config
        if several and not (self._columns.plain[stream] and self._stored_as_sent(stream, config)):
            raise InvalidBatch("batches of several requests are appended one by one to this topic")
        facts = check_slice(
            memoryview(batches), batch_bytes_max=config.max_message_bytes, built_here=built_here
        )
        if facts.control:
            raise InvalidBatch("clients cannot append control batches")
        if rights is not None and (facts.producer >= 0 or facts.transactional):
            rights.check(facts)
        if joins is not None:
            facts = self._transactions.joining(joins, facts)
        elif (
            resumes and facts.base_sequence > 0 and self._producers.may_have_forgotten(facts.producer, stream)
        ):
            facts = facts._replace(resumes=True)
        if config.timestamp_type == "LogAppendTime":
            now = self._clock.now_ms()
            batches = _with_append_time(memoryview(batches), now)
            facts = facts._replace(max_timestamp=now)
        records, size = b"", len(batches)
        if not self._columns.plain[stream] and config.tracked:
            records, size = sized(batches)
        published: PublishSequence | PublishExclusively | None = None
        if sequence is not None:
            published = PublishSequence(stream, *sequence, epoch)
        elif epoch:
            published = PublishExclusively(stream, epoch)
        self.append(topic, AppendRequest(stream, batches, facts, size, records, published), waiter)
        return facts

    def close(self) -> None:
        self._recompression.close()

    def last_sequence(self, stream: int, name: str) -> int:
        """The last sequence id of a Pulsar producer; -1 if none is known."""
        return self._ledger.publish_sequences.last(stream, name)

    async def values(
        self,
        topic: Topic,
        partition: int,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
        timestamps_ms: int | Sequence[int] | None = None,
    ) -> Appended:
        """Append records given as Python values, all or nothing, as one batch."""
        stream, config = stream_of(topic, partition), topic.config
        if not values:
            raise InvalidInput("nothing to append: give at least one record")
        now = self._clock.now_ms()
        value = values[0]
        bare = keys is None and headers is None and timestamps_ms is None
        if bare and len(values) == 1 and value is not None:
            batch, latest, size = build_lone(value, now), now, len(value)
        else:
            if timestamps_ms is None or config.timestamp_type == "LogAppendTime":
                timestamps_ms = now
            batch = build_batch(values, keys=keys, headers=headers, timestamps_ms=timestamps_ms)
            latest = timestamps_ms if isinstance(timestamps_ms, int) else max(timestamps_ms)
            size = sum(map(len, filter(None, values)))
        check_size(batch, config)
        records = b""
        if config.tracked:
            records, size = sized(batch)
        facts = SliceFacts(len(values), 1, latest, -1, -1, -1, False, False)
        placed = promise()
        self.append(topic, AppendRequest(stream, batch, facts, size, records), placed)
        base, _ = await placed
        return Appended(base, len(values), latest)

    def value(self, topic: Topic, value: bytes, waiter: Waiter) -> None:
        """Append one record given as a Python value to partition 0. Raises what is wrong with it."""
        stream, config = topic.streams[0], topic.config
        now = self._clock.now_ms()
        batch = build_lone(value, now)
        if len(batch) > config.max_message_bytes:
            check_size(batch, config)
        records, size = sized(batch) if config.tracked else (b"", len(value))
        facts = SliceFacts(1, 1, now, -1, -1, -1, False, False)
        self.append(topic, AppendRequest(stream, batch, facts, size, records), waiter)

    def values_now(self, topic: Topic, values: Sequence[bytes]) -> tuple[int, int | None] | None:
        """As `values` to partition 0, in the calling thread, without the event loop: see `Committer.append_now`."""
        stream, config = topic.streams[0], topic.config
        if not self._columns.plain_view[stream] or not self._stored_as_sent(stream, config):
            return None
        if self.refused and stream in self.refused:
            raise self.refused[stream]
        now = self._clock.now_ms()
        if len(values) == 1:
            batch, size = build_lone(values[0], now), len(values[0])
        else:
            batch, size = build_batch(values, timestamps_ms=now), sum(map(len, values))
        if len(batch) > config.max_message_bytes:
            check_size(batch, config)
        if self._byte_limits or self._total_bytes_max:
            self._check_room(topic, size)
        return self._append_now(stream, batch, len(values), size, now)


def check_size(batch: Slice, config: TopicConfig) -> None:
    """Raises TooLarge."""
    if len(batch) > config.max_message_bytes:
        raise TooLarge(
            f"the batch has {len(batch)} bytes, over the topic's max.message.bytes of "
            f"{config.max_message_bytes}: send fewer records at once, or raise that setting"
        )


def sized(batches: Slice) -> tuple[bytes, int]:
    """The RECORD rows of batches, and their logical bytes. Raises InvalidBatch if they cannot be decoded."""
    sizes, times = record_sizes_and_times(memoryview(batches))
    return record_rows(sizes, times), int(sizes.sum())


def record_rows(
    sizes: Sequence[int] | npt.NDArray[np.integer], times_ms: int | npt.NDArray[np.integer]
) -> bytes:
    """A size and a time for each record, packed as the ledger takes them."""
    rows = np.empty(len(sizes), RECORD)
    rows["size"] = sizes
    rows["time"] = times_ms
    return rows.tobytes()


def _with_append_time(slice: memoryview, time_ms: int) -> bytearray:
    stamped = bytearray()
    for header in walk(slice):
        stamped += with_append_time(slice[header.position : header.end], time_ms)
    return stamped


def _check_times(batches: Slice, config: TopicConfig, now_ms: int) -> None:
    """Raises InvalidTimestamp. For topics that limit the times of records.

    The headers decide, so that batches are not decoded: the time of the first record is compared with the earliest
    time allowed, and the time of the newest record with the latest."""
    earliest = now_ms - config.timestamp_before_max_ms
    latest = now_ms + config.timestamp_after_max_ms
    for header in walk(batches):
        first, newest = header.base_timestamp, header.max_timestamp
        if newest > latest:
            reason = f"a record has the timestamp {newest}, after {latest}: message.timestamp.after.max.ms"
        elif first < earliest and first != _NO_TIMESTAMP:
            reason = f"a record has the timestamp {first}, before {earliest}: message.timestamp.before.max.ms"
        else:
            continue
        raise InvalidTimestamp(
            f"{reason} of the topic does not allow it", _outside_limits(batches, earliest, latest)
        )


def _outside_limits(batches: Slice, earliest: int, latest: int) -> list[int]:
    """The numbers of the records outside the limits, or none if they cannot be decoded."""
    try:
        _, times = record_sizes_and_times(memoryview(batches))
    except InvalidBatch:
        return []
    outside = np.flatnonzero(((times < earliest) & (times != _NO_TIMESTAMP)) | (times > latest))
    numbers: list[int] = outside[: limits.INVALID_RECORDS_NAMED_MAX].tolist()
    return numbers
