"""Messages for the console: records of one partition as stored, searched forwards or backwards.

One call reads a bounded part of the log, and returns where the next one continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mainstem import limits
from mainstem.broker.json_search import JsonCondition
from mainstem.broker.streams import View, stream_of
from mainstem.broker.topics.floors import Floors, expire_untracked, floors_of
from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost, TopicNotFound
from mainstem.ledger.topics import Topic
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.undecodable import FAULTS, decodable

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

MESSAGES_SCANNED_MAX = 20_000  # records scanned for one page
MESSAGES_READ_BYTES_MAX = 16 * limits.MIB  # read for one page
MESSAGES_CHUNK_BYTES = 512 * limits.KIB
MESSAGES_SEARCH_STEP_BYTES = 1 * limits.MIB  # of a value, searched at a time

Loss = tuple[int, int, str]  # from, to, why


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Texts that a record's key, value and one of its headers must contain, ignoring case; a condition on its value,
    if that is JSON or `decoded` makes it so; and its time, from `since_ms` to before `until_ms`."""

    key: bytes = b""
    value: bytes = b""
    header: bytes = b""
    json: JsonCondition | None = None
    since_ms: int = 0
    until_ms: int = limits.OFFSET_MAX
    decoded: Callable[[StoredRecord], bytes | None] | None = None  # a value by its schema, as JSON

    def fits(self, record: StoredRecord) -> bool:
        return (
            self.since_ms <= record.timestamp_ms < self.until_ms
            and _holds(record.key, self.key)
            and _holds(record.value, self.value)
            and (not self.header or any(_header_matches(header, self.header) for header in record.headers))
            and (self.json is None or self.json.fits(self._json_value(record)))
        )

    def _json_value(self, record: StoredRecord) -> bytes | None:
        decoded = self.decoded and self.decoded(record)
        return record.value if decoded is None else decoded


@dataclass(slots=True)
class MessagePage:
    """Records by offset, and where to continue: `from_offset` forwards, `before` backwards."""

    start: int  # the first offset that can be read
    end: int
    from_offset: int
    before: int
    records: list[StoredRecord] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)
    scanned: int = 0
    decoded_bytes: int = 0  # of keys and values examined


