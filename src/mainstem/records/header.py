"""The header of a record batch: everything that the hot paths read.

RecordBatch v2 (magic 2), big-endian, 61 bytes (`HEADER`):

| at | field                | type | meaning                                                            |
|----|----------------------|------|--------------------------------------------------------------------|
|  0 | baseOffset           | i8   | offset of the first record; set on read, outside the CRC           |
|  8 | batchLength          | i4   | bytes after this field: the whole batch is 12 more                 |
| 12 | partitionLeaderEpoch | i4   | set on read, outside the CRC                                       |
| 16 | magic                | i1   | 2                                                                  |
| 17 | crc                  | u4   | CRC32C of everything from `attributes` to the end                  |
| 21 | attributes           | i2   | bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control        |
| 23 | lastOffsetDelta      | i4   | offset of the last record minus baseOffset                         |
| 27 | baseTimestamp        | i8   | ms; record times are deltas to it                                  |
| 35 | maxTimestamp         | i8   | ms; with LogAppendTime the time of every record                    |
| 43 | producerId           | i8   | idempotent producer, -1 = none                                     |
| 51 | producerEpoch        | i2   | -1 = none                                                          |
| 53 | baseSequence         | i4   | sequence of the first record, -1 = none                            |
| 57 | recordsCount         | i4   | records that follow; less than lastOffsetDelta + 1 if some were removed |
| 61 | records              |      | the records, compressed as one section if a codec is set           |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import CorruptBatch, InvalidBatch, TooLarge, UnsupportedFormat
from mainstem.records.checksums import joined

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
MAGIC = 2
RECORD_BYTES_MIN = 7  # length, attributes, two deltas, null key, null value, no headers: a byte each

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

CODEC_ID_MAX = 4
CRC_AT = 17
CRC_COVERS_FROM = 21
LENGTH_COVERS_FROM = 12
_LENGTH_MIN = HEADER_BYTES - LENGTH_COVERS_FROM

_CRC = struct.Struct(">I")
_BEFORE_CRC = struct.Struct(">qiibI")  # baseOffset to crc
_COVERED = struct.Struct(">hiqqqhii")  # attributes to recordsCount: what the CRC covers of the header
_POSITION = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch
_LENGTH = struct.Struct(">i")
_DELTA = struct.Struct(">i")
_DELTA_AT = 23

_unpack = HEADER.unpack_from

Slice = bytearray | memoryview  # consecutive batches of one stream, in memory that nothing else uses


class SliceFacts(NamedTuple):
    """What an append needs to know about consecutive batches."""

    count: int  # type: ignore[assignment]  # offsets used: the sum of lastOffsetDelta + 1; hides tuple.count
    batches: int
    max_timestamp: int  # ms
    producer: int  # -1 = none; otherwise there is a single batch
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    keyed: bool = False  # the producer fields hold an idempotency key instead (ledger/idempotency.py)
    joins: bool = False  # the append adds its stream to the producer's transaction
    resumes: bool = False  # an unknown producer may continue its sequence


class BatchHeader(NamedTuple):
    """One header, and its batch's position in the buffer."""

    position: int
    length: int  # bytes of the whole batch, header included
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # records stored: fewer than the offsets if some were removed

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def records_at(self) -> int:
        return self.position + HEADER_BYTES

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.length


