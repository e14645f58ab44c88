"""Entries: the unit that a subscription delivers and redelivers, made from records alone.

A record that a client published as one of several of a batch names its place in the header `pulsar.message`: a varint
index and a varint count, before further bytes. Its entry begins at `offset - index` and has `count` offsets, unless a
record of another entry is at one of these offsets: then a client of another door copied the header, for instance with a
part of what it consumed. Any other record is an entry of its own. So the borders of entries depend on records and
offsets only, never on how batches are stored: they are the same for every reader, on every broker, after repacking,
compaction and conversion to Parquet.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from mainstem import events, limits
from mainstem.broker.streams import StreamService, View
from mainstem.errors import InvalidBatch, OffsetOutOfRange, RecordsLost, TooLarge
from mainstem.records import kernels
from mainstem.records.checksums import step_tables
from mainstem.records.compiled import compiled, octets, pulsar_preloaded
from mainstem.records.decoding import StoredRecord, decode_records, first_record, record_at
from mainstem.records.header import BatchHeader, walk
from mainstem.records.index import RecordIndex, index_slices, section
from mainstem.records.pulsar_kernels import pack_messages, stretch_without_entries
from mainstem.records.pulsar_run_kernels import any_compressed, pack_lone_messages

ENTRY_HEADER = "pulsar.entry"  # what the metadata of the entry says beyond the record
MESSAGE_HEADER = "pulsar.message"  # index and count in the batch, then what the metadata of the message says
ORDERING_HEADER = "pulsar.ordering_key"
DELIVER_AT_HEADER = "pulsar.deliver_at"  # ms since the epoch, in decimal digits
RESERVED_PREFIX = "pulsar."

READ_BYTES = 1 * limits.MIB
_ENTRY_RECORDS_MAX = 1 << 20
_INDEXED_BYTES_MIN = 4 * limits.KIB  # less is decoded faster one by one
_RUN_RETRY_RECORDS = 32  # after one that only Python can convert, as many more are likely to follow
_TIME_DIGITS_MAX, _TIME_MS_MAX = 19, (1 << 63) - 1
_HEADER_GROWTH_BYTES = 16  # at most what a header of a record grows by as a property
OTHER_DOORS_NAME = b"mainstem"  # the producer name of records that no Pulsar client wrote
_PRODUCER_NAME = octets(OTHER_DOORS_NAME)
_ENTRY_NAME = octets(ENTRY_HEADER.encode())
_MESSAGE_NAME = octets(MESSAGE_HEADER.encode())
_ORDERING_NAME = octets(ORDERING_HEADER.encode())

_SCRATCH_BYTES_MAX = 4 * limits.MIB  # kept by each thread that decodes
_kept = threading.local()

Octets = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_log = events.named("subscriptions")


def deliver_at(content: bytes | None) -> int | None:
    """The time that a header names; None: it names none, because a client of another door used the name."""
    if content is None or len(content) > _TIME_DIGITS_MAX or not content.isdigit():
        return None
    return min(int(content), _TIME_MS_MAX)


class MessageEntry:
    """One or more consecutive records. Some of them may no longer exist.

    A large entry that is stored as one batch is `packed`: as messages in the form of the wire, without records except
    the first."""

    __slots__ = (
        "base",
        "batched",
        "count",
        "deliver_at_ms",
        "last",
        "packed",
        "present",
        "records",
        "size",
        "sticky_key",
    )

    def __init__(self, base: int, count: int, batched: bool) -> None:
        self.base = base
        self.count = count
        self.batched = batched
        self.records: list[StoredRecord] = []
        self.packed: bytes | None = None
        self.present = 0  # records that exist
        self.last = base - 1  # the offset of the last of them
        self.size = 0
        self.deliver_at_ms = 0
        self.sticky_key: bytes | None = None  # what Key_Shared consumers are chosen by

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def first(self) -> StoredRecord:
        return self.records[0]

    def add(self, record: StoredRecord) -> None:
        first = not self.records
        self.records.append(record)
        self.present += 1
        self.last = record.offset
        size = 64 + len(record.key or b"") + len(record.value or b"")
        for name, content in record.headers:
            size += len(name) + len(content or b"")
            if first and name == ORDERING_HEADER:
                self.sticky_key = content
            elif first and name == DELIVER_AT_HEADER:
                self.deliver_at_ms = deliver_at(content) or self.deliver_at_ms
        if first and self.sticky_key is None:
            self.sticky_key = record.key
        self.size += size

    def pack(self, messages: bytes) -> None:
        """All of its records are in these messages; `first` is added."""
        self.packed = messages
        self.present = self.count
        self.last = self.end - 1
        self.size = len(messages)


class MessageRun:
    """Consecutive offsets, each an entry of its own, as messages in the form of the wire."""

    __slots__ = ("base", "bodies", "borders", "count")

    batched = False

    def __init__(self, base: int, bodies: Octets, borders: Integers) -> None:
        self.base = base
        self.count = len(borders) - 1
        self.bodies = bodies  # of each: magic, checksum, size of the metadata, metadata, payload
        self.borders = borders  # where each begins, and the last one ends

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def last(self) -> int:
        return self.base + self.count - 1

    @property
    def size(self) -> int:
        return int(self.borders[-1] - self.borders[0])

    def cut(self, first: int, end: int) -> MessageRun:
        """The part with these offsets."""
        if first == self.base and end == self.end:
            return self
        return MessageRun(first, self.bodies, self.borders[first - self.base : end - self.base + 1])


Delivery = MessageEntry | MessageRun


def _first_offset(entry: Delivery) -> int:
    """Of its records."""
    return entry.first.offset if isinstance(entry, MessageEntry) else entry.base


def _with_true_places(entries: list[Delivery], offset: int, following: int) -> list[Delivery]:
    """Consecutive entries from `offset` on, where those with a false place are divided into their records. `following`:
    the offset after their records, up to which there are no others."""
    found: list[Delivery] = []
    before = offset - 1  # the last record of the entry before
    for at, entry in enumerate(entries):
        after = _first_offset(entries[at + 1]) if at + 1 < len(entries) else following
        if (
            isinstance(entry, MessageEntry)
            and entry.batched
            and (entry.end > after or (entry.base <= before and at > 0))
        ):
            found += _alone(entry, offset)
        else:
            found.append(entry)
        before = entry.last
    return found


def _alone(entry: MessageEntry, offset: int) -> list[MessageEntry]:
    """Its records from an offset on, as entries of their own."""
    found = []
    for record in entry.records:
        if record.offset >= offset:
            one = MessageEntry(record.offset, 1, batched=False)
            one.add(record)
            found.append(one)
    return found


def place_in_entry(record: StoredRecord) -> tuple[int, int] | None:
    """Index and count of a record in its entry; None if it is an entry of its own."""
    for name, content in record.headers:
        if name == MESSAGE_HEADER and content:
            index, at = read_varint(content, 0)
            count, _ = read_varint(content, at)
            # A client of another door may send anything under this name.
            if 0 <= index < count <= _ENTRY_RECORDS_MAX and index <= record.offset:
                return index, count
    return None


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint and the position after it; -1 if it is cut off."""
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return -1, at


