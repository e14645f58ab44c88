from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import BackupDamaged, DirectoryUnusable, InvalidConfig, NotFound, ObjectMissing
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.backup import find_manifest, read_manifests, restore, verify
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import HotRetention, check_owned, missing_notes
from mainstem.ports.clock import SystemClock, SystemRandom
from mainstem.ports.commitlog.local.tiered import TieredCommitLog
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.port import StoredObject
from mainstem.testing.server import ServerProcess
from tests.support.history import scan
from tests.support.waiting import until


async def _broker(directory: Path, *, segment_bytes: int = 64 * 1024) -> Broker:
    return await Broker.open(BrokerOptions(directory, segment_bytes=segment_bytes))


async def _restored(backup: Path, directory: Path) -> tuple[dict[int, bytes], int]:
    await restore(LocalObjectStore(backup), directory)
    broker = await _broker(directory)
    records, losses = await scan(broker, "t")
    assert losses == []
    end = broker.partition("t").end
    await broker.close()
    return records, end


async def test_a_backup_holds_what_was_acked_before_it_and_nothing_twice(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.create_topic("t")
    acked: dict[int, bytes] = {}
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            value = b"%d" % len(acked) + b"." * 1000
            acked[(await broker.append_values("t", [value])).base_offset] = value

    writing = asyncio.ensure_future(write())
    await until(lambda: len(acked) >= 200)
    before = dict(acked)
    report = await broker.backups.run(str(tmp_path / "backup"))
    stop.set()
    await writing
    await broker.close()
    assert report.files > 2
    assert report.bytes == report.copied_bytes > 200_000
    records, end = await _restored(tmp_path / "backup", tmp_path / "restored")
    assert before.items() <= records.items() <= acked.items()
    assert sorted(records) == list(range(end))


async def test_a_second_backup_copies_only_what_is_new_and_both_can_be_restored(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.create_topic("t")
    for number in range(300):
        await broker.append_values("t", [b"%d" % number + b"." * 1000])
    first = await broker.backups.run(str(tmp_path / "backup"))
    await asyncio.sleep(0.002)  # a backup's name is its time
    await broker.append_values("t", [b"one more"])
    second = await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    assert second.copied_bytes < first.copied_bytes / 2
    assert second.position > first.position
    store = LocalObjectStore(tmp_path / "backup")
    assert len(await read_manifests(store)) == 2
    await restore(store, tmp_path / "first", first.name)
    older = await _broker(tmp_path / "first")
    assert older.partition("t").end == 300
    await older.close()
    assert len((await _restored(tmp_path / "backup", tmp_path / "second"))[0]) == 301


async def test_a_backup_includes_files_deleted_after_it_began(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.create_topic("t")
    for number in range(300):
        await broker.append_values("t", [b"%d" % number + b"." * 1000])
    backing_up = asyncio.ensure_future(broker.backups.run(str(tmp_path / "backup")))
    await until((tmp_path / "data" / ".backup" / "wal").exists)
    await broker.trim("t", 300)
    await broker.log.collect()
    await backing_up
    await broker.close()
    assert not (tmp_path / "data" / ".backup").exists()
    assert len((await _restored(tmp_path / "backup", tmp_path / "restored"))[0]) == 300


async def test_damage_in_a_backup_is_found_and_named(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.create_topic("t")
    await broker.append_values("t", [b"x" * 5000])
    await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    store = LocalObjectStore(tmp_path / "backup")
    manifest = await find_manifest(store)
    await verify(store, manifest)
    wal = next(file for file in manifest.files if file.path.startswith("wal/"))
    chunk = tmp_path / "backup" / wal.chunks[0].key
    damaged = bytearray(chunk.read_bytes())
    damaged[100] ^= 1
    chunk.write_bytes(damaged)
    for work in (verify(store, manifest), restore(store, tmp_path / "restored")):
        with pytest.raises(BackupDamaged, match=wal.path):
            await work
    assert not (tmp_path / "restored" / "FORMAT").exists()
    chunk.unlink()
    with pytest.raises(BackupDamaged, match="missing"):
        await verify(store, manifest)


async def test_a_backup_without_a_manifest_does_not_count(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.create_topic("t")
    report = await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    (tmp_path / "backup" / "backups" / f"{report.name}.json").unlink()
    with pytest.raises(NotFound, match="no complete backup"):
        await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "restored")


async def test_a_restore_goes_into_an_empty_directory_only(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    with pytest.raises(DirectoryUnusable, match="not empty"):
        await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "data")


async def test_an_invalid_destination_is_refused(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    with pytest.raises(InvalidConfig):
        await broker.backups.run("ftp://somewhere")
    await broker.close()


async def _tiered(directory: Path, bucket: Path) -> Broker:
    """Few files stay on disk, and the test decides when the oldest in the bucket are repacked."""
    now = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0, merged_rounds=2, grace_s=0.0)
    store, clock = LocalObjectStore(bucket), SystemClock()
    port = await TieredCommitLog.open_tiered(directory, store, segment_bytes=4096, prepare_ahead=False)
    options = LogOptions(boot_id="test", checkpoint_every_bytes=0, repack=now)
    log = await Log.open(port, clock, options, InlineCheckpointer(port), store)
    await check_owned(port, store, log.ledger)
    assert not await missing_notes(port, log.ledger)
    log.tier(store, clock, SystemRandom(), HotRetention(retain_bytes=0, retain_segments=2))
    return Broker(log, BrokerOptions(directory), clock, SystemRandom())


def _cold(broker: Broker) -> list[int]:
    """Files that only the bucket has, and that were not repacked."""
    frontier = broker.log.ledger.repacked.frontier
    return [one.number for one in broker.log.stored_objects().objects if one.cold and one.number >= frontier]


async def _write_until_cold(broker: Broker, objects: int) -> None:
    """Files leave the disk only behind checkpoints, and checkpoints need writes."""
    for _ in range(1000):
        value = b"%d" % broker.partition("t").end + b"." * 1000
        await broker.append_values("t", [value])
        if len(_cold(broker)) >= objects:
            return
    raise AssertionError("the disk keeps everything")


async def _in_every_tier(directory: Path, bucket: Path) -> tuple[Broker, dict[int, bytes]]:
    """A broker with records on disk, in cold files, and in repacked files of the bucket."""
    broker = await _tiered(directory, bucket)
    await broker.create_topic("t")
    await _write_until_cold(broker, 3)
    assert broker.log.repacker is not None
    assert await broker.log.repacker.step()
    await _write_until_cold(broker, 3)
    assert broker.log.ledger.repacked.rounds
    records, losses = await scan(broker, "t")
    assert not losses
    return broker, records


async def _at_rest(broker: Broker) -> None:
    """Wait until nothing is left to move."""
    assert broker.log.tiering is not None
    before: object = None
    while before != (before := (broker.log.stored_objects().objects, broker.log.ledger.position)):
        await broker.log.tiering.round()
        await asyncio.sleep(0.02)


async def test_a_backup_includes_the_object_store_and_restores_without_it(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    broker, written = await _in_every_tier(tmp_path / "data", bucket)
    report = await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    assert report.store_files >= 4  # cold and repacked files
    shutil.rmtree(bucket)
    shutil.rmtree(tmp_path / "data")
    store = LocalObjectStore(tmp_path / "backup")
    await verify(store, await find_manifest(store))

    assert await _restored(tmp_path / "backup", tmp_path / "plain") == (written, len(written))
    # As an independent directory it may use its own bucket, like any other.
    elsewhere = LocalObjectStore(tmp_path / "elsewhere")
    await restore(store, tmp_path / "again", objects=elsewhere)
    again = await _tiered(tmp_path / "again", tmp_path / "elsewhere")
    assert _cold(again)
    assert await scan(again, "t") == (written, [])
    await _write_until_cold(again, 6)  # files leave the disk for the new bucket
    assert (await scan(again, "t"))[1] == []
    assert written.items() <= (await scan(again, "t"))[0].items()
    await again.close()
    with pytest.raises(DirectoryUnusable, match="has files of this log already"):
        await restore(store, tmp_path / "third", objects=elsewhere)


async def test_a_backup_has_the_files_of_its_position_although_the_log_moves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold files that are repacked after the log's files were linked are still cold in the backup."""
    broker, written = await _in_every_tier(tmp_path / "data", tmp_path / "bucket")
    cold_before = _cold(broker)
    listing = LocalObjectStore.list
    moves = iter([True])

    async def list_later(store: LocalObjectStore, prefix: str = "") -> AsyncIterator[StoredObject]:
        if next(moves, False):
            assert broker.log.repacker is not None
            assert broker.log.tiering is not None
            while any(broker.log.ledger.tiers.stored(number) for number in cold_before):
                await broker.log.repacker.step()
                await broker.append_values("t", [bytes(1000)])  # files leave only behind checkpoints
                await broker.log.tiering.round()
        async for found in listing(store, prefix):
            yield found

    monkeypatch.setattr(LocalObjectStore, "list", list_later)
    await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    assert await _restored(tmp_path / "backup", tmp_path / "plain") == (written, len(written))


async def test_a_second_backup_of_a_tiered_log_reads_the_store_only_for_what_is_new(tmp_path: Path) -> None:
    broker, _ = await _in_every_tier(tmp_path / "data", tmp_path / "bucket")
    for _ in range(2):  # the first seals an object, which may be tiered
        await _at_rest(broker)
        await broker.backups.run(str(tmp_path / "backup"))
    await _at_rest(broker)
    for path in (tmp_path / "bucket" / "tiers").rglob("*-*/0"):
        path.write_bytes(bytes(path.stat().st_size))  # the backup must not read it
    again = await broker.backups.run(str(tmp_path / "backup"))
    assert again.copied_bytes < 8192  # of the open file
    await broker.close()
    await verify(
        LocalObjectStore(tmp_path / "backup"), await find_manifest(LocalObjectStore(tmp_path / "backup"))
    )


async def test_an_incomplete_backup_is_not_made(tmp_path: Path) -> None:
    broker, _ = await _in_every_tier(tmp_path / "data", tmp_path / "bucket")
    for lost in (next((tmp_path / "bucket" / "repacked").iterdir()), _cold_part(broker, tmp_path / "bucket")):
        moved = lost.rename(tmp_path / "aside")
        with pytest.raises(ObjectMissing, match="would be incomplete"):
            await broker.backups.run(str(tmp_path / "backup"))
        moved.rename(lost)
    await broker.close()
    assert await read_manifests(LocalObjectStore(tmp_path / "backup")) == []


def _cold_part(broker: Broker, bucket: Path) -> Path:
    return next((bucket / "tiers").glob(f"*/{_cold(broker)[0]:020d}-*/0"))


async def test_nothing_is_deleted_from_the_store_during_a_backup(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    broker, written = await _in_every_tier(tmp_path / "data", bucket)
    repacker = broker.log.repacker
    assert repacker is not None
    before = set((bucket / "repacked").iterdir())
    with broker.log.store_copies.one():
        while await repacker.step():  # merged: the files that the backup names are garbage now
            pass
        assert broker.log.ledger.repacked.garbage()
        assert await repacker.clean() == 0
        assert before <= set((bucket / "repacked").iterdir())
    assert await repacker.clean() > 0
    assert await scan(broker, "t") == (written, [])
    await broker.close()


def _mainstem(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainstem", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_line_backs_up_and_restores_a_server_and_a_directory(tmp_path: Path) -> None:
    flags = ("--text", "off", "--kafka", "off")
    with ServerProcess(tmp_path / "data", *flags) as server:
        url = f"http://{server.address('http')}"
        written = {"records": [{"data": {"id": 1}}]}
        httpx.post(f"{url}/v0/topics/orders", json=written, timeout=60).raise_for_status()
        for name in ("dropped", "orders-value"):
            schema = {
                "schema": json.dumps({"type": "enum", "name": name.partition("-")[0], "symbols": ["one"]})
            }
            httpx.post(f"{url}/subjects/{name}/versions", json=schema, timeout=60).raise_for_status()
        for permanent in ("false", "true"):
            gone = httpx.delete(f"{url}/subjects/dropped?permanent={permanent}", timeout=60)
            gone.raise_for_status()
        made = _mainstem("backup", str(tmp_path / "online"), "--url", url)
        assert made.returncode == 0, made.stderr
        locked = _mainstem("backup", str(tmp_path / "offline"), "--data-dir", str(tmp_path / "data"))
        assert locked.returncode == 1
        assert "--url" in locked.stderr
        server.kill()
    made = _mainstem("backup", str(tmp_path / "offline"), "--data-dir", str(tmp_path / "data"))
    assert made.returncode == 0, made.stderr
    for name in ("online", "offline"):
        target = tmp_path / f"restored-{name}"
        back = _mainstem("restore", str(tmp_path / name), "--data-dir", str(target))
        assert back.returncode == 0, back.stderr
        shown = _mainstem("consume", "orders", "-o", "start", "--data-dir", str(target), "--json")
        assert json.loads(shown.stdout)["value"] == '{"id":1}', shown.stderr
        with ServerProcess(target, *flags) as server:
            kept = httpx.get(f"http://{server.address('http')}/subjects/orders-value/versions/1", timeout=60)
        assert kept.json()["id"] == 2