def check_slice(buf: memoryview, *, batch_bytes_max: int, built_here: bool = False) -> SliceFacts:
    """Check batches from a producer; `built_here`: their checksums were just computed.

    Raises InvalidBatch, CorruptBatch or TooLarge."""
    size = len(buf)
    count = batches = at = flags = 0
    latest = producer = epoch = sequence = -1
    while at < size:
        if size - at < HEADER_BYTES:
            raise InvalidBatch(f"{size - at} bytes are left at byte {at}: a batch header has {HEADER_BYTES}")
        (_, length, _, magic, crc, attributes, delta, _, newest, producer, epoch, sequence, records) = (
            _unpack(buf, at)
        )
        end = at + LENGTH_COVERS_FROM + length
        if magic != MAGIC or length < _LENGTH_MIN or end > size:
            raise _bad_frame(magic, length, size - at)
        if end - at > batch_bytes_max:
            raise TooLarge(f"batch of {end - at} bytes: the limit is {batch_bytes_max}")
        if not built_here and crc32c(buf[at + CRC_COVERS_FROM : end]) != crc:
            raise CorruptBatch(f"crc of the batch at byte {at} does not match: {crc:#010x} is declared")
        if records != delta + 1 or not 0 < records <= limits.BATCH_RECORDS_MAX:
            raise _bad_count(records, delta)
        codec = attributes & CODEC_MASK
        if codec > CODEC_ID_MAX:
            raise InvalidBatch(f"attributes name codec {codec}: the known ones are 0 to {CODEC_ID_MAX}")
        if codec == 0 and records * RECORD_BYTES_MIN > end - at - HEADER_BYTES:
            raise InvalidBatch(f"recordsCount is {records}, too many for {end - at - HEADER_BYTES} bytes")
        if producer != -1 or attributes & TRANSACTIONAL:
            if at or end != size:
                raise InvalidBatch(f"producerId is {producer}: an idempotent append must be a single batch")
            _check_producer(producer, epoch, sequence, attributes)
        if newest > latest:
            latest = newest
        flags |= attributes
        count += records
        batches += 1
        at = end
    if not batches:
        raise InvalidBatch("0 bytes of record batches: at least one batch is needed")
    return SliceFacts(
        count, batches, latest, producer, epoch, sequence, bool(flags & TRANSACTIONAL), bool(flags & CONTROL)
    )


def slice_crc(slice: Slice, batches: int) -> int:
    """The checksum of batches that were checked, or built here.

    A large single batch is not read again: its own CRC covers all but its first bytes. A bit that flips in memory
    between that check and the write therefore goes unnoticed at the write; every read notices it, because the batch's
    CRC travels with it from the producer to the consumer."""
    if batches != 1 or len(slice) < limits.CRC_JOINED_BYTES_MIN:
        return int(crc32c(slice))
    (declared,) = _CRC.unpack_from(slice, CRC_AT)
    return joined(crc32c(slice[:CRC_COVERS_FROM]), declared, len(slice) - CRC_COVERS_FROM)


def stamp_lone(batch: Slice, base_offset: int, leader_epoch: int) -> None:
    """Like `stamp` for exactly one batch that was checked."""
    _POSITION.pack_into(batch, 0, base_offset, len(batch) - LENGTH_COVERS_FROM, leader_epoch)


def stamp(buf: Slice, base_offset: int, leader_epoch: int) -> int:
    """Write offsets and epoch into consecutive batches, in place. Returns the offset after the last one."""
    at, size = 0, len(buf)
    while at < size:
        if size - at < HEADER_BYTES:
            raise InvalidBatch(f"{size - at} bytes are left at byte {at}: a batch header has {HEADER_BYTES}")
        (length,) = _LENGTH.unpack_from(buf, at + 8)
        if length < _LENGTH_MIN:
            raise InvalidBatch(f"batchLength is {length}: the least is {_LENGTH_MIN}")
        _POSITION.pack_into(buf, at, base_offset, length, leader_epoch)
        base_offset += _DELTA.unpack_from(buf, at + _DELTA_AT)[0] + 1
        at += LENGTH_COVERS_FROM + length
    return base_offset


def walk(buf: bytes | bytearray | memoryview, at: int = 0) -> Iterator[BatchHeader]:
    """The headers of consecutive stored batches. Allows removed records; does not check the CRC."""
    size = len(buf)
    while at < size:
        if size - at < HEADER_BYTES:
            raise InvalidBatch(f"{size - at} bytes are left at byte {at}: a batch header has {HEADER_BYTES}")
        (
            base,
            length,
            leader,
            magic,
            _,
            attributes,
            delta,
            oldest,
            newest,
            producer,
            epoch,
            sequence,
            count,
        ) = _unpack(buf, at)
        whole = LENGTH_COVERS_FROM + length
        if magic != MAGIC or length < _LENGTH_MIN or whole > size - at:
            raise _bad_frame(magic, length, size - at)
        if not 0 <= count <= delta + 1 or count > limits.BATCH_RECORDS_MAX:
            raise _bad_count(count, delta)
        if attributes & CODEC_MASK > CODEC_ID_MAX:
            raise InvalidBatch(
                f"attributes name codec {attributes & CODEC_MASK}: the known ones are 0 to {CODEC_ID_MAX}"
            )
        if not 0 <= base <= _OFFSET_MAX - delta:
            raise InvalidBatch(f"baseOffset is {base}: offsets run from 0 to {_OFFSET_MAX}")
        yield BatchHeader(
            at, whole, base, leader, attributes, delta, oldest, newest, producer, epoch, sequence, count
        )
        at += whole


