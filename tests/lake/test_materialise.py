"""Tasks become files that hold exactly the records they should."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstem.api.lake import Publication, Sources
from mainstem.errors import InvalidConfig, LogDamaged, NotFound, Unavailable
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore, StoredObject
from mainstem.records.building import build_batch
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import stamp
from mainstem.tables.parts.materialise import materialise
from mainstem.tables.parts.object_readers import url_of
from mainstem.tables.parts.source_rows import source_rows
from tests.support.s3 import S3Server

from .wal import TOPIC_ID, WalFile, stored_records, task

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def _batch(values: list[bytes], times: int | list[int] = NOW_MS, codec: str = "none") -> bytearray:
    return build_batch(values, timestamps_ms=times, codec=codec)  # type: ignore[arg-type]


def _values(first: int, count: int) -> list[bytes]:
    return [b"value-%d" % i for i in range(first, first + count)]


def _fill(wal: WalFile, batches: int) -> None:
    """With ten records a batch."""
    for i in range(batches):
        wal.add(_batch(_values(10 * i, 10)))


@pytest.fixture
def wal(tmp_path: Path) -> WalFile:
    return WalFile(tmp_path / "1.wal")


def _run(tmp_path: Path, sources: Sources, **changes: object) -> Publication:
    return materialise(task(_stored(tmp_path, sources), **changes))


def _stored(tmp_path: Path, sources: Sources) -> Sources:
    return replace(sources, store=(tmp_path / "objects").as_uri())


def _records(tmp_path: Path, publication: Publication) -> list[StoredRecord]:
    return stored_records(tmp_path / "objects", publication.parts)


def test_a_range_of_the_log_becomes_one_part_with_every_record(tmp_path: Path, wal: WalFile) -> None:
    for i in range(20):
        wal.add(_batch(_values(10 * i, 10), codec=["none", "zstd", "lz4"][i % 3]))
    publication = _run(tmp_path, Sources(0, 200, (wal.extents(),)))
    (part,) = publication.parts
    assert (part.base, part.end, part.generation, part.records) == (0, 200, 1, 200)
    assert (publication.stream, publication.token, publication.sources) == (5, 77, ())
    records = _records(tmp_path, publication)
    assert [(r.offset, r.value) for r in records] == list(enumerate(_values(0, 200)))


def test_what_a_file_is_said_to_hold_is_what_it_holds(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 5), [NOW_MS, NOW_MS + 7, NOW_MS - 1, NOW_MS, NOW_MS]))
    (part,) = _run(tmp_path, Sources(1, 4, (wal.extents(),))).parts
    (file,) = part.files
    assert (file.base, file.end, file.records, file.max_timestamp) == (1, 4, 3, NOW_MS + 7)
    assert file.day == NOW_MS // DAY_MS
    path = tmp_path / "objects" / file.key
    assert path.stat().st_size == file.bytes
    assert file.key.startswith(f"parts/{TOPIC_ID.hex()}/2/0-9-4d-")
    assert pq.read_table(path)["_partition_id"].to_pylist() == [2, 2, 2]


def test_records_of_several_days_stand_in_a_file_a_day(tmp_path: Path, wal: WalFile) -> None:
    times = [NOW_MS + (i % 3) * DAY_MS for i in range(30)]
    wal.add(_batch(_values(0, 30), times))
    wal.add(_batch(_values(30, 30), times))
    publication = _run(tmp_path, Sources(0, 60, (wal.extents(),)))
    files = publication.parts[0].files
    assert sorted(file.day for file in files) == [NOW_MS // DAY_MS + i for i in range(3)]
    assert [file.records for file in files] == [20, 20, 20]
    for file in files:
        days = {t.timestamp() * 1000 // DAY_MS for t in _shown_times(tmp_path, file.key)}
        assert days == {file.day}
    assert [r.offset for r in _records(tmp_path, publication)] == list(range(60))


def _shown_times(tmp_path: Path, key: str) -> list[object]:
    return pq.read_table(tmp_path / "objects" / key)["_timestamp"].to_pylist()  # type: ignore[no-any-return]


def test_deleted_aborted_and_marked_offsets_are_left_out(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 10)))
    wal.add(_batch(_values(10, 10)))
    publication = _run(tmp_path, Sources(0, 20, (wal.extents(),), leave_out=((0, 2), (5, 12), (19, 20))))
    assert [r.offset for r in _records(tmp_path, publication)] == [2, 3, 4, *range(12, 19)]
    assert publication.parts[0].records == 10


def test_a_range_with_nothing_left_is_a_part_without_files(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 3)))
    (part,) = _run(tmp_path, Sources(0, 3, (wal.extents(),), leave_out=((0, 3),))).parts
    assert (part.files, part.records, part.end) == ((), 0, 3)


def test_a_damaged_slice_fails_the_task_and_leaves_no_file(tmp_path: Path, wal: WalFile) -> None:
    _fill(wal, 3)
    wal.damage(1)
    with pytest.raises(LogDamaged, match=r"topic 'orders', partition 2: .* offsets \[10, 20\)"):
        _run(tmp_path, Sources(0, 30, (wal.extents(),)))
    assert _files(tmp_path) == []


def _files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]


def test_a_task_that_fails_in_the_middle_deletes_what_it_wrote(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.day_files.PARQUET_ROW_GROUP_ROWS_MAX", 5)
    monkeypatch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", 1)
    _fill(wal, 3)
    wal.damage(2)
    with pytest.raises(LogDamaged):
        _run(tmp_path, Sources(0, 30, (wal.extents(),)))
    assert (tmp_path / "objects" / "parts").is_dir()
    assert _files(tmp_path) == []


def test_damage_that_is_known_as_a_loss_is_passed(tmp_path: Path, wal: WalFile) -> None:
    _fill(wal, 3)
    wal.damage(1)
    publication = _run(tmp_path, Sources(0, 30, (wal.extents(),), lost=((10, 20, "damaged"),)))
    assert [r.offset for r in _records(tmp_path, publication)] == [*range(10), *range(20, 30)]
    assert (publication.parts[0].base, publication.parts[0].end) == (0, 30)


def test_an_object_cut_short_is_damage_too(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 10)))
    wal.path.write_bytes(wal.path.read_bytes()[:-1])
    with pytest.raises(LogDamaged, match=r"\[0, 10\)"):
        _run(tmp_path, Sources(0, 10, (wal.extents(),)))


def test_an_object_that_is_gone_is_said_so(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 10)))
    wal.path.unlink()
    with pytest.raises(NotFound, match=r"1\.wal"):
        _run(tmp_path, Sources(0, 10, (wal.extents(),)))


def test_offsets_in_no_object_fail_the_task(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 10)))
    with pytest.raises(Unavailable, match=r"\[8, 10\)"):
        _run(tmp_path, Sources(0, 10, (wal.extents(),), unreachable=((8, 10),)))


def test_a_store_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="gopher"):
        materialise(task(Sources(0, 1, store="gopher://x")))


def test_copies_of_another_stream_are_shifted_and_take_their_time(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 4)))
    publication = _run(tmp_path, Sources(100, 104, (wal.extents(shift=100, timestamp_ms=NOW_MS + 5),)))
    records = _records(tmp_path, publication)
    assert [(r.offset, r.timestamp_ms) for r in records] == [(100 + i, NOW_MS + 5) for i in range(4)]


def test_damage_in_a_copy_is_named_by_the_copys_offsets(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 4)))
    wal.damage(0)
    with pytest.raises(LogDamaged, match=r"\[100, 104\)"):
        _run(tmp_path, Sources(100, 104, (wal.extents(shift=100),)))


def test_parts_are_read_again_without_what_was_deleted_since(tmp_path: Path, wal: WalFile) -> None:
    times = [NOW_MS + (i % 2) * DAY_MS for i in range(20)]
    wal.add(_batch(_values(0, 20), times))
    first = _run(tmp_path, Sources(0, 20, (wal.extents(),)))
    wal.path.unlink()
    again = Sources(0, 20, parts=first.parts, leave_out=((3, 6),))
    second = _run(tmp_path, again, kind="rewrite", generation=2)
    assert second.sources == ((0, 20, 1),)
    assert [r.offset for r in _records(tmp_path, second)] == [0, 1, 2, *range(6, 20)]
    assert not {f.key for f in first.parts[0].files} & {f.key for f in second.parts[0].files}


def test_small_parts_merge_into_one(tmp_path: Path, wal: WalFile) -> None:
    parts = []
    for i in range(4):
        base = wal.add(_batch(_values(5 * i, 5), [NOW_MS + (i * 5 + j) % 2 * DAY_MS for j in range(5)]))
        parts += _run(tmp_path, Sources(base, base + 5, (wal.extents(),))).parts
    merged = _run(tmp_path, Sources(0, 20, parts=tuple(parts)), kind="merge", generation=2)
    (part,) = merged.parts
    assert merged.sources == tuple((5 * i, 5 * i + 5, 1) for i in range(4))
    assert (part.base, part.end, len(part.files), part.records) == (0, 20, 2, 20)
    assert [r.value for r in _records(tmp_path, merged)] == _values(0, 20)


def test_a_damaged_part_file_is_named(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 2000)))
    first = _run(tmp_path, Sources(0, 2000, (wal.extents(),)))
    path = tmp_path / "objects" / first.parts[0].files[0].key
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=r"offsets \[0, 2000\)"):
        _run(tmp_path, Sources(0, 2000, parts=first.parts), kind="rewrite", generation=2)


def test_rows_are_written_as_they_fill_and_no_more_is_held(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.day_files.PARQUET_ROW_GROUP_BYTES", 4000)
    monkeypatch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", 2000)
    for i in range(50):
        wal.add(_batch(_values(10 * i, 10), [NOW_MS + j % 3 * DAY_MS for j in range(10)]))
    publication = _run(tmp_path, Sources(0, 500, (wal.extents(),)))
    assert [r.offset for r in _records(tmp_path, publication)] == list(range(500))
    for file in publication.parts[0].files:
        metadata = pq.read_metadata(tmp_path / "objects" / file.key)
        assert metadata.num_row_groups > 1


def test_times_in_very_many_days_end_a_task_early_and_nothing_is_lost(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.materialise.LAKE_DAYS_PER_TASK_MAX", 4)
    monkeypatch.setattr("mainstem.tables.parts.day_files.LAKE_FILES_OPEN_MAX", 2)
    wal.add(_batch(_values(0, 6), [NOW_MS + i // 2 * DAY_MS for i in range(6)]))
    wal.add(_batch(_values(6, 20), [NOW_MS + i * DAY_MS for i in range(20)]))
    base, found = 0, []
    while base < 26:
        publication = _run(tmp_path, Sources(base, 26, (wal.extents(),)))
        (part,) = publication.parts
        assert part.base == base < part.end
        assert len({file.day for file in part.files}) <= 4
        found += _records(tmp_path, publication)
        base = part.end
    assert [r.offset for r in found] == list(range(26))


def test_days_that_come_one_by_one_are_counted_too(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.materialise.LAKE_DAYS_PER_TASK_MAX", 4)
    monkeypatch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", 1)
    for day in range(6):
        wal.add(_batch(_values(2 * day, 2), NOW_MS + day * DAY_MS))
    (part,) = _run(tmp_path, Sources(0, 12, (wal.extents(),))).parts
    assert (part.end, len(part.files)) == (8, 4)
    (rest,) = _run(tmp_path, Sources(8, 12, (wal.extents(),))).parts
    assert (rest.base, rest.end) == (8, 12)


def test_days_beyond_the_open_files_take_further_files(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.day_files.LAKE_FILES_OPEN_MAX", 2)
    monkeypatch.setattr("mainstem.tables.parts.day_files.PARQUET_ROW_GROUP_ROWS_MAX", 1)
    monkeypatch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", 1)
    wal.add(_batch(_values(0, 12), [NOW_MS + i % 4 * DAY_MS for i in range(12)]))
    wal.add(_batch(_values(12, 12), [NOW_MS + i % 4 * DAY_MS for i in range(12)]))
    publication = _run(tmp_path, Sources(0, 24, (wal.extents(),)))
    assert len(publication.parts[0].files) > 4
    assert [r.offset for r in _records(tmp_path, publication)] == list(range(24))


def test_odd_records_open_a_file_of_their_own_kind_and_all_come_back(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.day_files.PARQUET_ROW_GROUP_ROWS_MAX", 1)
    monkeypatch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", 1)
    wal.add(_batch(_values(0, 3), 253_402_300_799_000))
    wal.add(_batch(_values(3, 3), 1 << 61))  # shown on the same, the calendar's last, day
    wal.add(_batch(_values(6, 3), 253_402_300_799_000))
    publication = _run(tmp_path, Sources(0, 9, (wal.extents(),)))
    plain, odd = publication.parts[0].files
    assert plain.day == odd.day
    assert (plain.end, odd.base) == (3, 3)
    times = [r.timestamp_ms for r in _records(tmp_path, publication)]
    assert times == [253_402_300_799_000] * 3 + [1 << 61] * 3 + [253_402_300_799_000] * 3


def test_two_attempts_at_one_task_never_share_a_file(tmp_path: Path, wal: WalFile) -> None:
    wal.add(_batch(_values(0, 3)))
    first = _run(tmp_path, Sources(0, 3, (wal.extents(),)))
    second = _run(tmp_path, Sources(0, 3, (wal.extents(),)))
    assert first.parts[0].files[0].key != second.parts[0].files[0].key
    assert _records(tmp_path, first) == _records(tmp_path, second)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), min_size=1, max_size=12),
    st.integers(0, 60),
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 20)), max_size=3),
    st.integers(1, 3000),
)
def test_any_range_of_any_log_reads_as_its_batches_do(
    tmp_path_factory: pytest.TempPathFactory,
    slices: list[tuple[int, int]],
    base: int,
    length: int,
    holes: list[tuple[int, int]],
    read_bytes: int,
) -> None:
    wal = WalFile(tmp_path_factory.mktemp("log") / "7.wal")
    expected = []
    for count, skip in slices:
        batch = _batch(_values(wal.end, count))
        first = wal.add(batch, skip=skip)
        stamp(batch, first, 0)
        expected += list(decode_records(batch))
    leave_out, at = [], 0
    for first, count in sorted(holes):
        first = max(first, at)
        leave_out.append((first, first + count))
        at = first + count
    sources = Sources(base, base + length, (wal.extents(),), leave_out=tuple(leave_out))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", read_bytes)
        batches = list(source_rows(sources, "orders", 2))
    found = [
        (offset, value)
        for rows in batches
        for offset, value in zip(rows["_offset"].to_pylist(), rows["_value"].to_pylist(), strict=True)
    ]
    assert found == [
        (r.offset, r.value)
        for r in expected
        if base <= r.offset < base + length and not any(a <= r.offset < b for a, b in leave_out)
    ]


def test_a_large_task_makes_several_parts_that_tile_its_range(
    tmp_path: Path, wal: WalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.parts.materialise.LAKE_PART_BYTES", 3000)
    monkeypatch.setattr("mainstem.tables.parts.source_rows.LAKE_READ_BYTES", 1)
    _fill(wal, 20)
    publication = _run(tmp_path, Sources(0, 205, (wal.extents(),)))
    parts = publication.parts
    assert len(parts) > 3
    assert [part.base for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert (parts[0].base, parts[-1].end) == (0, 205)
    assert [r.offset for r in _records(tmp_path, publication)] == list(range(200))


def test_a_compaction_keeps_the_last_of_each_key(tmp_path: Path, wal: WalFile) -> None:
    keys = [b"a", b"b", None, b"a", b"b", b"c", b"a"]
    values = [b"1", b"2", b"3", b"4", None, b"6", b"7"]
    wal.add(build_batch(values, keys=keys, timestamps_ms=NOW_MS))
    first = _run(tmp_path, Sources(0, 7, (wal.extents(),)))
    compacted = _run(
        tmp_path,
        Sources(0, 7, parts=first.parts),
        kind="compact",
        generation=2,
        compact_before_ms=NOW_MS + 1,
        tombstones_before_ms=NOW_MS + 1,
    )
    assert [(r.offset, r.key, r.value) for r in _records(tmp_path, compacted)] == [
        (2, None, b"3"),
        (5, b"c", b"6"),
        (6, b"a", b"7"),
    ]
    assert (compacted.parts[0].records, compacted.removed_records) == (3, 4)
    assert (compacted.parts[0].base, compacted.parts[0].end) == (0, 7)


def test_declared_columns_stand_beside_the_raw_ones(tmp_path: Path, wal: WalFile) -> None:
    from mainstem.api.lake import TableColumns
    from mainstem.tables.columns import declared, encode_columns

    wal.add(_batch([b'{"id": 1}', b"not json", b'{"id": 3}']))
    schema = encode_columns(TableColumns(tuple(declared([{"name": "id", "type": "long"}], []))))
    publication = _run(tmp_path, Sources(0, 3, (wal.extents(),)), schema=schema)
    (file,) = publication.parts[0].files
    table = pq.read_table(tmp_path / "objects" / file.key)
    assert table["id"].to_pylist() == [1, None, 3]
    assert table["_value"].to_pylist() == [b'{"id": 1}', b"not json", b'{"id": 3}']
    again = _run(
        tmp_path, Sources(0, 3, parts=publication.parts), kind="rewrite", generation=2, schema=schema
    )
    (file,) = again.parts[0].files
    assert pq.read_table(tmp_path / "objects" / file.key)["id"].to_pylist() == [1, None, 3]


def test_a_bucket_holds_the_log_and_takes_the_files(tmp_path: Path, wal: WalFile) -> None:
    _fill(wal, 3)
    with S3Server(tmp_path / "s3") as server:
        server.make_bucket("lake")
        store = server.url("lake", "some/prefix")
        log = replace(wal.extents(), url=url_of(store, "wal/1"))
        bucket = open_store(store)
        asyncio.run(bucket.put("wal/1", wal.path.read_bytes()))
        first = materialise(task(Sources(0, 30, (log,), store=store)))
        again = Sources(0, 30, parts=first.parts, store=store, leave_out=((5, 9),))
        second = materialise(task(again, kind="rewrite", generation=2))
        rows = source_rows(Sources(0, 30, parts=second.parts, store=store), "orders", 2)
        offsets = [offset for batch in rows for offset in batch["_offset"].to_pylist()]
        assert offsets == [*range(5), *range(9, 30)]
        damaged = bytearray(wal.path.read_bytes())
        damaged[-1] ^= 1
        asyncio.run(bucket.put("wal/1", damaged))
        with pytest.raises(LogDamaged, match=r"\[20, 30\)") as caught:
            materialise(task(Sources(0, 30, (log,), store=store)))
        assert server.secret_access_key not in str(caught.value)
        asyncio.run(bucket.delete("wal/1"))
        with pytest.raises(NotFound):
            materialise(task(Sources(0, 30, (log,), store=store)))
        files = {file.key for made in (first, second) for file in made.parts[0].files}
        assert {found.key for found in asyncio.run(_listed(bucket))} == files


async def _listed(store: ObjectStore) -> list[StoredObject]:
    return [found async for found in store.list("parts/")]
