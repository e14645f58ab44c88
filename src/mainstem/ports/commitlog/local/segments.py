"""A segment: one WAL file. Version 1, little-endian.

| part    | bytes | meaning                                                                    |
|---------|-------|----------------------------------------------------------------------------|
| header  | 64    | `HEADER`                                                                   |
| frames  |       | see frames.py; 8-byte aligned, positions consecutive                       |
| zeros   |       | only while unsealed: preallocated space                                    |
| index A |       | only when sealed: `INDEX`, the index, zeros up to the alignment            |
| index B |       | only when sealed: the same again                                           |
| footer  | 64    | only when sealed: `FOOTER`, at the very end of the file                    |

Header (`HEADER`): what the file is. Each fact is also in the file's name or in its frames.

| field    | type | meaning                                                   |
|----------|------|-----------------------------------------------------------|
| magic    | s8   | `MNSTMWAL`                                                |
| version  | u4   | 1                                                         |
| reserved | u4   | 0                                                         |
| log      | s16  | log id                                                    |
| number   | u8   | segment number                                            |
| first    | u8   | position of the first frame; UNUSED while only prepared   |
| reserved | s12  | 0                                                         |
| crc      | u4   | CRC32C of the 60 bytes before                             |

Index head (`INDEX`): enough to rewrite the footer if that is damaged.

| field   | type | meaning                       |
|---------|------|-------------------------------|
| magic   | s8   | `MNSTMIDX`                    |
| version | u4   | 1                             |
| body    | u4   | CRC32C of the index           |
| log     | u8   | low 64 bits of the log id     |
| number  | u8   | segment number                |
| length  | u8   | bytes of the index            |
| first   | u8   | position of the first frame   |
| end     | u8   | one past the last position    |
| crc     | u4   | CRC32C of the 56 bytes before |
| pad     | s4   | 0                             |

Footer (`FOOTER`):

| field   | type | meaning                                                  |
|---------|------|----------------------------------------------------------|
| magic   | s8   | `MNSTMEND`                                               |
| version | u4   | 1                                                        |
| length  | u4   | bytes of the index                                       |
| index_a | u8   | where index A starts, which is where the frames end      |
| index_b | u8   | where index B starts                                     |
| first   | u8   | position of the first frame                              |
| end     | u8   | one past the last position                               |
| log     | u8   | low 64 bits of the log id                                |
| number  | u4   | low 32 bits of the segment number                        |
| crc     | u4   | CRC32C of the 60 bytes before                            |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from mainstem.errors import NewerVersion
from mainstem.ports.commitlog.local.frames import aligned
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.port import Buffer, LogObject
from mainstem.ports.files import File, read_up_to, write_all

HEADER = struct.Struct("<8sII16sQQ12sI")
INDEX = struct.Struct("<8sIIQQQQQI4x")
FOOTER = struct.Struct("<8sIIQQQQQII")
HEADER_BYTES = HEADER.size
INDEX_BYTES = INDEX.size
FOOTER_BYTES = FOOTER.size
HEADER_MAGIC = b"MNSTMWAL"
INDEX_MAGIC = b"MNSTMIDX"
FOOTER_MAGIC = b"MNSTMEND"
VERSION = 1
UNUSED = (1 << 64) - 1
FIRST_NUMBER = 1
SUFFIX = ".wal"
_DIGITS = 20
_U4 = (1 << 32) - 1


@dataclass(slots=True)
class Segment:
    """What the log knows about one WAL file."""

    number: int
    first: int  # position of its first commit
    end: int  # one past its last
    data_end: int  # where the next frame goes, or where the index starts
    sealed: bool = False
    size_bytes: int = 0  # of the sealed file
    _described: LogObject | None = field(default=None, repr=False, compare=False)  # once it is sealed

    def described(self) -> LogObject:
        if self._described is not None:
            return self._described
        sealed = self.sealed
        size = self.size_bytes if sealed else self.data_end
        made = LogObject(self.number, self.first, self.end, size, sealed)
        if sealed:
            self._described = made  # final now, and requested with every seal
        return made


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    log: bytes
    number: int
    first: int


@dataclass(frozen=True, slots=True)
class Footer:
    index_length: int
    index_a: int
    index_b: int
    first: int
    end: int


def file_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """The segment number in a file name; None if it does not name a segment."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or len(stem) != _DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def segment_path(wal: Path, number: int) -> Path:
    return wal / file_name(number)


