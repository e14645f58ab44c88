"""Heartbeats of many quiet streams by one timer."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from mainstem.broker.cluster.clock import Clock

_SLOT_S = 0.25  # the resolution: a heartbeat is late by at most this
_BEATS_PER_TURN = 256  # in one turn of the loop


class HeartbeatTarget(Protocol):
    heartbeat_s: float
    spoke_at: float  # when something was last sent, in monotonic seconds
    slot: int  # kept by Heartbeats

    def beat(self) -> None:
        """Nothing was sent for `heartbeat_s`."""
        ...


class Heartbeats:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[int, set[HeartbeatTarget]] = {}
        self._next = 0  # the first slot not processed yet
        self._due: deque[HeartbeatTarget] = deque()
        self._timer: asyncio.Handle | None = None

    def add(self, stream: HeartbeatTarget) -> None:
        if not self._slots:
            self._next = self._slot(self._clock.monotonic())
        self._place(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SLOT_S, self._tick)

    def remove(self, stream: HeartbeatTarget) -> None:
        members = self._slots.get(stream.slot)
        if members is not None:
            members.discard(stream)
            if not members:
                del self._slots[stream.slot]
        stream.slot = -1

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()
        self._due.clear()

    def look(self) -> None:
        """Send the heartbeats that are due, a bounded number per turn of the loop."""
        now = self._clock.monotonic()
        while self._next <= self._slot(now) and self._slots:
            self._due.extend(self._slots.pop(self._next, ()))
            self._next += 1
        for _ in range(min(len(self._due), _BEATS_PER_TURN)):
            stream = self._due.popleft()
            if stream.slot < 0:
                continue  # removed
            if stream.spoke_at + stream.heartbeat_s <= now:
                stream.spoke_at = now
                stream.beat()
            if stream.slot >= 0:
                self._place(stream)

    def _place(self, stream: HeartbeatTarget) -> None:
        # Rounded up: never early, and never in a slot that was already processed.
        slot = max(self._slot(stream.spoke_at + stream.heartbeat_s) + 1, self._next)
        stream.slot = slot
        self._slots.setdefault(slot, set()).add(stream)

    def _tick(self) -> None:
        self.look()
        loop = asyncio.get_running_loop()
        if self._due:
            self._timer = loop.call_soon(self._tick)
        elif self._slots:
            self._timer = loop.call_later(_SLOT_S, self._tick)
        else:
            self._timer = None

    @staticmethod
    def _slot(seconds: float) -> int:
        return int(seconds / _SLOT_S)
