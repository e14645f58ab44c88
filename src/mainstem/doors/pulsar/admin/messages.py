"""Single messages: by position in a backlog, by id, or by place in the topic. The metadata is in the headers."""

from __future__ import annotations

import base64
import time
from typing import Any

from mainstem.broker.access.rules import Operation
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.entries import MessageEntry, MessageEntryReader
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.responses import Header, Response
from mainstem.doors.pulsar.admin.call import NOT_ALLOWED, AdminCall, AdminRefusal, answer, whole_number
from mainstem.doors.pulsar.records import uncompressed
from mainstem.doors.pulsar.topic_names import PulsarTopicName, ledger_of
from mainstem.errors import InvalidInput, SubscriptionNotFound

_PEEKED_MAX = 10_000  # how far into a backlog a client may look
_BYTES: Header = (b"content-type", b"application/octet-stream")


def one_partition(topic: Topic, name: PulsarTopicName, what: str) -> int:
    """Raises AdminRefusal if the name means several partitions."""
    if name.partition < 0 and len(topic.streams) > 1:
        raise AdminRefusal(
            NOT_ALLOWED, f"{what} a partitioned topic is not allowed: name one of its partitions"
        )
    return max(name.partition, 0)


async def peek(call: AdminCall, topic: str, subscription: str, position: str) -> Response:
    """The message at a position of a backlog, from 1 on."""
    name, found = await call.topic(topic, Operation.READ)
    call.caller.check_subscription(found.name, subscription)
    at = one_partition(found, name, "Peeking at messages of")
    number = whole_number(position, "the position")
    if not 1 <= number <= _PEEKED_MAX:
        raise InvalidInput(f"the position is from 1 to {_PEEKED_MAX}")
    stream = stream_of(found, at)
    if not call.broker.subscriptions.exists(stream, subscription):
        raise SubscriptionNotFound(subscription)
    reader = MessageEntryReader(call.broker.streams, stream)
    offset = call.broker.subscriptions.next_unacked(stream, subscription)
    while True:
        entries, offset = await reader.read(offset)
        if not entries:
            raise AdminRefusal(404, "Message not found: the backlog is shorter")
        left = [
            entry
            for entry in entries
            if call.broker.subscriptions.has_unacked(stream, subscription, entry.base, entry.end)
        ]
        if number <= len(left):
            return _message(found, at, left[number - 1])
        number -= len(left)


async def get_by_id(call: AdminCall, topic: str, ledger: str, entry: str) -> Response:
    name, found = await call.topic(topic, Operation.READ)
    at = one_partition(found, name, "Reading a message of")
    if whole_number(ledger, "the ledger") != ledger_of(found):
        raise AdminRefusal(404, "Message id not found: it is of another topic")
    return await _at(call, found, at, whole_number(entry, "the entry"))


async def examine(call: AdminCall, topic: str) -> Response:
    """The Nth message from the start or the end of the topic."""
    name, found = await call.topic(topic, Operation.READ)
    at = one_partition(found, name, "Examining messages of")
    first, end = call.broker.streams.bounds(stream_of(found, at))
    number = whole_number(call.text("messagePosition") or "1", "messagePosition")
    if number < 1:
        raise InvalidInput("messagePosition is 1 or more")
    if first == end:
        raise AdminRefusal(412, "Could not examine messages: the topic has none")
    latest = (call.text("initialPosition") or "latest") == "latest"
    offset = end - number if latest else first + number - 1
    return await _at(call, found, at, min(max(offset, first), end - 1))


async def _at(call: AdminCall, topic: Topic, partition: int, offset: int) -> Response:
    stream = stream_of(topic, partition)
    first, end = call.broker.streams.bounds(stream)
    entry = (
        await MessageEntryReader(call.broker.streams, stream).at(offset) if first <= offset < end else None
    )
    if entry is None:
        raise AdminRefusal(404, "Message not found")
    return _message(topic, partition, entry)


async def get_id_by_time(call: AdminCall, topic: str, time_ms: str) -> Response:
    """The id of the first message that was published at a time or later."""
    name, found = await call.topic(topic, Operation.READ)
    at = one_partition(found, name, "Searching")
    stream = stream_of(found, at)
    placed = await call.broker.streams.at_time(stream, whole_number(time_ms, "the time"))
    if placed is None:
        return await last_id(call, found, name.partition)
    entry = await MessageEntryReader(call.broker.streams, stream).at(placed[0])
    return answer(message_id(found, name.partition, placed[0] if entry is None else entry.base))


async def get_last_id(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.READ)
    if name.partition < 0 and len(found.streams) > 1:
        raise AdminRefusal(404, f"Topic {topic} not found: it has partitions")
    return await last_id(call, found, name.partition)


async def last_id(call: AdminCall, topic: Topic, partition: int) -> Response:
    return answer(await last_id_fields(call, topic, partition))


async def last_id_fields(call: AdminCall, topic: Topic, partition: int) -> dict[str, Any]:
    stream = stream_of(topic, max(partition, 0))
    entry = await MessageEntryReader(call.broker.streams, stream).last(*call.broker.streams.bounds(stream))
    fields = message_id(topic, partition, -1 if entry is None else entry.base)
    if entry is not None and entry.batched:
        fields["batchIndex"] = entry.last - entry.base
    return fields


def message_id(topic: Topic, partition: int, entry: int) -> dict[str, Any]:
    return {"ledgerId": ledger_of(topic), "entryId": entry, "partitionIndex": partition}


def _message(topic: Topic, partition: int, entry: MessageEntry) -> Response:
    metadata, payload = uncompressed(entry)
    headers = [
        ("Message-ID", f"{ledger_of(topic)}:{entry.base}"),
        ("publish-time", _date(metadata.publish_time)),
        ("producer-name", metadata.producer_name.decode(errors="replace")),
        ("sequence-id", str(metadata.sequence_id)),
    ]
    if metadata.event_time:
        headers.append(("event-time", _date(metadata.event_time)))
    if metadata.deliver_at_time:
        headers.append(("deliver-at-time", _date(metadata.deliver_at_time)))
    if metadata.HasField("partition_key"):
        headers.append(("partition-key", metadata.partition_key.decode(errors="replace")))
        headers.append(("partition-key-b64-encoded", str(metadata.partition_key_b64_encoded).lower()))
    if metadata.HasField("schema_version"):
        headers.append(("schema-version-b64encoded", base64.b64encode(metadata.schema_version).decode()))
    if metadata.HasField("null_value"):
        headers.append(("null-value", str(metadata.null_value).lower()))
    if entry.batched:
        headers.append(("num-batch-message", str(entry.count)))
        headers.append(("batch-size", str(len(payload))))
    for row in metadata.properties:
        key, value = row.key.decode(errors="replace"), row.value.decode(errors="replace")
        headers.append((f"PROPERTY-{key}", value))
    safe = tuple(
        (f"X-Pulsar-{key}".encode(), value.encode())
        for key, value in headers
        if key.isascii() and key.isprintable() and ":" not in key and " " not in key and value.isprintable()
    )
    return Response(200, payload, (_BYTES, *safe))


def _date(time_ms: int) -> str:
    seconds, milliseconds = divmod(min(time_ms, 253_402_300_799_999), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"
