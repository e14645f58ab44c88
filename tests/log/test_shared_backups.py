"""The log of several brokers is copied to another store while they write, and works there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage.shared_backups import back_up_shared
from mainstem.errors import InvalidInput, ObjectMissing
from mainstem.log.log import LogOptions
from mainstem.log.objects.migration import Migration, MigrationPlan
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.objectstore.local import LocalObjectStore
from tests.support.history import scan

from .cell import Cell

REPACK = RepackOptions(on=False, after_objects=2, least_bytes=0, bytes_per_s=0, grace_s=0.0)


class Brokers(Cell):
    """Two brokers over a folder, with small objects. The first maintains the log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalObjectStore(folder), object_bytes=4096)  # type: ignore[arg-type]
        self.place = SharedPlace(folder.as_uri())

    async def start(self) -> None:
        for number in (1, 2):
            options = LogOptions(
                broker=number, boot_id=f"{number}", shared=True, checkpoint_every_bytes=4_000, repack=REPACK
            )
            broker = await self.add(options, objects=self.store)
            if number == 1:
                broker.log.maintains = lambda: True

    async def write(self, count: int) -> None:
        for number in range(count):
            broker = self.brokers[number % 2]
            await broker.append_values("t", [b"%d" % number + b"." * 300])

    async def scan(self) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
        """All records, those of the other broker included."""
        await self.meet()
        return await scan(self.brokers[0], "t")

    async def tidy(self) -> None:
        """Seal and checkpoint, and repack the sealed objects."""
        one = self.brokers[0].log
        await one.upkeep().round()
        assert one.repacker is not None
        while await one.repacker.step():
            pass
        await one.upkeep().round()


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path / "bucket")
    await made.start()
    await made.brokers[0].create_topic("t")
    await made.meet()
    yield made
    await made.close()


@contextmanager
def unseen(total: int) -> Any:
    yield lambda done: None


async def test_a_copy_is_of_one_moment_and_brokers_can_open_it(cell: Brokers, tmp_path: Path) -> None:
    """With repacked files, sealed objects, and one that is still written to."""
    await cell.write(60)
    await cell.tidy()
    await cell.write(20)
    await cell.meet()
    before, _ = await cell.scan()
    assert cell.brokers[0].log.ledger.repacked.rounds
    writing = asyncio.ensure_future(cell.write(30))
    copy = SharedPlace((tmp_path / "copy").as_uri())
    report = await back_up_shared(cell.place, copy, showing=unseen)
    await writing
    await cell.meet()
    after, _ = await cell.scan()
    assert len(before) <= report.records <= len(after)
    with pytest.raises(InvalidInput, match="already"):
        await back_up_shared(cell.place, copy, showing=unseen)
    back = SharedPlace((tmp_path / "back").as_uri())
    await back_up_shared(copy, back, showing=unseen)
    for place in (copy, back):
        broker = await Broker.open(BrokerOptions(tmp_path / f"of-{Path(place.store).name}", place=place))
        found, lost = await scan(broker, "t")
        assert not lost
        assert before.items() <= found.items() <= after.items()
        assert len(found) == report.records
        assert (await broker.append_values("t", [b"more"])).base_offset == report.records
        await broker.close()
    again, _ = await cell.scan()
    assert again == after  # the two copies are independent from here on


async def test_objects_deleted_meanwhile_are_found_in_the_newer_state(
    cell: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cell.write(80)
    await cell.brokers[0].log.upkeep().round()
    before, _ = await cell.scan()
    run, attempts = Migration.run, 0

    async def late(migration: Migration, plan: MigrationPlan) -> None:
        nonlocal attempts
        attempts += 1
        planned = {one.number for one, _ in plan.objects}
        while attempts == 1 and planned <= {one.number for one in cell.ports[cell.brokers[0]].objects()}:
            await cell.write(10)  # else no checkpoint releases the old objects
            await cell.tidy()
        await run(migration, plan)

    monkeypatch.setattr(Migration, "run", late)
    copy = SharedPlace((tmp_path / "copy").as_uri())
    await back_up_shared(cell.place, copy, showing=unseen)
    assert attempts == 2
    broker = await Broker.open(BrokerOptions(tmp_path / "of-copy", place=copy))
    found, lost = await scan(broker, "t")
    assert found.items() >= before.items()
    assert lost == []
    await broker.close()


async def test_a_file_that_the_store_lost_is_named_and_no_copy_is_made(cell: Brokers, tmp_path: Path) -> None:
    await cell.write(40)
    await cell.brokers[0].log.upkeep().round()
    lost = min(path for path in (tmp_path / "bucket" / "log" / "objects").rglob("*") if path.is_file())
    lost.unlink()
    copy = SharedPlace((tmp_path / "copy").as_uri())
    with pytest.raises(ObjectMissing, match="lost"):
        await back_up_shared(cell.place, copy, showing=unseen)


def test_the_command_line_copies_a_shared_log_and_creates_none(tmp_path: Path) -> None:
    nowhere, copy = (tmp_path / "nowhere").as_uri(), str(tmp_path / "copy")
    command = [sys.executable, "-m", "mainstem", "backup", copy, "--store", nowhere]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "no log in" in ran.stderr
    assert not list((tmp_path / "nowhere").rglob("*"))
