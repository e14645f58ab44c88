"""Entries: the unit that a subscription delivers and redelivers, made from records alone.

A record that a client published as one of several of a batch names its place in the header `pulsar.message`: a varint
index and a varint count, before further bytes. Its entry begins at `offset - index` and has `count` offsets. Any other
record is an entry of its own. So the borders of entries depend on records and offsets only, never on how batches are
stored: they are the same for every reader, on every broker, after repacking, compaction and conversion to Parquet.
"""

from __future__ import annotations

from mainstem import limits
from mainstem.broker.streams import StreamService, View
from mainstem.errors import OffsetOutOfRange, RecordsLost
from mainstem.records.decoding import StoredRecord, decode_records

ENTRY_HEADER = "pulsar.entry"  # what the metadata of the entry says beyond the record
MESSAGE_HEADER = "pulsar.message"  # index and count in the batch, then what the metadata of the message says
ORDERING_HEADER = "pulsar.ordering_key"
DELIVER_AT_HEADER = "pulsar.deliver_at"  # ms since the epoch, in decimal digits
RESERVED_PREFIX = "pulsar."

READ_BYTES = 1 * limits.MIB
_ENTRY_RECORDS_MAX = 1 << 20


class MessageEntry:
    """One or more consecutive records. Records that no longer exist are missing from `records`."""

    __slots__ = ("base", "batched", "count", "deliver_at_ms", "records", "size", "sticky_key")

    def __init__(self, base: int, count: int, batched: bool) -> None:
        self.base = base
        self.count = count
        self.batched = batched
        self.records: list[StoredRecord] = []
        self.size = 0
        self.deliver_at_ms = 0
        self.sticky_key: bytes | None = None  # what Key_Shared consumers are chosen by

    @property
    def end(self) -> int:
        return self.base + self.count

    def add(self, record: StoredRecord) -> None:
        first = not self.records
        self.records.append(record)
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
            records, position = await self._records(position, max_bytes)
            if not records:
                return entries, position
            entries = _grouped(records, entries)
            first = entries[0]
            if first.base < offset and first.records[0].offset == offset:
                start = max(first.base, self._streams.start(self._stream))
                if start < offset:  # in the middle of an entry: its earlier records belong to it
                    return await self.read(start, max_bytes)
            last = entries[-1]
            if last.records[-1].offset + 1 >= last.end or position >= last.end:
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

    async def _records(self, offset: int, max_bytes: int) -> tuple[list[StoredRecord], int]:
        """Decoded records, and the offset after them. Empty: nothing is there yet."""
        while True:
            if offset >= self._streams.known_end(self._stream):
                self._streams.bounds(self._stream)  # raises NotFound if the topic is deleted
                return [], offset
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
                    return [], min(offset, end)
                offset = start
                continue
            records = [record for batch in chunk.batches for record in decode_records(batch, offset)]
            if records:
                return records, max(chunk.next_offset, records[-1].offset + 1)
            if chunk.next_offset <= offset:
                return [], offset  # an open transaction
            offset = chunk.next_offset


def _grouped(records: list[StoredRecord], entries: list[MessageEntry]) -> list[MessageEntry]:
    """Add records to the entries before them."""
    current = entries[-1] if entries else None
    for record in records:
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
    return entries
