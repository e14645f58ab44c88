"""A frame: one commit on disk. Version 1, little-endian, starts 8-byte aligned.

The entry comes before and after the payload, each time with all the facts. So either copy alone tells where the frame
starts, how long it is and what it says.

| part    | bytes          | meaning                                             |
|---------|----------------|-----------------------------------------------------|
| head    | 48             | `HEAD`                                              |
| entry   | entry_length   |                                                     |
| payload | payload_length | the slices, tightly packed                          |
| entry   | entry_length   | the second copy                                     |
| padding | 0 to 7         | zeros, so that the tail is aligned                  |
| tail    | 48             | `TAIL`: the same facts, in a form found from behind |

Head (`HEAD`):

| field          | type | meaning                                                   |
|----------------|------|-----------------------------------------------------------|
| magic          | u4   | HEAD_MAGIC                                                |
| crc            | u4   | CRC32C of the rest of the head and the entry after it     |
| version        | u2   | 1                                                         |
| flags          | u2   | 0                                                         |
| entry_length   | u4   |                                                           |
| payload_length | u4   |                                                           |
| payload_crc    | u4   | CRC32C of the payload                                     |
| position       | u8   | place in the log                                          |
| log            | u8   | low 64 bits of the log id: bytes of other logs do not pass |
| synced         | u8   | all before this position was durable when this was written |

Tail (`TAIL`): version to synced as above, then

| field | type | meaning                                                               |
|-------|------|-----------------------------------------------------------------------|
| crc   | u4   | CRC32C of the second entry copy, the padding and the tail before this |
| magic | u4   | TAIL_MAGIC                                                            |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import NewerVersion, TooLarge
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.files import File, read_up_to

# A smaller commit is joined into one buffer: cheaper than many iovecs
FRAME_JOINED_BYTES_MAX = 256 * limits.KIB
SLICE_JOINED_BYTES_MAX = 4 * limits.KIB  # slices of this average size are joined in any number

HEAD = struct.Struct("<IIHHIIIQQQ")
TAIL = struct.Struct("<HHIIIQQQII")
FACTS = struct.Struct("<HHIIIQQQ")  # what both have in common
HEAD_MAGIC = 0xF7C0_3A91
TAIL_MAGIC = 0xF7C0_5EA2
HEAD_BYTES = HEAD.size
TAIL_BYTES = TAIL.size
VERSION = 1
ALIGN = 8
_U4_MAX = (1 << 32) - 1
_HEAD_COVERED = 8  # the head's crc covers what comes after it
_TAIL_CRC = struct.Struct("<II")
_PADDING = [bytes(count) for count in range(ALIGN)]


class Frame(NamedTuple):
    """Where a frame is in its segment, and what its header says."""

    start: int
    position: int
    synced: int
    entry_length: int
    payload_length: int
    payload_crc: int

    @property
    def payload_start(self) -> int:
        return self.start + HEAD_BYTES + self.entry_length

    @property
    def payload_end(self) -> int:
        return self.payload_start + self.payload_length

    @property
    def tail_start(self) -> int:
        return aligned(self.payload_end + self.entry_length)

    @property
    def end(self) -> int:
        return self.tail_start + TAIL_BYTES


def aligned(offset: int) -> int:
    return (offset + ALIGN - 1) & -ALIGN


def facts(frame: Frame, log: int) -> bytes:
    return FACTS.pack(
        VERSION,
        0,
        frame.entry_length,
        frame.payload_length,
        frame.payload_crc,
        frame.position,
        log,
        frame.synced,
    )


def leading_copy(frame: Frame, entry: Buffer, log: int) -> bytes:
    """Head and entry."""
    said = facts(frame, log)
    return b"".join((_TAIL_CRC.pack(HEAD_MAGIC, crc32c(entry, crc32c(said))), said, entry))


def trailing_copy(frame: Frame, entry: Buffer, log: int) -> bytes:
    """Entry, padding and tail: what follows the payload."""
    padding = frame.tail_start - frame.payload_end - frame.entry_length
    body = b"".join((entry, bytes(padding), facts(frame, log)))
    return body + _TAIL_CRC.pack(crc32c(body), TAIL_MAGIC)


def encode(
    entry: Buffer,
    slices: Sequence[Buffer],
    *,
    start: int,
    position: int,
    log: int,
    synced: int,
    crc: int | None = None,
) -> list[Buffer]:
    """A commit as buffers to write at `start`. `crc`: CRC32C of the joined slices, if known."""
    entry_bytes = len(entry)
    payload_bytes = len(slices[0]) if len(slices) == 1 else sum(map(len, slices))
    if entry_bytes > limits.ENTRY_BYTES_MAX or payload_bytes > _U4_MAX:
        raise TooLarge(f"a commit of {entry_bytes} + {payload_bytes} bytes exceeds the limit of the log")
    payload: Sequence[Buffer] = slices
    small = payload_bytes <= FRAME_JOINED_BYTES_MAX
    if len(slices) > 1 and (small or payload_bytes <= SLICE_JOINED_BYTES_MAX * len(slices)):
        payload = (b"".join(slices),)
    if crc is None:
        crc = 0
        for part in payload:
            crc = crc32c(part, crc)
    if not small:
        frame = Frame(start, position, synced, entry_bytes, payload_bytes, crc)
        return [leading_copy(frame, entry, log), *payload, trailing_copy(frame, entry, log)]
    # The same bytes as the two copies, in one buffer, with the facts packed once.
    said = FACTS.pack(VERSION, 0, entry_bytes, payload_bytes, crc, position, log, synced)
    body = b"".join((entry, _PADDING[-(payload_bytes + 2 * entry_bytes) % ALIGN], said))
    head = _TAIL_CRC.pack(HEAD_MAGIC, crc32c(entry, crc32c(said)))
    return [b"".join((head, said, entry, *payload, body, _TAIL_CRC.pack(crc32c(body), TAIL_MAGIC)))]


def read_leading(file: File, at: int, size: int, log: int) -> tuple[Frame, bytearray] | None:
    """The frame whose head is at `at`, with its entry, if that copy is intact."""
    head = read_up_to(file, at, HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    magic, crc, version, _, entry_length, payload_length, payload_crc, position, found_log, synced = (
        HEAD.unpack(head)
    )
    frame = Frame(at, position, synced, entry_length, payload_length, payload_crc)
    if magic != HEAD_MAGIC or found_log != log or frame.payload_end > size:
        return None
    entry = read_up_to(file, at + HEAD_BYTES, entry_length)
    if crc32c(entry, crc32c(memoryview(head)[_HEAD_COVERED:])) != crc:
        return None
    _check_version(version, file)
    return frame, entry


def read_trailing(file: File, at: int, log: int) -> tuple[Frame, bytearray] | None:
    """The frame whose tail is at `at`, with its entry, if that copy is intact."""
    tail = read_up_to(file, at, TAIL_BYTES)
    if len(tail) < TAIL_BYTES:
        return None
    version, _, entry_length, payload_length, payload_crc, position, found_log, synced, crc, magic = (
        TAIL.unpack(tail)
    )
    if magic != TAIL_MAGIC or found_log != log:
        return None
    # The start is aligned, which makes the padding, and so the start, unambiguous.
    start = at - aligned(HEAD_BYTES + 2 * entry_length + payload_length)
    frame = Frame(start, position, synced, entry_length, payload_length, payload_crc)
    if start < 0 or frame.tail_start != at:
        return None
    copy = read_up_to(file, frame.payload_end, at + TAIL_BYTES - ALIGN - frame.payload_end)
    if crc32c(copy) != crc:
        return None
    _check_version(version, file)
    return frame, copy[:entry_length]


def payload_is_intact(file: File, frame: Frame) -> bool:
    payload = read_up_to(file, frame.payload_start, frame.payload_length)
    return len(payload) == frame.payload_length and crc32c(payload) == frame.payload_crc


def _check_version(version: int, file: File) -> None:
    if version > VERSION:
        raise NewerVersion(f"{file.path} has frames of version {version}: upgrade this Mainstem to read it")
