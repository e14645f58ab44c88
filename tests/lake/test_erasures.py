"""Erasures reach every file of a table: parts, snapshots that are kept for days, and their manifests."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from pyiceberg.table import StaticTable

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.erasures.matching import ErasureRequest
from mainstem.broker.routers.service import RouterSettings
from mainstem.errors import TopicIncompatible
from mainstem.ledger.config import TopicConfig
from mainstem.log.objects.tiering import TIER_GRACE_MS, HotRetention
from mainstem.log.verification.directory import DirectoryCheck
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS
from tests.support.byte_scan import directory_contents, files_with
from tests.support.clock import ManualClock

from .inside import Inside

SECRET = "ann-7f3a91c5@example.com"
KEY = b"customer:ann-7f3a91c5"
_COLUMNS = {"type": "object", "properties": {"email": {"type": "string"}, "age": {"type": "integer"}}}


async def write(broker: Broker, *numbers: int) -> None:
    """Every third record is secret. The age of some of these is not a number: the table of errors gets them too."""
    values = [
        msgspec.json.encode({"email": SECRET, "age": 40 if n % 2 else "old", "n": n})
        if n % 3 == 0
        else msgspec.json.encode({"email": f"bob-{n}", "n": n})
        for n in numbers
    ]
    keys = [KEY if n % 3 == 0 else b"customer:bob" for n in numbers]
    await broker.append_values("t", values, keys=keys)


async def snapshots(broker: Broker) -> list[list[int]]:
    """The offsets in each snapshot of the table."""
    table = broker.log.ledger.tables.get("default", "t")
    assert table is not None
    read = StaticTable.from_metadata(table.location)
    return [
        sorted(read.scan(snapshot_id=one.snapshot_id).to_arrow().column("_offset").to_pylist())
        for one in read.metadata.snapshots
    ]


async def numbers(broker: Broker, topic: str) -> list[tuple[int, int]]:
    """The offset and the number of every record."""
    state = broker.partition(topic)
    at, found = state.start, []
    while at < state.end and (records := await broker.read(topic, at)):
        found += [(one.offset, msgspec.json.decode(one.value or b"")["n"]) for one in records]
        at = records[-1].offset + 1
    return found


async def finish(inside: Inside, id: str) -> None:
    """The broker, the lake's driver and time go on until the erasure ends."""
    broker = inside.broker
    give_up_at = time.monotonic() + 120
    while time.monotonic() < give_up_at:
        await broker.erasures.round()
        one = broker.erasures.get(id)
        if one.phase in ("done", "failed"):
            return
        if "driver" in broker.erasures.waits_for(one):
            await inside.work("rewrite")
            assert (await inside.publish()).problems == {}
        elif "readers" in broker.erasures.waits_for(one):
            await broker.lake.collect()
            inside.clock.advance(max(LAKE_GARBAGE_GRACE_MS, TIER_GRACE_MS))
        await asyncio.sleep(0.01)  # a checkpoint is made by another process
    raise AssertionError(broker.erasures.waits_for(one))


@pytest.mark.parametrize("store", ["data directory", "bucket"])
async def test_no_file_of_the_log_or_a_table_holds_an_erased_record(tmp_path: Path, store: str) -> None:
    clock, bucket = ManualClock(), tmp_path / "bucket"
    options = BrokerOptions(tmp_path / "data", segment_bytes=1 << 16)
    if store == "bucket":
        options = BrokerOptions(
            tmp_path / "data",
            segment_bytes=1 << 16,
            objects=bucket.as_uri(),
            hot=HotRetention(retain_segments=2),
        )
    broker = await Broker.open(options, clock=clock)
    try:
        inside = Inside(broker, clock)
        await broker.create_topic("t")
        await broker.create_topic("copy", config=TopicConfig(table=True))
        await broker.routers.put("t>copy", RouterSettings("t", "copy"))
        await broker.topic_tables.put("t", enabled=True, schema=_COLUMNS, delta=None)
        for first in range(0, 30, 10):
            await write(broker, *range(first, first + 10))
            await broker.routers.drain("copy")
            await inside.work("materialise")
            await inside.publish()
        await write(broker, *range(30, 40))  # only in the log
        await broker.backups.run((tmp_path / "backup").as_uri())
        found = files_with(directory_contents(tmp_path / "data", bucket), SECRET.encode())
        assert {Path(path).suffix for path in found} >= {".wal", ".parquet", ".avro"}
        assert len(await snapshots(broker)) == 3

        accepted = await broker.erasures.accept(broker.topic("t"), ErasureRequest.of_key(KEY))
        await finish(inside, accepted.id)

        done = broker.erasures.get(accepted.id)
        assert done.phase == "done", done.problem
        assert [(topic.name, topic.records) for topic in done.topics] == [("t", 14), ("copy", 14)]
        contents = directory_contents(tmp_path / "data", bucket)
        assert files_with(contents, SECRET.encode()) == []
        assert files_with(contents, KEY) == []
        kept = [n for n in range(40) if n % 3]
        for topic in ("t", "copy"):
            assert await numbers(broker, topic) == [(n, n) for n in kept]
        assert await snapshots(broker) == [[n for n in range(30) if n % 3]]
        report = msgspec.json.decode(done.report)
        assert [one["url"] for one in report["backups_that_may_hold_it"]] == [(tmp_path / "backup").as_uri()]
        assert files_with(directory_contents(tmp_path / "backup"), SECRET.encode())
        await broker.backups.run((tmp_path / "later").as_uri())
        assert files_with(directory_contents(tmp_path / "later"), SECRET.encode()) == []
    finally:
        await broker.close()
    if store == "data directory":
        checked = await asyncio.to_thread(DirectoryCheck(tmp_path / "data").run)
        assert checked.problems == []
        assert checked.repacked_files


@pytest.mark.parametrize("kind", ["Delta", "Iceberg"])
async def test_a_topic_with_a_copy_elsewhere_is_refused(tmp_path: Path, kind: str) -> None:
    delta = (tmp_path / "delta").as_uri() if kind == "Delta" else None
    iceberg = "other.sales.t" if kind == "Iceberg" else None
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    try:
        await broker.create_topic("t")
        await broker.topic_tables.put("t", enabled=True, delta=delta, iceberg=iceberg)
        with pytest.raises(TopicIncompatible, match=f"{kind} table"):
            await broker.erasures.accept(broker.topic("t"), ErasureRequest.of_key(KEY))
    finally:
        await broker.close()
