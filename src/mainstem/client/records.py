"""Records over HTTP: write, read and delete."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mainstem import limits, tracing
from mainstem.api import routes
from mainstem.api.records import DeleteBody, DeleteResult, DiffBody, WriteResult
from mainstem.client.merging import MergedRead, PartitionPage
from mainstem.client.producer import AsyncProducer, ProducerOptions
from mainstem.client.request_bodies import (
    BatchBody,
    HeadersInput,
    JsonBody,
    NewRecord,
    Node,
    Serializer,
    header_pairs,
    serialized,
)
from mainstem.client.responses import (
    AnyPage,
    ConsumerRecord,
    Deserializer,
    Gap,
    OnGap,
    RecordPage,
    gap_of,
)
from mainstem.client.transport import Calls, decoded
from mainstem.client.watch import Beginning, Event, watch
from mainstem.errors import InvalidInput, RecordsLost

if TYPE_CHECKING:
    pass

_WAIT_MS = 20_000  # of one long poll

Positions = int | Mapping[int, int]  # a sequence number, or one for each partition


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
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        idempotency_key: str | None = None,
        create: bool | None = None,
        delay_ms: int = 0,
        ttl_ms: int = 0,
        serializer: Serializer | None = None,
    ) -> WriteResult:
        """Append one record, and return once it is as durable as the topic requires.

        Bytes are stored unchanged, None as a null (with a key: a tombstone), anything else as JSON, or as the
        `serializer` writes it, such as `SchemaRegistry.serializer`. Of a topic with several partitions, the key
        chooses the partition as it does for Kafka's clients, unless `partition` is given.
        A retry after a lost response uses the same idempotency key, so the record is never appended twice.
        A queue hands the job out after `delay_ms`. The record is deleted after `ttl_ms`; 0 means never.

        Example:
            written = client.produce("orders", {"id": 1, "total": 9.5}, key="customer-7")
            print(written.first_seq)
            client.produce("orders", b"raw", headers={"source": "web"})
        """
        value = serialized(value, serializer)
        record = NewRecord(
            value,
            key,
            node,
            meta,
            header_pairs(headers),
            timestamp_ms,
            delay_ms=delay_ms,
            ttl_ms=ttl_ms,
        )
        return await self._write(topic, [record], partition, idempotency_key, create)

    async def produce_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        node: str | None = None,
        headers: HeadersInput = (),
        partition: int | None = None,
        idempotency_key: str | None = None,
        create: bool | None = None,
        delay_ms: int = 0,
        ttl_ms: int = 0,
        serializer: Serializer | None = None,
    ) -> WriteResult:
        """Append all values in order, or none; if their keys are of several partitions, all or none of each.

        Example:
            client.produce_many("orders", [{"id": 1}, {"id": 2}])
        """
        if keys is not None and len(keys) != len(values):
            raise InvalidInput(f"{len(keys)} keys for {len(values)} values: give one key per value")
        pairs = header_pairs(headers)
        records = [
            NewRecord(
                serialized(value, serializer),
                None if keys is None else keys[row],
                node,
                headers=pairs,
                delay_ms=delay_ms,
                ttl_ms=ttl_ms,
            )
            for row, value in enumerate(values)
        ]
        return await self._write(topic, records, partition, idempotency_key, create)

    async def produce_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[HeadersInput] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        partition: int | None = None,
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
                    headers=context if headers is None else (*header_pairs(headers[row]), *context),
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
        partition: int | None,
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
        partition: int | None,
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
        partition: int | None = None,
        linger_ms: float = 5.0,
        batch_records: int = 1_000,
        batch_bytes: int = 512 * limits.KIB,
        buffer_bytes: int = 16 * limits.MIB,
        delivery_timeout_s: float = 60.0,
        create: bool | None = None,
        serializer: Serializer | None = None,
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
            partition,
            linger_ms,
            batch_records,
            batch_bytes,
            buffer_bytes,
            delivery_timeout_s,
            create,
            serializer,
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
        """One page of one partition: the records after `from_seq`. Waits up to `wait_ms` if there are none.

        Example:
            page = client.page("orders", from_seq=0)
            page = client.page("orders", from_seq=page.next_from_seq)
        """
        body = DiffBody(
            from_seq,
            limit,
            node,
            include_tags=True,
            wait_ms=wait_ms,
            include_trace=tracing.enabled(),
            include_headers=True,
        )
        query = {"partition": partition}
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
        from_seq: Positions = 0,
        follow: bool = False,
        on_gap: OnGap = "raise",
        limit: int = limits.DIFF_RECORDS_MAX,
        partition: int | None = None,
        node: Node = None,
        deserializer: Deserializer | None = None,
    ) -> AsyncGenerator[list[ConsumerRecord | Gap]]:
        """Like `read`, a page at a time."""
        pages = self._pages(topic, from_seq, follow, on_gap, limit, partition, node)
        async with aclosing(pages):
            async for items in pages:
                for item in items if deserializer is not None else ():
                    if isinstance(item, ConsumerRecord):
                        item.deserializer = deserializer
                yield items

    async def _pages(
        self,
        topic: str,
        from_seq: Positions,
        follow: bool,
        on_gap: OnGap,
        limit: int,
        partition: int | None,
        node: Node,
    ) -> AsyncGenerator[list[ConsumerRecord | Gap]]:
        check_policy(on_gap)
        if partition is not None and isinstance(from_seq, Mapping):
            from_seq = from_seq.get(partition, 0)
        positions: Positions = from_seq
        wait_ms = 0 if partition is None else _WAIT_MS
        while True:
            query = partition if isinstance(positions, int) else None
            page = await self._any_page(topic, positions, limit, query, node, wait_ms if follow else 0)
            if page.next is not None:
                break
            if partition is None:
                wait_ms = _WAIT_MS  # it has one partition
            items: list[ConsumerRecord | Gap] = []
            if page.tombstone is not None:
                items += handle_gap(gap_of(topic, page.tombstone, partition or 0), on_gap)
            items += page.records
            if items:
                yield items
            if page.caught_up and not follow:
                return
            positions = page.next_from_seq
        first = {int(number): _partition_page(topic, page, number, on_gap) for number in page.next}

        async def fetch(number: int, seq: int) -> PartitionPage:
            one = await self.page(topic, from_seq=seq, limit=limit, partition=number, node=node)
            gaps = [] if one.tombstone is None else handle_gap(gap_of(topic, one.tombstone, number), on_gap)
            return PartitionPage([*gaps, *one.records], one.next_from_seq, one.caught_up)

        merged = MergedRead(first, fetch)
        async with aclosing(merged.read()) as lists:
            async for items in lists:
                yield items
        if not follow:
            return
        everywhere: Mapping[int, int] = merged.positions
        while True:
            page = await self._any_page(topic, everywhere, limit, None, node, _WAIT_MS)
            items = [
                item
                for number in page.next or {}
                for item in _partition_page(topic, page, number, on_gap).items
            ]
            items.sort(key=lambda item: 0 if isinstance(item, Gap) else item.timestamp_ms)
            if items:
                yield items
            everywhere = {int(number): seq for number, seq in (page.next or {}).items()}

    async def _any_page(
        self,
        topic: str,
        positions: Positions,
        limit: int,
        partition: int | None,
        node: Node,
        wait_ms: int,
    ) -> AnyPage:
        """A page of one partition, or of all."""
        several = isinstance(positions, Mapping)
        body = DiffBody(
            positions.get(0, 0) if isinstance(positions, Mapping) else positions,
            limit,
            node,
            include_tags=True,
            wait_ms=wait_ms,
            include_trace=tracing.enabled(),
            include_headers=True,
            from_={str(number): seq for number, seq in positions.items()}
            if isinstance(positions, Mapping)
            else None,
        )
        query = {"partition": None if several else partition}
        answer = await self._transport.request(
            routes.POST_DIFF, topic, body=body, query=query, wait_s=wait_ms / 1000
        )
        page = decoded(answer.body, AnyPage)
        for record in page.records:
            record.topic = topic
            if partition is not None:
                record.partition = partition
        return page

    async def read(
        self,
        topic: str,
        *,
        from_seq: Positions = 0,
        follow: bool = False,
        on_gap: OnGap = "raise",
        partition: int | None = None,
        node: Node = None,
        deserializer: Deserializer | None = None,
    ) -> AsyncGenerator[ConsumerRecord | Gap]:
        """The records after `from_seq` up to the end; with `follow`, also new records, without end.

        Of a topic with several partitions it reads all, merged by time, unless `partition` is given; `from_seq` is
        then 0 or a map of partitions to sequence numbers. `on_gap` decides what happens at records that retention, a
        crash or damage removed: "raise" raises RecordsLost, "yield" yields a Gap instead of them, "skip" skips them
        silently. A `deserializer`, such as `SchemaRegistry.deserialize`, makes `record.value` of the stored bytes, when
        it is read.

        Example:
            for record in client.read("orders", from_seq=0):
                print(record.partition, record.seq, record.key, record.value, record.headers)
        """
        pages = self.pages(
            topic,
            from_seq=from_seq,
            follow=follow,
            on_gap=on_gap,
            partition=partition,
            node=node,
            deserializer=deserializer,
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

        Each topic begins after a sequence number, or at its "tail"; one with several partitions is watched in all, from
        0, its tail, or a map of partitions to sequence numbers. The client reconnects after a lost connection
        without missing or repeating events. The iterator ends when all topics are deleted.

        Example:
            for event in client.watch({"orders": 0, "payments": "tail"}):
                if isinstance(event, mainstem.client.Record): ...
        """
        async with aclosing(self.frames(topics, on_gap=on_gap, node=node, lenient=lenient)) as frames:
            async for items in frames:
                for item in items:
                    yield item

    # Deleting

    async def delete_records(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | None = None,
        partition: int | None = None,
    ) -> DeleteResult:
        """Delete the records below a sequence number, or whose key matches (`"user-7"`, `"user-*"`), or both.

        It covers all partitions unless `partition` is given, which `before_seq` needs if there are several.

        Example:
            client.delete_records("orders", match="customer-7")
        """
        return await self._transport.call(
            routes.POST_DELETE,
            topic,
            body=DeleteBody(before_seq, match),
            query={"partition": partition},
        )


def _partition_page(topic: str, page: AnyPage, name: str, on_gap: OnGap) -> PartitionPage:
    """One partition of a page of several. Raises RecordsLost."""
    number, gaps = int(name), list[ConsumerRecord | Gap]()
    for tombstone in page.tombstones:
        if tombstone.partition == number:
            gaps += handle_gap(gap_of(topic, tombstone, number), on_gap)
    seq = (page.next or {})[name]
    records = [record for record in page.records if record.partition == number]
    return PartitionPage([*gaps, *records], seq, seq >= (page.head or {})[name])


def check_policy(on_gap: str) -> None:
    known: tuple[Literal["raise", "yield", "skip"], ...] = ("raise", "yield", "skip")
    if on_gap not in known:
        raise InvalidInput(f"on_gap must be one of {', '.join(known)}, not {on_gap!r}")


def handle_gap(gap: Gap, on_gap: OnGap) -> list[Gap]:
    """The gap as a reader gets it. Raises RecordsLost."""
    if on_gap == "raise":
        raise RecordsLost(gap.first_seq - 1, gap.last_seq, gap.reason)
    return [gap] if on_gap == "yield" else []
