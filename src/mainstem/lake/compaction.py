"""Key compaction: of the records with one key, the last one stays.

Two passes over the rows: `see` all of them, then ask `kept` of each. Between the passes only keys and offsets are held.

| record                                              | stays                                               |
|-----------------------------------------------------|-----------------------------------------------------|
| without a key                                       | always                                              |
| as young as `compact_before_ms`, or younger         | always, and no older record gives way to it yet     |
| the last of its key among the others                | yes, unless it is a tombstone from before           |
|                                                     | `tombstones_before_ms`                              |
| any other                                           | no                                                  |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import invariant

if TYPE_CHECKING:
    import pyarrow as pa


class Compaction:
    def __init__(self, compact_before_ms: int, tombstones_before_ms: int) -> None:
        self._compact_before_ms = compact_before_ms
        self._tombstones_before_ms = tombstones_before_ms
        self._seen: list[pa.Table] = []  # (key, offset) of records that may give way or make others give way
        self._fresh = 0  # rows that came since the others were left one a key …
        self._keys = 0  # … and how many those are
        self._winners: npt.NDArray[np.int64] | None = None  # sorted offsets, once all is seen

    def see(self, rows: pa.RecordBatch) -> None:
        """First pass: rows in offset order."""
        import pyarrow as pa

        invariant(self._winners is None, "rows are seen before any of them is judged")
        subject = self._subject(rows)
        seen = pa.table({"key": rows.column("_key"), "offset": rows.column("_offset")}).filter(subject)
        self._seen.append(seen)
        self._fresh += len(seen)
        if self._fresh >= max(self._keys, limits.COMPACTION_KEYS_AT_ONCE):
            self._settle()

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Second pass: those of the rows that stay."""
        import pyarrow as pa
        import pyarrow.compute as pc

        winners = self._sorted_winners()
        offsets = rows.column("_offset").to_numpy(zero_copy_only=False)
        places = np.searchsorted(winners, offsets)
        won = np.zeros(len(offsets), np.bool_)
        inside = places < len(winners)
        won[inside] = winners[places[inside]] == offsets[inside]
        tombstone = pc.and_(
            pc.is_null(rows.column("_value")), pc.less(times_ms(rows), self._tombstones_before_ms)
        )
        stays = pc.and_not(pa.array(won), tombstone)
        return rows.filter(pc.or_(pc.invert(self._subject(rows)), stays))

    def _subject(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows compaction is about."""
        import pyarrow.compute as pc

        old = pc.less(times_ms(rows), self._compact_before_ms)
        return pc.and_(pc.is_valid(rows.column("_key")), old)

    def _settle(self) -> None:
        """Leave one row a key."""
        import pyarrow as pa

        table = pa.concat_tables(self._seen)
        last = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._seen = [last.rename_columns({"key": "key", "offset_max": "offset"}).select(["key", "offset"])]
        self._fresh, self._keys = 0, len(last)

    def _sorted_winners(self) -> npt.NDArray[np.int64]:
        if self._winners is None:
            if not self._seen:
                self._winners = np.empty(0, np.int64)
            else:
                self._settle()
                self._winners = np.sort(self._seen[0].column("offset").to_numpy())
            self._seen = []
        return self._winners


def times_ms(rows: pa.RecordBatch) -> pa.Array:
    """When each record was written, exact also where a table's timestamp cannot say it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shown = pc.divide(rows.column("_timestamp").cast(pa.int64()), 1000)
    if "_timestamp_ms" not in rows.schema.names:
        return shown
    return pc.coalesce(rows.column("_timestamp_ms"), shown)


def compact(table: pa.Table, compact_before_ms: int, tombstones_before_ms: int) -> pa.Table:
    """All rows of a stream's range, in offset order, to those that stay."""
    import pyarrow as pa

    compaction = Compaction(compact_before_ms, tombstones_before_ms)
    batches = table.to_batches()
    for batch in batches:
        compaction.see(batch)
    return pa.Table.from_batches([compaction.kept(batch) for batch in batches], table.schema)
