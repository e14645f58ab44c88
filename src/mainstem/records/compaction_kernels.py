"""Kernels of compaction: which records have a newer one with the same key, and batches without them.

They always run compiled. Keys are compared by SipHash-1-3 of 128 bits under a random key: two keys with the same hash
would make compaction remove a live record.

The table of keys is an open-addressed hash table, three words a slot (`SLOT_WORDS`):

| word | meaning                                             |
|------|-----------------------------------------------------|
| 0, 1 | the hash of stream and key                          |
| 2    | 1 + the offset of the newest record; 0: a free slot |

numba's cache does not notice changes of the columns in kernels.py: change this file as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mainstem.records.kernels import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    FIXED_TIMESTAMP,
    KEY_AT,
    KEY_LENGTH,
    LAST_DELTA,
    OFFSET,
    SECTION_END,
    SECTION_START,
    START,
    TIME_IS_FIXED,
    TIMESTAMP,
    read_int,
)
from mainstem.records.kernels import END as RECORD_END
from mainstem.records.writing_kernels import copy

Octets = Any  # a uint8 array
Table = Any  # a 2-D int64 array
Words = Any  # a 1-D uint64 array
Column = Any  # a 1-D int64 array
Flags = Any  # a 1-D boolean array

SLOT_WORDS = 3

# Columns of the batch places: where a stored batch is, beside its row in the batch table (kernels.py).
POSITION, BATCH_END, CODEC, OPAQUE, SLICE = range(5)  # OPAQUE: 1 if it stays as it is
PLACE_FIELDS = 5

# Columns of the written batches.
OUT_START, OUT_END, OUT_BASE, OUT_OFFSETS, OUT_TIME, OUT_CHANGED, OUT_SLICE = range(7)
OUT_FIELDS = 7

_HEADER_BYTES = 61

_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)
_U13 = np.uint64(13)
_U16 = np.uint64(16)
_U17 = np.uint64(17)
_U21 = np.uint64(21)
_U32 = np.uint64(32)
_U43 = np.uint64(43)
_U47 = np.uint64(47)
_U48 = np.uint64(48)
_U51 = np.uint64(51)
_U56 = np.uint64(56)
_EE = np.uint64(0xEE)
_DD = np.uint64(0xDD)
_NONE = np.uint64(0)


def sip_round(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    a = a + b
    b = ((b << _U13) | (b >> _U51)) ^ a
    a = (a << _U32) | (a >> _U32)
    c = c + d
    d = ((d << _U16) | (d >> _U48)) ^ c
    a = a + d
    d = ((d << _U21) | (d >> _U43)) ^ a
    c = c + b
    b = ((b << _U17) | (b >> _U47)) ^ c
    c = (c << _U32) | (c >> _U32)
    return a, b, c, d


def hash_key(
    data: Octets, at: int, length: int, stream: Any, first_seed: Any, second_seed: Any
) -> tuple[Any, Any]:
    """128 bits of a stream and the bytes of a key."""
    a, b, c, d = _V0 ^ first_seed, _V1 ^ second_seed ^ _EE, _V2 ^ first_seed, _V3 ^ second_seed
    d ^= stream
    a, b, c, d = sip_round(a, b, c, d)
    a ^= stream
    end = at + length
    while end - at >= 8:
        word = _NONE
        for i in range(8):
            word |= np.uint64(data[at + i]) << np.uint64(8 * i)
        d ^= word
        a, b, c, d = sip_round(a, b, c, d)
        a ^= word
        at += 8
    word = np.uint64(length) << _U56
    for i in range(end - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    d ^= word
    a, b, c, d = sip_round(a, b, c, d)
    a ^= word
    c ^= _EE
    for _ in range(3):
        a, b, c, d = sip_round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= _DD
    for _ in range(3):
        a, b, c, d = sip_round(a, b, c, d)
    return low, a ^ b ^ c ^ d


def find_slot(table: Words, mask: int, low: Any, high: Any) -> int:
    """Where the slot of a hash is, or the free slot where it belongs. The table must have a free slot."""
    slot = np.int64(low & np.uint64(mask))
    while True:
        at = slot * SLOT_WORDS
        if table[at + 2] == _NONE or (table[at] == low and table[at + 1] == high):
            return at  # type: ignore[return-value]
        slot = (slot + 1) & mask


def add_newest(
    data: Octets,
    index: Table,
    wanted: Flags,
    row: int,
    stream: Any,
    seeds: Words,
    table: Words,
    used: int,
    used_max: int,
    superseded: Flags,
    base: int,
) -> tuple[int, int]:
    """Enter the wanted records from `row` on, in the order of their offsets. Marks those that a newer one follows.

    Returns the row reached, which is less than all rows if the table is full, and the slots used."""
    mask = len(table) // SLOT_WORDS - 1
    for record in range(row, index.shape[1]):
        length = int(index[KEY_LENGTH, record])
        if length < 0 or not wanted[record]:
            continue
        offset = int(index[OFFSET, record])
        low, high = hash_key(data, int(index[KEY_AT, record]), length, stream, seeds[0], seeds[1])
        at = find_slot(table, mask, low, high)
        if table[at + 2] == _NONE:
            if used >= used_max:
                return record, used
            used += 1
            table[at] = low
            table[at + 1] = high
        else:
            before = np.int64(table[at + 2]) - 1 - base
            if 0 <= before < len(superseded):
                superseded[before] = True
        table[at + 2] = np.uint64(offset + 1)
    return index.shape[1], used


def keep_last(
    data: Octets,
    index: Table,
    wanted: Flags,
    row: int,
    stream: Any,
    seeds: Words,
    table: Words,
    used: int,
    used_max: int,
    grows: bool,
    kept: Flags,
) -> tuple[int, int]:
    """From the last record to the first: unmark the wanted ones that have a newer one in the table, enter the others. A
    full table that does not grow takes no more keys.

    Returns the number of rows left if the table has to grow, and the slots used."""
    mask = len(table) // SLOT_WORDS - 1
    for record in range(row - 1, -1, -1):
        length = int(index[KEY_LENGTH, record])
        if length < 0 or not wanted[record]:
            continue
        low, high = hash_key(data, int(index[KEY_AT, record]), length, stream, seeds[0], seeds[1])
        at = find_slot(table, mask, low, high)
        if table[at + 2] != _NONE:
            kept[record] = False
        elif used < used_max:
            used += 1
            table[at] = low
            table[at + 1] = high
            table[at + 2] = np.uint64(int(index[OFFSET, record]) + 1)
        elif grows:
            return record + 1, used
    return 0, used


def rehash(table: Words, larger: Words) -> None:
    """Enter the slots of a table into a larger one."""
    mask = len(larger) // SLOT_WORDS - 1
    for at in range(0, len(table), SLOT_WORDS):
        if table[at + 2] != _NONE:
            to = find_slot(larger, mask, table[at], table[at + 1])
            larger[to] = table[at]
            larger[to + 1] = table[at + 1]
            larger[to + 2] = table[at + 2]


def mark_older(
    data: Octets, index: Table, end: int, stream: Any, seeds: Words, table: Words, older: Flags
) -> None:
    """Mark the records below the offset `end` that have a newer one with the same key in the table."""
    mask = len(table) // SLOT_WORDS - 1
    for record in range(index.shape[1]):
        offset = int(index[OFFSET, record])
        if offset >= end:
            return
        length = int(index[KEY_LENGTH, record])
        if length >= 0:
            low, high = hash_key(data, int(index[KEY_AT, record]), length, stream, seeds[0], seeds[1])
            if np.int64(table[find_slot(table, mask, low, high) + 2]) - 1 > offset:
                older[record] = True


def list_batches(
    data: Octets, starts: Column, lengths: Column, bases: Column, batches: Table, places: Table, bad: Flags
) -> int:
    """Fill the batch table and the places of the batches of slices, which begin at `bases`. Returns their number.

    Marks the slices that are not whole batches; none of their batches is listed."""
    row = 0
    for slice in range(len(starts)):
        first = row
        at = int(starts[slice])
        stop = at + int(lengths[slice])
        base = int(bases[slice])
        while at < stop:
            if stop - at < _HEADER_BYTES:
                bad[slice] = True
                break
            end = at + 12 + read_int(data, at + 8, 4)
            last_delta = read_int(data, at + 23, 4)
            count = read_int(data, at + 57, 4)
            if (
                data[at + 16] != 2
                or end < at + _HEADER_BYTES
                or end > stop
                or not 0 <= count <= last_delta + 1
            ):
                bad[slice] = True
                break
            attributes = read_int(data, at + 21, 2)
            batches[row, SECTION_START] = at + _HEADER_BYTES
            batches[row, SECTION_END] = end
            batches[row, COUNT] = count
            batches[row, BASE_OFFSET] = base
            batches[row, LAST_DELTA] = last_delta
            batches[row, BASE_TIMESTAMP] = read_int(data, at + 27, 8)
            batches[row, FIXED_TIMESTAMP] = read_int(data, at + 35, 8)
            batches[row, TIME_IS_FIXED] = attributes & 0x08
            places[row, POSITION] = at
            places[row, BATCH_END] = end
            places[row, CODEC] = attributes & 0x07
            places[row, OPAQUE] = (attributes & 0x20) >> 5
            places[row, SLICE] = slice
            row += 1
            base += last_delta + 1
            at = end
        if bad[slice]:
            row = first
    return row


def put_int(out: Octets, at: int, size: int, value: int) -> None:
    """Write a big-endian signed number."""
    for i in range(size):
        out[at + i] = (value >> (8 * (size - 1 - i))) & 0xFF


def write_kept(
    data: Octets,
    batches: Table,
    places: Table,
    index: Table,
    kept: Flags,
    last_offset: int,
    out: Octets,
    written: Table,
) -> int:
    """Write uncompressed batches without the records that are not kept. A batch without any is left out, unless it ends
    at `last_offset`: readers go on behind it. The checksums of changed batches are left to the caller.

    Returns the number of batches written."""
    row = 0
    to = 0
    record = 0
    for batch in range(len(batches)):
        count = int(batches[batch, COUNT])
        left = 0
        for one in range(record, record + count):
            left += kept[one]
        base = int(batches[batch, BASE_OFFSET])
        offsets = int(batches[batch, LAST_DELTA]) + 1
        start = int(places[batch, POSITION])
        length = int(places[batch, BATCH_END]) - start
        ends_last = base + offsets == last_offset
        changed = left < count
        if left == 0 and not ends_last and not places[batch, OPAQUE]:
            record += count
            continue
        time = int(batches[batch, FIXED_TIMESTAMP])
        begin = to
        if not changed:
            copy(out, to, data, start, length)
            to += length
        else:
            copy(out, to, data, start, _HEADER_BYTES)
            to += _HEADER_BYTES
            newest = int(batches[batch, BASE_TIMESTAMP])
            for one in range(record, record + count):
                if kept[one]:
                    size = int(index[RECORD_END, one]) - int(index[START, one])
                    copy(out, to, data, int(index[START, one]), size)
                    to += size
                    newest = max(newest, int(index[TIMESTAMP, one]))
            if left and not batches[batch, TIME_IS_FIXED]:
                time = newest
                put_int(out, begin + 35, 8, time)
            put_int(out, begin + 8, 4, to - begin - 12)
            put_int(out, begin + 57, 4, left)
        put_int(out, begin, 8, base)
        written[row, OUT_START] = begin
        written[row, OUT_END] = to
        written[row, OUT_BASE] = base
        written[row, OUT_OFFSETS] = offsets
        written[row, OUT_TIME] = time
        written[row, OUT_CHANGED] = changed
        written[row, OUT_SLICE] = places[batch, SLICE]
        row += 1
        record += count
    return row
