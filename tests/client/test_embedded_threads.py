"""The embedded log commits in the threads of its callers, beside its event loop."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import mainstem
from mainstem.client.embedded import EmbeddedLog
from mainstem.client.loop import LoopThread
from mainstem.errors import NoSpace, ReadOnly
from mainstem.log.write.committer import Committer


@pytest.fixture(params=["each", "never"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedLog]:
    with mainstem.open(tmp_path, sync=request.param) as log:
        log.append("t", b"first")
        log.append("t", b"second")
        yield log


@pytest.mark.parametrize("consistency", ["strict", mainstem.at_least_once(persist_every=1000)], ids=repr)
def test_append_and_read_do_not_ask_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consistency: Any
) -> None:
    asked = 0
    submit = LoopThread.submit

    def counted(thread: LoopThread, work: Any) -> Any:
        nonlocal asked
        asked += 1
        return submit(thread, work)

    with mainstem.open(tmp_path, sync="each", consistency=consistency) as log:
        log.append("t", b"0")
        assert log.read_next("t") == b"0"
        monkeypatch.setattr(LoopThread, "submit", counted)
        for number in range(1, 100):
            assert log.append("t", b"%d" % number) == number
            assert log.read_next("t") == b"%d" % number
        assert asked < 20  # the loop gets its turn if it has work of its own


def test_threads_append_side_by_side_and_get_offsets_of_their_own(tmp_path: Path) -> None:
    threads, each = 8, 50
    with mainstem.open(tmp_path, sync="each") as log:
        log.append("t", b"first")
        offsets: list[int] = []

        def append() -> None:
            for _ in range(each):
                offsets.append(log.append("t", b"x"))

        running = [threading.Thread(target=append) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert sorted(offsets) == list(range(1, threads * each + 1))
        assert log.count("t") == threads * each + 1
        assert len(log.read_many("t")) == threads * each + 1
    with mainstem.open(tmp_path) as again:
        assert again.count("t") == threads * each + 1


def test_the_loop_gets_its_turn_beside_a_thread_that_never_pauses(log: EmbeddedLog) -> None:
    done = threading.Event()

    def append() -> None:
        while not done.is_set():
            log.append("t", b"x")

    thread = threading.Thread(target=append)
    thread.start()
    try:
        for _ in range(20):
            log.topics()  # on the loop
    finally:
        done.set()
        thread.join()


def test_a_full_disk_refuses_an_append_and_the_next_one_is_stored(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, buffers: Sequence[bytes], offset: int) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", full)
        with pytest.raises(NoSpace):
            log.append("t", b"refused")
    assert log.append("t", b"third") == 2
    assert log.read_many("t") == [b"first", b"second", b"third"]


def test_a_failed_sync_is_final_and_its_record_is_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    log = mainstem.open(tmp_path, sync="each", consistency=mainstem.at_least_once(persist_every=1000))
    log.append("t", b"first")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(ReadOnly):
            log.append("t", b"in doubt")
    with pytest.raises(ReadOnly):
        log.append("t", b"after")
    assert log.read_many("t") == [b"first"]
    with contextlib.suppress(ReadOnly):  # it cannot store its cursor
        log.close()


def test_a_read_whose_cursor_is_not_stored_gives_its_record_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    log = mainstem.open(tmp_path, sync="each")
    log.append_many("t", [b"first", b"second"])
    assert log.read_next("t") == b"first"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(ReadOnly):
            log.read_next("t")
    with pytest.raises(ReadOnly):
        log.read_next("t")
    assert log.read_next("t", checkpoint=False) == b"second"
    with contextlib.suppress(ReadOnly):
        log.close()


def test_a_read_that_is_interrupted_in_its_sync_gives_its_record_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(committer: Committer, position: int) -> float | None:
        raise KeyboardInterrupt

    with mainstem.open(tmp_path, sync="each") as log:
        log.append_many("t", [b"first", b"second"])
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "sync_now", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.read_next("t")
        assert log.read_many("t") == [b"first", b"second"]
    with mainstem.open(tmp_path) as log:
        assert log.read_next("t") is None


def test_a_caller_that_is_interrupted_in_its_sync_leaves_it_to_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(committer: Committer, position: int) -> float | None:
        raise KeyboardInterrupt

    with mainstem.open(tmp_path, sync="each") as log:
        log.append("t", b"first")
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "sync_now", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.append("t", b"second")
        give_up = time.monotonic() + 30
        while len(log.read_many("t", checkpoint=False)) < 2:
            assert time.monotonic() < give_up, "the loop did not sync"
        assert log.read_many("t") == [b"first", b"second"]
