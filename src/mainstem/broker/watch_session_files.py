"""Watch sessions in files: a client of one worker finds its session at every other one.

A session is written when it is created and when its reader leaves, and read where its client connects. A worker that
dies leaves the progress of the last write: its readers may get records again, as after any lost connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import msgspec

from mainstem import limits

WATCH_SESSIONS = "workers/watch"  # below the data directory

_NAME = re.compile(r"wid_[A-Za-z0-9_-]{22}")
_SWEEP_S = 60.0
_KEPT_S = (
    24 * 3600.0
)  # longer than any connection that has not written its session again; the id expires before


class StoredSession(msgspec.Struct, array_like=True, frozen=True):
    """A watch session without its readers."""

    wid: str
    owner: bytes
    cursors: list[tuple[str, int, int]]  # topic, partition, the last sequence number sent
    whole: list[str]
    limit: int
    max_bytes: int
    nodes: list[bytes]
    heartbeat_ms: int
    include_meta: bool
    include_tags: bool
    include_data: bool
    include_trace: bool
    include_headers: bool
    holder: str
    idle: bool  # no reader was connected when it was written


_decoder = msgspec.msgpack.Decoder(StoredSession)


class WatchSessionFiles:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._swept_at = 0.0

    def save(self, session: StoredSession) -> None:
        """A session that cannot be written stays with its worker."""
        path = self._folder / session.wid
        temporary = path.with_name(f"{session.wid}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_bytes(msgspec.msgpack.encode(session))
            temporary.replace(path)
        self._sweep()

    def load(self, wid: str) -> StoredSession | None:
        """None if there is none, or it was idle for too long."""
        if _NAME.fullmatch(wid) is None:
            return None
        path = self._folder / wid
        try:
            age_s = time.time() - path.stat().st_mtime
            session = _decoder.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return None if session.idle and age_s > limits.WATCH_SESSION_TTL_MS / 1000 else session

    def delete(self, wid: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / wid).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Delete sessions that nobody can use any more, once in a while."""
        now = time.time()
        if now - self._swept_at < _SWEEP_S:
            return
        self._swept_at = now
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _KEPT_S or (
                    _NAME.fullmatch(path.name) and self.load(path.name) is None
                ):
                    path.unlink(missing_ok=True)
