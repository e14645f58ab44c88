"""The connections of the text door, with a limit and an idle timeout."""

from __future__ import annotations

import asyncio
from typing import Protocol

from mainstem import events, limits
from mainstem.doors.budget import Budget
from mainstem.doors.open_connections import OpenConnections

TEXT_FRAME_S = 30.0  # a connection with an incomplete request is closed after this
TEXT_TURN_BYTES = 1 * limits.MIB  # read in large pieces in one turn of the event loop; beyond, …
TEXT_CROWDED_READ_BYTES = 4 * limits.KIB  # … each connection is read up to this, and waits for its turn

_log = events.named("text")
_SWEEPS_PER_IDLE_TIME = 4


class HeldConnection(Protocol):
    peer: str

    def finish(self) -> None: ...

    def abort(self) -> None: ...

    def unused_since(self) -> float | None: ...

    @property
    def incomplete(self) -> bool:
        """Whether a part of a request has arrived."""
        ...


class TextConnections(OpenConnections[HeldConnection]):
    def __init__(self, budget: Budget, limit: int, idle_s: float) -> None:
        super().__init__()
        self.budget = budget
        self.receive_buffer = memoryview(bytearray(limits.TEXT_FRAME_BYTES_MAX))
        self._crowded_buffer = self.receive_buffer[:TEXT_CROWDED_READ_BYTES]
        self._turn_bytes = 0  # read in this turn of the event loop, in large pieces
        self._seats = budget.door(limit)
        self._idle_s = idle_s
        self._sweep: asyncio.TimerHandle | None = None

    def buffer(self) -> memoryview:
        """What the next read may fill. The event loop would read on from a connection that fills a large one, and
        from all that have sent anything, before it does anything else."""
        return self._crowded_buffer if self._turn_bytes > TEXT_TURN_BYTES else self.receive_buffer

    def must_wait(self, size: int) -> bool:
        """Whether a connection of which so much was read waits for its turn before more is read of it."""
        if size < TEXT_CROWDED_READ_BYTES:
            return False
        if not self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._turn_bytes += size
        return self._turn_bytes > TEXT_TURN_BYTES

    def _next_turn(self) -> None:
        self._turn_bytes = 0

    def admit(self, connection: HeldConnection) -> bool:
        """False: the door is full."""
        if not self._seats.admit(connection.peer, connection):
            return False
        self._held.add(connection)
        return True

    def forget(self, connection: HeldConnection) -> None:
        self._seats.leave(connection.peer, connection)
        super().forget(connection)

    def start_sweeping(self) -> None:
        every = min(self._idle_s, TEXT_FRAME_S) / _SWEEPS_PER_IDLE_TIME
        self._sweep = asyncio.get_running_loop().call_later(every, self._drop_idle)

    def _drop_idle(self) -> None:
        self.start_sweeping()
        now = asyncio.get_running_loop().time()
        for connection in list(self._held):
            patience = min(self._idle_s, TEXT_FRAME_S) if connection.incomplete else self._idle_s
            unused = connection.unused_since()
            if unused is not None and now - unused > patience:
                _log.debug("idle connection closed", client=connection.peer)
                connection.abort()

    async def drain(self, within_s: float) -> int:
        """Finish every connection; abort those left after `within_s`. Returns how many those were."""
        if self._sweep is not None:
            self._sweep.cancel()
        return await super().drain(within_s)
