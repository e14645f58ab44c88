from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.errors import CorruptBatch, InvalidBatch, TooLarge
from mainstem.records.building import build_batch
from mainstem.records.header import HEADER_BYTES, SliceFacts, check_slice, crc_matches, stamp, walk

from .samples import AIOKAFKA, NOW_MS, Sample


def _batch(records: int = 3, **options: int) -> bytearray:
    return build_batch([b"v%d" % i for i in range(records)], timestamps_ms=NOW_MS, **options)  # type: ignore[arg-type]


def _edit(batch: bytearray, at: int, layout: str, value: int) -> bytearray:
    """Change a header field and make the CRC right again."""
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def _check(batch: bytes | bytearray, batch_bytes_max: int = 1 << 20) -> object:
    return check_slice(memoryview(batch), batch_bytes_max=batch_bytes_max)


def test_facts_sum_over_the_batches_of_a_slice() -> None:
    later = build_batch([b"x"], timestamps_ms=NOW_MS + 9)
    facts = check_slice(memoryview(later + _batch(3) + _batch(60)), batch_bytes_max=1 << 20)
    assert facts == SliceFacts(64, 3, NOW_MS + 9, -1, -1, -1, transactional=False, control=False)


def test_producer_fields_are_those_of_an_independent_encoder() -> None:
    batch = AIOKAFKA.encode(
        [Sample(NOW_MS, None, b"v", ())],
        "none",
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        is_transactional=1,
    )
    assert _check(batch) == SliceFacts(1, 1, NOW_MS, 77, 3, 12, transactional=True, control=False)
    ours = build_batch(
        [b"v"], timestamps_ms=NOW_MS, producer=77, producer_epoch=3, base_sequence=12, transactional=True
    )
    assert _check(ours) == _check(batch)


def test_control_batches_are_told_apart() -> None:
    assert check_slice(memoryview(_edit(_batch(), 21, ">h", 0x20)), batch_bytes_max=1 << 20).control


@pytest.mark.parametrize(
    ("at", "layout", "value", "named"),
    [
        (16, ">b", 1, "magic is 1"),
        (8, ">i", 48, "batchLength is 48"),
        (8, ">i", -1, "batchLength is -1"),
        (8, ">i", 1 << 30, "batchLength is 1073741824"),
        (57, ">i", 2, "recordsCount is 2"),
        (57, ">i", 0, "recordsCount is 0"),
        (57, ">i", -1, "recordsCount is -1"),
        (23, ">i", 5, "lastOffsetDelta is 5"),
        (23, ">i", (1 << 31) - 1, "lastOffsetDelta"),
        (21, ">h", 5, "codec 5"),
        (21, ">h", 7, "codec 7"),
        (21, ">h", 0x10, "producerId is -1"),
        (43, ">q", -2, "producerId is -2"),
        (43, ">q", 5, "producerEpoch is -1"),
    ],
)
def test_a_bad_field_is_refused_by_name(at: int, layout: str, value: int, named: str) -> None:
    with pytest.raises(InvalidBatch, match=named):
        _check(_edit(_batch(), at, layout, value))


def test_a_producer_needs_a_sequence() -> None:
    with pytest.raises(InvalidBatch, match="baseSequence is -1"):
        _check(_batch(producer=5, producer_epoch=0))


def test_more_records_than_the_bytes_can_hold_are_refused() -> None:
    batch = _edit(_edit(_batch(1), 57, ">i", 1000), 23, ">i", 999)
    with pytest.raises(InvalidBatch, match="too many for"):
        _check(batch)


def test_more_records_than_the_limit_are_refused() -> None:
    count = limits.BATCH_RECORDS_MAX + 1
    batch = _edit(_edit(_batch(1), 57, ">i", count), 23, ">i", count - 1)
    with pytest.raises(TooLarge, match=str(limits.BATCH_RECORDS_MAX)):
        _check(batch)


def test_the_size_limit_is_inclusive() -> None:
    batch = _batch()
    _check(batch, len(batch))
    with pytest.raises(TooLarge, match=f"{len(batch)} bytes: the limit is {len(batch) - 1}"):
        _check(batch, len(batch) - 1)


def test_any_flipped_bit_under_the_checksum_is_corruption() -> None:
    batch = _batch()
    for at in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptBatch):
            _check(damaged)


def test_an_idempotent_slice_is_a_single_batch() -> None:
    idempotent = _batch(producer=5, producer_epoch=0, base_sequence=0)
    _check(idempotent)
    for buf in (idempotent + idempotent, idempotent + _batch(), _batch() + idempotent):
        with pytest.raises(InvalidBatch, match="single batch"):
            _check(buf)


def test_a_slice_is_a_whole_number_of_batches() -> None:
    whole = _batch() + _batch()
    for cut in (0, 1, HEADER_BYTES, len(whole) // 2 + 1, len(whole) - 1):
        with pytest.raises(InvalidBatch):
            _check(whole[:cut])
    with pytest.raises(InvalidBatch):
        _check(whole + b"\0")


def test_stamping_numbers_batches_in_a_row_and_keeps_them_valid() -> None:
    buf = _batch(3) + _batch(1) + _batch(50)
    assert stamp(buf, 1000, 7) == 1054
    _check(buf)
    headers = list(walk(buf))
    assert [(h.base_offset, h.next_offset, h.count, h.leader_epoch) for h in headers] == [
        (1000, 1003, 3, 7),
        (1003, 1004, 1, 7),
        (1004, 1054, 50, 7),
    ]
    assert [h.position for h in headers] == [0, headers[0].end, headers[1].end]
    assert headers[2].end == len(buf)
    assert stamp(memoryview(buf), 0, 0) == 54


@pytest.mark.parametrize("length", [-13, -12, 0, 48])
def test_stamping_never_stands_still(length: int) -> None:
    with pytest.raises(InvalidBatch):
        stamp(_edit(_batch(), 8, ">i", length), 0, 0)


def test_stored_batches_may_have_holes() -> None:
    holed = _edit(_batch(3), 57, ">i", 2)
    assert [h.count for h in walk(holed)] == [2]
    with pytest.raises(InvalidBatch, match="recordsCount is 4"):
        list(walk(_edit(_batch(3), 57, ">i", 4)))


def test_offsets_at_the_end_of_their_range_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="baseOffset"):
        list(walk(_edit(_batch(3), 0, ">q", (1 << 63) - 2)))
    with pytest.raises(InvalidBatch, match="baseOffset"):
        list(walk(_edit(_batch(3), 0, ">q", -1)))


def test_the_checksum_of_a_stored_batch_can_be_asked_for() -> None:
    buf = _batch(1) + _batch(2)
    first, second = walk(buf)
    buf[-1] ^= 1
    assert crc_matches(memoryview(buf), first)
    assert not crc_matches(memoryview(buf), second)


@given(data=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_noise_is_never_a_slice(data: bytes) -> None:
    with pytest.raises((InvalidBatch, TooLarge)):
        _check(data)
