"""Metrics of the commit path: updated per commit group and per sync, never per record."""

from __future__ import annotations

from collections.abc import Iterator

from mainstem.metrics import Histogram, Metric

_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_BYTES = tuple(4**power for power in range(4, 13))  # 256 B to 16 MiB
_COMMANDS = tuple(4**power for power in range(8))  # 1 to 16,384


class CommitMetrics:
    __slots__ = ("_bytes", "_commands", "_lone", "_lone_bytes", "_seconds", "_syncs")

    def __init__(self) -> None:
        self._seconds = Histogram(
            "mainstem_commit_seconds",
            "Time from the start of the write of a commit group to its apply.",
            _SECONDS,
        )
        self._bytes = Histogram("mainstem_commit_bytes", "Bytes of records in a commit group.", _BYTES)
        self._commands = Histogram(
            "mainstem_commit_commands", "Appends and other commands in a commit group.", _COMMANDS
        )
        self._lone_bytes = 0  # payload of the newest lone append
        self._lone = 0  # lone appends of this size in a row
        self._syncs = Histogram(
            "mainstem_sync_seconds",
            "Time of a sync of the log, which records of class fsync wait for.",
            _SECONDS,
        )

    def committed(self, seconds: float, payload_bytes: int, commands: int) -> None:
        self._seconds.observe(seconds)
        self._bytes.observe(payload_bytes)
        self._commands.observe(commands)

    def committed_lone(self, seconds: float, payload_bytes: int) -> None:
        """As `committed`, for one append. Appends of one size in a row are counted together."""
        self._seconds.observe(seconds)
        if payload_bytes != self._lone_bytes:
            self._count_lone()
            self._lone_bytes = payload_bytes
        self._lone += 1

    def _count_lone(self) -> None:
        self._bytes.observe(self._lone_bytes, self._lone)
        self._commands.observe(1, self._lone)
        self._lone = 0

    def synced(self, seconds: float) -> None:
        self._syncs.observe(seconds)

    def published(self) -> Iterator[Metric]:
        """As metrics."""
        self._count_lone()
        for histogram in (self._seconds, self._bytes, self._commands, self._syncs):
            yield from histogram.published()
