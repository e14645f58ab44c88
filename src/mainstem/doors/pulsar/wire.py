"""Frames of the Pulsar protocol.

| field        | size | meaning                                              |
|--------------|------|------------------------------------------------------|
| totalSize    | 4    | bytes after this field, big-endian, as all numbers   |
| commandSize  | 4    | bytes of the command                                 |
| command      |      | a BaseCommand                                        |
| magic        | 2    | 0x0e02: only to clients that take an index, as the next two |
| indexSize    | 4    | bytes of the index                                   |
| index        |      | a BrokerEntryMetadata: the offset of the last message |
| magic        | 2    | 0x0e01, only with a payload, as all below            |
| checksum     | 4    | CRC32C of everything after it                        |
| metadataSize | 4    | bytes of the metadata                                |
| metadata     |      | a MessageMetadata                                    |
| payload      |      | one message, or a batch of them                      |

In a batch, each message is a 4-byte size of its SingleMessageMetadata, that metadata, and its payload.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c
from google.protobuf.message import DecodeError

from mainstem import limits
from mainstem.doors.pulsar.messages import NUMBERS, BaseCommand
from mainstem.errors import CorruptBatch, MalformedRequest
from mainstem.records.compiled import compiled, octets, pulsar_preloaded
from mainstem.records.pulsar_run_kernels import parse_ack

MESSAGE_BYTES_MAX = 5 * limits.MIB  # of a payload, as announced to clients
FRAME_BYTES_MAX = MESSAGE_BYTES_MAX + 128 * limits.KIB  # with its command and metadata
CONNECT_BYTES_MAX = 64 * limits.KIB  # of frames before the client has authenticated

_SIZE = struct.Struct(">I")
_SIZES = struct.Struct(">II")
_CHECKED = struct.Struct(">HI")  # magic, checksum
_INDEXED = struct.Struct(">HI")  # magic, size
_MAGIC, _INDEX_MAGIC = 0x0E01, 0x0E02
_SEND_PREFIX = bytes((0x08, NUMBERS["send"]))
_ACK_PREFIX = bytes((0x08, NUMBERS["ack"], NUMBERS["ack"] << 3 | 2))  # type, and the tag of the command
_ID_BYTES_MIN = 6  # of an encoded message id with its tag
ACK_BYTES_MIN = 512  # smaller ones are parsed faster otherwise


class InvalidFrame(MalformedRequest):
    """The stream of frames cannot be followed any further."""


class FrameBuffer:
    """Bytes as they arrive, cut into frames."""

    def __init__(self) -> None:
        self._data: bytes | memoryview = b""
        self._at = 0
        self._following: deque[bytes | memoryview] = deque()  # joined only as far as a frame needs it
        self._following_bytes = 0
        self.frame_bytes_max = CONNECT_BYTES_MAX

    def __len__(self) -> int:
        return len(self._data) - self._at + self._following_bytes

    def feed(self, data: bytes | memoryview) -> None:
        """A view is borrowed: call `keep` before its memory changes."""
        if self._at == len(self._data) and not self._following:
            self._data, self._at = data, 0
        else:
            self._following.append(data)
            self._following_bytes += len(data)

    def keep(self) -> None:
        """Copy what is left of the view that came last."""
        if self._following:
            self._following[-1] = bytes(self._following[-1])
        elif self._data:
            self._data, self._at = bytes(self._data[self._at :]), 0

    @property
    def next_bytes(self) -> int:
        """The size of the next frame; 0 if it is not known yet."""
        if len(self) < _SIZE.size:
            return 0
        if self._at == len(self._data):
            self._advance()
        if len(self._data) - self._at < _SIZE.size:
            self._join()
        return int(_SIZE.unpack_from(self._data, self._at)[0]) + _SIZE.size

    def next(self) -> memoryview | None:
        """The next frame without its size; None if it is not complete. Raises InvalidFrame."""
        size = self.next_bytes
        if not size:
            return None
        if not 2 * _SIZE.size <= size <= self.frame_bytes_max + _SIZE.size:
            raise InvalidFrame(f"a frame of {size - _SIZE.size} bytes: the limit is {self.frame_bytes_max}")
        if len(self) < size:
            return None
        if len(self._data) - self._at < size:
            return self._spanning(size)
        start = self._at + _SIZE.size
        self._at += size
        return memoryview(self._data)[start : self._at]

    def _spanning(self, size: int) -> memoryview:
        """The next frame, of several pieces. Only its own bytes are copied: pieces are larger than most frames."""
        parts: list[memoryview] = [memoryview(self._data)[self._at + _SIZE.size :]]
        size -= len(self._data) - self._at
        while size:
            self._advance()
            self._at = min(size, len(self._data))
            parts.append(memoryview(self._data)[: self._at])
            size -= self._at
        return memoryview(b"".join(parts))

    def _advance(self) -> None:
        """To the next piece."""
        self._data, self._at = self._following.popleft(), 0
        self._following_bytes -= len(self._data)

    def rest(self) -> memoryview:
        """All that is left."""
        if self._following:
            self._join()
        return memoryview(self._data)[self._at :]

    def skip(self, size: int) -> None:
        """These bytes were taken from `rest`."""
        self._at += size

    def _join(self) -> None:
        self._data = b"".join((memoryview(self._data)[self._at :], *self._following))
        self._at = 0
        self._following.clear()
        self._following_bytes = 0


class PulsarFrame(NamedTuple):
    command: Any  # a BaseCommand
    rest: memoryview  # what follows the command


def parse_frame(data: memoryview) -> PulsarFrame:
    """Raises InvalidFrame."""
    (size,) = _SIZE.unpack_from(data)
    if size > len(data) - _SIZE.size:
        raise InvalidFrame(f"a command of {size} bytes in a frame of {len(data)}")
    try:
        command = BaseCommand.FromString(bytes(data[_SIZE.size : _SIZE.size + size]))
    except DecodeError:
        raise InvalidFrame("bytes that are not a command") from None
    return PulsarFrame(command, data[_SIZE.size + size :])


def is_send(data: memoryview) -> bool:
    """Whether frames, with their sizes, begin with a SEND."""
    return data[2 * _SIZE.size : 2 * _SIZE.size + 2] == _SEND_PREFIX


class SingleAcks(NamedTuple):
    """An acknowledgement of whole entries, one by one."""

    consumer: int
    request: int  # -1: no answer is wanted
    ledger: int
    entries: npt.NDArray[np.int64]


def parse_single_acks(data: memoryview) -> SingleAcks | None:
    """A frame with a large ACK; None: use `parse_frame`."""
    at = _SIZE.size
    if (
        len(data) < ACK_BYTES_MIN
        or not pulsar_preloaded.usable()
        or data[at : at + 3] != _ACK_PREFIX
        or _SIZE.unpack_from(data)[0] + at != len(data)
    ):
        return None
    at += 3
    while data[at] > 127:  # the size of the command, which follows from that of the frame
        at += 1
    facts = np.empty(4, np.int64)
    entries = np.empty(len(data) // _ID_BYTES_MIN, np.int64)
    count = compiled(parse_ack)(octets(data), at + 1, facts, entries)
    consumer, type, request, ledger = facts.tolist()
    if count <= 0 or type != 0 or consumer < 0:
        return None
    return SingleAcks(consumer, request, ledger, entries[:count])


def split_payload(rest: memoryview) -> tuple[bytes, memoryview]:
    """Metadata and payload after a command. Raises CorruptBatch, InvalidFrame."""
    at = 0
    if len(rest) >= _CHECKED.size:
        magic, checksum = _CHECKED.unpack_from(rest)
        if magic == _MAGIC:
            at = _CHECKED.size
            if crc32c(rest[at:]) != checksum:
                raise CorruptBatch("the checksum of the message is wrong")
    if len(rest) - at < _SIZE.size:
        raise InvalidFrame("a message without metadata")
    (size,) = _SIZE.unpack_from(rest, at)
    at += _SIZE.size
    if size > len(rest) - at:
        raise InvalidFrame("the metadata of a message is cut off")
    return bytes(rest[at : at + size]), rest[at + size :]


def simple_frame(name: str, **fields: object) -> bytes:
    """A command without a payload. `name` is its field in BaseCommand."""
    command = BaseCommand(type=NUMBERS[name], **{name: fields})
    data: bytes = command.SerializeToString()
    return _SIZES.pack(len(data) + _SIZE.size, len(data)) + data


def payload_frame(command: bytes, metadata: bytes, payload: bytes) -> bytes:
    """An encoded command with metadata and payload."""
    return payload_head(command, metadata, payload) + payload


def payload_head(command: bytes, metadata: bytes, payload: bytes, index: int | None = None) -> bytes:
    """The same without the payload, which follows. `index`: the offset of the last message, if the client takes it."""
    described = _SIZE.pack(len(metadata)) + metadata
    place = b"" if index is None else b"\x10" + varint(index)
    before = command + (_INDEXED.pack(_INDEX_MAGIC, len(place)) + place if place else b"")
    total = _SIZE.size + len(before) + _CHECKED.size + len(described) + len(payload)
    checksum = crc32c(payload, crc32c(described))
    return b"".join((_SIZES.pack(total, len(command)), before, _CHECKED.pack(_MAGIC, checksum), described))


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
