"""Tasks of the lake read repacked files, and backups include them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import InvalidConfig, SliceDamaged, StoreUnreachable
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.repacked_objects import FIRST_NUMBER, REPACKED
from mainstem.log.objects.backup import restore
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import HotRetention
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.tables.parts.materialise import materialise
from tests.support.history import scan
from tests.support.memory_store import MemoryObjectStore

NOW = RepackOptions(
    on=False, after_objects=1, least_bytes=0, bytes_per_s=0, merged_rounds=2, file_bytes=8_000, grace_s=0.0
)


async def _repacked(directory: Path) -> tuple[Broker, dict[int, bytes]]:
    options = BrokerOptions(directory, segment_bytes=8192, repack=NOW)
    broker = await Broker.open(options)
    await broker.create_topic("t", config=TopicConfig(table=True))
    await broker.create_topic("other")
    for number in range(150):
        await broker.append_values("t", [b"%d" % number + b"." * (number % 7) * 40])
        await broker.append_values("other", [b"other" * 20])
    written = (await scan(broker, "t"))[0]
    assert broker.log.repacker is not None
    while await broker.log.repacker.step():
        pass
    return broker, written


async def test_a_task_of_the_lake_reads_repacked_files_by_itself(tmp_path: Path) -> None:
    broker, written = await _repacked(tmp_path / "data")
    try:
        plan = await broker.lake.plan(PlanRequest("test"))
        (task,) = [task for task in plan.tasks if task.topic == "t"]
        keys = [piece.key for extents in task.sources.wal for piece in extents.pieces]
        assert keys
        assert all(key.startswith(REPACKED) for key in keys)
        await broker.lake.publish(await asyncio.to_thread(materialise, task))
        stream = broker.streams.of("t", 0)
        assert broker.log.ledger.generations.frontier(stream) == task.sources.end == 150
        assert await scan(broker, "t") == (written, [])
    finally:
        await broker.close()


async def test_a_task_of_the_lake_leaves_out_only_the_lost_batch(tmp_path: Path) -> None:
    broker, written = await _repacked(tmp_path / "data")
    try:
        stream = broker.streams.of("t", 0)
        one = broker.log.ledger.repacked.rounds[0]
        extents = await broker.log.repacked_extents(one.number)
        assert extents is not None
        rows = extents.rows[(extents.rows["stream"] == stream) & (extents.rows["count"] > 2)].tolist()
        _, count, base, start, *_ = rows[0]
        path = tmp_path / "data" / "objects" / one.files[0].key
        data = bytearray(path.read_bytes())
        second = start + 12 + int.from_bytes(data[start + 8 : start + 12], "big")
        data[second + 65] ^= 4
        path.write_bytes(data)
        await broker.log.streams.of(stream).read(
            stream, base, 1
        )  # as a job has the broker do that meets the damage
        (task,) = [task for task in (await broker.lake.plan(PlanRequest("test"))).tasks if task.topic == "t"]
        unaware = msgspec.structs.replace(task, sources=msgspec.structs.replace(task.sources, lost=()))
        with pytest.raises(SliceDamaged) as met:
            await asyncio.to_thread(materialise, unaware)
        assert (met.value.start, met.value.end) == (base, base + count)
        await broker.lake.publish(await asyncio.to_thread(materialise, task))
        assert broker.log.ledger.generations.frontier(stream) == 150
        del written[base + 1]
        assert await scan(broker, "t") == (written, [(base + 1, base + 2)])
    finally:
        await broker.close()


async def test_a_backup_holds_repacked_files(tmp_path: Path) -> None:
    broker, written = await _repacked(tmp_path / "data")
    assert broker.log.repacker is not None
    await broker.log.collect()
    await broker.log.repacker.clean()
    await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "restored")
    broker = await Broker.open(BrokerOptions(tmp_path / "restored", segment_bytes=8192))
    try:
        assert any(number >= FIRST_NUMBER for number in broker.log.ledger.repacked.numbers())
        assert await scan(broker, "t") == (written, [])
    finally:
        await broker.close()


async def test_a_directory_with_repacked_files_gets_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, written = await _repacked(tmp_path / "data")
    names = {file.key for one in broker.log.ledger.repacked.rounds for file in one.files}
    assert len(names) > 1
    await broker.close()
    plain = BrokerOptions(tmp_path / "data", segment_bytes=8192, repack=NOW)
    tiered = replace(plain, objects=(tmp_path / "bucket").as_uri(), hot=HotRetention())

    bucket, failing = MemoryObjectStore(), min(names)

    async def away(call: str, key: str) -> None:
        if call == "put" and key == failing:
            raise StoreUnreachable("away on purpose")

    bucket.before = away
    with monkeypatch.context() as opening:
        opening.setattr("mainstem.broker.storage.opening.open_store", lambda _: bucket)
        with pytest.raises(StoreUnreachable):
            await Broker.open(tiered)
    broker = await Broker.open(plain)  # no file left the folder
    assert await scan(broker, "t") == (written, [])
    await broker.close()

    broker = await Broker.open(tiered)
    assert not (tmp_path / "data" / "objects").exists()
    assert names <= {found.key async for found in broker.objects.list(REPACKED)}
    assert await scan(broker, "t") == (written, [])
    await broker.append_values("t", [b"one more"])
    await broker.close()
    with pytest.raises(InvalidConfig, match="name it with --objects"):
        await Broker.open(plain)
    with pytest.raises(InvalidConfig, match="name the store that holds them"):
        await Broker.open(replace(tiered, objects=(tmp_path / "empty").as_uri()))
    broker = await Broker.open(tiered)
    assert (await scan(broker, "t"))[0] == written | {150: b"one more"}
    await broker.close()
