"""Takes: records read off a cursor that a group shares, each given to one taker only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainstem import limits
from mainstem.errors import InvalidInput, OffsetOutOfRange, RecordsLost
from mainstem.ledger.cursors import Take

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker, Record

_BYTES_PER_RECORD = 256  # a guess; if it is low the rest takes another read


class SharedCursorReader:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def take(self, name: str, group: str, *, partition: int, limit: int) -> list[Record]:
        """The next records of the group's cursor, which moves past them. Empty at the end."""
        stream = self._broker.stream(name, partition)
        log = self._broker.log
        if log.ledger.streams.ephemeral(stream):
            raise InvalidInput(f"topic {name!r} is ephemeral: it keeps no cursor to take from")
        while True:
            taken = await log.propose(Take(group, stream, limit))
            if not taken.ranges:
                return []
            records = await self._read(name, partition, taken.ranges)
            if records:
                return records
            # All that was taken turned out to be deleted or lost meanwhile: go on to the next.

    async def _read(self, name: str, partition: int, ranges: Sequence[tuple[int, int]]) -> list[Record]:
        found: list[Record] = []
        for first, last in ranges:
            at = first
            while at < last:
                try:
                    # Few records are wanted, so few batches are looked up: a read gives one at least.
                    wanted = last - at
                    max_bytes = min(wanted * _BYTES_PER_RECORD, limits.READ_BYTES_DEFAULT)
                    records = await self._broker.read(
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