class MessageEntryReader:
    """Reads the entries of one stream in order."""

    def __init__(self, streams: StreamService, stream: int) -> None:
        self._streams = streams
        self._stream = stream

    @property
    def end(self) -> int:
        """The offset after the last record. Raises NotFound once the topic is deleted."""
        return self._streams.bounds(self._stream)[1]

    async def read(self, offset: int, max_bytes: int = READ_BYTES) -> tuple[list[MessageEntry], int]:
        """Whole entries from the one that holds `offset` on, and where to continue. Empty: nothing is there yet.

        Skips lost records. Raises NotFound once the topic is deleted."""
        entries, reached = await self._read_whole(offset, max_bytes, runs=False)
        return cast("list[MessageEntry]", entries), reached

    async def read_runs(self, offset: int, max_bytes: int = READ_BYTES) -> tuple[list[Delivery], int]:
        """The same, with records that are entries of their own as runs, where that is possible."""
        return await self._read_whole(offset, max_bytes, runs=True)

    async def _read_whole(self, offset: int, max_bytes: int, *, runs: bool) -> tuple[list[Delivery], int]:
        entries: list[Delivery] = []
        position = offset
        while True:
            found, position = await self._read(position, max_bytes, entries, runs=runs)
            if not entries:
                return entries, position
            last = entries[-1]
            if not found or last.last + 1 >= last.end or position >= last.end:
                following = reached = max(position, last.last + 1)
                break
            if len(entries) > 1:  # the last one continues in a batch that is not read yet
                entries.pop()
                following, reached = _first_offset(last), max(last.base, entries[-1].last + 1)
                break
        first = entries[0]
        if isinstance(first, MessageEntry) and first.base < offset:
            whole = await self._completed(first)
            entries[:1] = _alone(first, offset) if whole is None else [whole]
        return _with_true_places(entries, offset, following), reached

    async def _completed(self, part: MessageEntry) -> MessageEntry | None:
        """An entry with its records before those of `part`; None if records of other entries are among them."""
        found: list[Delivery] = []
        position = max(part.base, self._streams.start(self._stream))
        more = True
        while more and position < part.end and len(found) < 2:
            more, position = await self._read(position, READ_BYTES, found, runs=False)
            if found and (found[0].base, found[0].count, found[0].batched) != (part.base, part.count, True):
                return None
        if not found or (len(found) > 1 and _first_offset(found[1]) < part.end):
            return None
        return cast("MessageEntry", found[0])

    async def at(self, offset: int) -> MessageEntry | None:
        """The entry that holds an offset, if a record of it is left there."""
        entries, _ = await self.read(offset, 1)
        return entries[0] if entries and entries[0].base <= offset < entries[0].end else None

    async def last(self, start: int, end: int) -> MessageEntry | None:
        """The last entry below `end`."""
        back = 1
        while end > start:
            at = max(start, end - back)
            found: MessageEntry | None = None
            while at < end:
                entries, at = await self.read(at)
                if not entries:
                    break
                found = next((entry for entry in reversed(entries) if entry.base < end), found)
            if found is not None or end - back <= start:
                return found
            back *= 16
        return None

    async def _read(
        self, offset: int, max_bytes: int, entries: list[Delivery], *, runs: bool
    ) -> tuple[bool, int]:
        """Add the next entries. Returns whether there are any, and the offset after them."""
        while True:
            if offset >= self._streams.known_end(self._stream):
                self._streams.bounds(self._stream)  # raises NotFound if the topic is deleted
                return False, offset
            try:
                chunk = self._streams.read_cached(self._stream, offset, max_bytes, View.COMMITTED)
                if chunk is None:
                    chunk = await self._streams.read(self._stream, offset, max_bytes, view=View.COMMITTED)
            except RecordsLost as loss:
                offset = loss.end
                continue
            except OffsetOutOfRange:
                start, end = self._streams.bounds(self._stream)
                if offset >= start:
                    return False, min(offset, end)
                offset = start
                continue
            if any(map(_is_compressed, chunk.batches)):
                # Decompressing may take long: the loop does other work meanwhile.
                reached = await asyncio.to_thread(add_entries, chunk.batches, offset, entries, runs)
            else:
                reached = add_entries(chunk.batches, offset, entries, runs)
            if reached >= 0:
                return True, max(chunk.next_offset, reached)
            if chunk.next_offset <= offset:
                return False, offset  # an open transaction
            offset = chunk.next_offset


