"""A repacked file: slices of many streams, those of each stream together, in offset order. Version 1, little-endian.

| part    | bytes          | meaning                                                            |
|---------|----------------|--------------------------------------------------------------------|
| head    | 64             | `HEAD`                                                             |
| index   | index_length   | spans and extents, see log/read/extents.py; starts count from the head  |
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
| first          | u8   | first of the log's objects that the round replaces            |
| end            | u8   | one past the last of them                                     |
| reserved       | u8   | 0                                                             |

The spans list every stream that exists, not only those with slices: a stream without slices has an empty span at the
offset where it continues. So one file of a round shows for any stream whether an offset is in this round or later.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.log.read.extents import SPAN, Rows, SealedExtents, spans_of
from mainstem.ports.commitlog.port import Buffer

HEAD = struct.Struct("<8sIIQQQQQQ")
MAGIC = b"MNSTMRPK"
VERSION = 1
FIRST_READ_BYTES = 64 << 10  # head and index of most files
_CRC_COVERS_FROM = 16
_NEVER_MS = -(1 << 63)
_INDEX_HEAD_BYTES = 16
_DAMAGES_MAX = 8  # differing ranges of the two copies; either copy may be right in each

Int64s = npt.NDArray[np.int64]


class Origin(NamedTuple):
    """The log of a file, and the log's objects that it replaces."""

    log: int
    first: int
    end: int


def encode(rows: Rows, streams: Int64s, ends: Int64s, payload: Buffer, origin: Origin) -> list[Buffer]:
    """A file of extents, sorted by stream and base, whose starts are relative to the payload. `streams` and `ends`:
    every stream of this file, by number, and where it ends in the round."""
    spans = dense_spans(rows, streams, ends)
    placed = rows.copy()
    length = _INDEX_HEAD_BYTES + spans.nbytes + rows.nbytes
    placed["start"] += HEAD.size + length
    index = SealedExtents(0, spans, placed).encode()
    without_crc = HEAD.pack(
        MAGIC, VERSION, 0, origin.log, len(index), len(payload), origin.first, origin.end, 0
    )
    crc = crc32c(index, crc32c(memoryview(without_crc)[_CRC_COVERS_FROM:]))
    head = HEAD.pack(MAGIC, VERSION, crc, origin.log, len(index), len(payload), origin.first, origin.end, 0)
    return [head, index, payload, index, head]


def dense_spans(rows: Rows, streams: Int64s, ends: Int64s) -> Rows:
    """The spans of extents, with empty spans at the ends of streams that have none."""
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


def index_facts(head: bytes) -> tuple[int, int] | None:
    """Length and checksum of the index, from a head or tail; None if it is neither, or of a newer version."""
    if _version(head) != VERSION:
        return None
    _, _, crc, _, length, _, _, _, _ = HEAD.unpack_from(head)
    return int(length), int(crc)


def check_version(head: bytes, tail: bytes, name: str) -> None:
    """Raises NewerVersion if head and tail have the same newer version; if only one has, it is damaged."""
    versions = {_version(head), _version(tail)}
    if len(versions) == 1 and (version := versions.pop()) > VERSION:
        raise NewerVersion(f"{name} has version {version}: upgrade Mainstem to read it")


def _version(head: bytes) -> int:
    """0 if it is not a head."""
    whole = len(head) >= HEAD.size and head[:8] == MAGIC
    return int(HEAD.unpack_from(head)[1]) if whole else 0


def whole_index(number: int, head: bytes, index: bytes, crc: int) -> SealedExtents | None:
    """The index, if it matches the checksum in its head."""
    if crc32c(index, crc32c(memoryview(head)[_CRC_COVERS_FROM : HEAD.size])) != crc:
        return None
    return SealedExtents.decode(number, index)


def index_copies(
    read: Callable[[int, int], bytes], size: int, name: str
) -> tuple[tuple[Origin, SealedExtents] | None, tuple[Origin, SealedExtents] | None]:
    """Both copies of a file's index; None for a damaged copy. Raises NewerVersion."""
    if size >= HEAD.size:
        check_version(read(0, HEAD.size), read(size - HEAD.size, HEAD.size), name)
    return _copy(read, size, at_end=False), _copy(read, size, at_end=True)


def _copy(
    read: Callable[[int, int], bytes], size: int, *, at_end: bool
) -> tuple[Origin, SealedExtents] | None:
    head = read(size - HEAD.size if at_end else 0, HEAD.size) if size >= HEAD.size else b""
    facts = index_facts(head)
    if facts is None or facts[0] > size - 2 * HEAD.size:
        return None
    length, crc = facts
    index = read(size - HEAD.size - length if at_end else HEAD.size, length)
    extents = whole_index(0, head, index, crc)
    _, _, _, log, _, _, first, end, _ = HEAD.unpack_from(head)
    return None if extents is None else (Origin(log, first, end), extents)


def copies_to_mend(head: bytes, tail: bytes, size: int) -> list[list[tuple[int, int]]]:
    """Where both copies of a damaged index may be, as (start, length), by the lengths in head and tail."""
    facts = {index_facts(head), index_facts(tail)} - {None}
    lengths = {fact[0] for fact in facts if fact is not None and 0 < fact[0] <= size - 2 * HEAD.size}
    return [[(HEAD.size, length), (size - HEAD.size - length, length)] for length in sorted(lengths)]


def mended_index(
    number: int, first: tuple[bytes, bytes], second: tuple[bytes, bytes]
) -> SealedExtents | None:
    """The index from two damaged copies, each with its head or tail: where they differ one of them is right, unless
    both are damaged in the same place."""
    blobs = [bytearray(head + index) for head, index in (first, second)]
    if len(blobs[0]) != len(blobs[1]):
        return None
    differing = np.flatnonzero(np.frombuffer(blobs[0], np.uint8) != np.frombuffer(blobs[1], np.uint8))
    ranges = _differing_ranges(differing) if len(differing) else []
    for chosen in product(blobs, repeat=len(ranges)):
        tried = bytearray(blobs[0])
        for positions, blob in zip(ranges, chosen, strict=True):
            low, high = int(positions[0]), int(positions[-1]) + 1
            tried[low:high] = blob[low:high]
        head, index = bytes(tried[: HEAD.size]), bytes(tried[HEAD.size :])
        facts = index_facts(head)
        if facts is not None and facts[0] == len(index):
            found = whole_index(number, head, index, facts[1])
            if found is not None:
                return found
    return None


def _differing_ranges(differing: Int64s) -> list[Int64s]:
    """At most `_DAMAGES_MAX` groups of adjacent positions; nearby positions are merged until there are few enough."""
    near = 1
    while True:
        found = np.split(differing, np.flatnonzero(np.diff(differing) > near) + 1)
        if len(found) <= _DAMAGES_MAX:
            return found
        near *= 4


def damaged(key: str) -> LogDamaged:
    return LogDamaged(f"both indexes of the repacked file {key} are damaged: restore it from a backup")
