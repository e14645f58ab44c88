"""Append runs: many slices as one array, the only command that must be fast.

Slice row, 48 bytes, little-endian (`SLICE`):

| field         | type | meaning                                                              |
|---------------|------|----------------------------------------------------------------------|
| stream        | u4   | stream number                                                        |
| count         | u4   | offsets taken: the sum of lastOffsetDelta + 1 over the slice's batches |
| length        | u4   | payload bytes                                                        |
| crc           | u4   | CRC32C of those bytes                                                |
| max_timestamp | i8   | latest record time, ms                                               |
| producer      | i8   | idempotent producer id, -1 = none                                    |
| base_sequence | i4   | first sequence of the (single) batch of an idempotent slice, -1 = none |
| producer_epoch| i2   | -1 = none                                                            |
| flags         | u2   | SLICE_* bits                                                         |
| size          | u4   | logical bytes, what caps and `bytes` count                           |
| batches       | u4   | record batches in the slice                                          |

Record row, 12 bytes (`RECORD`), `count` of them for each slice flagged SLICE_TRACKED, in slice order:

| field | type | meaning            |
|-------|------|--------------------|
| size  | u4   | logical bytes      |
| time  | i8   | record time, ms    |

A run is encoded as: u4 slices, u4 records, then the slice rows, then the record rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from mainstem.errors import LogDamaged

SLICE = np.dtype(
    [
        ("stream", "<u4"),
        ("count", "<u4"),
        ("length", "<u4"),
        ("crc", "<u4"),
        ("max_timestamp", "<i8"),
        ("producer", "<i8"),
        ("base_sequence", "<i4"),
        ("producer_epoch", "<i2"),
        ("flags", "<u2"),
        ("size", "<u4"),
        ("batches", "<u4"),
    ]
)
SLICE_PACK = struct.Struct("<IIIIqqihHII")  # one row, to build a run without numpy calls for each slice
RECORD = np.dtype([("size", "<u4"), ("time", "<i8")])

SLICE_TRACKED = 1  # the run carries a size and a time for each record of the slice
SLICE_TRANSACTIONAL = 2
SLICE_JOINS = 4  # adds its stream to its producer's transaction, and begins one if none is open
SLICE_RESUMES = 8  # an unknown producer may continue at any sequence
SLICE_KEYED = 256  # producer, base_sequence and producer_epoch hold an idempotency key (idempotency.py)

_TIMED = SLICE_KEYED | SLICE_JOINS  # the state they create holds the time of their entry

_HEAD = struct.Struct("<II")

Rows = npt.NDArray[Any]

_NO_SLICES: Rows = np.empty(0, SLICE)
NO_RECORDS: Rows = np.empty(0, RECORD)


@dataclass(slots=True)
class AppendRun:
    """Consecutive appends of one entry."""

    slices: Rows  # of SLICE
    records: Rows = field(default_factory=lambda: NO_RECORDS)

    def encode(self) -> bytes:
        return (
            _HEAD.pack(len(self.slices), len(self.records)) + self.slices.tobytes() + self.records.tobytes()
        )

    @classmethod
    def decode(cls, body: bytes | memoryview) -> AppendRun:
        """Rows stay views of `body`. Raises LogDamaged."""
        size = len(body)
        if size < _HEAD.size:
            raise LogDamaged("an append run in the log is shorter than its header")
        slices, records = _HEAD.unpack_from(body)
        split = _HEAD.size + slices * SLICE.itemsize
        if size != split + records * RECORD.itemsize:
            raise LogDamaged("an append run in the log has the wrong length")
        if not records:
            return cls(np.frombuffer(body, SLICE, slices, _HEAD.size) if slices else _NO_SLICES, NO_RECORDS)
        run = cls(np.frombuffer(body, SLICE, slices, _HEAD.size), np.frombuffer(body, RECORD, records, split))
        if run.tracked_records() != records:
            raise LogDamaged("an append run in the log does not hold one record row per tracked record")
        return run

    @property
    def timed(self) -> bool:
        """Some slice has an idempotency key, or may begin a transaction."""
        return bool((self.slices["flags"] & _TIMED).any())

    def tracked_records(self) -> int:
        """How many record rows the slices need."""
        tracked = (self.slices["flags"] & SLICE_TRACKED) != 0
        return int(self.slices["count"][tracked].sum(dtype=np.int64))


class AppendCode(IntEnum):
    """The outcome of one slice."""

    OK = 0
    DUPLICATE = 1  # an idempotent retry; the offset is the original one
    NO_STREAM = 2  # the stream does not exist (any more)
    FULL = 3  # cap reached, and the topic rejects
    OUT_OF_ORDER = 4  # a gap in the producer's sequence
    PRODUCER_FENCED = 5  # an older producer epoch
    BROKER_FENCED = 6  # the proposing broker's epoch is over
    PRODUCER_UNKNOWN = 7  # a sequence that continues something the ledger does not know
    INVALID_TRANSACTION = 8  # no open transaction of this producer covers the stream, or one forbids it
    OVERTAKEN = 9  # copies that another broker appended first


@dataclass(slots=True)
class AppendOutcome:
    """The offsets of a run, one row a slice. `base` is -1 where the slice was refused."""

    base: npt.NDArray[np.int64]
    code: npt.NDArray[np.uint8]