def pack_header(log: LogId, number: int, first: int) -> bytes:
    body = HEADER.pack(HEADER_MAGIC, VERSION, 0, log.whole, number, first, bytes(12), 0)[:-4]
    return body + crc32c(body).to_bytes(4, "little")


def read_header(file: File) -> SegmentHeader | None:
    """The header if it is intact. Raises NewerVersion."""
    raw = read_up_to(file, 0, HEADER_BYTES)
    if len(raw) < HEADER_BYTES:
        return None
    magic, version, _, log, number, first, _, crc = HEADER.unpack(raw)
    if magic != HEADER_MAGIC or crc32c(memoryview(raw)[:-4]) != crc:
        return None
    _check_version(version, str(file.path))
    return SegmentHeader(log, number, first)


def read_footer(file: File, log: LogId, number: int) -> Footer | None:
    """The footer if the file is sealed and the footer intact. Raises NewerVersion."""
    size = file.size()
    if size < HEADER_BYTES + FOOTER_BYTES:
        return None
    raw = read_up_to(file, size - FOOTER_BYTES, FOOTER_BYTES)
    return unpack_footer(raw, size, log, number)


def unpack_footer(raw: Buffer, size: int, log: LogId, number: int) -> Footer | None:
    """As `read_footer`, from the last bytes of a file of that size."""
    if len(raw) < FOOTER_BYTES:
        return None
    magic, version, length, index_a, index_b, first, end, low, short_number, crc = FOOTER.unpack(raw)
    if magic != FOOTER_MAGIC or crc32c(memoryview(raw)[:-4]) != crc:
        return None
    _check_version(version, f"the end of segment {number}")
    whole = size == index_b + (index_b - index_a) + FOOTER_BYTES
    if low != log.low or short_number != number & _U4 or not whole:
        return None
    return Footer(length, index_a, index_b, first, end)


def seal_bytes(log: LogId, segment: Segment, index: bytes) -> list[bytes]:
    """Index A, index B and footer, to be written at the segment's data end."""
    head = INDEX.pack(
        INDEX_MAGIC,
        VERSION,
        crc32c(index),
        log.low,
        segment.number,
        len(index),
        segment.first,
        segment.end,
        0,
    )[:56]
    head += crc32c(head).to_bytes(4, "little") + bytes(4)
    block = head + index + bytes(aligned(len(index)) - len(index))
    footer = FOOTER.pack(
        FOOTER_MAGIC,
        VERSION,
        len(index),
        segment.data_end,
        segment.data_end + len(block),
        segment.first,
        segment.end,
        log.low,
        segment.number & _U4,
        0,
    )[:-4]
    return [block, block, footer + crc32c(footer).to_bytes(4, "little")]


def write_seal(file: File, log: LogId, segment: Segment, index: bytes) -> None:
    """Attach the index durably. Releases the preallocated space first: the footer must be at the very end."""
    *copies, footer = seal_bytes(log, segment, index)
    file.ftruncate(segment.data_end)
    end = write_all(file, copies, segment.data_end)
    file.fdatasync()  # before the footer, which refers to them
    size = write_all(file, [footer], end)
    file.fdatasync()
    segment.size_bytes = size
    segment.sealed = True  # last, for other threads


def read_index_at(file: File, at: int, log: LogId, number: int) -> tuple[bytes, int, int] | None:
    """The index copy at `at` if it is intact, with the first and end position it was made for."""
    head = read_up_to(file, at, INDEX_BYTES)
    length = INDEX.unpack(head)[5] if len(head) == INDEX_BYTES else 0
    if at + length > file.size():
        return None
    return unpack_index(head + read_up_to(file, at + INDEX_BYTES, length), log, number)


def unpack_index(raw: Buffer, log: LogId, number: int) -> tuple[bytes, int, int] | None:
    """As `read_index_at`, from bytes that begin with the copy."""
    if len(raw) < INDEX_BYTES:
        return None
    magic, version, body_crc, low, found_number, length, first, end, crc = INDEX.unpack_from(raw)
    if magic != INDEX_MAGIC or crc32c(memoryview(raw)[:56]) != crc:
        return None
    _check_version(version, f"the index of segment {number}")
    if low != log.low or found_number != number:
        return None
    index = bytes(memoryview(raw)[INDEX_BYTES : INDEX_BYTES + length])
    return (index, first, end) if crc32c(index) == body_crc else None


def _check_version(version: int, name: str) -> None:
    if version > VERSION:
        raise NewerVersion(f"{name} has version {version}: upgrade this Mainstem to read it")
