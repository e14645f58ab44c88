"""One process owns a data directory, whatever happens to its files."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import DirectoryLocked, ReadOnly
from mainstem.ports.commitlog.local.locking import block_owner
from mainstem.testing.server import ServerProcess


def test_a_second_server_is_refused_although_the_lock_file_was_deleted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as first:
        url = f"http://{first.address('http')}/v0/topics/t"
        httpx.post(url, json={"records": [{"data": 1}]}, timeout=60).raise_for_status()
        (data / "LOCK").unlink()
        ports = first.ports_file.read_text()
        second = ServerProcess(data)
        try:
            with pytest.raises(RuntimeError, match="is in use"):
                second.wait_ready()
        finally:
            second.__exit__(None, None, None)
        first.ports_file.write_text(ports)
        with block_owner(data) as free:
            assert not free
        httpx.post(url, json={"records": [{"data": 2}]}, timeout=60).raise_for_status()
        assert first.terminate() == 0
    with ServerProcess(data) as third:
        answer = httpx.post(f"http://{third.address('http')}/v0/topics/t/diff", json={}, timeout=60).json()
        assert [record["data"] for record in answer["records"]] == [1, 2]


@pytest.mark.parametrize("how", ["deleted", "replaced", "folder moved"])
async def test_a_log_whose_file_is_replaced_under_it_stops_writing(tmp_path: Path, how: str) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    try:
        await broker.create_topic("t")
        await broker.append_values("t", [b"1"])
        wal = tmp_path / "data" / "wal"
        (path,) = wal.iterdir()
        if how == "folder moved":
            wal.rename(tmp_path / "elsewhere")
        else:
            content = path.read_bytes()
            path.unlink()
            if how == "replaced":
                path.write_bytes(content)
        with pytest.raises(ReadOnly, match="deleted, moved or replaced"):
            await broker.append_values("t", [b"2"])
        with pytest.raises(ReadOnly, match="deleted, moved or replaced"):
            await broker.append_values("t", [b"3"])
        assert not (tmp_path / "data" / "SUSPECT").exists()
        assert (await broker.read("t", 0))[0].value == b"1"
    finally:
        await broker.close()


async def test_the_directory_itself_is_locked(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    (tmp_path / "data" / "LOCK").unlink()
    with pytest.raises(DirectoryLocked):
        await Broker.open(BrokerOptions(tmp_path / "data"))
    await broker.close()
    again = await Broker.open(BrokerOptions(tmp_path / "data"))
    await again.close()
