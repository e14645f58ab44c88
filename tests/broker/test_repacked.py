"""Repacked files are what jobs of the lake read, and what backups hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.plans import PlanRequest
from mainstem.lake.materialise import materialise
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.repacked import FIRST_NUMBER, REPACKED
from mainstem.log.backup import restore
from mainstem.log.repack.plan import RepackOptions
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.testing.history import scan

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


async def test_a_job_of_the_lake_reads_repacked_files_by_itself(tmp_path: Path) -> None:
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
