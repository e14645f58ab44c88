"""Every message of every API is measured before the library decodes it."""

from __future__ import annotations

import random
import struct

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from mainstem.doors.kafka.transport.message_bounds import fitted
from mainstem.doors.kafka.transport.registry import apis
from mainstem.errors import MalformedRequest

from .conftest import KafkaStage
from .requests import fetch, list_offsets, metadata, produce
from .wire import Wire, encode, request_frame

SCHEMAS = [
    load_request_schema(key, version)
    for key, api in sorted(apis().items())
    for version in range(max(api.first, 3) if key == 0 else api.first, api.last + 1)
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: f"{schema.__name__}-{schema.__version__}")
def test_the_library_can_decode_every_message_that_passes(schema: type) -> None:
    """Bytes of noise, mostly small so that some of them are messages."""
    chance = random.Random(schema.__name__ + str(schema.__version__))
    for _ in range(300):
        body = bytes(chance.choice((0, 0, 0, 1, 2, 3, 65)) for _ in range(chance.randint(0, 60)))
        try:
            clean = fitted(schema, body)
        except MalformedRequest:
            continue
        assert _read(schema, clean) in (len(clean), UNREADABLE), body


UNREADABLE = -1


def _read(schema: type, body: bytes) -> int:
    """How far the library reads."""
    try:
        return entity_reader(schema)(body, 0)[1]
    except (SerialError, ValueError, OverflowError):
        return UNREADABLE


async def test_bytes_after_a_message_are_ignored(kafka: KafkaStage, wire: Wire) -> None:
    """librdkafka leaves three bytes after a Metadata request for every topic."""
    await kafka.broker.create_topic("t")
    frame = request_frame(metadata(13, all=True), 9)[4:] + b"\1\0\0"
    wire.send_raw(struct.pack(">i", len(frame)) + frame)
    _, answer = await wire.receive(load_response_schema(3, 13))
    assert [topic.name for topic in answer.topics] == ["t"]


async def test_unknown_tagged_fields_are_ignored(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    body = request_frame(metadata(12, "t"), 9)[4:]
    future = b"\2" + b"\x15\3abc" + b"\x16\0"
    frame = body[:-1] + future
    wire.send_raw(struct.pack(">i", len(frame)) + frame)
    correlation, answer = await wire.receive(load_response_schema(3, 12))
    assert (correlation, answer.topics[0].name) == (9, "t")


@pytest.mark.parametrize(
    "request_",
    [
        *(produce(version, "t", b"abc", None) for version in (3, 9)),
        *(fetch(version, "t", (0, 0), (1, 1)) for version in (4, 7, 11, 12)),
        *(list_offsets(version, "t", (0, 0), (1, 1)) for version in (1, 4, 7, 10)),
        *(metadata(version, "a", "b") for version in (0, 4, 9, 12)),
    ],
    ids=lambda request: f"{type(request).__name__}-{request.__version__}",
)
def test_complete_messages_pass_and_truncated_ones_do_not(request_: object) -> None:
    body = encode(request_)
    fitted(type(request_), body)
    for cut in range(len(body)):
        with pytest.raises(MalformedRequest):
            fitted(type(request_), body[:cut])


@pytest.mark.parametrize("count", [2**31 - 1, 1 << 24, -2, -(2**31)])
def test_an_array_that_announces_more_than_was_sent_is_refused(count: int) -> None:
    schema = load_request_schema(2, 1)
    with pytest.raises(MalformedRequest):
        fitted(schema, struct.pack(">ii", -1, count) + bytes(100))


def test_a_compact_array_that_announces_too_much_is_refused() -> None:
    schema = load_request_schema(3, 12)
    for number in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(MalformedRequest):
            fitted(schema, number + bytes(100))


def test_a_null_in_a_field_that_is_not_nullable_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        fitted(load_request_schema(2, 1), struct.pack(">ii", -1, -1))
    with pytest.raises(MalformedRequest):
        fitted(load_request_schema(2, 1), struct.pack(">iih", -1, 1, -1) + bytes(40))
    assert fitted(load_request_schema(3, 1), struct.pack(">i", -1))