def _is_compressed(data: memoryview) -> bool:
    """Whether one of the batches is."""
    if len(data) >= _INDEXED_BYTES_MIN and pulsar_preloaded.usable():
        return bool(compiled(any_compressed)(octets(data)))
    return any(header.codec_id for header in walk(data))


def add_entries(batches: Sequence[memoryview], offset: int, entries: list[Delivery], runs: bool) -> int:
    """Add the records of batches from `offset` on. Returns the offset after the last one; -1 if there are none.

    `runs`: records that are entries of their own are added as runs, where that is possible."""
    if sum(map(len, batches)) >= _INDEXED_BYTES_MIN and pulsar_preloaded.usable():
        before = len(entries)
        try:
            return max((_add_quickly(data, offset, entries, runs) for data in batches), default=-1)
        except (InvalidBatch, TooLarge):  # another door stored something without decoding it: find out which
            del entries[before:]
    return max((_add_batches(data, offset, entries) for data in batches), default=-1)


def _add_quickly(data: memoryview, offset: int, entries: list[Delivery], runs: bool) -> int:
    """Whole batches that are entries are packed, others are indexed."""
    reached = -1
    at = 0
    while at < len(data):
        rest = data[at:]
        indexed = stop = compiled(stretch_without_entries)(octets(rest), _MESSAGE_NAME)
        if stop < len(rest):
            header = next(walk(rest, stop))
            stop = header.end
            entry = None
            if (
                not header.control
                and header.base_offset >= offset
                and header.count == header.last_offset_delta + 1
            ):
                entry = _packed(header, section(rest, header))
        else:
            entry = None
        if entry is None:
            indexed = stop  # the last one, too
        for index in index_slices([rest[:indexed]]) if indexed else ():
            reached = max(reached, _add_index(index, offset, entries, runs))
        if entry is not None:
            entries.append(entry)
            reached = max(reached, entry.end)
        at += stop
    return reached


