from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import BackupDamaged, DirectoryUnusable, InvalidConfig, NotFound
from mainstem.log.backup import find_manifest, read_manifests, restore, verify
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.testing.history import scan
from mainstem.testing.server import ServerProcess
from mainstem.testing.turns import until


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
    await asyncio.sleep(0.002)  # the name of a backup is its time
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


async def test_what_was_dropped_after_a_backup_began_is_still_in_it(tmp_path: Path) -> None:
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


async def test_a_backup_without_its_manifest_is_none(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.create_topic("t")
    report = await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    (tmp_path / "backup" / "backups" / f"{report.name}.json").unlink()
    with pytest.raises(NotFound, match="no finished backup"):
        await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "restored")


async def test_a_restore_goes_into_an_empty_directory_only(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    await broker.backups.run(str(tmp_path / "backup"))
    await broker.close()
    with pytest.raises(DirectoryUnusable, match="not empty"):
        await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "data")


async def test_a_destination_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    broker = await _broker(tmp_path / "data")
    with pytest.raises(InvalidConfig):
        await broker.backups.run("ftp://somewhere")
    await broker.close()


def _mainstem(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainstem", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_line_backs_up_a_server_and_a_directory_and_brings_both_back(tmp_path: Path) -> None:
    flags = ("--text", "off", "--kafka", "off")
    with ServerProcess(tmp_path / "data", *flags) as server:
        url = f"http://{server.address('http')}"
        httpx.post(f"{url}/v0/topics/orders", json={"records": [{"data": {"id": 1}}]}).raise_for_status()
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
