"""Watch sessions that workers share: a client finds its session at any of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.watch import WatchOptions
from mainstem.broker.watch_session_files import WatchSessionFiles
from mainstem.broker.watch_sessions import WatchSession, WatchSessions
from tests.support.clock import ManualClock


def two_workers(folder: Path) -> tuple[WatchSessions, WatchSessions]:
    return (
        WatchSessions(ManualClock(), 0, files=WatchSessionFiles(folder)),
        WatchSessions(ManualClock(), 0, files=WatchSessionFiles(folder)),
    )


def made(sessions: WatchSessions) -> WatchSession:
    return sessions.create(
        b"owner",
        {("a", 0): 3, ("a", 1): 4, ("b", 0): 0},
        WatchOptions(10, 1000, (b"node",)),
        whole=frozenset({"a"}),
        include_tags=True,
        holder="someone",
    )


def found(sessions: WatchSessions, wid: str) -> WatchSession:
    session = sessions.find(wid)
    assert session is not None
    return session


def test_another_worker_finds_a_session_as_it_was_made(tmp_path: Path) -> None:
    one, other = two_workers(tmp_path)
    session = made(one)
    same = found(other, session.wid)
    assert same is not session
    for field in ("owner", "cursors", "whole", "watch_options", "heartbeat_ms", "include_tags", "holder"):
        assert getattr(same, field) == getattr(session, field)
    assert other.find("wid_" + "x" * 22) is None
    assert other.find("../../etc/passwd") is None


def test_a_session_goes_on_where_its_last_reader_left(tmp_path: Path) -> None:
    one, other = two_workers(tmp_path)
    session = made(one)
    one.connect(session)
    session.cursors["a", 0] = 9
    one.disconnect(session)
    same = found(other, session.wid)
    same.rewind({"a": {"0": 12, "1": 1}})
    assert same.cursors == {("a", 0): 9, ("a", 1): 1, ("b", 0): 0}
    other.connect(same)
    same.cursors["a", 0] = 20
    other.disconnect(same)
    assert found(one, session.wid).cursors["a", 0] == 20


def test_a_session_with_a_reader_elsewhere_follows_its_client(tmp_path: Path) -> None:
    one, other = two_workers(tmp_path)
    session = made(one)
    one.connect(session)  # its worker may be dead: nobody says how far it came
    same = found(other, session.wid)
    same.rewind({"a": {"0": 12}})
    assert same.cursors == {("a", 0): 12, ("a", 1): 4, ("b", 0): 0}


def test_a_session_ends_when_it_is_removed_or_idle_for_too_long(tmp_path: Path) -> None:
    one, other = two_workers(tmp_path)
    session, idle = made(one), made(one)
    found(other, session.wid)
    one.remove(session)
    assert other.find(session.wid) is None
    long_ago = idle_since(tmp_path / idle.wid)
    os.utime(tmp_path / idle.wid, (long_ago, long_ago))
    assert other.find(idle.wid) is None


def idle_since(path: Path) -> float:
    return path.stat().st_mtime - limits.WATCH_SESSION_TTL_MS / 1000 - 1


def test_a_session_that_cannot_be_written_stays_with_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = two_workers(tmp_path)
    session = made(one)
    one.connect(session)

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert one.find(session.wid) is session
