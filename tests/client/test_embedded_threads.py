"""The embedded log commits in the threads of its callers, beside its event loop."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import mainstem
from mainstem.client.embedded import EmbeddedLog
from mainstem.errors import NoSpace, ReadOnly


@pytest.fixture(params=["each", "never"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedLog]:
    with mainstem.open(tmp_path, sync=request.param) as log:
        log.append("t", b"first")
        log.append("t", b"second")
        yield log


def without_loop(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the event loop was asked")

    monkeypatch.setattr(log._thread, "submit", refuse)
    log._gate.loop_waits = False


def test_append_and_read_do_not_ask_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazily = mainstem.at_least_once(persist_every=100)
    with mainstem.open(tmp_path, sync="each", consistency=lazily) as log:
        log.append("t", b"0")
        assert log.read_next("t") == b"0"
        log.count("t")  # the loop has nothing left to do
        with monkeypatch.context() as patched:
            without_loop(log, patched)
            assert log.append("t", b"1") == 1
            assert log.read_next("t") == b"1"
            assert log.append_many("t", [b"2", b"3"]) == 2
        assert log.read_many("t") == [b"2", b"3"]


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

    log = mainstem.open(tmp_path, sync="each")
    log.append("t", b"first")
    log.count("t")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(ReadOnly):
            log.append("t", b"in doubt")
    with pytest.raises(ReadOnly):
        log.append("t", b"after")
    assert log._broker.partition("t").end == 1
    log.close()


def test_a_caller_that_is_interrupted_in_its_sync_leaves_it_to_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(position: int) -> Any:
        raise KeyboardInterrupt

    with mainstem.open(tmp_path, sync="each") as log:
        log.append("t", b"first")
        log.count("t")
        with monkeypatch.context() as patched:
            patched.setattr(log._commits, "sync_now", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.append("t", b"second")
        log._thread.call(log._broker.log.sync())
        assert log.read_many("t") == [b"first", b"second"]
