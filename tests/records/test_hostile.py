"""Records that lie: they decode the same everywhere or are refused everywhere, and nothing else happens."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records import kernels
from mainstem.records.arrow import decode_slices
from mainstem.records.building import build_batch
from mainstem.records.compiled import compiled, octets
from mainstem.records.compression import CODECS, Codec, compress
from mainstem.records.decoding import check_records, decode_records, record_sizes_and_times
from mainstem.records.header import HEADER_BYTES, seal
from mainstem.records.writing_kernels import write_varint

from .samples import NOW_MS, Sample, codecs, sample_lists

mutations = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)


def _with_records(section: bytes, count: int, codec: Codec = "none", **fields: int) -> bytearray:
    """A batch with any bytes at all for records."""
    return seal(
        bytearray(HEADER_BYTES) + compress(codec, section),
        attributes=CODECS.index(codec),
        last_offset_delta=fields.get("last_offset_delta", count - 1),
        base_timestamp=fields.get("base_timestamp", NOW_MS),
        max_timestamp=NOW_MS,
        count=count,
    )


def _outcome(batch: bytearray) -> object:
    """What the interpreted decoder makes of it."""
    try:
        return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decode_records(batch)]
    except (InvalidBatch, TooLarge) as error:
        return str(error)


def _compiled_outcome(batch: bytearray, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(limits, "INTERPRETED_RECORDS_MAX", -1)
    try:
        return [
            (
                row["offset"],
                row["timestamp"],
                row["key"],
                row["value"],
                tuple((h["key"], h["value"]) for h in row["headers"]),
            )
            for row in decode_slices([batch]).to_pylist()
        ]
    except (InvalidBatch, TooLarge) as error:
        return str(error)
    finally:
        monkeypatch.undo()


@given(section=st.binary(max_size=120), count=st.integers(1, 12))
@settings(max_examples=300, deadline=None)
def test_noise_for_records_ends_alike_interpreted_and_compiled(section: bytes, count: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        batch = _with_records(section, count)
        assert _compiled_outcome(batch, monkeypatch) == _outcome(batch)


@given(records=sample_lists, codec=codecs, edits=mutations)
@settings(max_examples=300, deadline=None)
def test_mutated_batches_end_alike_interpreted_and_compiled(
    records: list[Sample], codec: Codec, edits: list[tuple[int, int]]
) -> None:
    batch = build_batch(
        [r.value for r in records],
        keys=[r.key for r in records],
        headers=[r.headers for r in records],
        timestamps_ms=[r.timestamp_ms for r in records],
        codec=codec,
    )
    for at, byte in edits:
        batch[at % len(batch)] = byte
    with pytest.MonkeyPatch.context() as monkeypatch:
        compiled, interpreted = _compiled_outcome(batch, monkeypatch), _outcome(batch)
    # A changed length makes two faulty batches of one, and either decoder may meet the other fault first.
    assert compiled == interpreted or (isinstance(compiled, str) and isinstance(interpreted, str))


@given(section=st.binary(min_size=1, max_size=60), count=st.integers(1, 8), around=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_what_stands_around_the_records_is_never_read(section: bytes, count: int, around: int) -> None:
    outcomes = []
    for fill in (0, around):
        data = bytes([fill]) * 16 + section + bytes([fill]) * 16
        batches = np.zeros((1, kernels.BATCH_FIELDS), np.int64)
        batches[0, kernels.SECTION_START] = 16
        batches[0, kernels.SECTION_END] = 16 + len(section)
        batches[0, kernels.COUNT] = count
        batches[0, kernels.LAST_DELTA] = count - 1
        index = np.zeros((kernels.RECORD_FIELDS, count), np.int64)
        status = compiled(kernels.index_records)(octets(data), batches, index, limits.HEADERS_PER_RECORD_MAX)
        outcomes.append((status, index.tolist()))
    assert outcomes[0] == outcomes[1]


def _zigzag(value: int) -> bytes:
    out = bytearray(10)
    return bytes(out[: write_varint(out, 0, value)])


def _record(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return _zigzag(len(body)) + body


NULL, ZERO, ATTRIBUTES = _zigzag(-1), _zigzag(0), b"\0"


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        (_record(ATTRIBUTES, ZERO, ZERO, _zigzag(-2), NULL, ZERO), kernels.BAD_LENGTH),
        (_record(ATTRIBUTES, ZERO, ZERO, _zigzag(1 << 40), NULL, ZERO), kernels.BAD_LENGTH),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, _zigzag((1 << 63) - 1), ZERO), kernels.BAD_LENGTH),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, _zigzag(2), b"x"), kernels.BAD_LENGTH),
        (_record(ATTRIBUTES, ZERO, _zigzag(1), NULL, NULL, ZERO), kernels.BAD_OFFSET),
        (_record(ATTRIBUTES, ZERO, _zigzag(-1), NULL, NULL, ZERO), kernels.BAD_OFFSET),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, _zigzag(-1)), kernels.BAD_HEADERS),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, _zigzag(1 << 33)), kernels.BAD_HEADERS),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, _zigzag(3), ZERO, ZERO), kernels.CUT_SHORT),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, _zigzag(1), NULL, ZERO), kernels.BAD_LENGTH),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, ZERO, b"x"), kernels.BYTES_LEFT),
        (_record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, ZERO) + b"x", kernels.BYTES_LEFT),
        (_record(ATTRIBUTES, _zigzag((1 << 63) - 1), ZERO, NULL, NULL, ZERO), kernels.BAD_TIMESTAMP),
        (_record(ATTRIBUTES, b"\xff" * 9 + b"\x02", ZERO, NULL, NULL, ZERO), kernels.BAD_VARINT),
        (_record(ATTRIBUTES, b"\x80" * 40), kernels.BAD_VARINT),
        (_zigzag(-5) + bytes(10), kernels.CUT_SHORT),
        (_zigzag((1 << 62) + 1) + bytes(10), kernels.CUT_SHORT),
    ],
)
def test_each_lie_is_named(section: bytes, fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = _with_records(section, 1)
    with pytest.raises(InvalidBatch, match=kernels.FAULTS[fault]):
        list(decode_records(batch))
    assert _compiled_outcome(batch, monkeypatch) == _outcome(batch)
    for read in (check_records, record_sizes_and_times):
        with pytest.raises(InvalidBatch, match=kernels.FAULTS[fault]):
            read(batch)


def test_offsets_that_do_not_rise_are_refused() -> None:
    twice = _record(ATTRIBUTES, ZERO, ZERO, NULL, NULL, ZERO) * 2
    with pytest.raises(InvalidBatch, match="do not rise"):
        list(decode_records(_with_records(twice, 2)))


@pytest.mark.parametrize("base", [-(1 << 63), -5, (1 << 63) - 1])
@pytest.mark.parametrize("delta", [-(1 << 63), (1 << 63) - 1, 3, -3])
def test_times_at_the_edge_are_right_or_refused(
    base: int, delta: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = _record(ATTRIBUTES, _zigzag(delta), ZERO, NULL, NULL, ZERO)
    batch = _with_records(section, 1, base_timestamp=base)
    assert _compiled_outcome(batch, monkeypatch) == _outcome(batch)
    if -(1 << 63) <= base + delta < 1 << 63:
        assert [r.timestamp_ms for r in decode_records(batch)] == [base + delta]
    else:
        with pytest.raises(InvalidBatch, match="64 bits"):
            list(decode_records(batch))


def test_a_count_beyond_the_unpacked_bytes_allocates_nothing() -> None:
    batch = _with_records(b"\0" * 70, limits.BATCH_RECORDS_MAX, "zstd")
    for read in (lambda b: list(decode_records(b)), lambda b: decode_slices([b]), check_records):
        with pytest.raises(InvalidBatch, match="too many for 70 bytes"):
            read(batch)


def test_header_names_that_are_not_text_are_replaced_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    name = b"a\xff"
    record = _record(
        ATTRIBUTES, ZERO, ZERO, NULL, NULL, _zigzag(2), _zigzag(2), name, NULL, _zigzag(1), b"\x80", ZERO
    )
    batch = _with_records(record, 1)
    assert _outcome(batch) == [(0, NOW_MS, None, None, (("a�", None), ("�", b"")))]
    assert _compiled_outcome(batch, monkeypatch) == _outcome(batch)


def test_a_character_cut_between_two_header_names_is_not_taken_for_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    record = _record(
        ATTRIBUTES, ZERO, ZERO, NULL, NULL, _zigzag(2), _zigzag(1), first, NULL, _zigzag(1), second, NULL
    )
    assert _compiled_outcome(_with_records(record, 1), monkeypatch) == [
        (0, NOW_MS, None, None, (("�", None), ("�", None)))
    ]


def test_more_headers_than_one_call_may_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch([b""] * 60, headers=[[("h", None)] * 10] * 60, timestamps_ms=NOW_MS)
    monkeypatch.setattr("mainstem.records.index.HEADERS_PER_DECODE_MAX", 599)
    with pytest.raises(TooLarge, match="600 record headers"):
        decode_slices([batch])


def test_a_header_length_field_cannot_be_trusted_either() -> None:
    batch = build_batch([b"x"], timestamps_ms=NOW_MS)
    struct.pack_into(">i", batch, 8, (1 << 31) - 1)
    for read in (lambda b: list(decode_records(b)), lambda b: decode_slices([b])):
        with pytest.raises(InvalidBatch, match="batchLength"):
            read(batch)
