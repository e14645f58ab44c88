"""Workers that die or stop: another one writes, and no commit is lost, doubled or moved."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mainstem.errors import Closed
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import Buffer, CommitLog, Placement
from mainstem.ports.commitlog.shared.host.link import Link, WriterGone
from mainstem.ports.commitlog.shared.host.log import HostCommitLog
from mainstem.ports.commitlog.shared.host.server import WriterServer
from tests.support.waiting import settle, until

from ..logs import append_samples, commits, contents, sample_content
from .logs import OPTIONS, open_writer

_ROOT = Path(__file__).parents[3]
_WAIT_S = 60.0


async def open_worker(directory: Path) -> HostCommitLog:
    return await HostCommitLog.open(directory, OPTIONS)


class Appender:
    """A process that appends until it is killed."""

    def __init__(self, directory: Path, name: str) -> None:
        command = [sys.executable, "-m", "tests.ports.commitlog_host.appender", str(directory), name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
        self.lines: list[str] = []
        self._came = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            with self._came:
                self.lines.append(line.strip())
                self._came.notify_all()

    def wait_for(self, count: int) -> None:
        """Until it has printed `count` lines."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.lines) >= count, _WAIT_S), self.lines

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(_WAIT_S)
        self._reading.join(_WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def taken(self) -> list[tuple[str, int, float]]:
        """(entry, position, when) of every commit that was acknowledged."""
        found = []
        for line in self.lines:
            words = line.split()
            if len(words) == 4:
                found.append((f"{words[0]} {words[1]}", int(words[2]), float(words[3])))
        return found


async def _check(log: CommitLog, appenders: list[Appender]) -> None:
    """Every acknowledged commit is there once, at its position, in the order of its worker."""
    found = await contents(log)
    assert [position for position, _, _ in found] == list(range(log.end))
    entries = [entry.decode() for _, entry, _ in found]
    assert len(set(entries)) == len(entries)
    for position, entry, payload in found:
        assert payload.startswith(b"payload of " + entry), position
    for one in appenders:
        for entry, position, _ in one.taken:
            assert entries[position] == entry
        name = one.taken[0][0].split()[0]
        own = [entry for entry in entries if entry.split()[0] == name]
        assert own == [f"{name} {number}" for number in range(len(own))]
        assert len(one.taken) <= len(own) <= len(one.taken) + 1


@pytest.mark.parametrize("dies", ["writer", "follower"])
async def test_a_killed_worker_takes_nothing_with_it(tmp_path: Path, dies: str) -> None:
    directory = tmp_path / "log"
    workers = {"a": Appender(directory, "a")}
    await asyncio.to_thread(workers["a"].wait_for, 2)
    for name in ("b", "c"):
        workers[name] = Appender(directory, name)
    for one in workers.values():
        await asyncio.to_thread(one.wait_for, 60)
    assert [one.lines[0] for one in workers.values()] == ["writer", "follower", "follower"]
    killed = workers["a" if dies == "writer" else "b"]
    await asyncio.to_thread(killed.kill)
    killed_at = time.monotonic()
    others = [one for one in workers.values() if one is not killed]
    for one in others:
        await asyncio.to_thread(one.wait_for, len(one.lines) + 60)
    for one in others:
        await asyncio.to_thread(one.kill)
    if dies == "writer":
        assert sum("writer" in line for one in others for line in one.lines) == 1
        after = min(when for one in others for _, _, when in one.taken if when > killed_at)
        sys.stdout.write(f"first commit {after - killed_at:.3f} s after the writer was killed\n")
    log = await LocalCommitLog.open(directory, segment_bytes=4096)  # as a server with one worker does
    await _check(log, list(workers.values()))
    assert (await log.append(b"after", [])).position == log.end - 1
    await log.close()


async def test_followers_see_every_commit_in_order_whoever_writes_it(tmp_path: Path) -> None:
    logs = [await open_worker(tmp_path / "log") for _ in range(3)]
    assert [log.writes for log in logs] == [True, False, False]

    async def write(log: HostCommitLog, name: int) -> list[tuple[int, bytes]]:
        placed = []
        for number in range(40):
            entry = b"%d.%d" % (name, number)
            placed.append(((await log.append(entry, [entry * 900])).position, entry))
        return placed

    told = await asyncio.gather(*(write(log, name) for name, log in enumerate(logs)))
    expected = sorted(itertools.chain.from_iterable(told))
    assert [position for position, _ in expected] == list(range(120))
    for log in logs:
        assert await log.tail() == 120
        found = [(position, entry) for position, entry, _ in await contents(log)]
        assert found == expected
        assert all(payload == entry * 900 for _, entry, payload in await contents(log))
        assert [one.end_position for one in log.objects()] == [one.end_position for one in logs[0].objects()]
    for log in logs:
        await log.close()


async def test_a_writer_that_closes_hands_the_log_over(tmp_path: Path) -> None:
    first, second, third = [await open_worker(tmp_path / "log") for _ in range(3)]
    await append_samples(first, 10)
    await first.close()
    assert await second.tail() == second.end == 10
    await append_samples(second, 10)
    await third.rejoin()
    await until(lambda: third.end == 20)
    await append_samples(third, 10)
    assert sorted([second.writes, third.writes]) == [False, True]
    with pytest.raises(Closed):
        await first.append(b"late", [])
    fourth = await open_worker(tmp_path / "log")
    assert await contents(fourth) == [sample_content(number) for number in range(30)]
    for log in (second, third, fourth):
        await log.close()


async def test_an_append_that_the_writer_did_not_answer_is_looked_up_before_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends after the commit was written, and before the follower was told."""
    writer, follower = await open_writer(tmp_path / "log"), await open_worker(tmp_path / "log")
    await append_samples(follower, 3)
    append = Link.append

    async def lose_the_answer(
        link: Link, entry: bytes, slices: Sequence[Buffer], crc: int | None
    ) -> Placement:
        monkeypatch.setattr(Link, "append", append)
        await append(link, entry, slices, crc)
        link.close()
        raise WriterGone("the answer is lost")

    monkeypatch.setattr(Link, "append", lose_the_answer)
    placement = await follower.append(b"once", [b"payload"])
    assert placement.position == 3
    assert (await follower.append(b"next", [])).position == 4
    assert [bytes(one.entry) for one in await commits(follower, 3)] == [b"once", b"next"]
    await follower.close()
    await writer.close()


async def test_a_follower_waits_at_the_tail_through_a_change_of_writer(tmp_path: Path) -> None:
    writer, follower = await open_worker(tmp_path / "log"), await open_worker(tmp_path / "log")
    seen: list[bytes] = []

    async def watch() -> None:
        async for chunk in follower.follow(0, wait=True):
            seen.extend(bytes(one.entry) for one in chunk)

    watching = asyncio.ensure_future(watch())
    await writer.append(b"one", [])
    await writer.close()
    await follower.append(b"two", [])
    third = await open_worker(tmp_path / "log")
    await third.append(b"three", [])
    await third.close()
    await follower.close()
    await asyncio.wait_for(watching, _WAIT_S)
    assert seen == [b"one", b"two", b"three"]


async def test_a_barrier_waits_for_commits_that_are_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the log is in shared memory before the commits have come through the socket."""
    writer, follower = await open_writer(tmp_path / "log"), await open_worker(tmp_path / "log")
    publish = WriterServer.publish
    held: list[Callable[[], None]] = []
    monkeypatch.setattr(
        WriterServer, "publish", lambda server, told: held.append(lambda: publish(server, told))
    )
    await writer.append(b"one", [])
    passing = asyncio.ensure_future(follower.tail())
    await settle()
    assert not passing.done()
    assert not follower.shows(0)
    held.pop()()
    assert await asyncio.wait_for(passing, _WAIT_S) == 1
    assert [bytes(one.entry) for one in await commits(follower)] == [b"one"]
    await follower.close()
    await writer.close()
