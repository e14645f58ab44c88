"""Share sessions: which partitions a share consumer fetches from this broker, so that it need not name them again.

Each request of a session raises its epoch. Sessions are volatile: a consumer whose session is unknown opens another
one.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.errors import InvalidShareSession, ShareSessionNotFound, ShareSessionsFull

SHARE_SESSIONS_MAX = 10_000  # of share consumers on one broker
SHARE_SESSION_PARTITIONS_MAX = 100_000  # of all these sessions

TopicPartition = tuple[bytes, int]  # topic id, partition

OPENS, CLOSES = 0, -1  # epochs of the first request and the last
_EPOCH_MAX = (1 << 31) - 1


class ShareSession:
    __slots__ = ("epoch", "group", "member", "partitions")

    def __init__(self, group: str, member: str) -> None:
        self.group = group
        self.member = member
        self.epoch = 1  # of the next request
        self.partitions: dict[TopicPartition, None] = {}


class ShareSessions:
    """By group and member."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member: str) -> ShareSession:
        """A new session, which replaces the member's old one. Raises ShareSessionsFull."""
        old = self._sessions.get((group, member))
        if old is not None:
            self.close(old)
        elif len(self._sessions) >= SHARE_SESSIONS_MAX:
            raise ShareSessionsFull(f"{SHARE_SESSIONS_MAX} share sessions are open, the maximum")
        session = self._sessions[group, member] = ShareSession(group, member)
        return session

    def find(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session whose next epoch this is, or which the request closes.

        Raises ShareSessionNotFound, InvalidShareSession."""
        session = self._sessions.get((group, member))
        if session is None:
            raise ShareSessionNotFound(f"member {member!r} of group {group!r} has no share session here")
        if epoch != CLOSES:
            if epoch != session.epoch:
                raise InvalidShareSession(f"the share session is at epoch {session.epoch}, not {epoch}")
            session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def change(
        self, session: ShareSession, added: Iterable[TopicPartition], removed: Iterable[TopicPartition]
    ) -> None:
        """Raises ShareSessionsFull."""
        for partition in removed:
            if partition in session.partitions:
                del session.partitions[partition]
                self._partitions -= 1
        for partition in added:
            if partition not in session.partitions:
                if self._partitions >= SHARE_SESSION_PARTITIONS_MAX:
                    raise ShareSessionsFull(
                        f"share sessions hold {SHARE_SESSION_PARTITIONS_MAX} partitions, the maximum"
                    )
                session.partitions[partition] = None
                self._partitions += 1

    def current(self, session: ShareSession) -> bool:
        """Whether it was neither closed nor replaced."""
        return self._sessions.get((session.group, session.member)) is session

    def close(self, session: ShareSession) -> bool:
        """False: it was closed or replaced before."""
        if not self.current(session):
            return False
        del self._sessions[session.group, session.member]
        self._partitions -= len(session.partitions)
        return True
