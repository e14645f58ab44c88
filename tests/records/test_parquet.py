"""Records through Parquet and back are the records that were written."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.errors import LogDamaged, NewerVersion
from mainstem.records.building import build_batch
from mainstem.records.columns import RecordColumns, Spans, encode_columns
from mainstem.records.compiled import octets
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import walk
from mainstem.records.parquet import RowFile, RowFileWriter, stored_schema
from mainstem.records.rebatching import encode_rows
from mainstem.records.rewrite import with_append_time, without_offsets
from mainstem.records.rows import FIELD_ID, days, decode_rows, row_schema, table_schema

from .samples import NOW_MS, Sample, blobs, codecs, samples, stamped

TOPIC_ID = bytes(range(16))

far_times = st.one_of(
    st.integers(NOW_MS - 5, NOW_MS + 5),
    st.integers(-5, 5),
    st.sampled_from([-(1 << 63), (1 << 63) - 1, -62_135_596_800_001, 253_402_300_800_000, -1]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


@st.composite
def slices(draw: st.DrawFn) -> list[bytearray]:
    """Stamped batches with gaps between and inside them, of both kinds of time."""
    made = []
    at = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 4))):
        records = draw(st.lists(samples, min_size=1, max_size=8))
        first = draw(far_times)
        near = st.integers(max(-(1 << 63), first - 9), min((1 << 63) - 1, first + 9))
        batch = build_batch(
            [r.value for r in records],
            keys=[r.key for r in records],
            headers=[r.headers for r in records],
            timestamps_ms=[first, *(draw(near) for _ in records[1:])],
            codec=draw(codecs),
        )
        if draw(st.booleans()):
            batch = with_append_time(memoryview(batch), draw(far_times))
        stamped(batch, at)
        gone = draw(st.sets(st.integers(at, at + len(records) - 1)))
        left = without_offsets(memoryview(batch), np.array(sorted(gone), np.int64))
        if left is not None:
            made.append(left)
        at += len(records) + draw(st.integers(0, 1 << 33))
    return made


def _table(buffers: Sequence[bytes | bytearray], partition: int = 3) -> pa.Table:
    return pa.Table.from_batches(list(decode_rows(buffers, partition)), row_schema())


def _file(rows: pa.Table, row_group_rows: int = 1 << 20) -> bytes:
    sink = io.BytesIO()
    writer = RowFileWriter(sink, stored_schema(rows), topic_id=TOPIC_ID, partition=3)
    for start in range(0, rows.num_rows, row_group_rows):
        writer.write(rows.slice(start, row_group_rows))
    writer.close()
    return sink.getvalue()


def _read(data: bytes, from_offset: int = 0, to_offset: int = limits.OFFSET_MAX) -> pa.Table:
    file = RowFile(pa.BufferReader(data))
    return pa.Table.from_batches(list(file.rows(from_offset, to_offset)), row_schema())


def _records(buffers: Sequence[bytes | bytearray]) -> list[StoredRecord]:
    return [record for buffer in buffers for record in decode_records(buffer)]


def _kinds(buffers: Sequence[bytes | bytearray]) -> dict[int, bool]:
    """Of each offset, whether its time is LogAppendTime."""
    return {
        record.offset: header.log_append_time
        for buffer in buffers
        for header in walk(memoryview(buffer))
        for record in decode_records(buffer[header.position : header.end])
    }


@settings(max_examples=120, deadline=None)
@given(slices(), st.integers(1, 5), codecs)
def test_records_come_back_from_parquet_as_they_were(
    buffers: list[bytearray], row_group_rows: int, codec: str
) -> None:
    rows = _read(_file(_table(buffers), row_group_rows))
    batches = encode_rows(rows, codec=codec)  # type: ignore[arg-type]
    assert _records(batches) == _records(buffers)
    assert _kinds(batches) == _kinds(buffers)


@settings(max_examples=60, deadline=None)
@given(slices(), st.integers(0, 60), st.integers(0, 60))
def test_a_range_of_offsets_is_read_alone(buffers: list[bytearray], skip: int, take: int) -> None:
    records = _records(buffers)
    offsets = [record.offset for record in records] or [0]
    first = offsets[min(skip, len(offsets) - 1)]
    last = offsets[min(skip + take, len(offsets) - 1)]
    found = _read(_file(_table(buffers), 3), first, last)["_offset"].to_pylist()
    assert found == [record.offset for record in records if first <= record.offset < last]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.tuples(st.binary(max_size=5), blobs), max_size=3)), min_size=1, max_size=9)
)
def test_header_names_that_are_not_text_come_back_exactly(
    drawn: list[tuple[list[tuple[bytes, bytes | None]]]],
) -> None:
    headers = [record[0] for record in drawn]
    rows = _read(_file(_table([_raw_headers(headers)])))
    again = b"".join(encode_rows(rows))
    assert again == bytes(_raw_headers(headers))
    shown = [name for record in rows["_headers"].to_pylist() for name in (h["key"] for h in record)]
    assert shown == [name.decode("utf-8", "replace") for record in headers for name, _ in record]


def _raw_headers(headers: list[list[tuple[bytes, bytes | None]]]) -> bytearray:
    count = len(headers)
    names = [name for record in headers for name, _ in record]
    contents = [content for record in headers for _, content in record]
    batch = encode_columns(
        RecordColumns(
            _spans([b"v"] * count),
            np.full(count, NOW_MS),
            header_counts=np.array([len(record) for record in headers], np.int64),
            header_names=_spans(names),
            header_values=_spans(contents),
        )
    )
    return stamped(batch, 7) and _with_epoch(batch)


def _with_epoch(batch: bytearray) -> bytearray:
    batch[12:16] = (-1).to_bytes(4, "big", signed=True)  # as it is before anybody stamps it
    return batch


def _spans(values: list[bytes | None]) -> Spans:
    lengths = np.array([-1 if v is None else len(v) for v in values], np.int64)
    taken = np.maximum(lengths, 0)
    return Spans(octets(b"".join(v or b"" for v in values)), np.cumsum(taken) - taken, lengths)


def _plain(count: int, base: int = 0, *, time: int = NOW_MS, size: int = 10) -> bytearray:
    return stamped(build_batch([b"%0*d" % (size, i) for i in range(count)], timestamps_ms=time), base)


def test_a_file_of_plain_records_has_the_columns_of_a_table_and_no_others() -> None:
    data = _file(_table([_plain(5)]))
    schema = pq.read_schema(pa.BufferReader(data))
    assert schema.names == table_schema().names
    ids = [int(field.metadata[FIELD_ID]) for field in schema]
    header = schema.field("_headers").type.value_field
    ids += [int(f.metadata[FIELD_ID]) for f in (header, *header.type)]
    assert ids == list(range(1, 10))
    assert [field.nullable for field in schema] == [False, False, False, True, True, True]


def test_a_file_says_what_is_in_it() -> None:
    file = RowFile(pa.BufferReader(_file(_table([_plain(5, base=40), _plain(2, base=90)]), 3)))
    facts = file.facts
    assert (facts.version, facts.topic_id, facts.partition) == (1, TOPIC_ID.hex(), 3)
    assert (facts.base, facts.end, len(file)) == (40, 92, 7)


def test_times_outside_the_calendar_are_shown_as_its_ends_and_kept_exactly() -> None:
    times = [-(1 << 62), NOW_MS, 1 << 62]
    rows = _table([stamped(build_batch([b"v"], timestamps_ms=t), i) for i, t in enumerate(times)])
    assert [t.year for t in rows["_timestamp"].to_pylist()] == [1, 2023, 9999]
    again = _read(_file(rows))
    assert [r.timestamp_ms for r in _records(encode_rows(again))] == times


def test_days_are_those_of_utc_before_1970_too() -> None:
    times = [-1, 0, 86_399_999, 86_400_000, -86_400_000, -86_400_001]
    rows = _table([stamped(build_batch([b"v"], timestamps_ms=t), i) for i, t in enumerate(times)])
    assert days(rows).tolist() == [-1, 0, 0, 1, -1, -2]


def test_an_override_is_the_append_time_of_every_record() -> None:
    rows = pa.Table.from_batches(decode_rows([_plain(3)], 0, timestamp_ms=NOW_MS + 9), row_schema())
    batches = encode_rows(rows)
    assert [r.timestamp_ms for r in _records(batches)] == [NOW_MS + 9] * 3
    assert set(_kinds(batches).values()) == {True}


def test_batches_are_cut_at_the_size_asked_for_and_never_inside_a_record() -> None:
    rows = _table([_plain(1000, size=100), _plain(1, base=1000, size=50_000)])
    batches = encode_rows(rows, batch_bytes=10_000)
    assert all(len(batch) <= 10_100 for batch in batches[:-1])
    assert len(batches[-1]) > 50_000
    assert [r.offset for r in _records(batches)] == list(range(1001))


def test_offsets_too_far_apart_for_one_batch_take_two() -> None:
    buffers = [_plain(1, base=0), _plain(1, base=(1 << 31) - 1), _plain(1, base=1 << 32)]
    batches = encode_rows(_table(buffers))
    assert [len(list(decode_records(batch))) for batch in batches] == [2, 1]
    assert _records(batches) == _records(buffers)


def test_typed_columns_are_read_only_on_demand() -> None:
    rows = _table([_plain(4)]).append_column(
        pa.field("price", pa.int64(), metadata={FIELD_ID: b"1000"}), pa.array([1, None, 3, 4])
    )
    data = _file(rows)
    assert _read(data).schema.names == row_schema().names
    typed = pa.Table.from_batches(RowFile(pa.BufferReader(data)).rows(typed=True))
    assert typed["price"].to_pylist() == [1, None, 3, 4]
    assert typed.schema.names == [*row_schema().names, "price"]


@pytest.mark.parametrize("spoil", ["cut", "flip", "empty"])
def test_damage_is_reported_as_damage(spoil: str) -> None:
    data = bytearray(_file(_table([_plain(5000, size=100)])))
    if spoil == "cut":
        data = data[: len(data) // 2]
    elif spoil == "flip":
        data[len(data) // 3 : len(data) // 3 + 2000] = bytes(2000)
    else:
        data = bytearray()
    with pytest.raises(LogDamaged):
        _read(bytes(data))


def test_a_parquet_file_of_somebody_else_is_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(LogDamaged, match="metadata"):
        RowFile(pa.BufferReader(sink.getvalue()))


def test_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.records.parquet.VERSION", 2)
    data = _file(_table([_plain(1)]))
    monkeypatch.undo()
    with pytest.raises(NewerVersion):
        RowFile(pa.BufferReader(data))


def test_no_record_makes_no_batch() -> None:
    assert encode_rows(_table([])) == []


def test_samples_of_all_shapes_survive() -> None:
    shapes = [
        Sample(NOW_MS, None, None, ()),
        Sample(NOW_MS, b"", b"", (("", None), ("", b""), ("a", b"1"), ("a", b"1"))),
        Sample(NOW_MS - 3, b"k", None, (("é", b"\xff"),)),
    ]
    batch = build_batch(
        [s.value for s in shapes],
        keys=[s.key for s in shapes],
        headers=[s.headers for s in shapes],
        timestamps_ms=[s.timestamp_ms for s in shapes],
    )
    assert b"".join(encode_rows(_read(_file(_table([batch]))))) == bytes(batch)
