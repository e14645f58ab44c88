"""Messages of Pulsar as records and back: nothing is lost, and entries do not depend on how batches are stored."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.broker.subscriptions.entries import Delivery, MessageEntry, MessageRun, add_entries
from mainstem.doors.pulsar.messages import MessageMetadata, SingleMessageMetadata
from mainstem.doors.pulsar.records import batch_of, encoded, message_frames, parse_sends, receipt_frames
from mainstem.doors.pulsar.wire import (
    FrameBuffer,
    parse_frame,
    parse_single_acks,
    payload_frame,
    simple_frame,
    split_payload,
)
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import check_slice, stamp

_words = st.text("abcé/. ", max_size=6)
_names = st.one_of(_words, st.just("pulsar.entry"), st.just("pulsar.message"))
_values = st.binary(max_size=12)
_keys = st.one_of(st.none(), _words.map(str.encode), st.binary(max_size=4))


@st.composite
def singles(draw: Any) -> tuple[Any, bytes]:
    """A SingleMessageMetadata and its payload, as clients send them."""
    message = SingleMessageMetadata()
    payload = draw(_values)
    _fill(draw, message, payload)
    message.payload_size = len(payload)
    if draw(st.booleans()):
        message.sequence_id = draw(st.integers(0, 2**64 - 1))
    return message, payload


def _fill(draw: Any, message: Any, payload: bytes) -> None:
    for name, value in draw(st.dictionaries(_names, _values, max_size=2)).items():
        message.properties.add(key=name.encode(), value=value)
    key = draw(_keys)
    if key is not None:
        try:
            key.decode()
        except UnicodeDecodeError:
            import base64

            key = base64.b64encode(key)
            message.partition_key_b64_encoded = True
        message.partition_key = key
    if draw(st.booleans()):
        message.event_time = draw(st.integers(0, 2**63))
    if draw(st.booleans()):
        message.ordering_key = draw(_values)
    if not payload and draw(st.booleans()):
        message.null_value = True


def _published(**fields: object) -> Any:
    return MessageMetadata(producer_name=b"p", sequence_id=4, publish_time=1_700_000_000_000, **fields)


def _framed(messages: list[tuple[Any, bytes]]) -> bytes:
    parts = []
    for message, payload in messages:
        data = message.SerializeToString()
        parts += [struct.pack(">I", len(data)), data, payload]
    return b"".join(parts)


def _stored(batch: bytearray, base: int = 10) -> list[MessageEntry]:
    """The entries of a batch that was appended at an offset."""
    stamp(memoryview(batch), base, 0)
    return _entries([memoryview(batch)])


def _entries(batches: list[memoryview]) -> list[MessageEntry]:
    entries: list[Delivery] = []
    add_entries(batches, 0, entries, runs=False)
    return cast("list[MessageEntry]", entries)


def _rebatched(batch: bytearray, base: int = 10) -> list[MessageEntry]:
    """The same records, each stored in a batch of its own."""
    stamp(memoryview(batch), base, 0)
    entries: list[Delivery] = []
    for record in decode_records(batch):
        alone = build_batch(
            [record.value], keys=[record.key], headers=[record.headers], timestamps_ms=record.timestamp_ms
        )
        stamp(memoryview(alone), record.offset, 0)
        add_entries([memoryview(alone)], 0, entries, runs=False)
    return cast("list[MessageEntry]", entries)


def _messages(metadata: bytes, payload: bytes) -> list[tuple[Any, bytes]]:
    """The messages of a batch as a client reads them."""
    found, at = [], 0
    for _ in range(MessageMetadata.FromString(metadata).num_messages_in_batch):
        (size,) = struct.unpack_from(">I", payload, at)
        message = SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        at += 4 + size
        found.append((message, payload[at : at + message.payload_size]))
        at += message.payload_size
    assert at == len(payload)
    return found


def _same(got: list[tuple[Any, bytes]], sent: list[tuple[Any, bytes]]) -> None:
    assert len(got) == len(sent)
    for (message, payload), (original, value) in zip(got, sent, strict=True):
        assert payload == value
        rows = {(row.key, row.value) for row in message.properties}
        assert rows == {(row.key, row.value) for row in original.properties}
        for one in (message, original):
            one.ClearField("properties")
        assert message == original


@given(st.lists(singles(), min_size=1, max_size=5), st.sampled_from([0, 1, 2, 3, 4]))
@settings(max_examples=60, deadline=None)
def test_a_batch_comes_back_as_it_was_published(sent: list[tuple[Any, bytes]], compression: int) -> None:
    payload = _framed(sent)
    metadata = _published(num_messages_in_batch=len(sent))
    if compression:
        from mainstem.doors.pulsar.records import _compressed

        metadata.compression, metadata.uncompressed_size = compression, len(payload)
        payload = _compressed(compression, payload)
    built = batch_of(metadata, memoryview(payload))
    for entries in (_stored(built.batch), _rebatched(built.batch)):
        (entry,) = entries
        assert (entry.base, entry.count, entry.batched) == (10, len(sent), True)
        data, content = encoded(entry)
        told = MessageMetadata.FromString(data)
        assert (told.producer_name, told.sequence_id, told.publish_time) == (b"p", 4, 1_700_000_000_000)
        copies = [(SingleMessageMetadata.FromString(one.SerializeToString()), value) for one, value in sent]
        _same(_messages(data, content), copies)


@st.composite
def lone_messages(draw: Any) -> tuple[Any, bytes]:
    """A MessageMetadata and its payload, as clients send a message that is not in a batch."""
    metadata = _published()
    payload = draw(_values)
    _fill(draw, metadata, payload)
    if draw(st.booleans()):
        metadata.schema_version = draw(_values)
    if draw(st.integers(0, 4)) == 0:
        metadata.deliver_at_time = draw(st.integers(0, 2**40))
    return metadata, payload


@given(st.lists(lone_messages(), min_size=1, max_size=6), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_messages_of_their_own_are_the_same_in_runs(sent: list[tuple[Any, bytes]], gap: int) -> None:
    """Enough of them for compiled code, with gaps between the offsets, and records of another door among them."""
    stored = bytearray()
    offset = 0
    while len(stored) < 16_384:
        for metadata, payload in sent:
            copied = MessageMetadata.FromString(metadata.SerializeToString())
            batch = batch_of(copied, memoryview(payload)).batch
            offset = stamp(memoryview(batch), offset, 0)
            stored += batch
        other = build_batch(
            [b"a", None], keys=[b"k", None], headers=[[("h", None)], []], timestamps_ms=[5, 6]
        )
        offset = stamp(memoryview(other), offset, 0) + gap - 1
        stored += other
    last = build_batch([b"v"] * 100, timestamps_ms=7)
    stamp(memoryview(last), offset, 0)
    stored += last
    one_by_one = _entries([memoryview(stored)])
    expected = {}
    for entry in one_by_one:
        data, content = encoded(entry)
        expected[entry.base] = MessageMetadata.FromString(data), content
    deliveries: list[Delivery] = []
    add_entries([memoryview(stored)], 0, deliveries, runs=True)
    assert any(isinstance(one, MessageRun) for one in deliveries)
    found = {}
    for one in deliveries:
        if isinstance(one, MessageEntry):
            data, content = encoded(one)
            found[one.base] = MessageMetadata.FromString(data), content
            continue
        frames = FrameBuffer()
        frames.feed(bytes(message_frames(one, b"\x08\x05", b"\x08\x07\x10", b"", b"\x18\x03")))
        while (frame := frames.next()) is not None:
            command, rest = parse_frame(frame)
            message = command.message
            assert (message.consumer_id, message.message_id.ledgerId, message.redelivery_count) == (5, 7, 3)
            encoded_metadata, body = split_payload(rest)
            found[message.message_id.entryId] = MessageMetadata.FromString(encoded_metadata), bytes(body)
    assert list(found) == list(expected)
    assert found == expected


def _send(number: int, metadata: Any, payload: bytes) -> bytes:
    command = simple_frame("send", producer_id=3, sequence_id=number, highest_sequence_id=number % 2 * number)
    return payload_frame(command[8:], metadata.SerializeToString(), payload)


@given(st.lists(lone_messages(), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_messages_that_arrive_together_are_stored_as_if_alone(sent: list[tuple[Any, bytes]]) -> None:
    frames = [_send(number, *message) for number, message in enumerate(sent, 1)]
    run = parse_sends(memoryview(b"".join(frames)), 4_096)
    count = 0 if run is None else run.messages
    if not any(_needs_python(metadata) for metadata, _ in sent[:2]):
        assert count >= 2
    assert count < 2 or count == len(sent) or _needs_python(sent[count][0])
    if run is None:
        return
    assert run.frame_bytes == sum(map(len, frames[:count]))
    check_slice(memoryview(run.batch), batch_bytes_max=1 << 20)
    for got, (metadata, payload) in zip(decode_records(run.batch), sent[:count], strict=True):
        copied = MessageMetadata.FromString(metadata.SerializeToString())
        (alone,) = decode_records(batch_of(copied, memoryview(payload)).batch)
        assert (got.timestamp_ms, got.key, got.value) == (alone.timestamp_ms, alone.key, alone.value)
        assert [_readable(row) for row in got.headers] == [_readable(row) for row in alone.headers]
    receipts = FrameBuffer()
    receipts.feed(bytes(receipt_frames(run, 300, b"\x08\x03", b"\x08\x07\x10", b"\x18\x02")))
    for number in range(1, count + 1):
        frame = receipts.next()
        assert frame is not None
        receipt = parse_frame(frame).command.send_receipt
        assert (receipt.producer_id, receipt.sequence_id) == (3, number)
        assert receipt.highest_sequence_id == number % 2 * number
        place = receipt.message_id
        assert (place.ledgerId, place.entryId, place.partition) == (7, 299 + number, 2)
    assert receipts.next() is None


def _needs_python(metadata: Any) -> bool:
    return (
        metadata.HasField("deliver_at_time")
        or metadata.HasField("null_value")
        or metadata.partition_key_b64_encoded
        or any(not row.key.isascii() or row.key.startswith(b"pulsar.") for row in metadata.properties)
    )


def _readable(header: tuple[str, bytes | None]) -> tuple[str, Any]:
    """The fields of an entry's metadata may be in any order."""
    name, content = header
    return (name, MessageMetadata.FromString(content or b"")) if name == "pulsar.entry" else header


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_frames_are_cut_wherever_the_bytes_are_divided(size: int) -> None:
    sent = [_send(number, _published(), b"v" * number) for number in (1, 300, 2, 50)]
    data = b"".join(sent)
    frames, found = FrameBuffer(), []
    for at in range(0, len(data), size):
        frames.feed(data[at : at + size])
        while (frame := frames.next()) is not None:
            found.append(bytes(frame))
    assert found == [frame[4:] for frame in sent]
    assert len(frames) == 0


