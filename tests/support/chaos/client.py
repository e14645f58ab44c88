"""A client in a thread of its own, that goes on until it is told to stop."""

from __future__ import annotations

import random
import threading
import traceback

from tests.support.chaos.notes import Notes

_STOP_S = 120.0


class ChaosClient:
    """`step` is called again and again. What it raises is a finding: trouble is no reason to raise."""

    def __init__(self, name: str, seed: int, notes: Notes) -> None:
        self.name = name
        self.random = random.Random(f"{name} {seed}")
        self.notes = notes
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self) -> None:
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            self.notes.found(f"{self.name} did not come to an end")

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Once, in the same thread, after the last step."""

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.step()
            self.finish()
        except Exception:  # noqa: BLE001 - the run tells of it
            self.notes.found(f"{self.name} failed: {traceback.format_exc()}")
