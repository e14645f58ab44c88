"""Positions of every record in some batches, as arrays: the basis of decoding, lookup and rewriting."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records import kernels
from mainstem.records.compiled import compiled, octets
from mainstem.records.compression import CODECS, decompress
from mainstem.records.header import HEADER_BYTES, RECORD_BYTES_MIN, BatchHeader, walk

HEADERS_PER_DECODE_MAX = 8 * limits.MIB  # headers decoded by one call, which bounds its memory
DECODE_CALL_BYTES = 4 * limits.MIB  # record bytes decoded by one kernel call; a larger batch goes alone
DECODE_CALL_RECORDS = 64 * limits.KIB  # records decoded by one kernel call; a larger batch goes alone
COPIED_BYTES_MAX = 256 * limits.KIB  # in one step, under Python's lock
DECODE_CALL_BATCHES = 16 * limits.KIB  # batches decoded by one kernel call

Buffer = bytes | bytearray | memoryview
Integers = npt.NDArray[np.int64]
R = TypeVar("R")

_MANY_BATCHES = 32


def _no_batches() -> Integers:
    return np.empty((0, kernels.BATCH_FIELDS), np.int64)


@dataclass
class RecordIndex:
    """Records of some batches: rows as named in `kernels`, one column a record."""

    data: memoryview  # what the positions refer to: decompressed record sections
    fields: Integers
    headers: int  # of all records
    batches: Integers = field(default_factory=_no_batches)  # the batch table, as named in `kernels`

    @cached_property
    def octets(self) -> npt.NDArray[np.uint8]:
        return octets(self.data)

    def run(self, kernel: Callable[..., R], *arguments: object) -> R:
        """Call a kernel on the data: interpreted for few records, compiled for more."""
        if len(self) <= limits.INTERPRETED_RECORDS_MAX:
            return kernel(self.data, *arguments)
        return compiled(kernel)(self.octets, *arguments)

    def __len__(self) -> int:
        return int(self.fields.shape[1])


def copied(data: bytes | memoryview, at: int, length: int) -> bytes:
    """A slice. A large one in pieces, which `join` then copies without Python's lock: copying 64 MiB under the lock
    stops the event loop for 40 ms."""
    if length <= COPIED_BYTES_MAX:
        return bytes(data[at : at + length])
    end = at + length
    return b"".join(
        [bytes(data[here : min(here + COPIED_BYTES_MAX, end)]) for here in range(at, end, COPIED_BYTES_MAX)]
    )


def section(
    data: memoryview, header: BatchHeader, decoded_max: int = limits.BATCH_DECODED_BYTES_MAX
) -> memoryview:
    """The records of a batch, decompressed. Raises TooLarge if that is more than `decoded_max` bytes."""
    stored = data[header.records_at : header.end]
    if header.codec_id:
        codec = CODECS[header.codec_id]
        stored = memoryview(decompress(codec, stored, decoded_max))
    # Checked before allocating memory for the records: the declared count can be anything.
    if header.count * RECORD_BYTES_MIN > len(stored):
        raise InvalidBatch(f"recordsCount is {header.count}, too many for {len(stored)} bytes")
    return stored


def index_slices(
    buffers: Sequence[Buffer], *, control: bool = False, decoded_max: int = limits.BATCH_DECODED_BYTES_MAX
) -> Iterator[RecordIndex]:
    """Index the batches of some buffers in bounded steps. Includes transaction markers only with `control`.

    Raises TooLarge for a compressed batch of more than `decoded_max` bytes."""
    pending: list[_IndexedBatch] = []
    size = records = 0
    for buffer in buffers:
        data = memoryview(buffer).cast("B")
        at = 0
        if not control and _has_many_batches(data):
            if pending:
                yield _index(pending)
                pending, size, records = [], 0, 0
            at = yield from _index_plain_run(data)
        for header in walk(data, at):
            if header.control and not control:
                continue
            unpacked = section(data, header, decoded_max)
            if pending and (
                size + len(unpacked) > DECODE_CALL_BYTES or records + header.count > DECODE_CALL_RECORDS
            ):
                yield _index(pending)
                pending, size, records = [], 0, 0
            pending.append(_IndexedBatch(data, header, unpacked))
            size += len(unpacked)
            records += header.count
    if pending:
        yield _index(pending)


def _has_many_batches(data: memoryview) -> bool:
    """Whether, judging by the first batch, there are enough batches for a compiled kernel to list them."""
    if len(data) < _MANY_BATCHES * HEADER_BYTES:
        return False
    first = next(walk(data), None)
    return first is not None and first.length * _MANY_BATCHES < len(data)


def _index_plain_run(data: memoryview) -> Generator[RecordIndex, None, int]:
    """Index the uncompressed batches at the start of the buffer. Returns the position after them."""
    array = octets(data)
    at = 0
    while True:
        table = np.empty((DECODE_CALL_BATCHES, kernels.BATCH_FIELDS), np.int64)
        rows, records, end = compiled(kernels.list_plain_batches)(
            array,
            at,
            len(data),
            table,
            limits.BATCH_RECORDS_MAX,
            DECODE_CALL_RECORDS,
            DECODE_CALL_BYTES,
        )
        if rows:
            yield _index_table(data, table[:rows], records)
        if end == at:
            return at
        at = end


def index_batch(data: memoryview, header: BatchHeader) -> RecordIndex:
    """Index one batch."""
    return _index([_IndexedBatch(data, header, section(data, header))])


class _IndexedBatch(NamedTuple):
    data: memoryview  # the buffer that contains it
    header: BatchHeader
    section: memoryview  # its records, decompressed


def _index(batches: list[_IndexedBatch]) -> RecordIndex:
    data, table = _lay_out(batches)
    return _index_table(data, table, sum(batch.header.count for batch in batches))


def _index_table(data: memoryview, table: Integers, count: int) -> RecordIndex:
    index = RecordIndex(data, np.empty((kernels.RECORD_FIELDS, count), np.int64), 0, table)
    status, detail = index.run(kernels.index_records, table, index.fields, limits.HEADERS_PER_RECORD_MAX)
    if status < 0:
        offset = table[detail, kernels.BASE_OFFSET]
        raise InvalidBatch(f"{kernels.FAULTS[status]} (in the batch at offset {offset})")
    if detail > HEADERS_PER_DECODE_MAX:
        raise TooLarge(f"{detail} record headers at once: the limit is {HEADERS_PER_DECODE_MAX}")
    index.headers = detail
    return index


def _lay_out(batches: list[_IndexedBatch]) -> tuple[memoryview, Integers]:
    """The record sections as one buffer, and the batch table that refers to it."""
    buffer = batches[0].data
    in_place = all(batch.data is buffer and not batch.header.codec_id for batch in batches)
    rows = []
    at = 0
    for _, header, unpacked in batches:
        if in_place:
            at = header.records_at
        rows.append(
            (
                at,
                at + len(unpacked),
                header.count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                header.max_timestamp,
                header.log_append_time,
            )
        )
        at += len(unpacked)
    if in_place:
        data = buffer
    elif len(batches) == 1:
        data = batches[0].section
    else:
        data = memoryview(b"".join(batch.section for batch in batches))
    return data, np.array(rows, np.int64)
