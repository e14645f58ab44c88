"""Batches whose checksum is right and whose records cannot be decoded: readers pass them, and name their offsets.

A producer can send such a batch: the checksum covers whatever it sent. It stays as it is, for clients that get batches
undecoded; who decodes treats its offsets as lost, for the reason `UNDECODABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mainstem.errors import InvalidBatch, RecordsLost, TooLarge
from mainstem.records.header import BatchHeader, walk
from mainstem.records.index import index_batch

UNDECODABLE = "undecodable"  # the reason of the loss
FAULTS = (InvalidBatch, TooLarge)  # what decoding raises

_T = TypeVar("_T")


def decodable(batches: Sequence[memoryview], offset: int) -> tuple[tuple[memoryview, ...], int]:
    """The batches from `offset` on, up to the first that cannot be decoded, and the offset after them. One at most if
    each can be decoded, but not all of them at once. For batches that could not be decoded: it decodes each by itself.

    Raises RecordsLost if the first one cannot be decoded."""
    first: BatchHeader | None = None
    kept: list[memoryview] = []
    for slice in batches:
        for header in walk(slice):
            if header.control or header.next_offset <= offset:
                continue
            if not _decodes(slice, header):
                if header.base_offset <= offset or (first is None and not kept):
                    raise RecordsLost(max(offset, header.base_offset), header.next_offset, UNDECODABLE)
                before = [*kept, slice[: header.position]]
                return tuple(filter(len, before)), header.base_offset
            if first is None:
                first, alone = header, slice[header.position : header.end]
        kept.append(slice)
    if first is None:
        return (), offset
    return (alone,), first.next_offset


def decoded(
    batches: Sequence[memoryview], offset: int, next_offset: int, decode: Callable[[Sequence[memoryview]], _T]
) -> tuple[_T, int]:
    """What `decode` makes of the batches, and the offset after what it decoded: `next_offset`, or less where a batch
    cannot be decoded. Raises RecordsLost if that is the first one."""
    try:
        return decode(batches), next_offset
    except FAULTS:
        some, reached = decodable(batches, offset)
        return decode(some), reached


def _decodes(slice: memoryview, header: BatchHeader) -> bool:
    try:
        index_batch(slice, header)
    except FAULTS:
        return False
    return True
