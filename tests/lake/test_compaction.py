from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records import compacting
from mainstem.tables.parts.compaction import Compaction

Row = tuple[int, bytes | None, bytes | None, int]  # offset, key, value, time in ms


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "_offset": pa.array([row[0] for row in rows], pa.int64()),
            "_key": pa.array([row[1] for row in rows], pa.binary()),
            "_value": pa.array([row[2] for row in rows], pa.binary()),
            "_timestamp": pa.array([row[3] * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
        }
    )


def compact(table: pa.Table, compact_before_ms: int, tombstones_before_ms: int) -> pa.Table:
    """Compact a table that has all rows of a stream's range in offset order."""
    compaction = Compaction(compact_before_ms, tombstones_before_ms)
    batches = table.to_batches()
    for batch in batches:
        compaction.add_keys(batch)
    return pa.Table.from_batches([compaction.keep(batch) for batch in batches], table.schema)


def offsets(rows: list[Row], compact_before_ms: int = 1 << 40, tombstones_before_ms: int = 0) -> list[int]:
    kept: list[int] = (
        compact(table(rows), compact_before_ms, tombstones_before_ms).column("_offset").to_pylist()
    )
    return kept


def test_the_last_record_of_a_key_stays() -> None:
    rows: list[Row] = [(0, b"a", b"1", 5), (3, b"b", b"1", 5), (4, b"a", b"2", 5), (9, b"a", b"3", 1)]
    assert offsets(rows) == [3, 9]


def test_records_without_a_key_stay_and_an_empty_key_is_a_key() -> None:
    assert offsets([(0, None, b"", 1), (1, None, b"", 1), (2, b"", b"", 1), (3, b"", b"x", 1)]) == [0, 1, 3]


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    rows: list[Row] = [(0, b"a", b"1", 10), (1, b"a", None, 20), (2, b"b", None, 30)]
    assert offsets(rows, tombstones_before_ms=20) == [1, 2]
    assert offsets(rows, tombstones_before_ms=21) == [2]
    assert offsets(rows, tombstones_before_ms=31) == []


def test_young_records_are_left_alone_and_do_not_displace_older_ones() -> None:
    rows: list[Row] = [(0, b"a", b"1", 10), (1, b"a", b"2", 20), (2, b"a", b"3", 99), (3, b"a", None, 99)]
    assert offsets(rows, compact_before_ms=99, tombstones_before_ms=100) == [1, 2, 3]


def test_nothing_comes_of_nothing() -> None:
    assert offsets([]) == []


def test_times_beyond_what_a_table_shows_count_exactly() -> None:
    rows = table([(0, b"a", b"1", 5), (1, b"a", b"2", 5)])
    exact = rows.append_column("_timestamp_ms", pa.array([None, 1 << 50], pa.int64()))
    assert compact(exact, 1 << 49, 0).column("_offset").to_pylist() == [0, 1]


_rows = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"a", b"b", b"c"]),
        st.sampled_from([None, b"", b"v"]),
        st.integers(0, 12),
        st.integers(1, 3),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_rows, st.integers(0, 13), st.integers(0, 13), st.integers(1, 7))
def test_compaction_agrees_with_a_plain_model(
    drawn: list[tuple[bytes | None, bytes | None, int, int]], before: int, tombstones: int, chunk: int
) -> None:
    rows: list[Row] = []
    for key, value, time, gap in drawn:
        rows.append(((rows[-1][0] if rows else -1) + gap, key, value, time))
    last = {key: offset for offset, key, _, time in rows if key is not None and time < before}
    expected = [
        (offset, key, value, time)
        for offset, key, value, time in rows
        if key is None
        or time >= before
        or (last[key] == offset and not (value is None and time < tombstones))
    ]
    compaction = Compaction(before, tombstones)
    batches = table(rows).to_batches(max_chunksize=chunk)
    for batch in batches:
        compaction.add_keys(batch)
    kept = [offset for batch in batches for offset in compaction.keep(batch).column("_offset").to_pylist()]
    assert kept == [row[0] for row in expected]


def test_the_index_of_keys_grows_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "KEY_INDEX_SLOTS_MIN", 2)
    rows: list[Row] = [(at, b"%d" % (at % 4), b"v", 1) for at in range(100)]
    compaction = Compaction(2, 0)
    for batch in table(rows).to_batches(max_chunksize=7):
        compaction.add_keys(batch)
    kept = compaction.keep(table(rows).to_batches()[0])
    assert kept.column("_offset").to_pylist() == [96, 97, 98, 99]
