"""Open streams and sockets of a door, with their sessions and heartbeats."""

from __future__ import annotations

import asyncio
from typing import Protocol

from mainstem.broker.cluster.clock import Clock
from mainstem.broker.rates import Rates
from mainstem.broker.watch_session_files import WatchSessionFiles
from mainstem.broker.watch_sessions import WatchSessions
from mainstem.doors.http.live.broadcast import Broadcast
from mainstem.doors.http.live.heartbeats import Heartbeats
from mainstem.doors.http.live.shared_event_streams import RecordFormat, SharedEventStream


class LiveConnection(Protocol):
    def check_rights(self) -> None:
        """The access rules changed: stop what the client may no longer read."""
        ...

    def shut_down(self) -> None:
        """Tell the client that the server is stopping, and close."""
        ...


class LiveConnections:
    def __init__(
        self, clock: Clock, sessions_max: int, rates: Rates, session_files: WatchSessionFiles | None = None
    ) -> None:
        self._rates = rates
        self.sessions = WatchSessions(clock, sessions_max, files=session_files)
        self.heartbeats = Heartbeats(clock)
        self.broadcast = Broadcast()
        self.open: set[LiveConnection] = set()
        self._checking = False
        self._clock = clock
        self._watcher_groups: dict[RecordFormat, SharedEventStream] = {}

    def watcher_group(self, form: RecordFormat) -> SharedEventStream:
        """The group of event streams that show records in this form."""
        watcher_group = self._watcher_groups.get(form)
        if watcher_group is None:
            watcher_group = self._watcher_groups[form] = SharedEventStream(
                form, self._clock, self.broadcast, self._rates
            )
        return watcher_group

    def check_rights(self) -> None:
        """The access rules changed. Connections are checked afterwards, once for all changes of one turn."""
        if self.open and not self._checking:
            self._checking = True
            asyncio.get_running_loop().call_soon(self._check_rights)

    def _check_rights(self) -> None:
        self._checking = False
        for stream in list(self.open):
            stream.check_rights()

    async def shut_down(self) -> None:
        """Tell every client that the server is stopping, and close."""
        self.heartbeats.stop()
        loop = asyncio.get_running_loop()
        for stream in self.open:
            loop.call_soon(stream.shut_down)
        await asyncio.sleep(0)  # so that the message is sent before the connections close
