"""Records over HTTP as they are stored, and as columns: Arrow, pandas, Polars."""

from __future__ import annotations

import asyncio
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mainstem import limits
from mainstem.api import routes
from mainstem.client.batches import BatchPage, page_of, whole_package
from mainstem.client.transport import Calls
from mainstem.errors import InvalidBatch, InvalidInput, OffsetOutOfRange, TooLarge

if TYPE_CHECKING:
    import pyarrow as pa

_ARROW_BYTES = 8 * limits.MIB


class ColumnCalls(Calls):
    async def batches(
        self,
        topic: str,
        *,
        offset: int = 0,
        partition: int = 0,
        timestamp_ms: int | None = None,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        wait_ms: int = 0,
    ) -> BatchPage:
        """Record batches in their stored format, from an offset or a time on. Raises OffsetOutOfRange, RecordsLost.

        Example:
            for record in client.batches("orders").records(): print(record.value)
        """
        if timestamp_ms is not None:
            offset = await self.offset_at(topic, timestamp_ms, partition=partition)
        query = {
            "partition": partition or None,
            "from": offset,
            "max_bytes": max_bytes,
            "wait_ms": wait_ms or None,
        }
        answer = await self._transport.request(routes.GET_BATCHES, topic, query=query, wait_s=wait_ms / 1000)
        return page_of(answer, offset)

    async def offset_at(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> int:
        """The offset of the first record with that timestamp or a later one; the end offset if there is none.

        Example:
            offset = client.offset_at("orders", 1767225600000)
        """
        query = {"partition": partition, "at": max(0, timestamp_ms)}
        found = await self._transport.call(routes.GET_OFFSETS, topic, query=query)
        position = found.partitions[0]
        return position.end if position.offset is None else position.offset

    async def read_arrow(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        limit: int | None = None,
        partition: int | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
    ) -> pa.Table:
        """Records as an Arrow table: offset, timestamp, key, value, headers. At most `limit`, else to the end.

        Of a topic with several partitions it reads all, by time, with a column `partition`, unless `partition` is
        given. `since` and `until` (which is excluded) are times: aware datetimes, or milliseconds since 1970. Without
        `from_seq` it begins at the oldest record. Raises RecordsLost, OffsetOutOfRange.

        Example:
            frame = client.read_arrow("orders", limit=100_000).to_pandas()
        """
        with whole_package():
            import pyarrow as pa

            import mainstem.records.arrow  # noqa: F401 - fails here, before anything is read

        begins = await self._begins(topic, partition, milliseconds(since))
        if from_seq and len(begins) > 1:
            raise InvalidInput(f"topic {topic!r} has {len(begins)} partitions: give partition with from_seq")
        tables = [
            await self._arrow(topic, number, max(from_seq, offset), bool(from_seq), limit, since, until)
            for number, offset in begins.items()
        ]
        if len(tables) == 1:
            return tables[0]
        numbered = [
            table.append_column("partition", pa.array([number] * table.num_rows, pa.int32()))
            for number, table in zip(begins, tables, strict=True)
        ]
        merged = pa.concat_tables(numbered).sort_by(
            [("timestamp", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
        )
        return merged if limit is None else merged.slice(0, limit)

    async def _begins(self, topic: str, partition: int | None, since_ms: int | None) -> dict[int, int]:
        """Where to begin in each partition; 0 stands for the oldest record."""
        if partition is not None and since_ms is None:
            return {partition: 0}
        query = {"partition": partition, "at": "earliest" if since_ms is None else max(0, since_ms)}
        found = await self._transport.call(routes.GET_OFFSETS, topic, query=query)
        return {
            one.partition: 0 if since_ms is None else one.end if one.offset is None else one.offset
            for one in found.partitions
        }

    async def _arrow(
        self,
        topic: str,
        partition: int,
        offset: int,
        exact: bool,
        limit: int | None,
        since: datetime | int | None,
        until: datetime | int | None,
    ) -> pa.Table:
        """One partition. `exact`: the offset must exist."""
        import pyarrow as pa

        from mainstem.records.arrow import record_schema

        tables: list[pa.Table] = []
        left = limit
        while left is None or left > 0:
            try:
                page = await self.batches(topic, offset=offset, partition=partition, max_bytes=_ARROW_BYTES)
            except OffsetOutOfRange as gone:
                if exact or offset >= gone.start:
                    raise
                offset = gone.start
                continue
            try:
                whole = await asyncio.to_thread(page.table)
            except (InvalidBatch, TooLarge):
                page = await asyncio.to_thread(page.decodable)
                whole = await asyncio.to_thread(page.table)
            if since is not None or until is not None:
                whole = _between(whole, milliseconds(since), milliseconds(until))
            table = whole if left is None else whole.slice(0, left)
            if table.num_rows:
                tables.append(table)
            if left is not None:
                left -= table.num_rows
            if page.at_end:
                break
            offset = page.next_offset
        return pa.concat_tables(tables) if tables else record_schema().empty_table()

    async def read_pandas(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        limit: int | None = None,
        partition: int | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
    ) -> Any:
        """Like `read_arrow`, as a pandas frame. Pandas must be installed.

        Example:
            frame = client.read_pandas("orders", since=datetime(2026, 1, 1, tzinfo=UTC))
        """
        _installed("pandas")
        table = await self.read_arrow(
            topic, from_seq=from_seq, limit=limit, partition=partition, since=since, until=until
        )
        return table.to_pandas()

    async def read_polars(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        limit: int | None = None,
        partition: int | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
    ) -> Any:
        """Like `read_arrow`, as a Polars frame. Polars must be installed.

        Example:
            frame = client.read_polars("orders")
        """
        polars = _installed("polars")
        table = await self.read_arrow(
            topic, from_seq=from_seq, limit=limit, partition=partition, since=since, until=until
        )
        return polars.from_arrow(table)


def milliseconds(time: datetime | int | None) -> int | None:
    """Milliseconds since 1970. Raises InvalidInput for a datetime without a time zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise InvalidInput(f"{time} has no time zone: use datetime(…, tzinfo=UTC)")
    return round(time.timestamp() * 1000)


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InvalidInput(f"{name} is not installed: pip install {name}, or use read_arrow") from None


def _between(table: pa.Table, since_ms: int | None, until_ms: int | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    times = table["timestamp"].cast(pa.int64())
    if since_ms is not None:
        kept = pc.greater_equal(times, since_ms)
        table, times = table.filter(kept), times.filter(kept)
    if until_ms is not None:
        table = table.filter(pc.less(times, until_ms))
    return table
