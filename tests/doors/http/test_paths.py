"""How many files of the package an HTTP write crosses. ARCHITECTURE.md names the bound."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.door import HttpDoor
from mainstem.ports.commitlog.local import log
from tests.support.crossings import Crossed, fewest, tracing

POST_FILES_MAX = 28
WRITE = b'{"records":[{"data":1}]}'


@pytest.fixture
def crossed() -> Iterator[Crossed]:
    with tracing() as found:
        yield found


async def test_a_post_crosses_few_files_from_the_socket_to_pwritev(
    crossed: Crossed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "SHORTCUT_SLOW_S", float("inf"))
    broker = await Broker.open(BrokerOptions(tmp_path))
    await broker.create_topic("t")
    door = HttpDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    found = []
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = b"POST /v0/topics/t HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    for _ in range(4):
        with crossed.until(os.pwritev):
            writer.write(head % len(WRITE) + WRITE)
            assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 200")
        assert "ports/files.py" in crossed.files, "the trace sees the write"
        found.append(crossed.files)
    writer.close()
    await door.stop(1.0)
    await broker.close()
    assert len(fewest(found[1:])) <= POST_FILES_MAX, "\n".join(fewest(found[1:]))
