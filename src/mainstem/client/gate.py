"""A gate between an event loop and other threads: what the loop owns may be used by whoever holds the gate.

The loop holds it while it runs callbacks and opens it while it waits for events. So a thread that holds the gate sees
what a task sees between two awaits of another, and may call everything that does not wait.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from contextvars import Context
from types import TracebackType
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class LoopGate:
    """`with gate:` on a thread other than the loop's. Callbacks that are scheduled meanwhile run soon after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: GatedLoop | None = None
        self._woken = False  # something was scheduled by the thread that holds the gate
        self.loop_waits = False  # the loop has work to do: leave the gate to it
        self.held_by_loop = False

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop behind the gate."""
        self._loop = GatedLoop(self)
        return self._loop

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        woken, self._woken = self._woken, False
        self._lock.release()
        if woken and self._loop is not None:
            self._loop.wake()

    def scheduled(self) -> None:
        """The loop has a new callback."""
        if not self.held_by_loop:
            self._woken = True

    def enter_loop(self) -> None:
        self.loop_waits = True
        self._lock.acquire()
        self.loop_waits = False
        self.held_by_loop = True

    def leave_loop(self) -> None:
        self.held_by_loop = False
        self._lock.release()


class _GatedSelector(selectors.DefaultSelector):
    """Opens the gate while it waits."""

    def __init__(self, gate: LoopGate) -> None:
        super().__init__()
        self._gate = gate

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._gate.leave_loop()
        try:
            return super().select(timeout)
        finally:
            self._gate.enter_loop()


class GatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, gate: LoopGate) -> None:
        self._gate = gate
        super().__init__(_GatedSelector(gate))

    def run_forever(self) -> None:
        self._gate.enter_loop()
        try:
            super().run_forever()
        finally:
            self._gate.leave_loop()

    def wake(self) -> None:
        """Look at the callbacks again."""
        self.call_soon_threadsafe(_nothing)

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: Unpack[Ts], context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        self._gate.scheduled()
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._gate.scheduled()
        return handle


def _nothing() -> None:
    """Only to end the loop's wait."""
