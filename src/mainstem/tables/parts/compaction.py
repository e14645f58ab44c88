"""Key compaction: keep the last record of each key.

Compaction makes two passes over the rows: `add_keys` for all of them, then `keep` for each batch. Between the passes it
holds only keys and offsets.

| record                                              | kept                                                |
|-----------------------------------------------------|-----------------------------------------------------|
| without a key                                       | always                                              |
| with a timestamp at or after `compact_before_ms`    | always; it does not remove older records yet        |
| the last of its key among the others                | yes, unless it is a tombstone older than            |
|                                                     | `tombstones_before_ms`                              |
| any other                                           | no                                                  |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import invariant
from mainstem.records.rows import times_ms

if TYPE_CHECKING:
    import pyarrow as pa


class Compaction:
    def __init__(self, compact_before_ms: int, tombstones_before_ms: int) -> None:
        self._compact_before_ms = compact_before_ms
        self._tombstones_before_ms = tombstones_before_ms
        self._keys_seen: list[pa.Table] = []  # (key, offset) of the records that compaction applies to
        self._new_rows = 0  # rows of `_keys_seen` since it was last reduced to one row a key
        self._distinct_keys = 0  # keys after that reduction
        self._last_offsets: npt.NDArray[np.int64] | None = None  # sorted, once the second pass begins

    def add_keys(self, rows: pa.RecordBatch) -> None:
        """First pass: rows in offset order."""
        import pyarrow as pa

        invariant(self._last_offsets is None, "add_keys() after keep()")
        keys = pa.table({"key": rows.column("_key"), "offset": rows.column("_offset")})
        keys = keys.filter(pa.array(self._eligible(rows)))
        self._keys_seen.append(keys)
        self._new_rows += len(keys)
        if self._new_rows >= max(self._distinct_keys, limits.COMPACTION_KEYS_AT_ONCE):
            self._reduce()

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Second pass: the rows that compaction keeps."""
        import pyarrow as pa

        last_offsets = self._sorted_last_offsets()
        offsets = rows.column("_offset").to_numpy(zero_copy_only=False)
        indices = np.searchsorted(last_offsets, offsets)
        is_last = np.zeros(len(offsets), np.bool_)
        inside = indices < len(last_offsets)
        is_last[inside] = last_offsets[indices[inside]] == offsets[inside]
        old_tombstone = ~_valid(rows, "_value") & (_times_ms(rows) < self._tombstones_before_ms)
        return rows.filter(pa.array(~self._eligible(rows) | (is_last & ~old_tombstone)))

    def _eligible(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """A mask of the rows that compaction applies to: those with a key, older than `compact_before_ms`."""
        return _valid(rows, "_key") & (_times_ms(rows) < self._compact_before_ms)

    def _reduce(self) -> None:
        """Reduce the collected keys to the last offset of each."""
        import pyarrow as pa

        table = pa.concat_tables(self._keys_seen)
        last = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._keys_seen = [
            last.rename_columns({"key": "key", "offset_max": "offset"}).select(["key", "offset"])
        ]
        self._new_rows, self._distinct_keys = 0, len(last)

    def _sorted_last_offsets(self) -> npt.NDArray[np.int64]:
        if self._last_offsets is None:
            if not self._keys_seen:
                self._last_offsets = np.empty(0, np.int64)
            else:
                self._reduce()
                self._last_offsets = np.sort(self._keys_seen[0].column("offset").to_numpy())
            self._keys_seen = []
        return self._last_offsets


def _valid(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.bool_]:
    return np.asarray(rows.column(column).is_valid().to_numpy(zero_copy_only=False))


def _times_ms(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    exact = rows.column("_timestamp_ms") if "_timestamp_ms" in rows.schema.names else None
    return times_ms(rows.column("_timestamp"), exact)
