"""A producer that collects records into batches and delivers each batch exactly once, in order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from mainstem import limits, tracing
from mainstem.client.loop import LoopThread
from mainstem.client.request_bodies import (
    BatchBody,
    Headers,
    HeadersInput,
    JsonBody,
    NewRecord,
    Serializer,
    header_pairs,
    serialized,
)
from mainstem.client.responses import RecordMetadata
from mainstem.client.transport import Transport
from mainstem.errors import Closed, InvalidInput, Unavailable

_LEAST_DELIVERY_S = 5.0  # even for a batch that waited long behind others

Delivery = asyncio.Future[RecordMetadata] | concurrent.futures.Future[RecordMetadata]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    partition: int | None
    linger_ms: float
    batch_records: int
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_s: float
    create: bool | None
    serializer: Serializer | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch_records <= limits.HTTP_WRITE_RECORDS_MAX:
            raise InvalidInput(f"batch_records must be 1 to {limits.HTTP_WRITE_RECORDS_MAX}")
        if self.batch_bytes < 1 or self.buffer_bytes < 1 or self.linger_ms < 0:
            raise InvalidInput("batch_bytes and buffer_bytes must be 1 or more, linger_ms 0 or more")


class _PendingBatch:
    """Records of one request, and the futures of their senders."""

    def __init__(self, first: NewRecord) -> None:
        self.packed = first.needs_batch
        self.partition = first.partition
        self._times = (first.delay_ms, first.ttl_ms)
        self.body: JsonBody | BatchBody = BatchBody() if self.packed else JsonBody()
        self.deliveries: list[Delivery] = []
        self.key = secrets.token_urlsafe(16)  # the same for every attempt
        self.begun = time.monotonic()

    def takes(self, record: NewRecord) -> bool:
        """Whether this record may be in the same request. A stored batch has one delay and one time to live."""
        return (
            self.packed == record.needs_batch
            and self.partition == record.partition
            and (not self.packed or self._times == (record.delay_ms, record.ttl_ms))
        )


class BatchBuffer:
    """Batches that fill and wait to be sent. Thread-safe."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._batches: deque[_PendingBatch] = deque()
        self.bytes = 0  # buffered or in flight

    def add(self, record: NewRecord, delivery: Delivery) -> bool:
        """Buffer a record. True: a batch was started or is now full.

        Raises InvalidInput, TooLarge."""
        options = self._options
        with self._lock:
            last = self._batches[-1] if self._batches else None
            new = last is None or not last.takes(record) or self._full(last)
            batch = _PendingBatch(record) if last is None or new else last
            self.bytes += batch.body.add(record)
            batch.deliveries.append(delivery)
            if new:
                self._batches.append(batch)
            return new or batch.body.count == options.batch_records or batch.body.bytes >= options.batch_bytes

    def _full(self, batch: _PendingBatch) -> bool:
        body = batch.body
        return body.count >= self._options.batch_records or body.bytes >= self._options.batch_bytes

    @property
    def ripe(self) -> bool:
        """Whether the first batch is complete."""
        with self._lock:
            return len(self._batches) > 1 or (bool(self._batches) and self._full(self._batches[0]))

    def take(self) -> _PendingBatch | None:
        with self._lock:
            return self._batches.popleft() if self._batches else None

    def done(self, batch: _PendingBatch) -> None:
        with self._lock:
            self.bytes -= batch.body.bytes

    @property
    def roomy(self) -> bool:
        return self.bytes < self._options.buffer_bytes


