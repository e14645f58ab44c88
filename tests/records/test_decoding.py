from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mainstem import limits
from mainstem.errors import InvalidBatch
from mainstem.records.arrow import decode_slices, record_schema
from mainstem.records.building import build_batch
from mainstem.records.compression import CODECS, Codec
from mainstem.records.decoding import check_records, decode_records, record_sizes_and_times
from mainstem.records.header import CONTROL, HEADER_BYTES, seal
from mainstem.records.rewrite import with_append_time

from .samples import NOW_MS, stamped

HANDFUL, MANY = 3, limits.INTERPRETED_RECORDS_MAX + 10


def _batch(count: int, base: int, codec: Codec = "none") -> bytearray:
    values = [b"%d" % (base + i) for i in range(count)]
    return stamped(build_batch(values, timestamps_ms=NOW_MS, codec=codec), base)


def _control(base: int) -> bytearray:
    """A commit marker."""
    record = bytes([0x20, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 0, 0])
    return seal(
        bytearray(HEADER_BYTES) + record,
        base_offset=base,
        attributes=CONTROL | 0x10,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer=5,
        producer_epoch=0,
        count=1,
    )


@pytest.mark.parametrize("count", [HANDFUL, MANY])
def test_transaction_markers_are_skipped_but_keep_their_offset(count: int) -> None:
    buf = _batch(count, 0) + _control(count) + _batch(count, count + 1)
    expected = [i for i in range(2 * count + 1) if i != count]
    assert [r.offset for r in decode_records(buf)] == expected
    assert decode_slices([buf])["offset"].to_pylist() == expected


def test_only_markers_decode_to_an_empty_table() -> None:
    for buffers in ([], [_control(4)], [b""]):
        table = decode_slices(buffers)
        assert table.num_rows == 0
        assert table.schema == record_schema()


def test_decoding_can_start_in_the_middle_of_a_batch() -> None:
    buf = _batch(4, 10) + _batch(4, 14, "lz4")
    assert [r.offset for r in decode_records(buf, from_offset=12)] == [12, 13, 14, 15, 16, 17]
    assert [r.offset for r in decode_records(buf, from_offset=15)] == [15, 16, 17]
    assert list(decode_records(buf, from_offset=18)) == []


@pytest.mark.parametrize("count", [HANDFUL, MANY])
@pytest.mark.parametrize("codec", CODECS)
def test_append_time_is_the_time_of_every_record(count: int, codec: Codec) -> None:
    batch = build_batch([b"v"] * count, timestamps_ms=[NOW_MS + i for i in range(count)], codec=codec)
    restamped = with_append_time(memoryview(batch), NOW_MS + 12_345)
    assert {r.timestamp_ms for r in decode_records(restamped)} == {NOW_MS + 12_345}
    assert set(decode_slices([restamped])["timestamp"].to_pylist()) == {NOW_MS + 12_345}
    assert set(record_sizes_and_times(restamped)[1].tolist()) == {NOW_MS + 12_345}


def test_a_large_run_is_decoded_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = [_batch(MANY, i * MANY, CODECS[i % 5]) for i in range(20)]
    whole = decode_slices(buffers)
    monkeypatch.setattr("mainstem.records.index.DECODE_CALL_RECORDS", 3 * MANY)
    by_records = decode_slices(buffers)
    monkeypatch.setattr("mainstem.records.index.DECODE_CALL_BYTES", 1)
    by_bytes = decode_slices(buffers)
    assert whole["offset"].to_pylist() == list(range(20 * MANY))
    assert (whole["value"].num_chunks, by_records["value"].num_chunks, by_bytes["value"].num_chunks) == (
        1,
        7,
        20,
    )
    assert whole.equals(by_records)
    assert whole.equals(by_bytes)
    whole.validate(full=True)


@pytest.mark.parametrize("batches_a_call", [3, 1000])
def test_many_small_batches_decode_as_one_by_one(
    batches_a_call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.records.index.DECODE_CALL_BATCHES", batches_a_call)
    buf = bytearray()
    for i in range(0, 100, 2):
        buf += _batch(1, i) + _control(i + 1)
    buf += with_append_time(memoryview(_batch(2, 100)), 77)
    buf += _batch(3, 102, "lz4") + b"".join(_batch(1, 105 + i) for i in range(40))
    table = decode_slices([_batch(1, 0), buf, _batch(1, 0)])
    one_by_one = list(decode_records(_batch(1, 0) + buf + _batch(1, 0)))
    assert table["offset"].to_pylist() == [r.offset for r in one_by_one]
    assert table["timestamp"].to_pylist() == [r.timestamp_ms for r in one_by_one]
    assert table["value"].to_pylist() == [r.value for r in one_by_one]


@pytest.mark.parametrize(
    ("at", "byte", "named"),
    [
        (16, 3, "magic is 3"),
        (11, 0, "batchLength is 0"),
        (8, 0x7F, "only 57 bytes follow"),
        (0, 0x80, "baseOffset is -"),
        (60, 9, "recordsCount is 9"),
        (22, 6, "codec 6"),
        (61, 9, "runs past the end"),
    ],
)
def test_one_bad_batch_among_many_small_ones_is_named(at: int, byte: int, named: str) -> None:
    small = _batch(1, 0)
    buf = small * 50
    buf[49 * len(small) + at] = byte
    with pytest.raises(InvalidBatch, match=named):
        decode_slices([buf])
    with pytest.raises(InvalidBatch):
        decode_slices([(small * 50)[:-1]])


@pytest.mark.parametrize("count", [HANDFUL, MANY])
def test_sizes_count_the_value_and_the_meta_header(count: int) -> None:
    values: list[bytes | None] = [None, b"", b"four"] + [b"x" * i for i in range(count - 3)]
    headers = [
        [("meta", b"123"), ("meta", b"not counted")],
        [("node", b"n"), ("met", b"no"), ("metal", b"no"), ("meta", None)],
        [("node", b"n"), ("meta", b"12345")],
    ] + [[]] * (count - 3)
    times = [NOW_MS - i for i in range(count)]
    batch = build_batch(values, headers=headers, timestamps_ms=times)
    sizes, record_times = record_sizes_and_times(batch)
    assert sizes.dtype == np.uint32
    assert record_times.dtype == np.int64
    assert sizes.tolist() == [3, 0, 9, *range(count - 3)]
    assert record_times.tolist() == times


def test_sizes_run_over_all_batches_of_a_slice() -> None:
    sizes, times = record_sizes_and_times(_batch(HANDFUL, 0) + _batch(MANY, 0, "gzip"))
    assert len(sizes) == len(times) == HANDFUL + MANY
    assert len(record_sizes_and_times(b"")[0]) == 0


def test_checking_counts_the_records() -> None:
    assert check_records(_batch(HANDFUL, 0) + _batch(MANY, 0, "zstd")) == HANDFUL + MANY


def test_nothing_heavy_is_imported_for_a_handful_of_records() -> None:
    program = """
import importlib, pkgutil, sys
import mainstem.records as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"mainstem.records.{module.name}")
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records, record_sizes_and_times
from mainstem.records.rewrite import without_offsets
from mainstem.records.lookup import first_offset_at, offsets_with_key
batch = build_batch([b"a", b"b"], keys=[b"k", None], timestamps_ms=[5, 6])
assert len(list(decode_records(batch))) == 2
assert len(record_sizes_and_times(batch)[0]) == 2
assert without_offsets(memoryview(batch), [(0, 1)])
assert first_offset_at(batch, 6) == 1 and offsets_with_key(batch, b"k").tolist() == [0]
heavy = {"numba", "pyarrow", "lz4", "zstandard", "cramjam"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
