"""Key compaction: keep the last record of each key.

Compaction makes two passes over the rows: `add_keys` for all of them, then `keep` for each batch. Between the passes it
holds a hash and an offset a key, in the same index as the broker's own compaction.

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
from mainstem.records import kernels
from mainstem.records.compacting import KeyIndex
from mainstem.records.rows import times_ms

if TYPE_CHECKING:
    import pyarrow as pa

_INDEX_BYTES_MAX = (
    1 << 40
)  # the index grows with the keys: a part that is replaced as a whole needs all of them


class Compaction:
    def __init__(self, compact_before_ms: int, tombstones_before_ms: int) -> None:
        self._compact_before_ms = compact_before_ms
        self._tombstones_before_ms = tombstones_before_ms
        self._keys = KeyIndex(_INDEX_BYTES_MAX)
        self._keeping = False  # the second pass has begun

    def add_keys(self, rows: pa.RecordBatch) -> None:
        """First pass: rows in offset order."""
        invariant(not self._keeping, "add_keys() after keep()")
        data, fields = _key_fields(rows)
        nothing = np.empty(0, np.bool_)
        full = self._keys.add(data, fields, self._eligible(rows), 0, nothing, 0)
        invariant(full is None, "the index grows with the keys")

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Second pass: the rows that compaction keeps."""
        import pyarrow as pa

        self._keeping = True
        data, fields = _key_fields(rows)
        is_last = ~self._keys.older(data, fields, 0, limits.OFFSET_MAX)
        old_tombstone = ~_valid(rows, "_value") & (_times_ms(rows) < self._tombstones_before_ms)
        return rows.filter(pa.array(~self._eligible(rows) | (is_last & ~old_tombstone)))

    def _eligible(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """A mask of the rows that compaction applies to: those with a key, older than `compact_before_ms`."""
        return _valid(rows, "_key") & (_times_ms(rows) < self._compact_before_ms)


def _key_fields(rows: pa.RecordBatch) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """The bytes of the keys, and where each one is, as a record index (see records/kernels.py) says it."""
    import pyarrow as pa

    keys = rows.column("_key").cast(pa.large_binary())
    _, ends, data = keys.buffers()
    places = np.frombuffer(ends, np.int64, len(keys) + 1, 8 * keys.offset) if ends else np.zeros(1, np.int64)
    fields = np.zeros((kernels.RECORD_FIELDS, len(keys)), np.int64)
    fields[kernels.OFFSET] = rows.column("_offset").to_numpy(zero_copy_only=False)
    fields[kernels.KEY_AT] = places[:-1]
    fields[kernels.KEY_LENGTH] = np.where(_valid(rows, "_key"), np.diff(places), -1)
    return memoryview(data if data is not None else b""), fields


def _valid(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.bool_]:
    return np.asarray(rows.column(column).is_valid().to_numpy(zero_copy_only=False))


def _times_ms(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    exact = rows.column("_timestamp_ms") if "_timestamp_ms" in rows.schema.names else None
    return times_ms(rows.column("_timestamp"), exact)
