"""Read: batches or records of a partition, by name. Doors that serve many partitions use `StreamService.read`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from mainstem import limits
from mainstem.broker.decoding import Decoding, decode_bounded
from mainstem.broker.streams import StreamService
from mainstem.errors import InvalidInput, OffsetOutOfRange, RecordsLost
from mainstem.ledger.cursors import Take
from mainstem.log.log import Log
from mainstem.log.read.views import View
from mainstem.records.decoding import decode_records, lone_values

_BYTES_PER_RECORD = 256  # a guess: if it is too low, another read fetches the rest


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches, stamped with offset and epoch. May begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int  # where to continue
    start: int
    end: int


class Reads:
    def __init__(self, log: Log, streams: StreamService, decoding: Decoding) -> None:
        self._log = log
        self._streams = streams
        self._decoding = decoding

    async def batches(
        self,
        name: str,
        offset: int,
        *,
        partition: int = 0,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        max_wait_ms: int = 0,
    ) -> Fetched:
        """Batches from `offset` on; at least one if there is any, whatever its size.

        At the end it waits up to `max_wait_ms` for an append. Raises OffsetOutOfRange, RecordsLost."""
        stream = self._streams.of(name, partition)
        chunk = await self._streams.read(
            stream, offset, max_bytes, max_wait_ms=max_wait_ms, view=View.COMMITTED
        )
        start, end = self._streams.bounds(stream)
        return Fetched(chunk.batches, chunk.next_offset, start, end)

    async def records(
        self,
        name: str,
        offset: int,
        *,
        partition: int = 0,
        max_records: int = 256,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        max_wait_ms: int = 0,
    ) -> list[Record]:
        """Decoded records from `offset` on. Empty only at the end: deleted records are skipped."""
        while True:
            fetched = await self.batches(
                name, offset, partition=partition, max_bytes=max_bytes, max_wait_ms=max_wait_ms
            )
            found, reached = await decode_bounded(
                lambda work: self._decoding.run(name, work),
                fetched.batches,
                offset,
                fetched.next_offset,
                partial(_first_records, offset, max_records),
            )
            if found or reached == offset:
                return found
            offset = reached

    def values_now(
        self, name: str, offset: int, *, partition: int, max_bytes: int
    ) -> list[tuple[int, bytes]] | None:
        """Offsets and values of the records from `offset` on, without the event loop, which must not run meanwhile.
        Empty at the end. None: use `records`, since they are not in memory or take longer to decode.

        Raises OffsetOutOfRange, RecordsLost."""
        stream = self._streams.of(name, partition)
        if stream in self._log.ledger.generations.served:
            return None  # reading from a part may start a task that reads ahead
        bound = min(max_bytes, limits.RENDERED_ON_LOOP_BYTES_MAX)
        chunk = self._streams.read_cached(stream, offset, bound, View.COMMITTED)
        if chunk is None:
            return None
        found: list[tuple[int, bytes]] = []
        for batches in chunk.batches:
            values = lone_values(batches, offset) if len(batches) <= bound else None
            if values is None:
                return None
            found += values
        return found if found or chunk.next_offset == offset else None

    async def take(self, name: str, group: str, *, partition: int, limit: int) -> list[Record]:
        """The next records of a group's shared cursor, which moves past them. Empty at the end."""
        stream = self._streams.of(name, partition)
        if self._log.ledger.streams.ephemeral(stream):
            raise InvalidInput(f"topic {name!r} is ephemeral: it keeps no cursor to take from")
        while True:
            taken = await self._log.propose(Take(group, stream, limit))
            if not taken.ranges:
                return []
            records = await self._taken(name, partition, taken.ranges)
            if records:
                return records
            # All that was taken has been deleted or lost meanwhile: take more.

    async def _taken(self, name: str, partition: int, ranges: Sequence[tuple[int, int]]) -> list[Record]:
        found: list[Record] = []
        for first, last in ranges:
            at = first
            while at < last:
                try:
                    # The caller wants few records, so look up few batches: a read returns at least one.
                    wanted = last - at
                    max_bytes = min(wanted * _BYTES_PER_RECORD, limits.READ_BYTES_DEFAULT)
                    records = await self.records(
                        name, at, partition=partition, max_records=wanted, max_bytes=max_bytes
                    )
                except RecordsLost as loss:
                    at = loss.end
                    continue
                except OffsetOutOfRange as moved:
                    if moved.start <= at:
                        raise
                    at = moved.start  # trimmed since it was taken
                    continue
                records = [record for record in records if record.offset < last]
                if not records:
                    break
                found += records
                at = records[-1].offset + 1
        return found


def _first_records(offset: int, limit: int, batches: Sequence[memoryview], decoded_max: int) -> list[Record]:
    found: list[Record] = []
    for slice in batches:
        found += [
            Record(*record)
            for record in islice(decode_records(slice, offset, decoded_max), limit - len(found))
        ]
        if len(found) >= limit:
            break
    return found
