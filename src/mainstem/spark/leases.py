"""Leases are kept for as long as the work under them takes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType

from mainstem.broker.plans import Task
from mainstem.errors import MainstemError, StalePlan
from mainstem.lake.broker import LakeBroker

Lease = tuple[int, int]  # (stream, token)


class LeaseExtender:
    """Extends the leases of some tasks, on a thread, until the block is left."""

    def __init__(self, broker: LakeBroker, tasks: Iterable[Task], lease_ms: int) -> None:
        self._broker = broker
        self._lease_ms = lease_ms
        self._leases = {(task.stream, task.token) for task in tasks}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)

    def __enter__(self) -> LeaseExtender:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        while self._leases and not self._done.wait(self._lease_ms / 3000):
            for lease in sorted(self._leases):
                try:
                    self._broker.extend(*lease, self._lease_ms)
                except StalePlan:
                    self._leases.discard(lease)  # somebody else took over; publishing will be refused
                except MainstemError:
                    break  # the broker is away; there is time for another try before the lease is over
