"""Messages of Pulsar as records, and back.

| Pulsar                          | record                                                          |
|---------------------------------|-----------------------------------------------------------------|
| payload, decompressed           | value; null if `null_value`                                     |
| partition_key                   | key, decoded from base64 if the message says so                 |
| properties                      | headers                                                         |
| publish_time                    | timestamp                                                       |
| ordering_key                    | header `pulsar.ordering_key`                                    |
| deliver_at_time                 | header `pulsar.deliver_at`, decimal ms                          |
| other fields of MessageMetadata | header `pulsar.entry`, encoded, on the first record of an entry |
| other fields of a SingleMessageMetadata | header `pulsar.message`: index and count as varints, then encoded |

A payload that only its reader can take apart (encrypted, or a chunk of a message) is stored as it is, as one record.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from mainstem import limits
from mainstem.broker.subscriptions.entries import (
    DELIVER_AT_HEADER,
    ENTRY_HEADER,
    MESSAGE_HEADER,
    ORDERING_HEADER,
    OTHER_DOORS_NAME,
    RESERVED_PREFIX,
    MessageEntry,
    MessageRun,
    checksum_tables,
    deliver_at,
    read_varint,
    scratch,
)
from mainstem.doors.pulsar.messages import MessageMetadata, SingleMessageMetadata
from mainstem.doors.pulsar.wire import varint
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records.building import build_batch
from mainstem.records.compiled import compiled, octets, pulsar_preloaded
from mainstem.records.compression import Codec, codec_id, compress, decompress
from mainstem.records.decoding import StoredRecord
from mainstem.records.header import HEADER_BYTES, TRANSACTIONAL, seal
from mainstem.records.interpreted import build_interpreted, check_section
from mainstem.records.pulsar_kernels import unpack_messages
from mainstem.records.pulsar_run_kernels import frame_messages
from mainstem.records.pulsar_send_kernels import SEND_ROWS, SIZE, TIME, frame_receipts, unpack_sends

RECOMPRESSED_BYTES_MIN = 64 * limits.KIB  # larger payloads keep the compression they were sent with

SENDS_PER_BATCH_MAX = 1_024  # stored as one batch, if they arrive together
SEND_BATCH_BYTES_MAX = 256 * limits.KIB
SEND_FRAME_BYTES_MAX = 4 * limits.KIB  # larger ones are stored alone

_NONE, _LZ4, _ZLIB, _ZSTD, _SNAPPY = range(5)
_CODECS: dict[int, Codec] = {_LZ4: "lz4", _ZLIB: "gzip", _ZSTD: "zstd", _SNAPPY: "snappy"}
_SIZE = struct.Struct(">I")
_FRAME_OVERHEAD_BYTES = 60  # at most the sizes, tags, the entry and the index of a MESSAGE
_RECORD_OVERHEAD_BYTES = 96  # at most what a record adds to its message
# What the metadata says of how the payload is packed.
_OF_PAYLOAD = (
    "num_messages_in_batch",
    "uncompressed_size",
    "num_chunks_from_msg",
    "chunk_id",
    "total_chunk_msg_size",
)
_ENTRY_NAME = octets(ENTRY_HEADER.encode())
_MESSAGE_NAME = octets(MESSAGE_HEADER.encode())
_ORDERING_NAME = octets(ORDERING_HEADER.encode())
_MESSAGES_PER_BATCH_MAX = 100_000
_TIME_MS_MAX = 1 << 52

Headers = list[tuple[str, bytes | None]]


class BuiltBatch:
    """A record batch made of one published entry."""

    __slots__ = ("batch", "batched", "count")

    def __init__(self, batch: bytearray, count: int, batched: bool) -> None:
        self.batch = batch
        self.count = count
        self.batched = batched


# From Pulsar


class BatchStamp(NamedTuple):
    """The place of a batch in a transaction."""

    producer: int
    epoch: int
    sequence: int


_NO_STAMP = BatchStamp(-1, -1, -1)


def batch_of(metadata: Any, payload: memoryview, stamp: BatchStamp | None = None) -> BuiltBatch:
    """The record batch of one published entry. Raises InvalidBatch, TooLarge."""
    opaque = _is_opaque(metadata)
    batched = metadata.HasField("num_messages_in_batch") and not opaque
    codec = metadata.compression
    if codec not in _CODECS and codec != _NONE:
        raise InvalidBatch(f"unknown compression {codec}: use LZ4, ZLIB, ZSTD or SNAPPY")
    content: bytes | memoryview = payload
    if codec and not opaque:
        content = _decompressed(codec, bytes(payload), metadata.uncompressed_size)
    publish_time = metadata.publish_time
    if publish_time > _TIME_MS_MAX:
        raise InvalidBatch(f"a publish time of {publish_time} ms")
    count = metadata.num_messages_in_batch if batched else 1
    headers: list[Headers] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    first: Headers = []
    if batched:
        _add_entry_header(metadata, first, opaque=opaque)
        if count > limits.INTERPRETED_RECORDS_MAX:
            large = _large_batch(content, count, first, publish_time, _CODECS.get(codec, "none"), stamp)
            if large is not None:
                return BuiltBatch(large, count, batched)
        _split_batch(bytes(content), count, keys, values, headers)
        headers[0] = first + headers[0]
    else:
        keys.append(_take_key(metadata))
        null = metadata.null_value and not content
        values.append(None if null else bytes(content))
        properties = _take_properties(metadata)
        _add_entry_header(metadata, first, opaque=opaque)
        headers.append(first + properties)
    producer, epoch, sequence = stamp or _NO_STAMP
    build = build_batch if pulsar_preloaded.usable() else build_interpreted
    batch = build(
        values,
        keys=keys if any(key is not None for key in keys) else None,
        headers=headers,
        timestamps_ms=publish_time,
        codec=_CODECS[codec] if codec and not opaque else "none",
        producer=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=stamp is not None,
    )
    return BuiltBatch(batch, count, batched)


class SendRun(NamedTuple):
    """Several SENDs of one producer, whose messages are records of one batch."""

    producer: int
    sends: npt.NDArray[np.int64]  # rows as named in the kernels, one column a SEND
    batch: bytearray
    size: int  # bytes of the messages
    frame_bytes: int  # bytes of the frames

    @property
    def messages(self) -> int:
        return int(self.sends.shape[1])


def parse_sends(data: memoryview, frame_bytes_max: int) -> SendRun | None:
    """The SENDs at the start of some frames, if there are several that one batch can hold."""
    if not pulsar_preloaded.usable():
        return None
    sends = np.empty((SEND_ROWS, SENDS_PER_BATCH_MAX), np.int64)
    out = scratch(SEND_BATCH_BYTES_MAX)[:SEND_BATCH_BYTES_MAX]
    count, producer, frame_bytes, end = compiled(unpack_sends)(
        octets(data),
        0,
        out,
        HEADER_BYTES,
        sends,
        frame_bytes_max,
        _ENTRY_NAME,
        _ORDERING_NAME,
        checksum_tables(),
    )
    if count < 2:
        return None
    sends = np.ascontiguousarray(sends[:, :count])
    times = sends[TIME]
    batch = seal(
        bytearray(out[:end]),
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=int(times[0]),
        max_timestamp=int(times.max()),
        producer=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    return SendRun(producer, sends, batch, int(sends[SIZE].sum()), frame_bytes)


def receipt_frames(run: SendRun, base: int, producer: bytes, ledger: bytes, partition: bytes) -> memoryview:
    """SEND_RECEIPTs. The last three are encoded fields: of the command, and of the message id around its entry."""
    out = np.empty(
        (_FRAME_OVERHEAD_BYTES + 20 + len(producer) + len(ledger) + len(partition)) * run.messages, np.uint8
    )
    size = compiled(frame_receipts)(run.sends, base, octets(producer), octets(ledger), octets(partition), out)
    return out[:size].data


def _large_batch(
    content: bytes | memoryview,
    count: int,
    headers: Headers,
    time_ms: int,
    codec: Codec,
    stamp: BatchStamp | None,
) -> bytearray | None:
    """The record batch of many messages, built in one pass; None if only Python can convert them."""
    if count > _MESSAGES_PER_BATCH_MAX or not pulsar_preloaded.usable():
        return None  # refused later, or built otherwise
    encoded_headers = b"".join(
        varint(2 * len(name)) + name.encode() + varint(2 * len(value or b"")) + (value or b"")
        for name, value in headers
    )
    out = scratch(HEADER_BYTES + len(content) + len(encoded_headers) + _RECORD_OVERHEAD_BYTES * count)
    end = compiled(unpack_messages)(
        octets(content),
        count,
        out,
        HEADER_BYTES,
        octets(encoded_headers),
        len(headers),
        _MESSAGE_NAME,
        _ORDERING_NAME,
        limits.HEADERS_PER_RECORD_MAX,
    )
    if end < 0:
        return None
    check_section(end - HEADER_BYTES)
    batch = bytearray(out[:HEADER_BYTES] if codec != "none" else out[:end])
    if codec != "none":
        batch += compress(codec, out[HEADER_BYTES:end].tobytes())
    producer, epoch, sequence = stamp or _NO_STAMP
    return seal(
        batch,
        attributes=codec_id(codec) | (TRANSACTIONAL if stamp is not None else 0),
        last_offset_delta=count - 1,
        base_timestamp=time_ms,
        max_timestamp=time_ms,
        producer=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def _is_opaque(metadata: Any) -> bool:
    """Whether only clients can read the payload."""
    return bool(metadata.encryption_keys) or metadata.num_chunks_from_msg > 1


def _add_entry_header(metadata: Any, headers: Headers, *, opaque: bool) -> None:
    """What the record itself does not say. Changes the metadata."""
    metadata.ClearField("publish_time")
    if metadata.HasField("ordering_key"):
        headers.append((ORDERING_HEADER, metadata.ordering_key))
        metadata.ClearField("ordering_key")
    if metadata.HasField("deliver_at_time"):
        headers.append((DELIVER_AT_HEADER, str(metadata.deliver_at_time).encode()))
        metadata.ClearField("deliver_at_time")
    if not opaque:
        metadata.ClearField("uncompressed_size")
        metadata.ClearField("num_messages_in_batch")
    headers.append((ENTRY_HEADER, metadata.SerializeToString()))


def _split_batch(
    content: bytes,
    count: int,
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: list[Headers],
) -> None:
    if not 1 <= count <= _MESSAGES_PER_BATCH_MAX:
        raise InvalidBatch(f"a batch of {count} messages: use 1 to {_MESSAGES_PER_BATCH_MAX}")
    at, end = 0, len(content)
    size_of = varint(count)
    for index in range(count):
        if end - at < _SIZE.size:
            raise InvalidBatch(f"a batch of {count} messages ends after {index}")
        (size,) = _SIZE.unpack_from(content, at)
        at += _SIZE.size
        try:
            metadata = SingleMessageMetadata.FromString(content[at : at + size])
        except DecodeError:
            raise InvalidBatch("the metadata of a message in a batch is damaged") from None
        at += size
        length = metadata.payload_size
        if not 0 <= length <= end - at:
            raise InvalidBatch(f"a message of {length} bytes in a batch that has {end - at} left")
        value = content[at : at + length]
        at += length
        keys.append(_take_key(metadata))
        values.append(None if metadata.null_value and not value else value)
        mine: Headers = []
        if metadata.HasField("ordering_key"):
            mine.append((ORDERING_HEADER, metadata.ordering_key))
            metadata.ClearField("ordering_key")
        properties = _take_properties(metadata)
        metadata.ClearField("payload_size")
        mine.append((MESSAGE_HEADER, varint(index) + size_of + metadata.SerializeToString()))
        headers.append(mine + properties)
    if at != end:
        raise InvalidBatch(f"{end - at} bytes follow the messages of a batch")


def _take_key(metadata: Any) -> bytes | None:
    """The key, which is removed from the metadata, unless it could not be restored from it."""
    if not metadata.HasField("partition_key"):
        return None
    key: bytes = metadata.partition_key
    if metadata.partition_key_b64_encoded:
        try:
            decoded = base64.b64decode(key, validate=True)
        except binascii.Error:
            return key
        if base64.b64encode(decoded) != key:
            return key
        key = decoded
    metadata.ClearField("partition_key")
    return key


def _take_properties(metadata: Any) -> Headers:
    """The properties, which are removed from the metadata, except those whose names are not possible as headers."""
    if not metadata.properties:
        return []
    taken: Headers = []
    left = []
    for row in metadata.properties:
        try:
            name = row.key.decode()
        except UnicodeDecodeError:
            name = RESERVED_PREFIX
        if name.startswith(RESERVED_PREFIX):
            left.append((row.key, row.value))
        else:
            taken.append((name, row.value))
    metadata.ClearField("properties")
    for key, value in left:
        metadata.properties.add(key=key, value=value)
    return taken


# To Pulsar


def encoded(entry: MessageEntry) -> tuple[bytes, bytes]:
    """Metadata and payload of an entry."""
    return _encoded_batch(entry) if entry.batched else _encoded_single(entry.first)


def message_frames(
    run: MessageRun, consumer: bytes, ledger: bytes, partition: bytes, tail: bytes, *, indexed: bool = False
) -> memoryview:
    """MESSAGE frames. The bytes are encoded fields: of the command, and of the message id around its entry.
    `indexed`: with the offset as index."""
    fields = _FRAME_OVERHEAD_BYTES + len(consumer) + len(ledger) + len(partition) + len(tail)
    out = np.empty(run.size + fields * run.count, np.uint8)
    size = compiled(frame_messages)(
        run.bodies,
        run.borders,
        run.base,
        octets(consumer),
        octets(ledger),
        octets(partition),
        octets(tail),
        indexed,
        out,
    )
    return out[:size].data


def uncompressed(entry: MessageEntry) -> tuple[Any, bytes]:
    """The same, with the metadata decoded and the payload as it is without compression."""
    encoded_metadata, payload = encoded(entry)
    metadata = MessageMetadata.FromString(encoded_metadata)
    if metadata.compression and not metadata.encryption_keys:
        payload = _decompressed(metadata.compression, payload, metadata.uncompressed_size)
    return metadata, payload


def _entry_metadata(record: StoredRecord) -> Any:
    """The metadata of an entry, from the headers of its first record."""
    metadata = MessageMetadata()
    content = _header(record, ENTRY_HEADER)
    if content:
        try:
            metadata.ParseFromString(content)
        except DecodeError:  # a client of another door used the name
            metadata.Clear()
        if not _is_opaque(metadata):
            # The header has none of these (`_add_entry_header`), unless a client of another door wrote it. Pulsar's
            # clients trust them: one may crash for a batch of two billion messages.
            for name in _OF_PAYLOAD:
                metadata.ClearField(name)
    if not metadata.HasField("producer_name"):
        metadata.producer_name = OTHER_DOORS_NAME
    if not metadata.HasField("sequence_id"):
        metadata.sequence_id = record.offset
    metadata.publish_time = max(record.timestamp_ms, 0)
    ordering, time_ms = _header(record, ORDERING_HEADER), deliver_at(_header(record, DELIVER_AT_HEADER))
    if time_ms is not None:
        metadata.deliver_at_time = time_ms
    if ordering is not None:
        metadata.ordering_key = ordering
    return metadata


def _encoded_single(record: StoredRecord) -> tuple[bytes, bytes]:
    metadata = _entry_metadata(record)
    _put_key_and_properties(metadata, record)
    payload = record.value or b""
    opaque = _is_opaque(metadata)
    return _packed(metadata, payload) if not opaque else (metadata.SerializeToString(), payload)


def _encoded_batch(entry: MessageEntry) -> tuple[bytes, bytes]:
    metadata = _entry_metadata(entry.first)
    metadata.num_messages_in_batch = entry.count
    if entry.packed is not None:
        return _packed(metadata, entry.packed)
    by_index = {record.offset - entry.base: record for record in entry.records}
    parts: list[bytes] = []
    for index in range(entry.count):
        record = by_index.get(index)
        message = SingleMessageMetadata()
        payload = b""
        if record is None:
            message.compacted_out = True  # deleted, or removed by compaction
        else:
            content = _header(record, MESSAGE_HEADER) or b""
            _, at = read_varint(content, 0)
            _, at = read_varint(content, at)
            try:
                message.ParseFromString(content[at:])
            except DecodeError:
                message.Clear()
            _put_key_and_properties(message, record)
            ordering = _header(record, ORDERING_HEADER)
            if ordering is not None:
                message.ordering_key = ordering
            payload = record.value or b""
        message.payload_size = len(payload)
        data = message.SerializeToString()
        parts += (_SIZE.pack(len(data)), data, payload)
    return _packed(metadata, b"".join(parts))


def _packed(metadata: Any, payload: bytes) -> tuple[bytes, bytes]:
    """Compressed as the producer did, if the payload is large; a small one is sent as it is."""
    codec = metadata.compression
    if codec and len(payload) >= RECOMPRESSED_BYTES_MIN:
        metadata.uncompressed_size = len(payload)
        return metadata.SerializeToString(), _compressed(codec, payload)
    metadata.ClearField("compression")
    return metadata.SerializeToString(), payload


def _put_key_and_properties(metadata: Any, record: StoredRecord) -> None:
    key = record.key
    if key is not None and not metadata.HasField("partition_key"):
        if metadata.partition_key_b64_encoded or not _is_text(key):
            metadata.partition_key_b64_encoded = True
            key = base64.b64encode(key)
        metadata.partition_key = key
    if record.value is None:
        metadata.null_value = True
    kept = [(row.key, row.value) for row in metadata.properties]
    if kept:
        metadata.ClearField("properties")
    for name, content in record.headers:
        if not name.startswith(RESERVED_PREFIX):
            metadata.properties.add(key=name.encode(), value=content or b"")
    for key_, value in kept:
        metadata.properties.add(key=key_, value=value)


def _header(record: StoredRecord, wanted: str) -> bytes | None:
    return next((content for name, content in record.headers if name == wanted), None)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# Compression: one block, whose decompressed size the metadata gives


def _decompressed(codec: int, data: bytes, size: int) -> bytes:
    """Raises InvalidBatch, TooLarge."""
    if size > limits.BATCH_DECODED_BYTES_MAX:
        raise TooLarge(f"a payload of {size} bytes: the limit is {limits.BATCH_DECODED_BYTES_MAX}")
    if codec == _LZ4:
        import lz4.block

        try:
            content: bytes = lz4.block.decompress(data, uncompressed_size=size)
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise InvalidBatch(f"lz4 data is damaged: {error}") from None
    elif codec == _ZLIB:
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(data, size + 1)
        except zlib.error as error:
            raise InvalidBatch(f"zlib data is damaged: {error}") from None
    else:
        content = decompress(_CODECS[codec], data, size)
    if len(content) != size:
        raise InvalidBatch(f"a payload decompresses to {len(content)} bytes, not to {size} as it says")
    return content


def _compressed(codec: int, data: bytes) -> bytes:
    if codec == _LZ4:
        import lz4.block

        packed: bytes = lz4.block.compress(data, store_size=False)
        return packed
    if codec == _ZLIB:
        return zlib.compress(data)
    if codec == _ZSTD:
        import zstandard

        return zstandard.ZstdCompressor().compress(data)
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))