def _packed(header: BatchHeader, records: memoryview) -> MessageEntry | None:
    """A batch that is one entry; None if it is not, or if only Python can convert it."""
    first = first_record(header, records)
    if place_in_entry(first) != (0, header.count):
        return None
    out = scratch(2 * len(records) + 128 * header.count)
    size = compiled(pack_messages)(
        octets(records), 0, len(records), header.count, out, _MESSAGE_NAME, _ORDERING_NAME
    )
    if size < 0:
        return None
    entry = MessageEntry(header.base_offset, header.count, batched=True)
    entry.add(first)
    entry.pack(out[:size].tobytes())
    return entry


def scratch(size: int) -> Octets:
    """Memory for the result of one kernel. Memory that is new to the process costs more than the kernel."""
    kept: Octets | None = getattr(_kept, "out", None)
    if kept is None or len(kept) < size:
        kept = np.empty(size, np.uint8)
        if size <= _SCRATCH_BYTES_MAX:
            _kept.out = kept
    return kept


def _add_index(index: RecordIndex, offset: int, entries: list[Delivery], runs: bool) -> int:
    offsets = index.fields[kernels.OFFSET]
    column, columns = int(np.searchsorted(offsets, offset)), len(index)
    if column == columns:
        return -1
    runs_from = column if runs else columns
    while column < columns:
        if column >= runs_from:
            added = _add_runs(index, column, entries)
            column += added
            if not added:
                runs_from = column + _RUN_RETRY_RECORDS
        else:
            add_record(record_at(index, column), entries)
            column += 1
    return int(offsets[-1]) + 1


def _add_runs(index: RecordIndex, column: int, entries: list[Delivery]) -> int:
    """Add records that are entries of their own. Returns how many."""
    fields, most = index.fields, len(index) - column
    size = int(fields[kernels.END, -1] - fields[kernels.START, column])
    bodies = np.empty(size + _HEADER_GROWTH_BYTES * index.headers + 64 * most, np.uint8)
    borders = np.zeros(most + 1, np.int64)
    count: int = compiled(pack_lone_messages)(
        index.octets,
        fields,
        column,
        bodies,
        borders,
        _ENTRY_NAME,
        _ORDERING_NAME,
        _PRODUCER_NAME,
        checksum_tables(),
    )
    if count:
        offsets = fields[kernels.OFFSET, column : column + count]
        gaps = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), count]
        for first, end in pairwise(gaps):
            entries.append(MessageRun(int(offsets[first]), bodies, borders[first : end + 1]))
    return count


@cache
def checksum_tables() -> npt.NDArray[np.uint32]:
    return np.array(step_tables(), np.uint32)


def _add_batches(data: memoryview, offset: int, entries: list[Delivery]) -> int:
    """The same, one by one: for few records, and where some cannot be decoded."""
    reached = -1
    for header in walk(data):
        if header.control or header.next_offset <= offset:
            continue
        try:
            for record in decode_records(data[header.position : header.end], offset):
                add_record(record, entries)
                reached = record.offset + 1
        except (InvalidBatch, TooLarge) as error:  # another door stored it without decoding it
            _log.warning("batch not decodable", offset=header.base_offset, error=str(error))
    return reached


def add_record(record: StoredRecord, entries: list[Delivery]) -> None:
    """Add a record to the entry before it, or as a new one."""
    current = entries[-1] if entries else None
    place = place_in_entry(record)
    if place is None:
        current = MessageEntry(record.offset, 1, batched=False)
        entries.append(current)
    else:
        base = record.offset - place[0]
        if (
            not isinstance(current, MessageEntry)
            or not current.batched
            or (current.base, current.count) != (base, place[1])
        ):
            current = MessageEntry(base, place[1], batched=True)
            entries.append(current)
    current.add(record)
