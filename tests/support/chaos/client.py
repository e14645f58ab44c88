"""A client on its own thread, which runs until it is stopped."""

from __future__ import annotations

import random
import threading
import traceback

from tests.support.chaos.notes import Notes

_STOP_S = 120.0


class ChaosClient:
    """Calls `step` repeatedly. An exception is a finding: faults must not raise."""

    def __init__(self, name: str, seed: int, notes: Notes) -> None:
        self.name = name
        self.random = random.Random(f"{name} {seed}")
        self.notes = notes
        self.stopping = threading.Event()
        self.progress = 0  # what succeeded so far
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self) -> None:
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            self.notes.found(f"{self.name} did not stop")

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Once, in the same thread, after the last step."""

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.step()
            self.finish()
        except Exception:  # noqa: BLE001 - the run reports it
            self.notes.found(f"{self.name} failed: {traceback.format_exc()}")