@pytest.mark.parametrize("cut", [1, 40, 80])
def test_damaged_sends_are_left_to_be_refused_alone(cut: int) -> None:
    frames = bytearray(_send(1, _published(), b"v" * 50) * 3)
    size = len(frames) // 3
    frames[size + cut] ^= 0xFF
    assert parse_sends(memoryview(frames), 4_096) is None
    frames[size + cut] ^= 0xFF
    frames[2 * size + cut] ^= 0xFF
    run = parse_sends(memoryview(frames), 4_096)
    assert run is not None
    assert run.messages == 2


def test_acknowledgements_are_parsed_like_any_command() -> None:
    ids = [{"ledgerId": 7, "entryId": number * 3, "partition": -1} for number in range(200)]
    data = memoryview(simple_frame("ack", consumer_id=4, ack_type=0, message_id=ids, request_id=9))[4:]
    acks = parse_single_acks(data)
    assert acks is not None
    assert (acks.consumer, acks.request, acks.ledger) == (4, 9, 7)
    assert acks.entries.tolist() == [number * 3 for number in range(200)]
    for other in (
        {"ack_type": 1},
        {"txnid_least_bits": 1},
        {"message_id": [*ids, {"ledgerId": 8, "entryId": 1}]},
        {"message_id": [*ids, {"ledgerId": 7, "entryId": 1, "ack_set": [1]}]},
        {"message_id": [*ids, {"ledgerId": 7, "entryId": 1 << 63}]},
    ):
        fields = {"consumer_id": 4, "message_id": ids, **other}
        assert parse_single_acks(memoryview(simple_frame("ack", **fields))[4:]) is None
    for cut in range(1, 20):
        assert parse_single_acks(data[:-cut]) is None
    assert (
        parse_single_acks(memoryview(simple_frame("redeliver", consumer_id=4, message_ids=ids))[4:]) is None
    )


