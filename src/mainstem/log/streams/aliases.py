"""Reading aliases: the bytes of another stream, with the offsets and the time of this stream.

The batches of a copy are stored once, where they were written. A read stamps them with the copy's offsets, one time for
all records (LogAppendTime), no producer and no transaction: those belong to the original. Of a batch that was copied
only in part, the copied records are encoded again.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from mainstem import limits
from mainstem.ledger.aliases import Aliases, AliasRun
from mainstem.log.read.extents import Extent
from mainstem.log.read.index import ExtentIndex
from mainstem.records.building import build_batch
from mainstem.records.compression import CODECS
from mainstem.records.decoding import decode_records
from mainstem.records.header import CODEC_MASK, LOG_APPEND_TIME, BatchHeader, seal, walk


class CopySource(NamedTuple):
    """An extent of the original stream, and the alias run that needs it."""

    run: AliasRun
    extent: Extent

    @property
    def first(self) -> int:
        """The first offset of the copy in this extent."""
        return self.run.base + max(0, self.extent.base - self.run.origin_base)

    @property
    def end(self) -> int:
        return self.run.base + min(self.run.count, self.extent.end - self.run.origin_base)


class CopyBytesMissing(Exception):
    """No object has the bytes of the copied offsets [first, end)."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(first, end)
        self.first = first
        self.end = end


def sources(
    index: ExtentIndex, aliases: Aliases, stream: int, offset: int, max_bytes: int, end: int
) -> list[CopySource]:
    """The extents that hold the copied records from `offset` on: consecutive ones in one object, at least one whatever
    its size; empty where there are no copies. Raises NotLoaded, CopyBytesMissing."""
    found: list[CopySource] = []
    total = 0
    for run in aliases.between(stream, offset, end):
        if found and run.base != found[-1].end:
            break
        at, shift = run.origin_base, run.base - run.origin_base
        while at < run.origin_base + run.count:
            extent = next(iter(index.find(run.origin, at, 1, limits.OFFSET_MAX)), None)
            if extent is None or extent.base > at:
                if found:
                    return found
                gone = run.end if extent is None else min(run.end, extent.base + shift)
                raise CopyBytesMissing(at + shift, gone)
            if found and (extent.object != found[0].extent.object or total + extent.length > max_bytes):
                return found
            found.append(CopySource(run, extent))
            total += extent.length
            at = extent.end
    return found


def restamped(source: CopySource, slice: memoryview, leader_epoch: int) -> memoryview:
    """The copied records of an extent's slice, as batches of their own."""
    run = source.run
    first = run.origin_base + source.first - run.base
    last = run.origin_base + source.end - run.base
    shift = run.base - run.origin_base
    made = bytearray()
    for header in walk(slice):
        if header.next_offset <= first or header.base_offset >= last or header.control:
            continue
        batch = slice[header.position : header.end]
        if first <= header.base_offset and header.next_offset <= last:
            made += _whole(header, batch, shift, run.time_ms, leader_epoch)
        else:
            made += _part(header, batch, (first, last), shift, run.time_ms, leader_epoch)
    return memoryview(made).toreadonly()


def _whole(header: BatchHeader, batch: memoryview, shift: int, time_ms: int, leader_epoch: int) -> bytearray:
    return seal(
        bytearray(batch),
        base_offset=header.base_offset + shift,
        leader_epoch=leader_epoch,
        attributes=header.attributes & CODEC_MASK | LOG_APPEND_TIME,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=time_ms,
        count=header.count,
    )


def _part(
    header: BatchHeader,
    batch: memoryview,
    wanted: tuple[int, int],
    shift: int,
    time_ms: int,
    leader_epoch: int,
) -> bytearray:
    """The records of a range, one batch for each run of adjacent offsets: these batches have no gaps."""
    records = [record for record in decode_records(batch, wanted[0]) if record.offset < wanted[1]]
    made = bytearray()
    for _, adjacent in groupby(enumerate(records), key=lambda pair: pair[1].offset - pair[0]):
        kept = [record for _, record in adjacent]
        part = build_batch(
            [record.value for record in kept],
            keys=[record.key for record in kept],
            headers=[record.headers for record in kept],
            timestamps_ms=time_ms,
            codec=CODECS[header.codec_id],
        )
        (built,) = walk(part)
        made += seal(
            part,
            base_offset=kept[0].offset + shift,
            leader_epoch=leader_epoch,
            attributes=built.attributes | LOG_APPEND_TIME,
            last_offset_delta=built.last_offset_delta,
            base_timestamp=time_ms,
            max_timestamp=time_ms,
            count=built.count,
        )
    return made
