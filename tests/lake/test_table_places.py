"""Tables whose store becomes another place: restored, moved or migrated, every snapshot reads as it did before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage.migrations import migrate
from mainstem.log.objects.backup import restore
from mainstem.log.objects.migration import Progress
from mainstem.log.objects.tiering import HotRetention
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.open import open_store
from tests.support.clock import ManualClock
from tests.support.history import scan

from .inside import Inside, append, rewritten

SNAPSHOTS = {0: [0, 1, 2], 1: [0, 2], 2: [0, 2, 3, 4]}


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A directory whose table has three snapshots, of which the first names a file that the topic gave up."""
    data, clock = tmp_path / "data", ManualClock()
    broker = await Broker.open(BrokerOptions(data), clock=clock)
    await broker.create_topic("t")
    await broker.topic_tables.put("t", enabled=True, schema=None, delta=None)
    inside = Inside(broker, clock)
    await append(broker, 0, 1, 2)
    await inside.work("materialise")
    await inside.publish()
    await rewritten(inside, 1)
    await inside.publish()
    await append(broker, 3, 4)
    await inside.work("materialise")
    await inside.publish()
    assert await inside.snapshots() == SNAPSHOTS
    await broker.close()
    return data


async def goes_on(options: BrokerOptions) -> None:
    """Every snapshot is there, the records are, and the table follows what is written from now on."""
    clock = ManualClock()
    broker = await Broker.open(options, clock=clock)
    try:
        inside = Inside(broker, clock)
        assert await inside.snapshots() == SNAPSHOTS
        assert len((await scan(broker, "t"))[0]) == 4
        await append(broker, 5)
        await inside.work("materialise")
        assert (await inside.publish()).commits == 1
        assert await inside.snapshots() == SNAPSHOTS | {3: [0, 2, 3, 4, 5]}
        table = broker.log.ledger.tables.get("default", "t")
        assert table is not None
        assert table.location.startswith(broker.catalog.store_url)
    finally:
        await broker.close()


async def test_a_restored_table_is_where_it_was_restored_to(data: Path, tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(data))
    await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    shutil.rmtree(data)
    await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "restored")
    await goes_on(BrokerOptions(tmp_path / "restored"))


async def test_objects_of_a_directory_move_to_the_store_it_is_given(data: Path, tmp_path: Path) -> None:
    bucket = (tmp_path / "bucket").as_uri()
    await goes_on(BrokerOptions(data, objects=bucket, hot=HotRetention()))
    assert not (data / "objects").exists()
    assert [one.key async for one in open_store(bucket).list("parts/")]


async def test_a_migrated_table_keeps_its_snapshots(data: Path, tmp_path: Path) -> None:
    place = SharedPlace((tmp_path / "bucket").as_uri())
    planned = await migrate(data, place, objects="", showing=_unseen, dry_run=True)
    report = await migrate(data, place, objects="", showing=_unseen, dry_run=False)
    assert planned.files == report.files
    assert report.tables == ["default.t"]
    shutil.rmtree(data)
    await goes_on(BrokerOptions(tmp_path / "broker", place=place))


@contextmanager
def _unseen(total: int) -> Iterator[Progress]:
    assert total > 0
    yield lambda _: None
