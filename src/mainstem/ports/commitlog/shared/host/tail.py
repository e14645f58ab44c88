"""The newest commits of the log, as far as they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mainstem.ports.commitlog.port import Committed

TAIL_COMMITS_MAX = 16_384  # commits kept in memory; a reader that is further behind reads files
TAIL_BYTES_MAX = 32 << 20  # of their entries


class Tail:
    """Commits from `first` up to `end`, which is one past the last durable commit of any worker."""

    def __init__(self, end: int) -> None:
        self.first = end
        self.end = end
        self._commits: list[Committed] = []
        self._bytes = 0
        self._arrival: asyncio.Future[None] | None = None

    def restart(self, end: int) -> None:
        """The writer changed: the log now reaches to `end`. What came before is in the files."""
        self.first = self.end = end
        self._commits.clear()
        self._bytes = 0
        self.wake()

    def add(self, commits: Sequence[Committed]) -> None:
        self._commits += commits
        self.end += len(commits)
        self._bytes += sum(len(one.entry) for one in commits)
        if len(self._commits) > 2 * TAIL_COMMITS_MAX or self._bytes > TAIL_BYTES_MAX:
            self._trim()
        self.wake()

    def since(self, position: int, count: int) -> list[Committed]:
        """The next commits from a position that is not before `first`; none at the end."""
        at = position - self.first
        return self._commits[at : at + count]

    def arrival(self) -> asyncio.Future[None]:
        """Done when more has come, or the log was closed."""
        if self._arrival is None:
            self._arrival = asyncio.get_running_loop().create_future()
        return self._arrival

    def wake(self) -> None:
        if self._arrival is not None:
            if not self._arrival.done():
                self._arrival.set_result(None)
            self._arrival = None

    def _trim(self) -> None:
        """Keep the newest half."""
        gone = (len(self._commits) + 1) // 2
        self._bytes -= sum(len(one.entry) for one in self._commits[:gone])
        del self._commits[:gone]
        self.first += gone
