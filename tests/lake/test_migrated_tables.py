"""Users' own tables go along when a log is moved to where several brokers share it, also by two attempts."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage import migrations
from mainstem.errors import InvalidConfig, InvalidInput
from mainstem.log.objects.migration import MigrationReport, Progress
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.commitlog.shared.open import MIGRATION_KEY, SharedPlace
from mainstem.ports.objectstore.local import LocalObjectStore
from tests.support.azure import AzureDouble
from tests.support.etcd import EtcdCluster
from tests.support.history import scan
from tests.support.wire_store import Answer, Request

from .tabling import tabling

SCHEMA = pa.schema([("x", pa.int64())])
SNAPSHOTS = [[1, 2], [2], [2, 3], [2, 3, 4]]
RECORDS = 40


def rows(*numbers: int) -> pa.Table:
    return pa.table({"x": list(numbers)}, schema=SCHEMA)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a topic, and a table of a user's with four snapshots and a file that another engine wrote."""
    data = tmp_path_factory.mktemp("lived") / "data"
    with tabling(data, "--segment-bytes", "64KiB") as lake:
        lake.topic("t")
        for _ in range(RECORDS):
            lake.write("t", "." * 4000)
        catalog = lake.catalog()
        catalog.create_namespace("mine")
        table = catalog.create_table("mine.own", SCHEMA)
        table.append(rows(1, 2))
        table.delete("x = 1")
        table.append(rows(3))
        added = data / "objects" / "elsewhere" / "added.parquet"
        added.parent.mkdir()
        pq.write_table(rows(4), added)
        table.add_files([added.as_uri()])
    asyncio.run(_stopped(data))
    for path in data.rglob("*"):
        os.utime(path, (0, 0))  # long ago
    return data.rename(data.parent / "moved")  # so that nothing is found where the table says


async def _stopped(data: Path) -> None:
    """End the log cleanly, so that what was written last counts in a dry run."""
    await (await Broker.open(BrokerOptions(data))).close()


@pytest.fixture
def data(lived: Path, tmp_path: Path) -> Path:
    return shutil.copytree(lived, tmp_path / "data")


def snapshots(location: str) -> list[list[int]]:
    table = StaticTable.from_metadata(location)
    return [
        sorted(table.scan(snapshot_id=each.snapshot_id).to_arrow()["x"].to_pylist())
        for each in table.metadata.snapshots
    ]


async def goes_on(place: SharedPlace, directory: Path) -> str:
    """All records are there. Returns where the table's metadata is by now."""
    broker = await Broker.open(BrokerOptions(directory, place=place))
    try:
        assert len((await scan(broker, "t"))[0]) == RECORDS
        table = broker.log.ledger.tables.get("mine", "own")
        assert table is not None
        assert table.location.startswith(f"{broker.catalog.store_url}/")
        return table.location
    finally:
        await broker.close()


async def moved(data: Path, place: SharedPlace, *, dry_run: bool = False) -> MigrationReport:
    return await migrations.migrate(data, place, objects="", showing=_unseen, dry_run=dry_run)


class CutOff(Exception):
    pass


class Leaving(LocalObjectStore):
    """A store that takes some puts, and no more."""

    def __init__(self, folder: Path, puts: int) -> None:
        super().__init__(folder)
        self.left = puts
        self.put_keys: list[str] = []

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        if self.left == 0:
            raise CutOff
        self.left -= 1
        self.put_keys.append(key)
        return await super().put(key, data, if_absent=if_absent)


def leaving(monkeypatch: pytest.MonkeyPatch, bucket: Path, puts: int) -> Leaving:
    store = Leaving(bucket, puts)
    monkeypatch.setattr(
        migrations,
        "open_store",
        lambda url: store if url == bucket.as_uri() else LocalObjectStore(_path(url)),
    )
    return store


def _path(url: str) -> Path:
    return Path(url.removeprefix("file://"))


