"""POST transaction: writes and offsets of groups that take effect together."""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import UNSET

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.groups import (
    AtomicWriteBody,
    TransactionCommitted,
    TransactionGroupOffsets,
    TransactionPlace,
    TransactionRecord,
    TransactionWrite,
)
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.transactions.atomic_writes import OffsetCommit, PartitionWrite
from mainstem.broker.writes import NewRecords
from mainstem.doors.http.routes.groups import require_group
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.http.transport.throttle import write_allowed
from mainstem.records.partitioner import partition_of

_body = msgspec.json.Decoder(AtomicWriteBody)


async def post_transaction(request: HttpRequest) -> Response:
    """Write records to several topics and commit offsets of groups: all of it, or nothing."""
    body = request.json(_body)
    id = body.transaction
    if not request.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, id):
        id = f"{request.principal.name}/{id}"  # a client without that right has names of its own
    by_partition: dict[tuple[str, int], PartitionWrite] = {}
    for write in body.writes:
        request.require_topic(write.topic, Operation.WRITE)
        for one in await _writes(request, write, body.key):
            place = one.topic.name, one.partition
            if place in by_partition:
                one = _joined(by_partition[place], one)
            by_partition[place] = one
    writes = list(by_partition.values())
    offsets = [await _offsets(request, one) for one in body.offsets]
    bases = await request.broker.atomic_writes.commit(id, body.key, writes, offsets)
    written = [
        TransactionPlace(write.topic.name, write.partition, base + 1, base + len(write.records.values))
        for write, base in zip(writes, bases or (), strict=False)
    ]
    return reply(TransactionCommitted(body.transaction, bases is None, written, request.performance()))


async def _writes(request: HttpRequest, write: TransactionWrite, key: str) -> list[PartitionWrite]:
    topic = request.broker.streams.topic(write.topic)
    if not write.records:
        raise invalid("records must hold at least one record")
    now = request.broker.clock.now_ms()
    values = [_value(record) for record in write.records]
    records = NewRecords(
        values,
        [_key(record) for record in write.records],
        [[(name, _bytes(content)) for name, content in record.headers] for record in write.records],
        [len(value or b"") for value in values],
    )
    await write_allowed(request, topic.name, sum(records.sizes), len(values))
    times = [now if record.timestamp_ms is None else record.timestamp_ms for record in write.records]
    if write.partition is not None or topic.config.type == "queue":
        return [PartitionWrite(topic, write.partition or 0, records, times)]
    count = len(topic.streams)
    rows = records.by_partition(count, partition_of(key.encode(), count))
    return [
        PartitionWrite(topic, partition, records.only(chosen), [times[row] for row in chosen])
        for partition, chosen in rows.items()
    ]


def _joined(first: PartitionWrite, then: PartitionWrite) -> PartitionWrite:
    a, b = first.records, then.records
    records = NewRecords(
        [*a.values, *b.values],
        [*(a.keys or ()), *(b.keys or ())],
        [*(a.headers or ()), *(b.headers or ())],
        [*a.sizes, *b.sizes],
    )
    return first._replace(records=records, timestamps_ms=[*first.timestamps_ms, *then.timestamps_ms])


def _value(record: TransactionRecord) -> bytes | None:
    if record.packed is not None:
        return _bytes(record.packed)
    return None if record.data is UNSET else bytes(record.data)


def _key(record: TransactionRecord) -> bytes | None:
    if record.key is not None:
        return _bytes(record.key)
    return None if record.tag is None else record.tag.encode()


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        raise invalid("$raw, $key and the contents of headers are in base64") from None


async def _offsets(request: HttpRequest, body: TransactionGroupOffsets) -> OffsetCommit:
    require_group(request, Operation.READ, body.group)
    if not 1 <= len(body.group) <= limits.NAME_CHARS_MAX:
        raise invalid(f"a group name has 1 to {limits.NAME_CHARS_MAX} characters")
    groups = request.broker.groups
    await groups.check_commit(body.group, body.member_id or "", body.epoch, transactional=True)
    rows = []
    for one in body.offsets:
        request.require_topic(one.topic, Operation.READ)
        stream = groups.offsets.committable(OffsetToCommit(one.topic, one.partition, one.offset))
        if not isinstance(stream, int):
            raise stream
        rows.append((stream, one.offset, ""))
    return OffsetCommit(body.group, tuple(rows))
