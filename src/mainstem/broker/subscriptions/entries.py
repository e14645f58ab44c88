"""Entries: the unit that a subscription delivers and redelivers, made from records alone.

A record that a client published as one of several of a batch names its place in the header `pulsar.message`: a varint
index and a varint count, before further bytes. Its entry begins at `offset - index` and has `count` offsets. Any other
record is an entry of its own. So the borders of entries depend on records and offsets only, never on how batches are
stored: they are the same for every reader, on every broker, after repacking, compaction and conversion to Parquet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from mainstem import events, limits
from mainstem.broker.streams import StreamService, View
from mainstem.errors import InvalidBatch, OffsetOutOfRange, RecordsLost, TooLarge
from mainstem.records.compiled import compiled, octets
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import BatchHeader, walk
from mainstem.records.index import index_batch
from mainstem.records.pulsar_kernels import pack_messages

ENTRY_HEADER = "pulsar.entry"  # what the metadata of the entry says beyond the record
MESSAGE_HEADER = "pulsar.message"  # index and count in the batch, then what the metadata of the message says
ORDERING_HEADER = "pulsar.ordering_key"
DELIVER_AT_HEADER = "pulsar.deliver_at"  # ms since the epoch, in decimal digits
RESERVED_PREFIX = "pulsar."

READ_BYTES = 1 * limits.MIB
_ENTRY_RECORDS_MAX = 1 << 20
_MESSAGE_NAME = octets(MESSAGE_HEADER.encode())
_ORDERING_NAME = octets(ORDERING_HEADER.encode())

_log = events.named("subscriptions")


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
            elif first and name == DELIVER_AT_HEADER and content and content.isdigit():
                self.deliver_at_ms = int(content)
        if first and self.sticky_key is None:
            self.sticky_key = record.key
        self.size += size

    def pack(self, messages: bytes) -> None:
        """All of its records are in these messages; `first` is added."""
        self.packed = messages
        self.present = self.count
        self.last = self.end - 1
        self.size = len(messages)


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

    async def read(self, offset: int, max_bytes: int = READ_BYTES) -> tuple[list[MessageEntry], int]:
        """Whole entries from the one that holds `offset` on, and where to continue. Empty: nothing is there yet.

        Skips lost records. Raises NotFound once the topic is deleted."""
        entries: list[MessageEntry] = []
        position = offset
        while True:
            found, position = await self._read(position, max_bytes, entries)
            if not found:
                return entries, position
            first = entries[0]
            if first.base < offset and first.first.offset == offset:
                start = max(first.base, self._streams.start(self._stream))
                if start < offset:  # in the middle of an entry: its earlier records belong to it
                    return await self.read(start, max_bytes)
            last = entries[-1]
            if last.last + 1 >= last.end or position >= last.end:
                return entries, max(position, last.end)
            if len(entries) > 1:  # the last one continues in a batch that is not read yet
                entries.pop()
                return entries, last.base

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

    async def _read(self, offset: int, max_bytes: int, entries: list[MessageEntry]) -> tuple[bool, int]:
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
            if any(header.codec_id for batch in chunk.batches for header in walk(batch)):
                # Decompressing may take long: the loop does other work meanwhile.
                reached = await asyncio.to_thread(_add_chunk, chunk.batches, offset, entries)
            else:
                reached = _add_chunk(chunk.batches, offset, entries)
            if reached >= 0:
                return True, max(chunk.next_offset, reached)
            if chunk.next_offset <= offset:
                return False, offset  # an open transaction
            offset = chunk.next_offset


def _add_chunk(batches: Sequence[memoryview], offset: int, entries: list[MessageEntry]) -> int:
    return max((_add_batches(batch, offset, entries) for batch in batches), default=-1)


def _add_batches(data: memoryview, offset: int, entries: list[MessageEntry]) -> int:
    """Add the records of batches from `offset` on. Returns the offset after the last one; -1 if there are none."""
    reached = -1
    for header in walk(data):
        if header.control or header.next_offset <= offset:
            continue
        try:
            reached = max(reached, _add_batch(data, header, offset, entries))
        except (InvalidBatch, TooLarge) as error:  # another door stored it without decoding it
            _log.warning("a batch cannot be decoded", offset=header.base_offset, error=str(error))
    return reached


def _add_batch(data: memoryview, header: BatchHeader, offset: int, entries: list[MessageEntry]) -> int:
    whole = header.base_offset >= offset and header.count == header.last_offset_delta + 1
    if whole and header.count > limits.INTERPRETED_RECORDS_MAX:
        entry = _packed(data, header)
        if entry is not None:
            entries.append(entry)
            return entry.end
    reached = -1
    for record in decode_records(data[header.position : header.end], offset):
        add_record(record, entries)
        reached = record.offset + 1
    return reached


def _packed(data: memoryview, header: BatchHeader) -> MessageEntry | None:
    """A batch that is one entry; None if it is not, or if only Python can convert it."""
    first = next(decode_records(data[header.position : header.end]))
    if place_in_entry(first) != (0, header.count):
        return None
    index = index_batch(data, header)
    out = np.empty(len(index.data) + 16 * index.headers + 48 * header.count, np.uint8)
    size = compiled(pack_messages)(index.octets, index.fields, out, _MESSAGE_NAME, _ORDERING_NAME)
    if size < 0:
        return None
    entry = MessageEntry(header.base_offset, header.count, batched=True)
    entry.add(first)
    entry.pack(out[:size].tobytes())
    return entry


def add_record(record: StoredRecord, entries: list[MessageEntry]) -> None:
    """Add a record to the entry before it, or as a new one."""
    current = entries[-1] if entries else None
    place = place_in_entry(record)
    if place is None:
        current = MessageEntry(record.offset, 1, batched=False)
        entries.append(current)
    else:
        base = record.offset - place[0]
        if current is None or current.base != base or not current.batched:
            current = MessageEntry(base, place[1], batched=True)
            entries.append(current)
    current.add(record)