async def test_a_migration_interrupted_anywhere_includes_users_tables(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path / "bucket"
    place = SharedPlace(bucket.as_uri())
    planned = await moved(data, place, dry_run=True)
    assert not bucket.exists() or not list(bucket.iterdir())
    puts: list[str] = []
    for allowed in (1, 8, 8):
        store = leaving(monkeypatch, bucket, allowed)
        with pytest.raises(CutOff):
            await moved(data, place)
        puts += store.put_keys
        with pytest.raises(InvalidConfig, match="migrate"):
            await Broker.open(BrokerOptions(tmp_path / "early", place=place))
    store = leaving(monkeypatch, bucket, 10**6)
    report = await moved(data, place)
    puts += store.put_keys
    files = [key for key in puts if not key.startswith("log/")]
    assert len(set(files)) == len(files), "what was there was copied again"
    assert len([key for key in puts if key.startswith("log/seals/")]) == report.objects
    assert (report.tables, report.files) == (["mine.own"], planned.files)
    assert not (bucket / MIGRATION_KEY).exists()
    (bucket / MIGRATION_KEY).write_text(report.log)  # as after a kill right before it is taken away
    with pytest.raises(InvalidInput, match="already"):
        await moved(data, place)
    shutil.rmtree(data)
    assert snapshots(await goes_on(place, tmp_path / "broker")) == SNAPSHOTS


async def test_a_killed_migration_resumes_in_azure(
    data: Path, tmp_path: Path, azure_double: AzureDouble
) -> None:
    """The double kills the process that asks it for the tenth put: a real one, in the middle of a request."""
    url = azure_double.url("pre")
    command = [sys.executable, "-m", "mainstem", "migrate", "--data-dir", str(data), "--store", url]
    azure_double.kill_at(put=10)
    first = await asyncio.create_subprocess_exec(*command)
    azure_double.victim = first.pid
    assert await asyncio.wait_for(first.wait(), 60) == -signal.SIGKILL
    halfway = {key: kept.generation for key, kept in azure_double.objects.items()}
    assert 8 <= len(halfway) <= 10
    second = await asyncio.create_subprocess_exec(*command)
    assert await asyncio.wait_for(second.wait(), 60) == 0
    kept = azure_double.objects
    assert [key for key, was in halfway.items() if key in kept and kept[key].generation != was] == []
    shutil.rmtree(data)
    assert (await goes_on(SharedPlace(url), tmp_path / "broker")).startswith("az://")


async def test_the_log_in_etcd_is_gone_on_with(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path / "bucket"
    with EtcdCluster(tmp_path / "etcd") as etcd:
        place = SharedPlace(bucket.as_uri(), (etcd.endpoints[0],))
        files = (await moved(data, place, dry_run=True)).files
        store = leaving(
            monkeypatch, bucket, 1 + files + 3
        )  # the note, the files, an object and half of the next
        with pytest.raises(CutOff):
            await moved(data, place)
        whole = [key for key in store.put_keys if "/seals/" in key]
        again = leaving(monkeypatch, bucket, 10**6)
        await moved(data, place)
        assert whole
        assert not {key.partition("-")[0] for key in whole} & {
            key.partition("-")[0] for key in again.put_keys
        }
        shutil.rmtree(data)
        assert snapshots(await goes_on(place, tmp_path / "broker")) == SNAPSHOTS


async def test_another_log_does_not_go_on_with_this_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path / "bucket"
    leaving(monkeypatch, bucket, 3)
    with pytest.raises(CutOff):
        await moved(data, SharedPlace(bucket.as_uri()))
    await (await Broker.open(BrokerOptions(tmp_path / "other"))).close()
    with pytest.raises(InvalidInput, match="another log"):
        await moved(tmp_path / "other", SharedPlace(bucket.as_uri()))


async def test_a_table_that_could_not_be_read_there_stays_and_is_named(data: Path, tmp_path: Path) -> None:
    manifest = next((data / "objects" / "tables").rglob("*-m0.avro"))
    manifest.unlink()
    for dry_run in (True, False):
        with pytest.raises(InvalidInput, match=r"mine\.own cannot migrate"):
            await moved(data, SharedPlace((tmp_path / "bucket").as_uri()), dry_run=dry_run)
    assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]


async def test_a_table_cannot_name_what_the_new_log_is_made_of(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "RESERVED", ("elsewhere/",))  # where a file of this one is
    with pytest.raises(
        InvalidInput, match=r"mine\.own cannot migrate: it refers to 'elsewhere/added.parquet'"
    ):
        await moved(data, SharedPlace((tmp_path / "bucket").as_uri()))


@pytest.fixture
def azure_double() -> Iterator[KillingDouble]:
    with KillingDouble() as double:
        yield double


class KillingDouble(AzureDouble):
    victim = 0

    def kill_at(self, *, put: int) -> None:
        self._puts_left = put

    def respond(self, request: Request) -> Answer:
        answer = super().respond(request)
        if self.victim and request.method == "PUT" and answer.status < 300:
            self._puts_left -= 1
            if self._puts_left == 0:
                os.kill(self.victim, signal.SIGKILL)
                self.victim = 0
        return answer


@contextmanager
def _unseen(total: int) -> Iterator[Progress]:
    yield lambda _: None
