"""A worker on a long-lived connection: holds a bounded number of jobs, and returns them when it disconnects."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from mainstem.broker.queues.service import ClaimedJob, Claims, QueueService
from mainstem.errors import MainstemError


class JobWorker:
    """Use it as an async context manager."""

    def __init__(
        self,
        queues: QueueService,
        name: str,
        node: str,
        *,
        limit: int = 1,
        lease_ms: int | None = None,
        partition: int = 0,
    ) -> None:
        self._queues = queues
        self._name = name
        self._node = node
        self._limit = limit
        self._lease_ms = lease_ms
        self._partition = partition
        self._held: dict[int, int] = {}  # offset → token, of delivered jobs that may still be leased
        self._claiming: asyncio.Task[Claims] | None = None
        self._wake_signal = queues.wake_signal(name, partition)

    async def __aenter__(self) -> JobWorker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake_signal.leave()
        # If the queue or the log is closed, the leases end anyway.
        with contextlib.suppress(MainstemError):
            await self._give_back()

    async def jobs(self) -> list[ClaimedJob]:
        """The next jobs: at least one, as soon as a job is available and the worker has room for it.

        Raises TopicNotFound if the queue is deleted."""
        while True:
            rings = self._wake_signal.rings
            self._held = self._still_held()
            room = self._limit - len(self._held)
            if room > 0 and self._queues.ready(self._name, self._partition):
                jobs = await self._claim(room)
                if jobs:
                    return jobs
            await self._wake_signal.rung(rings)

    async def _claim(self, room: int) -> list[ClaimedJob]:
        self._claiming = asyncio.ensure_future(
            self._queues.claim(
                self._name, self._node, limit=room, lease_ms=self._lease_ms, partition=self._partition
            )
        )
        # Shielded: a cancelled claim is still granted, and its jobs must be returned.
        claims = await asyncio.shield(self._claiming)
        self._claiming = None
        self._hold(claims)
        return claims.jobs

    def _hold(self, claims: Claims) -> None:
        self._held |= {job.offset: job.token for job in claims.jobs}

    async def _give_back(self) -> None:
        if self._claiming is not None:
            self._hold(await self._claiming)
        held = self._still_held()
        if held:
            offsets, tokens = list(held), list(held.values())
            await self._queues.nack(self._name, self._node, offsets, tokens, partition=self._partition)

    def _still_held(self) -> dict[int, int]:
        return {
            offset: token
            for offset, token in self._held.items()
            if self._queues.holds(self._name, offset, token, self._partition)
        }
