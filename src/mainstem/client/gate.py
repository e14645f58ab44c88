"""A gate between an event loop and other threads: the thread that holds it may use what the loop owns.

The loop holds it while it runs callbacks and opens it while it waits for events. So a thread that holds the gate sees
what a task sees between two awaits of another, and may call everything that does not wait.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class LoopGate:
    """Other threads hold `lock`, then call `released`. Callbacks that they schedule meanwhile run soon after."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop_waits = False  # the loop has work to do: leave the gate to it
        self.woken = False  # the thread that holds the lock has scheduled something on the loop
        self._loop: GatedLoop | None = None
        self._held_by_loop = False

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop behind the gate."""
        self._loop = GatedLoop(self)
        return self._loop

    def wake(self) -> None:
        """Call this after the lock was released, if `woken` is set."""
        self.woken = False
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_nothing)

    def scheduled(self) -> None:
        """The loop has a new callback."""
        if not self._held_by_loop:
            self.woken = True

    def enter_loop(self) -> None:
        self.loop_waits = True
        self.lock.acquire()
        self.loop_waits = False
        self._held_by_loop = True
        self.woken = False  # the loop looks at its callbacks now

    def leave_loop(self) -> None:
        self._held_by_loop = False
        self.lock.release()


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

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        self._gate.scheduled()
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._gate.scheduled()
        return handle


def _nothing() -> None:
    """Only to end the loop's wait."""
