"""Transactions as readers see them.

Every door except Kafka's sees only committed records. Kafka clients filter transactions themselves: they get every
batch, and for each marker a control batch, which is built here since none is stored.

A control batch holds one record, big-endian:

| part  | field             | type | meaning             |
|-------|-------------------|------|---------------------|
| key   | version           | i2   | 0                   |
|       | type              | i2   | 0 abort, 1 commit   |
| value | version           | i2   | 0                   |
|       | coordinator epoch | i4   | always 0            |
"""

from __future__ import annotations

import struct
from enum import Enum

from mainstem.ledger.markers import Marker
from mainstem.ledger.streams import Streams
from mainstem.log.read.extents import Extent
from mainstem.records.header import CONTROL, HEADER_BYTES, TRANSACTIONAL, seal

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_COORDINATOR_EPOCH = 0
# The record around them: its length, no attributes, both deltas 0, the lengths of key and value, no headers.
_BEFORE_KEY = bytes((2 * (4 + 1 + _KEY.size + 1 + _VALUE.size), 0, 0, 0, 2 * _KEY.size))
_BEFORE_VALUE = bytes((2 * _VALUE.size,))
_AFTER_VALUE = b"\0"

CONTROL_BATCH_BYTES = (
    HEADER_BYTES + len(_BEFORE_KEY) + _KEY.size + len(_BEFORE_VALUE) + _VALUE.size + len(_AFTER_VALUE)
)


class View(Enum):
    COMMITTED = "records, without those of open and aborted transactions"
    STORED = "every batch, whatever becomes of its transaction, and the markers"


def control_batch(marker: Marker, leader_epoch: int) -> memoryview:
    """The control batch for the end of a transaction."""
    batch = bytearray(HEADER_BYTES)
    batch += _BEFORE_KEY + _KEY.pack(_VERSION, marker.committed)
    batch += _BEFORE_VALUE + _VALUE.pack(_VERSION, _COORDINATOR_EPOCH) + _AFTER_VALUE
    seal(
        batch,
        base_offset=marker.offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=marker.time_ms,
        max_timestamp=marker.time_ms,
        producer=marker.producer,
        producer_epoch=marker.epoch,
        count=1,
    )
    return memoryview(batch).toreadonly()


def committed_extents(streams: Streams, stream: int, extents: list[Extent]) -> list[Extent]:
    """The extents that hold a record: a slice of an aborted transaction is aborted as a whole."""
    start, holes = streams.start(stream), streams.holes(stream)
    return [
        extent
        for extent in extents
        if holes.covered(max(start, extent.base), extent.end) < extent.end - max(start, extent.base)
    ]


def with_markers(
    streams: Streams,
    stream: int,
    offset: int,
    extents: list[Extent],
    batches: list[memoryview],
    end: int,
    leader_epoch: int,
) -> tuple[list[memoryview], int]:
    """Insert control batches among `batches` (one per extent), and after them while markers follow directly. Returns
    the batches from `offset` on, and the next offset."""
    merged: list[memoryview] = []
    at = offset
    for extent, batch in zip(extents, batches, strict=True):
        merged += [
            control_batch(one, leader_epoch) for one in streams.transactions.markers(stream, at, extent.base)
        ]
        merged.append(batch)
        at = extent.end
    for marker in streams.transactions.markers(stream, at, end):
        if marker.offset != at and extents:
            break
        merged.append(control_batch(marker, leader_epoch))
        at = marker.offset + 1
    return merged, at
