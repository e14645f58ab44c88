"""The connections the door holds: so many and no more."""

from __future__ import annotations

from mainstem.doors.held import Held, HeldConnections


class Connections(HeldConnections[Held]):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def admit(self, connection: Held) -> bool:
        """False: too many are held already."""
        if len(self._held) >= self._limit:
            return False
        self._held.add(connection)
        return True
