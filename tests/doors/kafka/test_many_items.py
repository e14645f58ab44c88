"""Requests that list very many items: they are refused, or served while others are."""

from __future__ import annotations

import asyncio
import struct

import pytest
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.apis import messages
from mainstem.doors.kafka.apis.describe_groups import API as DESCRIBE_GROUPS
from mainstem.doors.kafka.transport.api import KAFKA_CONTROL_REQUEST_BYTES_MAX
from mainstem.doors.kafka.transport.dispatch import KAFKA_ITEMS_PER_TURN
from mainstem.doors.kafka.transport.message_bounds import KAFKA_ITEMS_MAX, KAFKA_PARTITIONS_PER_REQUEST_MAX
from mainstem.doors.kafka.transport.wire import KAFKA_TAGGED_FIELDS_MAX, skip_tags, write_uvarint
from mainstem.errors import MalformedRequest

from .conftest import KafkaStage

_T = struct.pack(">h", 1) + b"t"
_FETCH = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0)


def _listed(item: bytes, times: int) -> bytes:
    return struct.pack(">i", times) + item * times


def _requests(times: int) -> dict[str, tuple[int, int, bytes]]:
    """Key, version and body of requests with this many items, most of them in one list."""
    one_topic, half = struct.pack(">i", 1) + _T, times // 2
    group, no_member = struct.pack(">h", 1) + b"g", struct.pack(">ihq", -1, 0, -1)
    new = _T + struct.pack(">ihii", 1, 1, 0, 0)
    rule = b"\x02" + _T + b"\x03" + struct.pack(">h", 3) + b"U:a" + struct.pack(">h", 1) + b"*\x03\x03"
    return {
        "metadata": (3, 1, _listed(_T, times)),
        "describe groups": (15, 0, _listed(_T, times)),
        "delete groups": (42, 0, _listed(_T, times)),
        "offsets of partitions": (2, 1, struct.pack(">i", -1) + one_topic + _listed(bytes(12), times)),
        "offsets of topics": (
            2,
            1,
            struct.pack(">i", -1) + _listed(_T + struct.pack(">i", 1) + bytes(12), half),
        ),
        "epochs": (23, 2, _listed(_T + struct.pack(">i", 1) + bytes(12), half)),
        "committed offsets": (9, 1, group + one_topic + _listed(bytes(4), times)),
        "commits": (8, 2, group + no_member + one_topic + _listed(struct.pack(">iqh", 0, 1, 0), times)),
        "deleted records": (21, 0, one_topic + _listed(bytes(12), times) + bytes(4)),
        "deleted topics": (20, 1, _listed(struct.pack(">h", 1) + b"z", times) + bytes(4)),
        "new topics": (19, 2, _listed(new, times) + bytes(5)),
        "more partitions": (37, 0, _listed(_T + struct.pack(">ii", 1, -1), times) + bytes(5)),
        "leaving members": (13, 3, group + _listed(struct.pack(">hh", 0, -1), times)),
        "protocols": (
            11,
            0,
            group + struct.pack(">ih", 10_000, 0) + group + _listed(group + bytes(4), times),
        ),
        "rules": (30, 1, _listed(rule, times)),
        "configs": (32, 1, _listed(b"\x02" + _T + struct.pack(">i", -1), times) + b"\0"),
        "changed configs": (33, 0, _listed(b"\x02" + _T + bytes(4), times) + b"\1"),
        "log directories": (35, 1, one_topic + _listed(bytes(4), times)),
        "fetch of partitions": (1, 4, _FETCH + one_topic + _listed(bytes(16), times)),
        "fetch of topics": (1, 4, _FETCH + _listed(_T + struct.pack(">i", 0), times)),
        "produce": (0, 3, struct.pack(">hhi", -1, 1, 1000) + _listed(_T + struct.pack(">i", 0), times)),
    }


async def _ask(kafka: KafkaStage, key: int, version: int, body: bytes) -> bytes:
    """The response, without its length; empty if the connection was closed."""
    reader, writer = await asyncio.open_connection(kafka.address.host, kafka.address.port)
    try:
        request = struct.pack(">hhih", key, version, 1, -1) + body
        writer.write(struct.pack(">i", len(request)) + request)
        head = await reader.read(4)
        return await reader.readexactly(struct.unpack(">i", head)[0]) if head else b""
    finally:
        writer.close()


@pytest.mark.parametrize("name", _requests(0))
async def test_a_request_with_too_many_items_is_refused(
    kafka: KafkaStage, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await _ask(kafka, *_requests(2 * KAFKA_ITEMS_MAX)[name]) == b""
    most = KAFKA_PARTITIONS_PER_REQUEST_MAX if name.startswith(("fetch", "produce")) else KAFKA_ITEMS_MAX
    assert f"more than {most}" in caplog.text


@pytest.mark.parametrize(("name", "size"), [("describe groups", 19), ("offsets of topics", 29)])
async def test_every_item_of_a_long_request_is_answered(kafka: KafkaStage, name: str, size: int) -> None:
    """They are answered in slices, so that others are served meanwhile."""
    await kafka.broker.create_topic("t")
    items = 3 * KAFKA_ITEMS_PER_TURN + 7
    key, version, body = _requests(2 * items if "topics" in name else items)[name]
    answer = await _ask(kafka, key, version, body)
    (count,) = struct.unpack_from(">i", answer, 4)
    assert count == items
    assert len(answer) == 8 + items * size


def test_a_message_with_too_many_tagged_fields_is_refused() -> None:
    fields = KAFKA_TAGGED_FIELDS_MAX + 1
    body = write_uvarint(fields) + b"\x05\0" * fields
    with pytest.raises(MalformedRequest, match="tagged fields"):
        skip_tags(memoryview(body), 0)
    with pytest.raises(MalformedRequest, match="tagged fields"):
        messages.read(DESCRIBE_GROUPS, 5, b"\x01\0" + body)


@pytest.mark.parametrize("sent", [2, 6, 100])
async def test_a_request_that_is_too_large_is_refused_by_its_first_bytes(
    kafka: KafkaStage, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not received: nothing is held for it."""
    reader, writer = await asyncio.open_connection(kafka.address.host, kafka.address.port)
    try:
        begun = struct.pack(">ihhih", KAFKA_CONTROL_REQUEST_BYTES_MAX + 1, 15, 0, 1, -1)
        writer.write(begun + bytes(sent))
        assert await reader.read() == b""
        assert "too many for it" in caplog.text
    finally:
        writer.close()


async def test_the_assignments_of_a_large_group_are_not_too_large(kafka: KafkaStage) -> None:
    """4 MiB from its leader, who gets an answer: here, that there is no such member."""
    group, generation = struct.pack(">h", 1) + b"g", struct.pack(">i", 1)
    member = struct.pack(">h", 2) + b"m0"
    assignment = member + struct.pack(">i", 1 << 20) + bytes(1 << 20)
    answer = await _ask(kafka, 14, 1, group + generation + member + _listed(assignment, 4))
    assert struct.unpack_from(">iih", answer) == (1, 0, ErrorCode.unknown_member_id)
