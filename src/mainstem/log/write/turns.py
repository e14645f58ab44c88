"""Which client sent the last request: a commit may be synced on the event loop only while one client is active."""

from __future__ import annotations

LONE_QUIET_S = 0.02  # a client is alone if no other one sent anything for this long


class ClientTurns:
    """The doors record which client sends. They set the two fields themselves, because every request does it:
    `if turns.last is not client: turns.last, turns.changed_at = client, now`."""

    __slots__ = ("changed_at", "last")

    def __init__(self) -> None:
        self.last: object = None  # the connection that sent something last
        self.changed_at = 0.0  # when another one did, by the time of the event loop

    def alone(self, now: float) -> bool:
        """Whether only one client has been active lately."""
        return now - self.changed_at >= LONE_QUIET_S
