from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records.building import build_batch, build_plain
from mainstem.records.columns import RecordColumns, Spans, encode_columns
from mainstem.records.compression import CODECS, Codec
from mainstem.records.decoding import decode_records
from mainstem.records.header import SliceFacts, check_slice, walk
from mainstem.records.interpreted import build_lone

from .samples import NOW_MS, Sample, codecs, sample_lists


def _spans(values: Sequence[bytes | None]) -> Spans:
    """Spans with gaps between them, and back to front."""
    data, starts, lengths = b"", [], []
    for value in reversed(values):
        data += b"gap"
        starts.append(len(data))
        lengths.append(-1 if value is None else len(value))
        data += value or b""
    return Spans(
        np.frombuffer(data, np.uint8),
        np.array(starts[::-1], np.int64),
        np.array(lengths[::-1], np.int64),
    )


def _columns(records: list[Sample]) -> RecordColumns:
    headers = [header for r in records for header in r.headers]
    return RecordColumns(
        values=_spans([r.value for r in records]),
        timestamps_ms=np.array([r.timestamp_ms for r in records], np.int64),
        keys=_spans([r.key for r in records]),
        header_counts=np.array([len(r.headers) for r in records], np.int64),
        header_names=_spans([name.encode() for name, _ in headers]),
        header_values=_spans([content for _, content in headers]),
    )


@given(records=sample_lists, codec=codecs)
@settings(max_examples=100, deadline=None)
def test_columns_and_values_give_the_same_bytes(records: list[Sample], codec: Codec) -> None:
    built = build_batch(
        [r.value for r in records],
        keys=[r.key for r in records],
        headers=[r.headers for r in records],
        timestamps_ms=[r.timestamp_ms for r in records],
        codec=codec,
    )
    assert encode_columns(_columns(records), codec=codec) == built


@pytest.mark.parametrize(
    "count", [1, 2, limits.INTERPRETED_RECORDS_MAX, limits.INTERPRETED_RECORDS_MAX + 1, 1000]
)
def test_one_time_for_all_is_each_records_time(count: int) -> None:
    values = [b"%d" % i for i in range(count)]
    batch = build_batch(values, timestamps_ms=NOW_MS)
    assert batch == build_batch(values, timestamps_ms=[NOW_MS] * count)
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in decode_records(batch)] == [
        (NOW_MS, None, value, ()) for value in values
    ]


@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("codec", CODECS)
def test_producer_fields_and_codec_stand_in_the_header(count: int, codec: Codec) -> None:
    batch = build_batch(
        [b"v"] * count,
        timestamps_ms=NOW_MS,
        codec=codec,
        producer=9,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
    )
    facts = check_slice(memoryview(batch), batch_bytes_max=1 << 20)
    assert facts == SliceFacts(count, 1, NOW_MS, 9, 2, 40, transactional=True, control=False)
    assert next(walk(batch)).codec_id == CODECS.index(codec)


def test_the_first_time_is_the_base_and_the_latest_the_maximum() -> None:
    times = [NOW_MS, NOW_MS - 1000, NOW_MS + 500, 0]
    header = next(walk(build_batch([b""] * 4, timestamps_ms=times)))
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 500)


@pytest.mark.parametrize("count", [2, 60])
def test_times_too_far_apart_are_refused(count: int) -> None:
    times = [-(1 << 62)] * (count - 1) + [1 << 62]
    with pytest.raises(InvalidBatch, match="too far apart"):
        build_batch([b""] * count, timestamps_ms=times)


@pytest.mark.parametrize("count", [1, 60])
def test_a_record_over_the_limit_is_refused(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 100)
    build_batch([b"x" * 90] * count, timestamps_ms=NOW_MS)
    with pytest.raises(TooLarge, match="100"):
        build_batch([b"x" * 101] * count, timestamps_ms=NOW_MS)