@pytest.mark.parametrize("key", [b"k", b"k\xc3\xa9", None])
def test_a_large_batch_is_converted_like_a_small_one(key: bytes | None) -> None:
    count = limits.INTERPRETED_RECORDS_MAX + 10
    sent = []
    for number in range(count):
        message = SingleMessageMetadata(
            payload_size=number % 3, sequence_id=number, event_time=number * 2**40
        )
        if key is not None:
            message.partition_key = key
        if number % 4 == 0:
            message.properties.add(key=b"name", value=b"value" * number)
        if number % 5 == 0:
            message.ordering_key = b"order"
        if number % 3 == 0 and number % 2:
            message.null_value = True
        sent.append((message, b"x" * (number % 3)))
    built = batch_of(_published(num_messages_in_batch=count), memoryview(_framed(sent)))
    records = list(decode_records(built.batch))
    assert [record.value for record in records][:4] == [b"", b"x", b"xx", None]
    assert records[0].headers[-1] == ("name", b"")
    (whole,) = _stored(bytearray(built.batch))
    (pieces,) = _rebatched(bytearray(built.batch))
    assert (whole.packed is not None) == (key in (b"k", None))
    for entry in (whole, pieces):
        copies = [(SingleMessageMetadata.FromString(one.SerializeToString()), value) for one, value in sent]
        _same(_messages(*encoded(entry)), copies)


