"""Record batches for tests, and what is in them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mainstem import limits
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import SliceFacts, check_slice

TIME_MS = 1_700_000_000_000


def batch(*values: bytes, times: int | Sequence[int] = TIME_MS) -> tuple[bytearray, SliceFacts]:
    """One batch, with the facts an append of it needs."""
    return with_facts(build_batch(values, timestamps_ms=times))


def batches(*groups: Sequence[bytes], times: int | Sequence[int] = TIME_MS) -> tuple[bytearray, SliceFacts]:
    """Several batches in one slice."""
    return with_facts(bytearray(b"".join(build_batch(values, timestamps_ms=times) for values in groups)))


def with_facts(slice: bytearray) -> tuple[bytearray, SliceFacts]:
    return slice, check_slice(memoryview(slice), batch_bytes_max=limits.BATCH_BYTES_MAX)


def produced(
    producer: int, sequence: int, *values: bytes, epoch: int = 0, times: int | Sequence[int] = TIME_MS
) -> bytearray:
    """One batch of an idempotent producer."""
    return build_batch(
        values, timestamps_ms=times, producer=producer, producer_epoch=epoch, base_sequence=sequence
    )


def records_of(slices: Iterable[memoryview], offset: int = 0) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from `offset` on."""
    return [
        (record.offset, record.value or b"") for slice in slices for record in decode_records(slice, offset)
    ]