def record_count(batches: Slice) -> int:
    """How many records batches claim to hold. Needs no valid batches: what ends early counts up to there."""
    count = at = 0
    while len(batches) - at >= HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(batches, at + 8)
        (records,) = _LENGTH.unpack_from(batches, at + HEADER_BYTES - 4)
        if length < 0:
            break
        count += max(records, 0)
        at += 12 + length
    return count


def crc_matches(buf: memoryview, header: BatchHeader) -> bool:
    """Whether the bytes of a batch match its CRC."""
    declared: int = _CRC.unpack_from(buf, header.position + CRC_AT)[0]
    return bool(crc32c(buf[header.position + CRC_COVERS_FROM : header.end]) == declared)


def seal(
    batch: bytearray,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int,
) -> bytearray:
    """Write header and CRC into `batch`, which already has its records after the space for the header."""
    size = len(batch)
    if size > limits.BATCH_BYTES_MAX:
        raise TooLarge(f"batch of {size} bytes: the limit is {limits.BATCH_BYTES_MAX}")
    try:
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            size - LENGTH_COVERS_FROM,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer,
            producer_epoch,
            base_sequence,
            count,
        )
    except struct.error as error:
        raise InvalidBatch(f"a header field does not fit: {error}") from error
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))
    return batch


def seal_lone(record: bytes, timestamp_ms: int) -> bytearray:
    """A batch of one record, as `seal` makes it of a record without attributes and producer."""
    size = HEADER_BYTES + len(record)
    if size > limits.BATCH_BYTES_MAX:
        raise TooLarge(f"batch of {size} bytes: the limit is {limits.BATCH_BYTES_MAX}")
    try:
        covered = _COVERED.pack(0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + record
    except struct.error as error:
        raise InvalidBatch(f"a header field does not fit: {error}") from error
    return bytearray(_BEFORE_CRC.pack(0, size - LENGTH_COVERS_FROM, -1, MAGIC, crc32c(covered)) + covered)


_OFFSET_MAX = (1 << 63) - 2  # the offset after the last one must fit too


def _bad_frame(magic: int, length: int, left: int) -> InvalidBatch:
    if 0 <= magic < MAGIC:
        return UnsupportedFormat(
            f"magic is {magic}, a format from before Kafka 0.11: only {MAGIC} is supported"
        )
    if magic != MAGIC:
        return CorruptBatch(f"magic is {magic}: only {MAGIC} is supported")
    if length < _LENGTH_MIN:
        return InvalidBatch(f"batchLength is {length}: the least is {_LENGTH_MIN}")
    return InvalidBatch(f"batchLength is {length}, but only {left - LENGTH_COVERS_FROM} bytes follow")


def _bad_count(count: int, delta: int) -> InvalidBatch | TooLarge:
    if count > limits.BATCH_RECORDS_MAX and count <= delta + 1:
        return TooLarge(f"recordsCount is {count}: the limit is {limits.BATCH_RECORDS_MAX}")
    return InvalidBatch(f"recordsCount is {count}, but lastOffsetDelta is {delta}")


def _check_producer(producer: int, epoch: int, sequence: int, attributes: int) -> None:
    if producer < 0:
        raise InvalidBatch(
            f"producerId is {producer}: it must be -1 or at least 0, and at least 0 if transactional"
        )
    if epoch < 0:
        raise InvalidBatch(f"producerEpoch is {epoch} with producerId {producer}: it must be at least 0")
    if sequence < 0 and not attributes & CONTROL:
        raise InvalidBatch(f"baseSequence is {sequence} with producerId {producer}: it must be at least 0")