def test_records_of_other_doors_are_entries_of_their_own() -> None:
    batch = build_batch(
        [b"a", None], keys=[b"\xff", None], headers=[[("h", b"\xfe")], []], timestamps_ms=[5, 6]
    )
    first, second = _stored(batch, 3)
    assert (first.base, first.count, second.base, second.count) == (3, 1, 4, 1)
    metadata, payload = encoded(first)
    told = MessageMetadata.FromString(metadata)
    assert (payload, told.partition_key, told.partition_key_b64_encoded) == (b"a", b"/w==", True)
    assert [(row.key, row.value) for row in told.properties] == [(b"h", b"\xfe")]
    assert (told.producer_name, told.sequence_id, told.publish_time) == (b"mainstem", 3, 5)
    metadata, payload = encoded(second)
    told = MessageMetadata.FromString(metadata)
    assert told.null_value
    assert not told.HasField("partition_key")


def test_a_false_place_in_a_batch_makes_no_entry() -> None:
    """A client of another door may send the reserved header with anything in it."""
    rows = [
        [("pulsar.message", content)] for content in (b"", b"\x05\x02", b"\x80", b"\xff" * 9, b"\x09\x0a")
    ]
    batch = build_batch([b"v"] * len(rows), headers=rows, timestamps_ms=1)
    assert [(entry.base, entry.count) for entry in _stored(batch, 0)] == [(at, 1) for at in range(len(rows))]


