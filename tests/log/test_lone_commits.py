"""A commit that nothing else waits behind is written and synced where its request is, without a thread hand-over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.append import promise
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.writes import NewRecords, WriteOutcome
from mainstem.errors import ReadOnly
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import Log
from mainstem.ports.clock import SystemClock
from mainstem.ports.commitlog.local.log import SHORTCUT_SLOW_S, LocalCommitLog, Shortcut
from tests.support.files import SimFiles
from tests.support.machine import DIRECTORY, CountingRandom
from tests.support.waiting import until


class NotingCommitLog(LocalCommitLog):
    """Notes where its syncs run."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.syncs: list[str] = []

    def sync_now(self, position: int) -> float | None:
        self.syncs.append("loop")
        return super().sync_now(position)

    async def sync(self) -> int:
        self.syncs.append("thread")
        return await super().sync()


class Opened:
    """A broker on a simulated disk."""

    def __init__(self, files: SimFiles, port: NotingCommitLog, broker: Broker) -> None:
        self.files = files
        self.port = port
        self.broker = broker

    async def append(self, value: bytes = b"x") -> int:
        return (await self.broker.append_values("t", [value])).base_offset

    async def learn(self) -> None:
        """Append until the log knows that its syncs are fast."""
        for _ in range(1000):
            await self.append()
            if self.port.syncs[-1] == "loop":
                self.port.syncs.clear()
                return
        raise AssertionError("no sync ran on the loop")


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    # What is slow on a machine that runs other tests is of no interest here.
    monkeypatch.setattr("mainstem.ports.commitlog.local.log.SHORTCUT_SLOW_S", 60.0)
    monkeypatch.setattr("mainstem.ports.commitlog.local.log.SHORTCUT_SLOW_S", 60.0)
    files = SimFiles()
    port = await NotingCommitLog.open(DIRECTORY, files=files, prepare_ahead=False)
    log = await Log.open(port, SystemClock())
    broker = Broker(log, BrokerOptions(DIRECTORY), SystemClock(), CountingRandom())
    await broker.create_topic("t", config=TopicConfig(durability="fsync"))
    yield Opened(files, port, broker)
    await broker.close()


async def test_a_lone_append_is_synced_on_the_loop_once_syncs_were_fast(opened: Opened) -> None:
    await opened.learn()
    first = await opened.append()
    assert [await opened.append() for _ in range(5)] == list(range(first + 1, first + 6))
    assert opened.port.syncs == ["loop"] * 6


async def test_appends_that_come_together_are_synced_on_the_thread(opened: Opened) -> None:
    await opened.learn()
    await asyncio.gather(*(opened.append() for _ in range(3)))
    assert "loop" not in opened.port.syncs


async def test_no_sync_runs_on_the_loop_right_after_another_client_sent_something(opened: Opened) -> None:
    await opened.learn()
    activity = opened.broker.streams.client_activity
    activity.last, activity.changed_at = object(), asyncio.get_running_loop().time()
    await opened.append()
    assert "loop" not in opened.port.syncs


def test_the_shortcut_opens_to_syncs_once_they_are_fast_and_closes_after_a_slow_one() -> None:
    shortcut = Shortcut()
    assert not shortcut.open_to_syncs
    for _ in range(30):
        shortcut.synced(SHORTCUT_SLOW_S / 10)
    assert shortcut.open_to_syncs
    shortcut.synced(100.0)
    assert not shortcut.open_to_syncs


def test_the_shortcut_stays_closed_to_syncs_that_are_slow_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ports.commitlog.local.log.SHORTCUT_CLOSED_FACTOR", 0)
    shortcut = Shortcut()
    for _ in range(30):
        shortcut.synced(SHORTCUT_SLOW_S * 2)
    assert not shortcut.open_to_syncs


async def test_a_sync_that_fails_on_the_loop_stops_all_writes_and_shows_nothing(opened: Opened) -> None:
    await opened.learn()
    end = opened.broker.partition("t").end
    opened.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await opened.append(b"lost")
    assert opened.port.syncs == ["loop"]
    with pytest.raises(ReadOnly):
        await opened.append()
    assert opened.broker.partition("t").end == end


async def test_a_relaxed_append_is_not_synced(opened: Opened) -> None:
    await opened.broker.create_topic("relaxed", config=TopicConfig(durability="disk"))
    await opened.broker.append_values("relaxed", [b"raises the ceiling"])
    await opened.learn()
    await opened.broker.append_values("relaxed", [b"x"])
    assert opened.port.syncs == []


async def test_a_cancelled_lone_append_is_written_all_the_same(opened: Opened) -> None:
    await opened.learn()
    end = opened.broker.partition("t").end
    cancelled = asyncio.ensure_future(opened.append())
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await opened.append() == end + 1


def _write(opened: Opened) -> Coroutine[Any, Any, WriteOutcome]:
    records = NewRecords([b"x"], sizes=[1])
    return opened.broker.writes.write("t", records, config=TopicConfig, lone=True)


async def test_the_only_request_is_answered_in_the_step_that_writes_it(opened: Opened) -> None:
    await opened.learn()
    activity = opened.broker.streams.client_activity
    activity.tasks = 1
    with pytest.raises(StopIteration) as answered:
        _write(opened).send(None)  # not suspended even once
    assert answered.value.value.base == opened.broker.partition("t").end - 1
    assert opened.port.syncs == ["loop"]


async def test_requests_of_several_tasks_share_a_commit(opened: Opened) -> None:
    await opened.learn()
    opened.broker.streams.client_activity.tasks = 2
    end = opened.port.end
    await asyncio.gather(_write(opened), _write(opened))
    assert opened.port.end == end + 1
    assert "loop" not in opened.port.syncs


async def test_what_a_lone_client_proposed_is_written_once_its_request_was_read(opened: Opened) -> None:
    await opened.learn()
    activity = opened.broker.streams.client_activity
    activity.reading = True
    placed = [promise(), promise()]
    for waiter in placed:
        opened.broker.appends.value(opened.broker.topic("t"), b"x", waiter)
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in placed)
    activity.reading = False
    end = opened.port.end
    activity.write()
    assert opened.port.end == end + 1  # one commit
    first, second = await asyncio.gather(*placed)
    assert second[0] == first[0] + 1


async def test_kernel_syncs_follow_each_other_without_the_task(tmp_path: Path) -> None:
    """Appends that come while the kernel syncs are synced next, and a failure of that one stops the log."""
    port = await LocalCommitLog.open(tmp_path / "log", prepare_ahead=False)
    log = await Log.open(port, SystemClock())
    broker = Broker(log, BrokerOptions(tmp_path / "log"), SystemClock(), CountingRandom())
    await broker.create_topic("t", config=TopicConfig(durability="fsync"))
    ends: list[Callable[[int, Exception | None], None]] = []

    def sync_soon(ended: Callable[[int, Exception | None], None]) -> bool:
        ends.append(ended)
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(port, "sync_soon", sync_soon)
        patched.setattr(port, "syncs_now", lambda: False)
        first = asyncio.ensure_future(broker.append_values("t", [b"1"]))
        await until(lambda: len(ends) == 1)
        covered = port.end
        second = asyncio.ensure_future(broker.append_values("t", [b"2"]))
        await until(lambda: port.end == covered + 1)
        assert len(ends) == 1
        ends[0](covered, None)
        assert (await first).base_offset == 0
        assert not second.done()
        await until(lambda: len(ends) == 2)
        ends[1](covered, ReadOnly("damaged"))
        with pytest.raises(ReadOnly, match="damaged"):
            await second
        assert broker.partition("t").end == 1
    await broker.close()
