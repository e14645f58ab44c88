"""Watch sessions: the request and progress of a watcher, kept while it is disconnected for a short time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mainstem import limits
from mainstem.broker.watch import WatchOptions
from mainstem.broker.watch_session_files import StoredSession, WatchSessionFiles
from mainstem.errors import Throttled
from mainstem.ports.clock import Clock, Random, SystemRandom

_ID_BYTES = 16

CursorKey = tuple[str, int]  # topic and partition


class SessionReader(Protocol):
    """A connection that reads a session."""

    def save(self) -> None:
        """Store its progress in the session."""
        ...


@dataclass(slots=True, eq=False)
class WatchSession:
    wid: str
    owner: bytes  # its creator: no other client may use it
    cursors: dict[CursorKey, int]  # the last sequence number sent, as of the last save
    whole: frozenset[str]  # topics of which all partitions are watched, if they have several
    watch_options: WatchOptions
    heartbeat_ms: int
    include_meta: bool
    include_tags: bool
    include_data: bool
    include_trace: bool
    include_headers: bool
    holder: str = ""  # whom it counts for
    behind: bool = False  # a reader at another worker may have sent more than the cursors say
    connections: int = field(default=0)
    idle_since: float = field(default=0.0)  # monotonic seconds, while no reader is connected
    readers: dict[SessionReader, None] = field(default_factory=dict)  # connected readers, the newest last

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.cursors}

    def rewind(self, named: Mapping[str, int | Mapping[str, int]]) -> None:
        """Go back to the client's position, never forward: records up to it may not have been sent.

        But a session that is `behind` knows no better than its client."""
        for newest in reversed(self.readers):
            newest.save()  # the reader that the client most likely resumes
            break
        for (topic, partition), cursor in self.cursors.items():
            given = named.get(topic)
            if isinstance(given, Mapping):
                given = given.get(str(partition))
            if given is not None:
                self.cursors[topic, partition] = given if self.behind else min(cursor, given)
        self.behind = False


class WatchSessions:
    """Every session by its id. Sessions that are idle for too long are removed, in constant time per call."""

    def __init__(
        self,
        clock: Clock,
        sessions_max: int,
        random: Random | None = None,
        files: WatchSessionFiles | None = None,
    ) -> None:
        self._clock = clock
        self._files = files  # where other workers find them
        # Without API keys, the id alone gives access to a session: it must not be guessable.
        self._random = random or SystemRandom()
        self._max = sessions_max  # 0 = unlimited
        self._sessions: dict[str, WatchSession] = {}
        self._idle: dict[str, WatchSession] = {}  # longest first
        self._held: dict[str, int] = {}  # sessions by holder

    def __len__(self) -> int:
        self._expire()
        return len(self._sessions)

    def check_room(self, holder: str = "") -> None:
        """Raises Throttled if the limit is reached.

        At the limit, an unread session of a client that has more of them than this one makes room."""
        if self._max and len(self) >= self._max and not self._make_room(holder):
            raise Throttled(
                "max_watch_sessions",
                self._max,
                f"there are {self._max} watch sessions, the maximum of this server",
            )

    def create(
        self,
        owner: bytes,
        cursors: dict[CursorKey, int],
        watch_options: WatchOptions,
        *,
        whole: frozenset[str] = frozenset(),
        heartbeat_ms: int = limits.WATCH_HEARTBEAT_MS_DEFAULT,
        include_meta: bool = True,
        include_tags: bool = False,
        include_data: bool = True,
        include_trace: bool = False,
        include_headers: bool = False,
        holder: str = "",
    ) -> WatchSession:
        """Raises Throttled."""
        self.check_room(holder)
        wid = "wid_" + base64.urlsafe_b64encode(self._random.token(_ID_BYTES)).rstrip(b"=").decode()
        session = WatchSession(
            wid,
            owner,
            cursors,
            whole,
            watch_options,
            heartbeat_ms,
            include_meta,
            include_tags,
            include_data,
            include_trace,
            include_headers,
            holder,
        )
        self._add(session)
        self._save(session)
        return session

    def _add(self, session: WatchSession) -> None:
        self._sessions[session.wid] = session
        self._held[session.holder] = self._held.get(session.holder, 0) + 1
        self._rest(session)

    def find(self, wid: str) -> WatchSession | None:
        self._expire()
        session = self._sessions.get(wid)
        if self._files is not None and (session is None or not session.connections):
            return self._load(self._files, wid)
        return session

    def _load(self, files: WatchSessionFiles, wid: str) -> WatchSession | None:
        """A session as the worker left it that served its client last."""
        before = self._sessions.get(wid)
        if before is not None:
            self._forget(before)
        stored = files.load(wid)
        if stored is None:
            return None
        session = _restored(stored)
        self._add(session)
        return session

    def _save(self, session: WatchSession) -> None:
        if self._files is not None:
            self._files.save(_stored(session))

    def connect(self, session: WatchSession) -> None:
        """A reader connected: the session stays while it reads."""
        session.connections += 1
        self._idle.pop(session.wid, None)
        if session.connections == 1:
            self._save(session)

    def disconnect(self, session: WatchSession) -> None:
        session.connections -= 1
        if not session.connections and session.wid in self._sessions:
            self._rest(session)
            self._save(session)

    def remove(self, session: WatchSession) -> None:
        """Remove a session whose topics are all deleted."""
        self._forget(session)
        if self._files is not None:
            self._files.delete(session.wid)

    def _forget(self, session: WatchSession) -> None:
        if self._sessions.pop(session.wid, None) is not None:
            self._held[session.holder] -= 1
            if not self._held[session.holder]:
                del self._held[session.holder]
        self._idle.pop(session.wid, None)

    def _rest(self, session: WatchSession) -> None:
        session.idle_since = self._clock.monotonic()
        self._idle[session.wid] = session

    def _expire(self) -> None:
        until = self._clock.monotonic() - limits.WATCH_SESSION_TTL_MS / 1000
        while self._idle:
            session = next(iter(self._idle.values()))
            if session.idle_since > until:
                return
            self._forget(session)  # another worker may have a reader; files expire by themselves

    def _make_room(self, holder: str) -> bool:
        largest = max(self._held, key=lambda name: self._held[name])
        if self._held[largest] <= self._held.get(holder, 0) + 1:
            return False
        for session in self._idle.values():
            if session.holder == largest:
                self.remove(session)
                return True
        return False


def _stored(session: WatchSession) -> StoredSession:
    options = session.watch_options
    return StoredSession(
        session.wid,
        session.owner,
        [(topic, partition, seq) for (topic, partition), seq in session.cursors.items()],
        sorted(session.whole),
        options.limit,
        options.max_bytes,
        list(options.nodes),
        session.heartbeat_ms,
        session.include_meta,
        session.include_tags,
        session.include_data,
        session.include_trace,
        session.include_headers,
        session.holder,
        idle=not session.connections,
    )


def _restored(stored: StoredSession) -> WatchSession:
    return WatchSession(
        stored.wid,
        stored.owner,
        {(topic, partition): seq for topic, partition, seq in stored.cursors},
        frozenset(stored.whole),
        WatchOptions(stored.limit, stored.max_bytes, tuple(stored.nodes)),
        stored.heartbeat_ms,
        stored.include_meta,
        stored.include_tags,
        stored.include_data,
        stored.include_trace,
        stored.include_headers,
        stored.holder,
        behind=not stored.idle,
    )
