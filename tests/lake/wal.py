"""Log objects and tasks to test with, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from crc32c import crc32c

from mainstem.api.lake import Part, Sources, Task, WalExtents
from mainstem.log.read.extents import EXTENT
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import walk
from mainstem.records.merging import RowRun, merged_rows
from mainstem.records.parquet import RowFile
from mainstem.records.rebatching import encode_rows
from mainstem.records.rows import row_schema

TOPIC = "orders"
TOPIC_ID = bytes(range(16))


@dataclass
class WalFile:
    """A log object that holds slices of one stream, with other bytes between them."""

    path: Path
    filler: bytes = b"other streams' bytes"
    end: int = 0
    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _data: bytearray = field(default_factory=bytearray)

    def add(self, slice: bytes | bytearray, *, skip: int = 0) -> int:
        """Append a slice at the next offset, or `skip` later. Returns its first offset."""
        base = self.end + skip
        count = sum(header.last_offset_delta + 1 for header in walk(memoryview(slice)))
        latest = max(header.max_timestamp for header in walk(memoryview(slice)))
        self._data += self.filler
        self._rows.append((5, count, base, len(self._data), len(slice), crc32c(slice), latest))
        self._data += slice
        self.end = base + count
        self.path.write_bytes(self._data)
        return base

    def extents(self, *, shift: int = 0, timestamp_ms: int | None = None) -> WalExtents:
        return WalExtents(self.path.as_uri(), np.array(self._rows, EXTENT).tobytes(), shift, timestamp_ms)

    def damage(self, row: int) -> None:
        start = self._rows[row][3]
        self._data[start + 70] ^= 0xFF
        self.path.write_bytes(self._data)


def task(sources: Sources, **changes: object) -> Task:
    made = Task(
        kind="materialise",
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=2,
        stream=5,
        token=77,
        deadline_ms=0,
        generation=1,
        sources=sources,
        prefix=f"parts/{TOPIC_ID.hex()}/2/0-9-4d",
    )
    return msgspec.structs.replace(made, **changes)


def stored_records(store: Path, parts: Sequence[Part]) -> list[StoredRecord]:
    """What the parts' files hold, by offset."""
    found = []
    for part in parts:
        runs = [
            RowRun(file.base, lambda path=store / file.key: RowFile(str(path)).rows()) for file in part.files
        ]
        rows = pa.Table.from_batches(merged_rows(runs), row_schema())
        found += [record for batch in encode_rows(rows) for record in decode_records(batch)]
    return found
