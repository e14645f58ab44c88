"""The kernel syncs the log, so that a busy event loop does not keep a thread from it."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.errors import ReadOnly
from mainstem.ports.async_sync import AioContext, AsyncSync, Ended
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.local.serial_executor import SerialExecutor
from mainstem.ports.files import OsFile


class _Held:
    """Starts syncs that end when the test says so."""

    def __init__(self) -> None:
        self.ended: Ended | None = None

    def start(self, file: int, ended: Ended) -> bool:
        self.ended = ended
        return True

    def end(self, error: OSError | None = None) -> None:
        assert self.ended is not None
        self.ended(error)

    def close(self) -> None:
        pass


@pytest.fixture
async def log(tmp_path: Path) -> LocalCommitLog:
    log = await LocalCommitLog.open(tmp_path / "log", prepare_ahead=False)
    await log.append(b"first", [b"x"])
    await log.sync()  # which also syncs the directory
    await log.append(b"second", [b"x"])
    return log


@pytest.fixture
def opened() -> AsyncSync:
    opened = AsyncSync.open()
    if opened is None:
        pytest.skip("this system has no asynchronous syncs")
    return opened


async def test_the_end_of_a_sync_arrives_on_the_event_loop(opened: AsyncSync, tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for _ in range(3):
        os.write(file, b"x")
        ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert opened.start(file, ended.set_result)
        assert await ended is None
    os.close(file)
    opened.close()


async def test_what_cannot_be_synced_is_left_to_a_thread(opened: AsyncSync) -> None:
    reading, writing = os.pipe()
    assert not opened.start(writing, lambda _: None)
    os.close(reading)
    os.close(writing)
    assert not opened.start(writing, lambda _: None)
    opened.close()
    opened.close()


async def test_the_next_log_uses_the_context_of_a_closed_one(opened: AsyncSync, tmp_path: Path) -> None:
    context = AioContext.take()
    assert context is not None
    context.give_back()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for _ in range(3):
        ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert opened.start(file, ended.set_result)
        assert await ended is None
        assert AioContext.take() is not context  # in use
        opened.close()
        opened = AsyncSync()
    assert AioContext.take() is context
    os.close(file)


async def test_what_still_runs_in_a_closed_log_is_not_heard_of_by_the_next(
    opened: AsyncSync, tmp_path: Path
) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(file, b"x" * 4096)
    unheard: list[OSError | None] = []
    assert opened.start(file, unheard.append)
    opened.close()
    following = AsyncSync()
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    assert following.start(file, ended.set_result)
    assert await ended is None
    assert not unheard
    following.close()
    os.close(file)


def test_a_forked_process_makes_contexts_of_its_own(opened: AsyncSync, tmp_path: Path) -> None:
    script = """
import os, sys
from mainstem.ports.async_sync import AioContext
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
AioContext.take().give_back()
child = os.fork()
if not child:
    os._exit(0 if AioContext.take().submit_sync(file) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "file"], check=False).returncode == 0


async def test_a_sync_needs_no_thread(
    opened: AsyncSync, log: LocalCommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.close()
    ran: list[Callable[[], object]] = []
    with monkeypatch.context() as patched:
        patched.setattr(SerialExecutor, "run", lambda self, call: ran.append(call))
        assert await log.sync() == log.end == log.synced
    assert not ran
    await log.close()


async def test_a_failed_sync_is_final(log: LocalCommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _Held()
    monkeypatch.setattr(log, "_async_sync", held)
    syncing = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)
    held.end(OSError(errno.EIO, "damaged"))
    with pytest.raises(ReadOnly, match="damaged"):
        await syncing
    assert log.synced == 1
    assert log.suspect
    with pytest.raises(ReadOnly):
        await log.append(b"third", [b"x"])
    await log.close()


def _damaged(*_: object) -> int:
    raise OSError(errno.EIO, "damaged")


async def test_a_sync_that_ends_after_a_write_failed_does_not_count(
    log: LocalCommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held()
    monkeypatch.setattr(log, "_async_sync", held)
    syncing = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)
    with monkeypatch.context() as failing:
        failing.setattr(os, "pwritev", _damaged)
        with pytest.raises(ReadOnly, match="damaged"):
            await log.append(b"third", [b"x"])
    held.end()
    with pytest.raises(ReadOnly, match="damaged"):
        await syncing
    assert log.synced == 1
    await log.close()


async def test_a_file_that_cannot_be_looked_up_after_its_sync_stops_the_log(
    log: LocalCommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held()
    monkeypatch.setattr(log, "_async_sync", held)
    syncing = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)

    def forbidden(file: OsFile) -> bool:
        raise PermissionError(errno.EACCES, "forbidden")

    monkeypatch.setattr(OsFile, "in_place", forbidden)
    held.end()
    with pytest.raises(ReadOnly, match="forbidden"):
        await asyncio.wait_for(syncing, 10.0)
    await log.close()


async def test_a_sync_goes_on_when_its_caller_is_cancelled(
    log: LocalCommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held()
    with monkeypatch.context() as patched:
        patched.setattr(log, "_async_sync", held)
        syncing = asyncio.ensure_future(log.sync())
        await asyncio.sleep(0)
        syncing.cancel()
        await asyncio.gather(syncing, return_exceptions=True)
        held.end()
        assert log.synced == 2
    await log.append(b"third", [b"x"])
    assert await log.sync() == 3
    await log.close()


async def test_a_log_closes_after_its_running_sync(
    log: LocalCommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held()
    monkeypatch.setattr(log, "_async_sync", held)
    syncing = asyncio.ensure_future(log.sync())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    assert not closing.done()
    held.end()
    await asyncio.gather(syncing, closing)


async def test_a_file_that_was_replaced_meanwhile_stops_the_log(log: LocalCommitLog, tmp_path: Path) -> None:
    (segment,) = (tmp_path / "log" / "wal").glob("*.wal")
    segment.rename(segment.with_suffix(".moved"))
    with pytest.raises(ReadOnly, match="replaced"):
        await log.sync()
    await log.close()
