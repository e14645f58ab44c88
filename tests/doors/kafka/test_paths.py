"""How many files of the package a produce and a fetch cross. ARCHITECTURE.md names the bounds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ports.commitlog.local import log
from tests.support.batches import batch
from tests.support.crossings import ANSWER, Crossed, fewest, tracing
from tests.support.lake import Worker
from tests.support.machine import Machine

from .conftest import KafkaStage, opened
from .requests import fetch, produce

FIRST_PRODUCE_FILES_MAX = 16  # the first request of a connection is parsed
PRODUCE_FILES_MAX = 14  # those that begin like the one before are not
FETCH_FILES_MAX = 12
FIRST_TABLE_FILES_MAX = 36  # of records that only the file of a table has
TABLE_FILES_MAX = 14  # once the file is read and decoded

PRODUCE_VERSION = 9
FETCH_VERSION = 12


@pytest.fixture
def crossed() -> Iterator[Crossed]:
    with tracing() as found:
        yield found


@pytest.fixture
async def stage(
    crossed: Crossed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KafkaStage]:
    # The path while the disk is fast: after a slow write, a thread writes for a while.
    monkeypatch.setattr(log, "SHORTCUT_SLOW_S", float("inf"))
    broker = await Broker.open(BrokerOptions(tmp_path))
    await broker.create_topic("t")
    await broker.append_values("t", [b"value"])
    async with opened(broker) as stage:
        yield stage
    await broker.close()


async def test_a_produce_crosses_few_files_from_the_socket_to_pwritev(
    crossed: Crossed, stage: KafkaStage
) -> None:
    firsts, laters = [], []
    for _ in range(3):
        wire = await stage.connect()
        for found in (firsts, laters, laters):
            request = produce(PRODUCE_VERSION, "t", batch(b"value")[0])
            with crossed.until(os.pwritev):
                await wire.ask(request)
            assert "ports/files.py" in crossed.files, "the trace sees the write"
            found.append(crossed.files)
    assert len(fewest(firsts)) <= FIRST_PRODUCE_FILES_MAX, "\n".join(fewest(firsts))
    assert len(fewest(laters)) <= PRODUCE_FILES_MAX, fewest(laters)


async def test_a_fetch_from_memory_crosses_few_files(crossed: Crossed, stage: KafkaStage) -> None:
    wire = await stage.connect()
    found = []
    for _ in range(3):
        with crossed.until(ANSWER):
            await wire.ask(fetch(FETCH_VERSION, "t", (0, 0), rack=""))
        assert "log/read/tail.py" in crossed.files, "the trace sees the read"
        found.append(crossed.files)
    assert len(fewest(found)) <= FETCH_FILES_MAX, fewest(found)


async def test_a_fetch_from_the_file_of_a_table_crosses_few_files(crossed: Crossed) -> None:
    machine = Machine()
    broker = await machine.open()
    await broker.create_topic("t")
    for number in range(40):
        await broker.append_values("t", [b"%d" % number + bytes(200)] * 10)
    assert machine.port is not None
    await Worker(broker, machine.port).run("materialise")
    broker = await machine.restart()
    async with opened(broker) as stage:
        wire = await stage.connect()
        found = []
        for offset in (0, 100, 200):
            with crossed.until(ANSWER):
                await wire.ask(fetch(FETCH_VERSION, "t", (0, offset), rack=""))
            assert "log/read/parts.py" in crossed.files, "the trace sees the file"
            found.append(crossed.files)
    await broker.close()
    assert len(found[0]) <= FIRST_TABLE_FILES_MAX, "\n".join(found[0])
    assert len(fewest(found)) <= TABLE_FILES_MAX, "\n".join(fewest(found))
