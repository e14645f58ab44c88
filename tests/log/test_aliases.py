"""Reading aliases: what is served of another stream's bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.routers.service import RouterSettings
from mainstem.ledger.aliases import AliasRun
from mainstem.ledger.config import TopicConfig
from mainstem.log.read.extents import Extent
from mainstem.log.read.views import View
from mainstem.log.streams.aliases import CopySource, restamped
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.log.verification.problems import Severity
from mainstem.records.building import build_batch
from mainstem.records.decoding import check_records, decode_records
from mainstem.records.header import crc_matches, stamp, walk
from tests.support.machine import Machine

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def _slice(sizes: list[int], base: int, codec: str = "none") -> memoryview:
    """Stamped batches with these numbers of records."""
    made = bytearray()
    at = 0
    for size in sizes:
        made += build_batch(
            [b"v%d" % (base + at + i) for i in range(size)],
            keys=[b"k"] * size,
            headers=[(("h", b"x"),)] * size,
            timestamps_ms=[7 + i for i in range(size)],
            codec=codec,  # type: ignore[arg-type]
            producer=5,
            producer_epoch=1,
            base_sequence=at,
            transactional=True,
        )
        at += size
    stamp(made, base, 3)
    return memoryview(made)


def _extent(slice: memoryview, base: int, count: int) -> Extent:
    return Extent(1, count, base, 0, len(slice), 0, 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("first", "last"), [(100, 112), (100, 105), (103, 112), (102, 104), (106, 107)])
def test_any_part_of_a_slice_is_served_with_the_offsets_and_time_of_the_copy(
    codec: str, first: int, last: int
) -> None:
    slice = _slice([5, 4, 3], 100, codec)
    run = AliasRun(40, last - first, 9, first, 1_234)
    made = restamped(CopySource(run, _extent(slice, 100, 12)), slice, 0)
    records = list(decode_records(made))
    assert [record.offset for record in records] == list(range(40, 40 + last - first))
    assert [record.value for record in records] == [b"v%d" % at for at in range(first, last)]
    assert {(record.timestamp_ms, record.key, record.headers) for record in records} == {
        (1_234, b"k", (("h", b"x"),))
    }
    assert check_records(made) == last - first
    headers = list(walk(made))
    assert [header.next_offset for header in headers][-1] == 40 + last - first
    for header in headers:
        assert crc_matches(made, header)
        assert (header.producer, header.transactional, header.log_append_time) == (-1, False, True)
        assert header.codec_id == CODECS.index(codec)


def test_a_source_knows_which_copies_an_extent_holds() -> None:
    run = AliasRun(50, 10, 1, 200, 0)
    whole = CopySource(run, Extent(1, 100, 150, 0, 1, 0, 0))
    assert (whole.first, whole.end) == (50, 60)
    tail = CopySource(run, Extent(1, 100, 205, 0, 1, 0, 0))
    assert (tail.first, tail.end) == (55, 60)
    head = CopySource(run, Extent(1, 6, 198, 0, 1, 0, 0))
    assert (head.first, head.end) == (50, 54)


@pytest.mark.parametrize("tail_cache_bytes", [0, 1 << 20])
async def test_every_way_to_read_gives_the_same_copies(tail_cache_bytes: int) -> None:
    machine = Machine(tail_cache_bytes=tail_cache_bytes, segment_bytes=2048)
    broker = await machine.open()
    for name in "ab":
        await broker.create_topic(name, config=TopicConfig(durability="fsync"))
    await broker.routers.put("r", RouterSettings("a", "b"))
    for at in range(30):
        await broker.append_values("a", [b"%d-%d" % (at, i) for i in range(at % 4 + 1)])
        if at % 5 == 0:
            await broker.append_values("b", [b"own"])
        if at % 2:
            await broker.routers.drain("b")
    await broker.routers.drain("b")
    stream = broker.streams.of("b", 0)
    end = broker.partition("b").end

    async def gather(max_bytes: int, view: View, *, stored: bool = False) -> list[tuple[int, bytes | None]]:
        found = []
        offset = 0
        while offset < end:
            log = broker.log
            chunk = (
                await log.streams.of(stream).stored(stream, offset, max_bytes)
                if stored
                else await log.streams.of(stream).read(stream, offset, max_bytes, 0, view)
            )
            cached = log.streams.of(stream).read_cached(stream, offset, max_bytes, view)
            assert cached is None or stored or cached == chunk
            for batch in chunk.batches:
                found += [(record.offset, record.value) for record in decode_records(batch, offset)]
            assert chunk.next_offset > offset
            offset = chunk.next_offset
        return found

    expected = await gather(1 << 20, View.COMMITTED)
    assert [offset for offset, _ in expected] == list(range(end))
    for max_bytes in (1, 300, 5_000):
        for view in View:
            assert await gather(max_bytes, view) == expected
    assert await gather(400, View.COMMITTED, stored=True) == expected
    await machine.kill()


@pytest.fixture
async def routed(tmp_path: Path) -> Path:
    """A directory where only a copy remains of what was written."""
    directory = tmp_path / "data"
    broker = await Broker.open(BrokerOptions(directory, segment_bytes=4096))
    await broker.routers.put("r", RouterSettings("a", "b"))
    for at in range(60):
        await broker.append_values("a", [b"value %d" % at * 10])
    await broker.routers.drain("b")
    await broker.append_values("b", [b"own"])
    await broker.trim("a", 60)
    await broker.close()
    return directory


async def test_a_check_finds_nothing_wrong_with_copies(routed: Path) -> None:
    report = DirectoryCheck(routed).run()
    assert [problem.line for problem in report.problems] == []


async def test_a_check_names_the_copies_that_a_missing_file_loses(routed: Path) -> None:
    first = sorted((routed / "wal").iterdir())[0]
    shutil.copy(first, routed.parent / "kept")
    first.unlink()
    report = DirectoryCheck(routed).run()
    lost = {topic for problem in report.problems for topic in problem.topics}
    assert {problem.severity for problem in report.problems} == {Severity.DAMAGED}
    assert "b/0" in lost
