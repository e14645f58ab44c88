"""Everything a door keeps open: streams and sockets, their sessions and heartbeats."""

from __future__ import annotations

import asyncio
from typing import Protocol

from mainstem.broker.watch_sessions import WatchSessions
from mainstem.doors.http.broadcast import Broadcast
from mainstem.doors.http.chorus import Chorus, Form
from mainstem.doors.http.heartbeats import Heartbeats
from mainstem.ports.clock import Clock, SystemRandom


class Open(Protocol):
    def shut_down(self) -> None:
        """Tell the client that the server ends, and end."""
        ...


class Live:
    def __init__(self, clock: Clock, sessions_max: int) -> None:
        # Whoever knows a session's id can read it where no keys are used: it must not be guessable.
        self.sessions = WatchSessions(clock, SystemRandom(), sessions_max)
        self.heartbeats = Heartbeats(clock)
        self.broadcast = Broadcast()
        self.open: set[Open] = set()
        self._clock = clock
        self._choruses: dict[Form, Chorus] = {}

    def chorus(self, form: Form) -> Chorus:
        """Of the event streams that show records in this form."""
        chorus = self._choruses.get(form)
        if chorus is None:
            chorus = self._choruses[form] = Chorus(form, self._clock, self.broadcast)
        return chorus

    async def shut_down(self) -> None:
        """Tell every client that the server ends, and end."""
        self.heartbeats.stop()
        loop = asyncio.get_running_loop()
        for stream in self.open:
            loop.call_soon(stream.shut_down)
        await asyncio.sleep(0)  # so that they have said so before anybody closes their connections