@pytest.mark.parametrize("count", [1, 60])
def test_a_batch_over_the_limit_is_refused(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(build_batch([b"x"] * count, timestamps_ms=NOW_MS))
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", size)
    build_batch([b"x"] * count, timestamps_ms=NOW_MS)
    with pytest.raises(TooLarge, match=f"the limit is {size}"):
        build_batch([b"xx"] * count, timestamps_ms=NOW_MS)


@pytest.mark.parametrize("count", [1, 60])
def test_what_could_not_be_unpacked_again_is_not_packed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_DECODED_BYTES_MAX", 1000)
    with pytest.raises(TooLarge, match="the limit is 1000"):
        build_batch([bytes(1000)] * count, timestamps_ms=NOW_MS, codec="zstd")


@pytest.mark.parametrize("count", [1, 60])
def test_too_many_headers_are_refused(count: int) -> None:
    headers = [[("h", None)] * (limits.HEADERS_PER_RECORD_MAX + 1)] + [[]] * (count - 1)
    with pytest.raises((InvalidBatch, TooLarge), match="headers"):
        build_batch([b""] * count, headers=headers, timestamps_ms=NOW_MS)


def test_too_many_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_RECORDS_MAX", 5)
    with pytest.raises(TooLarge, match="6 records in one batch: the limit is 5"):
        build_batch([b""] * 6, timestamps_ms=NOW_MS)


def test_nothing_is_no_batch() -> None:
    with pytest.raises(InvalidBatch, match="0 records"):
        build_batch([], timestamps_ms=NOW_MS)


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="1 keys for 2 values"):
        build_batch([b"", b""], keys=[b""], timestamps_ms=NOW_MS)
    with pytest.raises(InvalidBatch, match="3 timestamps for 2 values"):
        build_batch([b"", b""], timestamps_ms=[1, 2, 3])
    with pytest.raises(InvalidBatch, match="headers of 0 records for 2 values"):
        build_batch([b"", b""], headers=[], timestamps_ms=NOW_MS)
    with pytest.raises(InvalidBatch, match="different lengths"):
        encode_columns(RecordColumns(_spans([b"a", b"b"]), np.array([1], np.int64)))


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, 4), (3, 1), (4, 0), (1 << 62, 5), (0, -2)])
def test_a_span_outside_its_bytes_is_refused(start: int, length: int) -> None:
    spans = Spans(np.zeros(3, np.uint8), np.array([start], np.int64), np.array([length], np.int64))
    with pytest.raises(InvalidBatch, match="outside its bytes"):
        encode_columns(RecordColumns(spans, np.array([NOW_MS], np.int64)))


def test_a_field_too_wide_for_the_header_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="does not fit"):
        build_batch([b""], timestamps_ms=NOW_MS, producer=1, producer_epoch=1 << 15, base_sequence=0)


@pytest.mark.parametrize("length", [0, 1, 100, 127, 128, 2047, 2048, 70_000])
def test_a_lone_value_is_built_as_any_batch_of_one(length: int) -> None:
    value = b"v" * length
    assert build_lone(value, NOW_MS) == build_batch([value], timestamps_ms=NOW_MS)


_LENGTHS = [0, 1, 63, 64, 8191, 8192, 20_000]  # around those where a varint grows


@pytest.mark.parametrize("count", [1, 49, 64, 65, 8200])
@pytest.mark.parametrize("nulls", [False, True])
def test_plain_values_are_built_as_any_batch(count: int, nulls: bool) -> None:
    lengths = _LENGTHS if count < 100 else [0, 1, 63]
    values: list[bytes | None] = [bytes([i % 256]) * lengths[i % len(lengths)] for i in range(count)]
    if nulls:
        values[count // 2] = None
    assert build_plain(values, NOW_MS) == build_batch(values, timestamps_ms=NOW_MS)


def test_plain_values_over_a_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidBatch, match="at least one"):
        build_plain([], NOW_MS)
    with pytest.raises(TooLarge):
        build_plain([bytes(limits.BATCH_BYTES_MAX)] * 2, NOW_MS)
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 100)
    build_plain([b"x" * 93] * 60, NOW_MS)  # and 7 around it
    with pytest.raises(TooLarge, match="100"):
        build_plain([b"x" * 93] * 59 + [b"x" * 94], NOW_MS)
    monkeypatch.setattr(limits, "BATCH_DECODED_BYTES_MAX", 1000)
    with pytest.raises(TooLarge, match="the limit is 1000"):
        build_plain([b"x" * 90] * 60, NOW_MS)


def test_a_lone_value_over_the_limit_is_refused() -> None:
    with pytest.raises(TooLarge):
        build_lone(bytes(limits.BATCH_BYTES_MAX), NOW_MS)
