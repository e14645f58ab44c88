"""The connections the door holds: so many and no more."""

from __future__ import annotations

from mainstem.doors.open_connections import OpenConnection, OpenConnections


class TextConnections(OpenConnections[OpenConnection]):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def admit(self, connection: OpenConnection) -> bool:
        """False: too many are held already."""
        if len(self._held) >= self._limit:
            return False
        self._held.add(connection)
        return True
