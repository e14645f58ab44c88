"""Records over HTTP: write, read and delete."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mainstem import limits, tracing
from mainstem.api import routes
from mainstem.api.records import DeleteBody, DeleteResult, DiffBody, WriteResult
from mainstem.client.batches import BatchPage, page_of
from mainstem.client.producer import AsyncProducer, ProducerOptions
from mainstem.client.request_bodies import BatchBody, Headers, JsonBody, NewRecord, Node
from mainstem.client.responses import ConsumerRecord, Gap, OnGap, RecordPage, gap_of
from mainstem.client.transport import Calls, decoded
from mainstem.client.watch import Beginning, Event, watch
from mainstem.errors import InvalidBatch, InvalidInput, OffsetOutOfRange, RecordsLost, TooLarge

if TYPE_CHECKING:
    import pyarrow as pa

_WAIT_MS = 20_000  # of one long poll
_ARROW_BYTES = 8 * limits.MIB


class RecordCalls(Calls):
    # Writing

    async def produce(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        node: str | None = None,
        meta: Any = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int = 0,
        idempotency_key: str | None = None,
        create: bool | None = None,
    ) -> WriteResult:
        """Append one record, and return once it is as durable as the topic requires.

        Bytes are stored unchanged, anything else as JSON. A retry after a lost response uses the same idempotency key,
        so the record is never appended twice.

        Example:
            written = client.produce("orders", {"id": 1, "total": 9.5}, key="customer-7")
            print(written.first_seq)
        """
        record = NewRecord(value, key, node, meta, headers)
        return await self._write(topic, [record], partition, idempotency_key, create)

    async def produce_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        node: str | None = None,
        partition: int = 0,
        idempotency_key: str | None = None,
        create: bool | None = None,
    ) -> WriteResult:
        """Append all values in order, or none.

        Example:
            client.produce_many("orders", [{"id": 1}, {"id": 2}])
        """
        if keys is not None and len(keys) != len(values):
            raise InvalidInput(f"{len(keys)} keys for {len(values)} values: give one key per value")
        records = [
            NewRecord(value, None if keys is None else keys[row], node) for row, value in enumerate(values)
        ]
        return await self._write(topic, records, partition, idempotency_key, create)

    async def produce_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        partition: int = 0,
        idempotency_key: str | None = None,
        create: bool | None = None,
    ) -> WriteResult:
        """Append byte values with their own headers and timestamps, all or none.

        Example:
            client.produce_batch("orders", [b"one", b"two"], headers=[[("source", b"web")], []])
        """
        body = BatchBody()
        context = tracing.created(topic, len(values)) if tracing.enabled() else ()
        for row, value in enumerate(values):
            body.add(
                NewRecord(
                    value,
                    None if keys is None else keys[row],
                    headers=context if headers is None else (*headers[row], *context),
                    timestamp_ms=None if timestamps_ms is None else timestamps_ms[row],
                )
            )
        if not body.count:
            raise InvalidInput("nothing to append: give at least one record")
        return await body.send(
            self._transport, topic, partition, idempotency_key or secrets.token_urlsafe(16), create=create
        )

    async def _write(
        self,
        topic: str,
        records: Sequence[NewRecord],
        partition: int,
        key: str | None,
        create: bool | None,
    ) -> WriteResult:
        if not records:
            raise InvalidInput("nothing to append: give at least one record")
        if not tracing.enabled():
            return await self._send(topic, records, partition, key, create)
        with tracing.sending(topic, len(records)) as context:
            traced = [msgspec.structs.replace(one, headers=(*one.headers, *context)) for one in records]
            return await self._send(topic, traced, partition, key, create)

    async def _send(
        self,
        topic: str,
        records: Sequence[NewRecord],
        partition: int,
        key: str | None,
        create: bool | None,
    ) -> WriteResult:
        packed = any(record.needs_batch for record in records)
        body: JsonBody | BatchBody = BatchBody() if packed else JsonBody()
        for record in records:
            body.add(record)
        return await body.send(
            self._transport, topic, partition, key or secrets.token_urlsafe(16), create=create
        )

    def producer(
        self,
        topic: str,
        *,
        partition: int = 0,
        linger_ms: float = 5.0,
        batch_records: int = 1_000,
        batch_bytes: int = 512 * limits.KIB,
        buffer_bytes: int = 16 * limits.MIB,
        delivery_timeout_s: float = 60.0,
        create: bool | None = None,
    ) -> AsyncProducer:
        """A producer that collects records into batches and delivers them in order, each batch exactly once.

        A batch is sent when it has `batch_records` or `batch_bytes`, or `linger_ms` after its first record. `send`
        waits while `buffer_bytes` are buffered. A batch without a response is sent again, until `delivery_timeout_s`
        after its first record; keep that below the topic's idempotency_window_ms.

        Example:
            with client.producer("orders") as producer:
                for order in orders:
                    producer.send(order, key=order["customer"])
        """
        options = ProducerOptions(
            partition, linger_ms, batch_records, batch_bytes, buffer_bytes, delivery_timeout_s, create
        )
        return AsyncProducer(self._transport, topic, options)

    # Reading

    async def page(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        limit: int = 0,
        partition: int = 0,
        node: Node = None,
        wait_ms: int = 0,
    ) -> RecordPage:
        """One page of records after `from_seq`; waits up to `wait_ms` if there are none.

        Example:
            page = client.page("orders", from_seq=0)
            page = client.page("orders", from_seq=page.next_from_seq)
        """
        body = DiffBody(
            from_seq, limit, node, include_tags=True, wait_ms=wait_ms, include_trace=tracing.enabled()
        )
        query = {"partition": partition or None}
        answer = await self._transport.request(
            routes.POST_DIFF, topic, body=body, query=query, wait_s=wait_ms / 1000
        )
        page = decoded(answer.body, RecordPage)
        for record in page.records:
            record.topic, record.partition = topic, partition
        return page

    async def pages(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        follow: bool = False,
        on_gap: OnGap = "raise",
        limit: int = limits.DIFF_RECORDS_MAX,
        partition: int = 0,
        node: Node = None,
    ) -> AsyncGenerator[list[ConsumerRecord | Gap]]:
        """Like `read`, a page at a time."""
        check_policy(on_gap)
        while True:
            page = await self.page(
                topic,
                from_seq=from_seq,
                limit=limit,
                partition=partition,
                node=node,
                wait_ms=_WAIT_MS if follow else 0,
            )
            items: list[ConsumerRecord | Gap] = []
            if page.tombstone is not None:
                items += handle_gap(gap_of(topic, page.tombstone), on_gap)
            items += page.records
            if items:
                yield items
            if page.caught_up and not follow:
                return
            from_seq = page.next_from_seq

    async def read(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        follow: bool = False,
        on_gap: OnGap = "raise",
        partition: int = 0,
        node: Node = None,
    ) -> AsyncGenerator[ConsumerRecord | Gap]:
        """The records after `from_seq` up to the end; with `follow`, also new records, without end.

        `on_gap` decides what happens at records that retention, a crash or damage removed: "raise" raises RecordsLost,
        "yield" yields a Gap instead of them, "skip" skips them silently.

        Example:
            for record in client.read("orders", from_seq=0):
                print(record.seq, record.key, record.value)
        """
        pages = self.pages(
            topic, from_seq=from_seq, follow=follow, on_gap=on_gap, partition=partition, node=node
        )
        async with aclosing(pages):
            async for items in pages:
                for item in items:
                    yield item

    async def frames(
        self,
        topics: Mapping[str, Beginning],
        *,
        on_gap: OnGap = "yield",
        node: Node = None,
        lenient: bool = False,
    ) -> AsyncGenerator[list[Event]]:
        """Like `watch`, a frame at a time."""
        check_policy(on_gap)
        async with aclosing(watch(self._transport, topics, node=node, lenient=lenient)) as frames:
            async for frame in frames:
                items: list[Event] = []
                for event in frame:
                    items += handle_gap(event, on_gap) if isinstance(event, Gap) else [event]
                if items:
                    yield items

    async def watch(
        self,
        topics: Mapping[str, Beginning],
        *,
        on_gap: OnGap = "yield",
        node: Node = None,
        lenient: bool = False,
    ) -> AsyncGenerator[Event]:
        """The events of some topics as they happen: Record, Gap, CaughtUp and TopicDeleted.

        Each topic begins after a sequence number, or at its "tail". The client reconnects after a lost connection
        without missing or repeating events. The iterator ends when all topics are deleted.

        Example:
            for event in client.watch({"orders": 0, "payments": "tail"}):
                if isinstance(event, mainstem.client.Record): ...
        """
        async with aclosing(self.frames(topics, on_gap=on_gap, node=node, lenient=lenient)) as frames:
            async for items in frames:
                for item in items:
                    yield item

    # As stored, and as columns

    async def batches(
        self,
        topic: str,
        *,
        offset: int = 0,
        partition: int = 0,
        timestamp_ms: int | None = None,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        wait_ms: int = 0,
    ) -> BatchPage:
        """Record batches in their stored format, from an offset or a time on. Raises OffsetOutOfRange, RecordsLost.

        Example:
            for record in client.batches("orders").records(): print(record.value)
        """
        if timestamp_ms is not None:
            offset = await self.offset_at(topic, timestamp_ms, partition=partition)
        query = {
            "partition": partition or None,
            "from": offset,
            "max_bytes": max_bytes,
            "wait_ms": wait_ms or None,
        }
        answer = await self._transport.request(routes.GET_BATCHES, topic, query=query, wait_s=wait_ms / 1000)
        return page_of(answer, offset)

    async def offset_at(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> int:
        """The offset of the first record with that timestamp or a later one; the end offset if there is none.

        Example:
            offset = client.offset_at("orders", 1767225600000)
        """
        query = {"partition": partition, "at": max(0, timestamp_ms)}
        found = await self._transport.call(routes.GET_OFFSETS, topic, query=query)
        position = found.partitions[0]
        return position.end if position.offset is None else position.offset

    async def read_arrow(
        self, topic: str, *, from_seq: int = 0, limit: int | None = None, partition: int = 0
    ) -> pa.Table:
        """Records as an Arrow table: offset, timestamp, key, value, headers. At most `limit`, else to the end.

        Without `from_seq` it begins at the oldest record. Raises RecordsLost, OffsetOutOfRange.

        Example:
            frame = client.read_arrow("orders", limit=100_000).to_pandas()
        """
        import pyarrow as pa

        from mainstem.records.arrow import record_schema

        tables: list[pa.Table] = []
        left = limit
        offset = from_seq
        while left is None or left > 0:
            try:
                page = await self.batches(topic, offset=offset, partition=partition, max_bytes=_ARROW_BYTES)
            except OffsetOutOfRange as gone:
                if from_seq or offset >= gone.start:
                    raise
                offset = gone.start
                continue
            try:
                whole = await asyncio.to_thread(page.table)
            except (InvalidBatch, TooLarge):
                page = await asyncio.to_thread(page.decodable)
                whole = await asyncio.to_thread(page.table)
            table = whole if left is None else whole.slice(0, left)
            if table.num_rows:
                tables.append(table)
            if left is not None:
                left -= table.num_rows
            if page.at_end:
                break
            offset = page.next_offset
        return pa.concat_tables(tables) if tables else record_schema().empty_table()

    async def read_polars(
        self, topic: str, *, from_seq: int = 0, limit: int | None = None, partition: int = 0
    ) -> Any:
        """Like `read_arrow`, as a Polars frame. Polars must be installed.

        Example:
            frame = client.read_polars("orders")
        """
        try:
            polars = import_module("polars")
        except ImportError:
            raise InvalidInput("polars is not installed: pip install polars, or use read_arrow") from None
        table = await self.read_arrow(topic, from_seq=from_seq, limit=limit, partition=partition)
        return polars.from_arrow(table)

    # Deleting

    async def delete_records(
        self, topic: str, *, before_seq: int | None = None, match: str | None = None, partition: int = 0
    ) -> DeleteResult:
        """Delete the records below a sequence number, or whose key matches (`"user-7"`, `"user-*"`), or both.

        Example:
            client.delete_records("orders", match="customer-7")
        """
        return await self._transport.call(
            routes.POST_DELETE,
            topic,
            body=DeleteBody(before_seq, match),
            query={"partition": partition or None},
        )


def check_policy(on_gap: str) -> None:
    known: tuple[Literal["raise", "yield", "skip"], ...] = ("raise", "yield", "skip")
    if on_gap not in known:
        raise InvalidInput(f"on_gap must be one of {', '.join(known)}, not {on_gap!r}")


def handle_gap(gap: Gap, on_gap: OnGap) -> list[Gap]:
    """The gap as a reader gets it. Raises RecordsLost."""
    if on_gap == "raise":
        raise RecordsLost(gap.first_seq - 1, gap.last_seq, gap.reason)
    return [gap] if on_gap == "yield" else []
