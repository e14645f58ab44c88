"""Which client the server heard last: a commit may be synced on the event loop only while there is just one."""

from __future__ import annotations

LONE_QUIET_S = 0.02  # how long no other client sent anything before one counts as alone


class ClientTurns:
    """The doors note every client that sends something. They set the two fields themselves, since that is on the way of
    every request: `if turns.last is not client: turns.last, turns.changed_at = client, now`."""

    __slots__ = ("changed_at", "last")

    def __init__(self) -> None:
        self.last: object = None  # the connection that sent something last
        self.changed_at = 0.0  # when another one did, by the time of the event loop

    def alone(self, now: float) -> bool:
        """Whether one client only has sent anything for a while."""
        return now - self.changed_at >= LONE_QUIET_S