class Messages:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log

    async def after(
        self, topic: Topic, partition: int, offset: int, limit: int, sought: MessageFilter
    ) -> MessagePage:
        """The first records from `offset` on. Raises PartitionNotFound, TopicNotFound."""
        stream, floors = await self._floors(topic, partition)
        at = min(max(offset, floors.start), floors.end)
        page = MessagePage(floors.start, floors.end, at, at)
        await self._scan(stream, page, floors, floors.end, limit, sought)
        page.records = page.records[:limit]
        return page

    async def before(
        self, topic: Topic, partition: int, offset: int, limit: int, sought: MessageFilter
    ) -> MessagePage:
        """The last records before `offset`. Raises PartitionNotFound, TopicNotFound."""
        stream, floors = await self._floors(topic, partition)
        at = min(max(offset, floors.start), floors.end)
        found: list[StoredRecord] = []
        page = MessagePage(floors.start, floors.end, at, at)
        width = limit
        while (
            len(found) < limit
            and page.before > floors.start
            and page.scanned < MESSAGES_SCANNED_MAX
            and page.decoded_bytes < MESSAGES_READ_BYTES_MAX
        ):
            window = MessagePage(
                floors.start, floors.end, max(floors.start, page.before - width), page.before
            )
            low = window.from_offset
            window.scanned, window.decoded_bytes = page.scanned, page.decoded_bytes
            await self._scan(stream, window, floors, page.before, width, sought)
            if window.from_offset < page.before and width > 1:
                width = max(1, width // 4)  # it ended too early, and would leave out the newest
                continue
            page.scanned, page.decoded_bytes = window.scanned, window.decoded_bytes
            page.lost = window.lost + page.lost
            found = window.records + found
            page.before = low
            width = min(2 * width, MESSAGES_SCANNED_MAX)
        if len(found) > limit:
            found = found[-limit:]
            page.before = found[0].offset
        page.records = found
        return page

    async def _floors(self, topic: Topic, partition: int) -> tuple[int, Floors]:
        stream = stream_of(topic, partition)
        now = self._broker.clock.now_ms()
        try:
            if topic.config.ttl_ms:
                await expire_untracked(self._log, stream, topic.config, now)
            return stream, floors_of(self._log, stream, topic.config, now)
        except NotFound:
            raise TopicNotFound(topic.name) from None

    async def _scan(
        self, stream: int, page: MessagePage, floors: Floors, end: int, limit: int, sought: MessageFilter
    ) -> None:
        """Read [page.from_offset, end) until the page is full or the scan limit is reached."""
        read_bytes = 0
        while (
            page.from_offset < end
            and len(page.records) < limit
            and page.scanned < MESSAGES_SCANNED_MAX
            and max(read_bytes, page.decoded_bytes) < MESSAGES_READ_BYTES_MAX
        ):
            at = page.from_offset
            try:
                chunk = await self._broker.streams.read(stream, at, MESSAGES_CHUNK_BYTES, view=View.COMMITTED)
            except RecordsLost as loss:
                page.lost.append((at, min(loss.end, end), loss.reason))
                page.from_offset = min(loss.end, end)
                continue
            except OffsetOutOfRange as moved:
                if moved.start <= at:
                    raise
                page.from_offset = moved.start  # trimmed in the meantime
                continue
            except NotFound:
                return  # deleted in the meantime: return what was read
            read_bytes += sum(map(len, chunk.batches))
            batches, next_offset = chunk.batches, chunk.next_offset
            found, scanned, decoded_bytes = len(page.records), page.scanned, page.decoded_bytes
            decoding, line = self._broker.decoding, f"stream {stream}"
            try:
                reached = await decoding.run(
                    line, partial(_add_matching, batches, page, floors, end, limit, sought)
                )
            except FAULTS:
                del page.records[found:]
                page.scanned, page.decoded_bytes = scanned, decoded_bytes
                try:
                    batches, next_offset = await decoding.run(line, partial(decodable, batches, at))
                except RecordsLost as loss:
                    page.lost.append((at, min(loss.end, end), loss.reason))
                    page.from_offset = min(loss.end, end)
                    continue
                reached = await decoding.run(
                    line, partial(_add_matching, batches, page, floors, end, limit, sought)
                )
            stopped = len(page.records) >= limit or page.decoded_bytes >= MESSAGES_READ_BYTES_MAX
            page.from_offset = reached if stopped else max(reached, min(next_offset, end))
            if page.from_offset <= at:
                return


def _add_matching(
    batches: Sequence[memoryview],
    page: MessagePage,
    floors: Floors,
    end: int,
    limit: int,
    sought: MessageFilter,
) -> int:
    """Add matching records to the page. Returns the offset after the last one checked."""
    at = page.from_offset
    for batch in batches:
        for record in decode_records(batch, at):
            if record.offset >= end or len(page.records) >= limit:
                return at
            if page.decoded_bytes >= MESSAGES_READ_BYTES_MAX:
                return at
            page.decoded_bytes += len(record.key or b"") + len(record.value or b"")
            at = record.offset + 1
            page.scanned += 1
            expired = floors.expires_before_ms is not None and record.timestamp_ms < floors.expires_before_ms
            if not expired and sought.fits(record):
                page.records.append(record)
    return at


def _holds(content: bytes | None, wanted: bytes) -> bool:
    if not wanted or content is None:
        return not wanted
    wanted, step = wanted.lower(), MESSAGES_SEARCH_STEP_BYTES
    # In steps, so that the event loop can run between them.
    return any(
        wanted in content[at : at + step + len(wanted)].lower() for at in range(0, max(1, len(content)), step)
    )


def _header_matches(header: tuple[str, bytes | None], wanted: bytes) -> bool:
    """By its name, its content, or both as name=content."""
    name, content = header
    return _holds(name.encode() + b"=" + (content or b""), wanted)