def test_a_false_time_of_delivery_delays_nothing() -> None:
    rows = [
        [("pulsar.deliver_at", content)] for content in (b"9" * 5000, b"9" * 20, b"-5", b"", b"\xb2", None)
    ]
    batch = build_batch([b"v"] * len(rows), headers=rows, timestamps_ms=1)
    for entry in _stored(batch, 0):
        assert entry.deliver_at_ms == 0
        assert not MessageMetadata.FromString(encoded(entry)[0]).HasField("deliver_at_time")


def test_a_forged_header_says_nothing_of_how_the_payload_is_packed() -> None:
    """Pulsar's client for C++ crashes when a message claims to be a batch of 2^31 - 1."""
    forged = MessageMetadata(
        producer_name=b"p",
        sequence_id=1,
        publish_time=1,
        num_messages_in_batch=2**31 - 1,
        uncompressed_size=2**32 - 1,
        num_chunks_from_msg=-1,
        chunk_id=7,
        total_chunk_msg_size=2**31 - 1,
    ).SerializeToString()
    count = 400  # enough for compiled code
    batch = build_batch([b"v" * 40] * count, headers=[[("pulsar.entry", forged)]] * count, timestamps_ms=1)
    stamp(memoryview(batch), 0, 0)
    deliveries: list[Delivery] = []
    add_entries([memoryview(batch)], 0, deliveries, runs=True)
    assert len(deliveries) == count
    for entry in deliveries:
        assert isinstance(entry, MessageEntry), "compiled code copied the header"
        told = MessageMetadata.FromString(encoded(entry)[0])
        assert not any(told.HasField(name) for name in ("num_messages_in_batch", "uncompressed_size"))
        assert not any(
            told.HasField(name) for name in ("num_chunks_from_msg", "chunk_id", "total_chunk_msg_size")
        )
        assert told.producer_name == b"p"


def test_an_encrypted_batch_and_a_chunk_are_stored_as_they_are() -> None:
    encrypted = _published(num_messages_in_batch=7, compression=1, uncompressed_size=99)
    encrypted.encryption_keys.add(key="k", value=b"v")
    chunk = _published(num_chunks_from_msg=3, chunk_id=1, uuid="u", compression=2, uncompressed_size=10)
    for metadata in (encrypted, chunk):
        wanted = MessageMetadata.FromString(metadata.SerializeToString())
        built = batch_of(metadata, memoryview(b"opaque"))
        assert built.count == 1
        (entry,) = _stored(built.batch)
        data, payload = encoded(entry)
        assert payload == b"opaque"
        assert MessageMetadata.FromString(data) == wanted


@pytest.mark.parametrize("cut", [1, 5, 9, 60])
def test_a_damaged_batch_is_refused(cut: int) -> None:
    messages = [(SingleMessageMetadata(payload_size=20), b"x" * 20) for _ in range(60)]
    for sent in (messages, messages[:3]):
        payload = _framed(sent)[:-cut]
        with pytest.raises(InvalidBatch):
            batch_of(_published(num_messages_in_batch=len(sent)), memoryview(payload))


@pytest.mark.parametrize("count", [2, limits.INTERPRETED_RECORDS_MAX + 10])
def test_too_many_properties_are_refused(count: int) -> None:
    """Stored, no reader could decode them."""
    messages = [(SingleMessageMetadata(payload_size=0), b"") for _ in range(count)]
    for _ in range(limits.HEADERS_PER_RECORD_MAX):
        messages[1][0].properties.add(key=b"p", value=b"")
    with pytest.raises((TooLarge, InvalidBatch)):
        batch_of(_published(num_messages_in_batch=count), memoryview(_framed(messages)))
