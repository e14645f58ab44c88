"""A repacked file: slices of many streams, those of each stream together, in offset order. Version 1, little-endian.

| part    | bytes          | meaning                                                            |
|---------|----------------|--------------------------------------------------------------------|
| head    | 64             | `HEAD`                                                             |
| index   | index_length   | spans and extents, see log/extents.py; starts count from the head  |
| payload | payload_length | the slices; maybe unused bytes between some of them                |
| index   | index_length   | the second copy                                                    |
| tail    | 64             | the same as the head                                               |

Head (`HEAD`):

| field          | type | meaning                                                       |
|----------------|------|---------------------------------------------------------------|
| magic          | s8   | `MNSTMRPK`                                                    |
| version        | u4   | 1                                                             |
| crc            | u4   | CRC32C of the rest of the head and of the index               |
| log            | u8   | low 64 bits of the log id                                     |
| index_length   | u8   |                                                               |
| payload_length | u8   |                                                               |
| first          | u8   | of the log's objects that it stands for, with others          |
| end            | u8   | one past the last of them                                     |
| reserved       | u8   | 0                                                             |

The spans name every stream there was, not only those with slices: a stream without any has an empty span at the offset
where it went on. With them one file of a round tells for any stream whether an offset is in this round or a later one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.log.extents import SPAN, Rows, SealedExtents, spans_of
from mainstem.ports.commitlog.port import Buffer

HEAD = struct.Struct("<8sIIQQQQQQ")
MAGIC = b"MNSTMRPK"
VERSION = 1
FIRST_READ_BYTES = 64 << 10  # head and index of most files
_CRC_COVERS_FROM = 16
_NEVER_MS = -(1 << 63)
_INDEX_HEAD_BYTES = 16

Int64s = npt.NDArray[np.int64]


class Origin(NamedTuple):
    """Which log a file is of, and which of its objects it stands for."""

    log: int
    first: int
    end: int


def encode(rows: Rows, streams: Int64s, ends: Int64s, payload: Buffer, origin: Origin) -> list[Buffer]:
    """A file of extents whose starts count from the start of the payload, by stream and base. `streams` and `ends`:
    every stream of this file, by number, and where it ends in the round."""
    spans = dense_spans(rows, streams, ends)
    placed = rows.copy()
    length = _INDEX_HEAD_BYTES + spans.nbytes + rows.nbytes
    placed["start"] += HEAD.size + length
    index = SealedExtents(0, spans, placed).encode()
    said = HEAD.pack(MAGIC, VERSION, 0, origin.log, len(index), len(payload), origin.first, origin.end, 0)
    crc = crc32c(index, crc32c(memoryview(said)[_CRC_COVERS_FROM:]))
    head = HEAD.pack(MAGIC, VERSION, crc, origin.log, len(index), len(payload), origin.first, origin.end, 0)
    return [head, index, payload, index, head]


def dense_spans(rows: Rows, streams: Int64s, ends: Int64s) -> Rows:
    """Spans of extents and, for streams that have none, empty ones where they end."""
    full = spans_of(rows)
    known = np.searchsorted(full["stream"], streams)
    has = np.zeros(len(streams), np.bool_)
    inside = known < len(full)
    has[inside] = full["stream"][known[inside]] == streams[inside]
    spans = np.zeros(len(streams), SPAN)
    spans["stream"] = streams
    spans["base"] = ends
    spans["first"] = np.searchsorted(rows["stream"], streams)
    spans["max_timestamp"] = _NEVER_MS
    spans[has] = full[known[has]]
    spans["end"] = np.maximum(spans["end"], ends)
    return spans


def index_facts(head: bytes, name: str) -> tuple[int, int] | None:
    """Length and checksum of the index that a head or tail tells of; None if it is none. Raises NewerVersion."""
    if len(head) < HEAD.size or head[:8] != MAGIC:
        return None
    _, version, crc, _, length, _, _, _, _ = HEAD.unpack_from(head)
    if version > VERSION:
        raise NewerVersion(f"{name} is of version {version}: upgrade this Mainstem to read it")
    return int(length), int(crc)


def whole_index(number: int, head: bytes, index: bytes, crc: int) -> SealedExtents | None:
    """The index, if it is the one that its head was written with."""
    if crc32c(index, crc32c(memoryview(head)[_CRC_COVERS_FROM : HEAD.size])) != crc:
        return None
    return SealedExtents.decode(number, index)


def damaged(key: str) -> LogDamaged:
    return LogDamaged(f"both indexes of the repacked file {key} are damaged: restore it from a backup")
