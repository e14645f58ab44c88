"""Data directories to check: one that was closed, one whose server was killed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker
from tests.support.stored import StoredLog, options, write_records


@pytest.fixture(scope="session")
def closed_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed twice: every segment sealed, two checkpoints, a group offset."""
    directory = tmp_path_factory.mktemp("closed") / "data"

    async def write() -> None:
        for rounds in (60, 40):
            broker = await Broker.open(options(directory))
            await write_records(broker, rounds)
            await broker.commit_offset("readers", "orders", 7)
            await broker.close()

    asyncio.run(write())
    return directory


@pytest.fixture(scope="session")
def crashed_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed once, then killed: a checkpoint, and a segment after it that is not sealed."""
    root = tmp_path_factory.mktemp("crashed")

    async def write() -> None:
        broker = await Broker.open(options(root / "live"))
        await write_records(broker, 40)
        await broker.close()
        broker = await Broker.open(options(root / "live", segment_bytes=1 << 20))
        await write_records(broker, 30)
        await broker.log.sync()
        shutil.copytree(root / "live", root / "data")
        await broker.close()

    asyncio.run(write())
    return root / "data"


@pytest.fixture
def closed(closed_log: Path, tmp_path: Path) -> StoredLog:
    return StoredLog(Path(shutil.copytree(closed_log, tmp_path / "data")))


@pytest.fixture
def crashed(crashed_log: Path, tmp_path: Path) -> StoredLog:
    return StoredLog(Path(shutil.copytree(crashed_log, tmp_path / "data")))
