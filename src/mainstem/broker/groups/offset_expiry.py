"""Deletes offsets of groups that nobody uses any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mainstem import events
from mainstem.broker.groups.offsets import OWN_PREFIX, CommittedOffsets
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.registry import GroupRegistry
from mainstem.broker.groups.timers import Timers
from mainstem.errors import GroupOvertaken, MainstemError
from mainstem.ports.clock import Clock

OFFSETS_EXPIRY_EVERY_MS = 600_000
OFFSETS_EXPIRY_GRACE_MS = 600_000  # after a start, so that members rejoin before their group counts as empty

_log = events.named("groups")

_SWEPT_AT_ONCE = 1_000  # groups checked before other tasks may run


class OffsetExpiry:
    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        options: GroupOptions,
        offsets: CommittedOffsets,
        groups: GroupRegistry,
    ) -> None:
        self._clock = clock
        self._retention_ms = options.offsets_retention_ms
        self._offsets = offsets
        self._groups = groups
        self._occupied_ms: dict[str, int] = {}  # group → when a sweep last found members in it
        self._timer = timers.timer(self._start_sweep)
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._timer.start(OFFSETS_EXPIRY_GRACE_MS)

    async def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def sweep(self) -> int:
        """Delete offsets of groups without members and commits during the retention time. Returns their number."""
        now = self._clock.now_ms()
        before_ms = now - self._retention_ms
        expired = 0
        for group in self._groups:
            if not group.empty:
                self._occupied_ms[group.name] = now
            elif not self._offsets.exists(group.name):
                with suppress(GroupOvertaken):
                    await self._groups.forget(group.name)
        self._occupied_ms = {
            name: at
            for name, at in self._occupied_ms.items()
            if at > before_ms and self._offsets.exists(name)
        }
        for number, name in enumerate(self._offsets.names()):
            if not number % _SWEPT_AT_ONCE:
                await asyncio.sleep(0)  # let other tasks run
            if not self._groups.coordinates(name):
                continue
            if self._occupied_ms.get(name, 0) <= before_ms and not name.startswith(OWN_PREFIX):
                expired += await self._offsets.expire(name, before_ms)
        return expired

    def _start_sweep(self) -> None:
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep(), name="mainstem-offsets")

    async def _sweep(self) -> None:
        try:
            await self.sweep()
        except MainstemError as error:
            _log.warning("offset expiry failed", error=str(error))
        finally:
            self._timer.start(OFFSETS_EXPIRY_EVERY_MS)
