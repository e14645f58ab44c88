from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records.building import build_batch
from mainstem.records.compression import Codec
from mainstem.records.lookup import first_offset_at, offsets_with_key, offsets_with_key_prefix
from mainstem.records.rewrite import with_append_time

from .samples import NOW_MS, Sample, codecs, sample_lists, stamped, stored


def _slice(parts: list[tuple[list[Sample], Codec]]) -> bytearray:
    buf = bytearray()
    base = 0
    for records, codec in parts:
        batch = build_batch(
            [r.value for r in records],
            keys=[r.key for r in records],
            timestamps_ms=[r.timestamp_ms for r in records],
            codec=codec,
        )
        buf += stamped(batch, base)
        base += len(records)
    return buf


slices = st.lists(st.tuples(sample_lists, codecs), min_size=1, max_size=3)


@given(parts=slices, data=st.data())
@settings(max_examples=60, deadline=None)
def test_time_lookup_finds_what_a_scan_finds(
    parts: list[tuple[list[Sample], Codec]], data: st.DataObject
) -> None:
    records = stored([r for part, _ in parts for r in part], 0)
    time = data.draw(st.sampled_from([r.timestamp_ms for r in records])) + data.draw(st.integers(-1, 1))
    expected = next((r.offset for r in records if r.timestamp_ms >= time), None)
    assert first_offset_at(_slice(parts), time) == expected


@given(parts=slices, data=st.data())
@settings(max_examples=60, deadline=None)
def test_key_lookup_finds_what_a_scan_finds(
    parts: list[tuple[list[Sample], Codec]], data: st.DataObject
) -> None:
    records = stored([r for part, _ in parts for r in part], 0)
    key = data.draw(st.sampled_from([r.key or b"" for r in records]))
    buf = _slice(parts)
    assert offsets_with_key(buf, key).tolist() == [r.offset for r in records if r.key == key]
    prefix = key[: data.draw(st.integers(0, 3))]
    assert offsets_with_key_prefix(buf, prefix).tolist() == [
        r.offset for r in records if r.key is not None and r.key.startswith(prefix)
    ]


@pytest.mark.parametrize("count", [3, 70])
def test_append_time_is_what_is_looked_up(count: int) -> None:
    batch = stamped(build_batch([b"v"] * count, timestamps_ms=NOW_MS), 10)
    restamped = with_append_time(memoryview(batch), NOW_MS + 500)
    assert first_offset_at(restamped, NOW_MS + 500) == 10
    assert first_offset_at(restamped, NOW_MS + 501) is None


@pytest.mark.parametrize("count", [3, 70])
def test_a_null_key_matches_nothing_and_an_empty_key_only_itself(count: int) -> None:
    keys = [None, b""] + [b"key"] * (count - 2)
    batch = stamped(build_batch([b"v"] * count, keys=keys, timestamps_ms=NOW_MS), 0)
    assert offsets_with_key(batch, b"").tolist() == [1]
    assert offsets_with_key_prefix(batch, b"").tolist() == list(range(1, count))
    assert offsets_with_key(b"", b"key").tolist() == []