class AsyncProducer:
    """Collects records and sends them in order, one batch at a time. Created by `client.producer(…)`.

    Example:
        async with client.producer("orders") as producer:
            delivery = await producer.send({"id": 1})
            print((await delivery).seq)
    """

    def __init__(self, transport: Transport, topic: str, options: ProducerOptions) -> None:
        self._transport = transport
        self._topic = topic
        self._options = options
        self.gathering = BatchBuffer(options)
        self._wake = asyncio.Event()  # a batch was started, or is full
        self._progress = asyncio.Condition()  # a batch was delivered, or failed
        self._flushing = 0  # callers that wait in flush
        self._sending: asyncio.Task[None] | None = None
        self._failure: Exception | None = None  # the first that was not raised yet
        self._outage: Exception | None = None  # why the last batch failed, if the server did not respond
        self._closed = False  # accepts no more records
        self._ended = False  # and sends no more

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        node: str | None = None,
        meta: Any = None,
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        delay_ms: int = 0,
        ttl_ms: int = 0,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer a record, and wait while the buffer is full. The future gives its offset; awaiting it is optional.
        `delay_ms` and `ttl_ms` are those of `client.produce`."""
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        record = self.record(value, key, node, meta, headers, timestamp_ms, partition, delay_ms, ttl_ms)
        await self.put(record, delivery)
        return delivery

    def record(
        self,
        value: Any,
        key: str | bytes | None,
        node: str | None,
        meta: Any,
        headers: HeadersInput,
        timestamp_ms: int | None,
        partition: int | None,
        delay_ms: int,
        ttl_ms: int,
    ) -> NewRecord:
        """A record for this producer. Its own partition takes precedence over the producer's."""
        pairs = header_pairs(headers) if headers else ()
        if tracing.enabled():
            pairs = (*pairs, *self.context())
        chosen = self._options.partition if partition is None else partition
        value = serialized(value, self._options.serializer)
        return NewRecord(value, key, node, meta, pairs, timestamp_ms, chosen, delay_ms, ttl_ms)

    def context(self) -> Headers:
        """Headers that add a record to the caller's trace."""
        return tracing.created(self._topic)

    async def put(self, record: NewRecord, delivery: Delivery) -> None:
        """Like `send`, with the caller's future."""
        if not self.gathering.roomy:
            await self.room()
        if self._closed:
            raise Closed("this producer is closed: create another one")
        if self.gathering.add(record, delivery):
            self.wake()

    async def room(self) -> None:
        """Wait until fewer than buffer_bytes are buffered."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.gathering.roomy or self._ended)

    def wake(self) -> None:
        """Wake the sender. On the loop's thread only."""
        self._wake.set()
        if self._sending is None:
            self._sending = self._transport.spawn(self._send_all(), "mainstem-producer")

    async def flush(self) -> None:
        """Wait until every record is delivered or failed. Raises the first failure since the last flush."""
        self._flushing += 1
        self._wake.set()
        try:
            async with self._progress:
                await self._progress.wait_for(lambda: self.gathering.bytes == 0 or self._ended)
        finally:
            self._flushing -= 1
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, and accept no more records. Idempotent."""
        self._closed = True
        try:
            await self.flush()
        finally:
            sending, self._sending = self._sending, None
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self) -> None:
        batch: _PendingBatch | None = None
        try:
            while True:
                await self._ready()
                batch = self.gathering.take()
                if batch is not None:
                    await self._deliver(batch)
                    async with self._progress:
                        self.gathering.done(batch)
                        self._progress.notify_all()
        finally:
            self._closed = self._ended = True
            self._abandon(batch)
            async with self._progress:
                self._progress.notify_all()

    def _abandon(self, batch: _PendingBatch | None) -> None:
        """The client was closed before the producer: fail this batch and the rest."""
        unsent = Closed("the client was closed before the server confirmed the record")
        while batch is not None or (batch := self.gathering.take()) is not None:
            for delivery in batch.deliveries:
                if not delivery.done():
                    self._failure = self._failure or unsent
                    _fail(delivery, unsent)
            batch = None

    async def _ready(self) -> None:
        """Wait until the first batch is full, linger_ms is over, or a caller flushes."""
        await self._wake.wait()
        self._wake.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.linger_ms / 1000
        while not self.gathering.ripe and not self._flushing:
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            try:
                # Not `wait_for`: before Python 3.12 it can lose a cancellation that arrives with the event.
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                break
            self._wake.clear()
        if self.gathering.ripe:
            self._wake.set()  # another batch may be waiting

    async def _deliver(self, batch: _PendingBatch) -> None:
        whole_s = self._options.delivery_timeout_s
        left_s = batch.begun + whole_s - time.monotonic()
        try:
            if left_s <= 0 and self._outage is not None:
                raise self._outage  # it timed out while it waited behind a batch that failed
            written = await batch.body.send(
                self._transport,
                self._topic,
                batch.partition,
                batch.key,
                create=self._options.create,
                timeout_s=max(left_s, min(whole_s, _LEAST_DELIVERY_S)),
            )
        except Exception as error:  # noqa: BLE001 - every error fails the batch's futures
            self._outage = error if isinstance(error, Unavailable) else None
            self._failure = self._failure or error
            for delivery in batch.deliveries:
                _fail(delivery, error)
            return
        self._outage = None
        partition = batch.partition or 0 if written.partition is None else written.partition
        for row, delivery in enumerate(batch.deliveries):
            if delivery.done():
                continue
            if written.partitions is not None and written.seqs is not None:
                placed = RecordMetadata(written.topic, written.seqs[row], written.partitions[row])
            else:
                placed = RecordMetadata(written.topic, written.first_seq + row, partition)
            delivery.set_result(placed)


def _fail(delivery: Delivery, error: Exception) -> None:
    if delivery.done():
        return
    delivery.set_exception(error)
    if isinstance(delivery, asyncio.Future):
        delivery.exception()  # mark it as retrieved: flush raises it too


class Producer:
    """Like AsyncProducer, for threads: `send` returns at once unless the buffer is full.

    Example:
        with client.producer("orders") as producer:
            delivery = producer.send({"id": 1})
            print(delivery.result().seq)
    """

    def __init__(self, thread: LoopThread, producer: AsyncProducer) -> None:
        self._thread = thread
        self._producer = producer
        self._closed = False

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        node: str | None = None,
        meta: Any = None,
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        delay_ms: int = 0,
        ttl_ms: int = 0,
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Buffer a record, and wait while the buffer is full. The future gives its offset; reading it is optional.
        `delay_ms` and `ttl_ms` are those of `client.produce`."""
        if self._closed:
            raise Closed("this producer is closed: create another one")
        record = self._producer.record(
            value, key, node, meta, headers, timestamp_ms, partition, delay_ms, ttl_ms
        )
        gathering = self._producer.gathering
        if not gathering.roomy:
            self._thread.call(self._producer.room())
        delivery: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()
        if gathering.add(record, delivery):
            self._thread.call_soon(self._producer.wake)
        return delivery

    def flush(self) -> None:
        """Wait until every record is delivered or failed. Raises the first failure since the last flush."""
        self._thread.call(self._producer.flush())

    def close(self) -> None:
        """Flush, and accept no more records. Idempotent."""
        if not self._closed:
            self._closed = True
            self._thread.call(self._producer.close())
