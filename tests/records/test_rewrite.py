from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import InvalidBatch
from mainstem.records.arrow import decode_slices
from mainstem.records.building import build_batch
from mainstem.records.compression import Codec
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import LOG_APPEND_TIME, check_slice, crc_matches, walk
from mainstem.records.rewrite import with_append_time, without_offsets

from .samples import AIOKAFKA, NOW_MS, Sample, codecs, sample_lists, stamped, stored

BASE = 5000


def _batch(records: list[Sample], codec: Codec) -> bytearray:
    batch = build_batch(
        [r.value for r in records],
        keys=[r.key for r in records],
        headers=[r.headers for r in records],
        timestamps_ms=[r.timestamp_ms for r in records],
        codec=codec,
        producer=4,
        producer_epoch=1,
        base_sequence=9,
    )
    return stamped(batch, BASE)


def _check_survivors(batch: bytearray, rewritten: bytearray | None, expected: list[StoredRecord]) -> None:
    if rewritten is None:
        assert expected == []
        return
    assert list(decode_records(rewritten)) == expected
    assert decode_slices([rewritten])["offset"].to_pylist() == [r.offset for r in expected]
    assert AIOKAFKA.decode(rewritten) == expected
    (before,), (after,) = walk(batch), walk(rewritten)
    same = {"position": 0, "length": after.length, "count": len(expected)}
    assert after == before._replace(**same)
    assert crc_matches(memoryview(rewritten), after)


@given(records=sample_lists, codec=codecs, data=st.data())
@settings(max_examples=100, deadline=None)
def test_only_the_listed_offsets_go(records: list[Sample], codec: Codec, data: st.DataObject) -> None:
    batch = _batch(records, codec)
    anywhere = st.integers(BASE - 3, BASE + len(records) + 3)
    gone = sorted(data.draw(st.sets(anywhere)))
    expected = [r for r in stored(records, BASE) if r.offset not in gone]
    rewritten = without_offsets(memoryview(batch), np.array(gone, np.int64))
    _check_survivors(batch, rewritten, expected)


@given(records=sample_lists, codec=codecs, data=st.data())
@settings(max_examples=100, deadline=None)
def test_only_the_given_ranges_go(records: list[Sample], codec: Codec, data: st.DataObject) -> None:
    batch = _batch(records, codec)
    edges = sorted(data.draw(st.sets(st.integers(BASE - 3, BASE + len(records) + 3), max_size=8)))
    ranges = list(zip(edges[::2], edges[1::2], strict=False))
    expected = [r for r in stored(records, BASE) if not any(a <= r.offset < b for a, b in ranges)]
    _check_survivors(batch, without_offsets(memoryview(batch), ranges), expected)


def test_a_batch_with_holes_can_lose_more() -> None:
    batch = _batch([Sample(NOW_MS, None, b"%d" % i, ()) for i in range(60)], "lz4")
    first = without_offsets(memoryview(batch), [(BASE, BASE + 20)])
    assert first is not None
    second = without_offsets(memoryview(first), np.array([BASE + 59]))
    assert second is not None
    assert [r.offset for r in decode_records(second)] == list(range(BASE + 20, BASE + 59))
    assert next(walk(second)).next_offset == BASE + 60
    assert without_offsets(memoryview(second), [(0, 1 << 62)]) is None


def test_a_batch_with_holes_is_no_append() -> None:
    batch = build_batch([b"a", b"b"], timestamps_ms=NOW_MS)
    holed = without_offsets(memoryview(batch), [(0, 1)])
    assert holed is not None
    with pytest.raises(InvalidBatch, match="recordsCount is 1, but lastOffsetDelta is 1"):
        check_slice(memoryview(holed), batch_bytes_max=1 << 20)


def test_taking_nothing_out_changes_no_byte() -> None:
    batch = _batch([Sample(NOW_MS, b"k", b"v", (("h", None),))] * 3, "zstd")
    for nothing in (np.empty(0, np.int64), [], [(0, BASE)]):
        assert without_offsets(memoryview(batch), nothing) == batch


def test_batches_are_rewritten_one_at_a_time() -> None:
    two = _batch([Sample(NOW_MS, None, None, ())], "none") * 2
    with pytest.raises(InvalidBatch, match="2 batches"):
        without_offsets(memoryview(two), [])
    with pytest.raises(InvalidBatch, match="0 batches"):
        with_append_time(memoryview(b""), 0)


@given(records=sample_lists, codec=codecs, now=st.integers(0, (1 << 62) - 1))
@settings(max_examples=50, deadline=None)
def test_append_time_changes_nothing_but_the_time(records: list[Sample], codec: Codec, now: int) -> None:
    batch = _batch(records, codec)
    restamped = with_append_time(memoryview(batch), now)
    assert check_slice(memoryview(restamped), batch_bytes_max=1 << 20).max_timestamp == now
    expected = [r._replace(timestamp_ms=now) for r in stored(records, BASE)]
    assert list(decode_records(restamped)) == expected
    assert AIOKAFKA.decode(restamped) == expected
    (before,), (after,) = walk(batch), walk(restamped)
    assert after == before._replace(attributes=before.attributes | LOG_APPEND_TIME, max_timestamp=now)
