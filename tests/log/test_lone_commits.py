"""A commit that nothing else waits behind is written and synced where its request is, without a thread hand-over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import ReadOnly
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import Log
from mainstem.ports.clock import SystemClock
from mainstem.ports.commitlog.local.log import SHORTCUT_SLOW_S, LocalCommitLog
from tests.support.files import SimFiles
from tests.support.machine import DIRECTORY, CountingRandom


class Opened:
    """A broker on a simulated disk, whose syncs note the thread they run on."""

    def __init__(self, files: SimFiles, port: LocalCommitLog, broker: Broker) -> None:
        self.files = files
        self.port = port
        self.broker = broker
        self.threads: list[str] = []
        sync = port._writer.sync

        def noted(*, last: bool = False) -> int:
            self.threads.append(threading.current_thread().name)
            return sync(last=last)

        port._writer.sync = noted  # type: ignore[method-assign]

    async def append(self, value: bytes = b"x") -> int:
        return (await self.broker.append_values("t", [value])).base_offset

    async def learn(self) -> None:
        """Append until the log knows that its syncs are fast."""
        for _ in range(100):
            await self.append()
            if self.threads[-1] == HERE:
                self.threads.clear()
                return
        raise AssertionError("no sync ran on the loop")


HERE = threading.main_thread().name


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    files = SimFiles()
    port = await LocalCommitLog.open(DIRECTORY, files=files, prepare_ahead=False)
    log = await Log.open(port, SystemClock())
    broker = Broker(log, BrokerOptions(DIRECTORY), SystemClock(), CountingRandom())
    await broker.create_topic("t", config=TopicConfig(durability="fsync"))
    yield Opened(files, port, broker)
    await broker.close()


async def test_a_lone_append_is_synced_on_the_loop_once_syncs_were_fast(opened: Opened) -> None:
    await opened.learn()
    first = await opened.append()
    assert [await opened.append() for _ in range(5)] == list(range(first + 1, first + 6))
    assert set(opened.threads) == {HERE}


async def test_the_first_syncs_are_taken_to_be_slow(opened: Opened) -> None:
    await opened.append()
    assert HERE not in opened.threads


async def test_appends_that_come_together_are_synced_on_the_thread(opened: Opened) -> None:
    await opened.learn()
    await asyncio.gather(*(opened.append() for _ in range(3)))
    assert HERE not in opened.threads


async def test_no_sync_runs_on_the_loop_right_after_another_client_sent_something(opened: Opened) -> None:
    await opened.learn()
    turns = opened.broker.streams.turns
    turns.last, turns.changed_at = object(), asyncio.get_running_loop().time()
    await opened.append()
    assert HERE not in opened.threads


async def test_a_slow_sync_keeps_the_next_ones_off_the_loop(opened: Opened) -> None:
    await opened.learn()
    opened.port._shortcut.synced(100 * SHORTCUT_SLOW_S)
    await opened.append()
    assert HERE not in opened.threads


async def test_syncs_that_are_slow_on_average_stay_off_the_loop(opened: Opened) -> None:
    await opened.learn()
    for _ in range(20):
        opened.port._shortcut.synced(2 * SHORTCUT_SLOW_S)
    opened.port._shortcut._syncs_closed_until = 0.0
    await opened.append()
    assert HERE not in opened.threads


async def test_a_sync_that_fails_on_the_loop_stops_all_writes_and_shows_nothing(opened: Opened) -> None:
    await opened.learn()
    end = opened.broker.partition("t").end
    opened.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await opened.append(b"lost")
    assert opened.threads == [HERE]
    with pytest.raises(ReadOnly):
        await opened.append()
    assert opened.broker.partition("t").end == end


async def test_a_relaxed_append_is_not_synced(opened: Opened) -> None:
    await opened.broker.create_topic("relaxed", config=TopicConfig(durability="disk"))
    await opened.broker.append_values("relaxed", [b"raises the ceiling"])
    await opened.learn()
    await opened.broker.append_values("relaxed", [b"x"])
    assert opened.threads == []


async def test_a_cancelled_lone_append_is_written_all_the_same(opened: Opened, tmp_path: Path) -> None:
    await opened.learn()
    end = opened.broker.partition("t").end
    cancelled = asyncio.ensure_future(opened.append())
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await opened.append() == end + 1
