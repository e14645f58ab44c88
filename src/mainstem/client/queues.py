"""Queues over HTTP: claim jobs, settle them, and run workers."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

from mainstem.api import routes
from mainstem.api.queues import (
    AckResult,
    ClaimBody,
    ExtendJobsBody,
    ExtendResult,
    NackBody,
    NackResult,
    SettleBody,
)
from mainstem.client.responses import ClaimedJobs, JobBody
from mainstem.client.transport import Calls, Query, decoded
from mainstem.client.worker import AsyncWorker, WorkerOptions


class QueueCalls(Calls):
    async def claim(
        self, queue: str, *, node: str, max: int = 1, lease_ms: int | None = None, partition: int = 0
    ) -> list[JobBody]:
        """Lease up to `max` jobs to `node`, returned jobs first. Raises NotAQueue.

        Example:
            for job in client.claim("emails", node="worker-1", max=10): ...
        """
        body = ClaimBody(node, max, lease_ms)
        answer = await self._transport.request(
            routes.POST_CLAIM, queue, body=body, query=_partition_query(partition)
        )
        return decoded(answer.body, ClaimedJobs).claimed

    async def ack(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ids: Sequence[str] | None = None,
        partition: int = 0,
    ) -> AckResult:
        """Acknowledge finished jobs, which deletes them. Jobs that the node does not hold are skipped.

        Example:
            client.ack("emails", [job.seq], node="worker-1", lease_ids=[job.lease_id])
        """
        body = SettleBody(node, list(seqs), _listed(lease_ids))
        return await self._transport.call(
            routes.POST_ACK, queue, body=body, query=_partition_query(partition)
        )

    async def nack(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        node: str,
        delay_ms: int = 0,
        error: str | None = None,
        lease_ids: Sequence[str] | None = None,
        partition: int = 0,
    ) -> NackResult:
        """Return jobs to the queue. They can be claimed again after `delay_ms`. `error` becomes part of dead letters.

        Example:
            client.nack("emails", [job.seq], node="worker-1", delay_ms=5_000)
        """
        body = NackBody(node, list(seqs), _listed(lease_ids), delay_ms=delay_ms, error=error)
        return await self._transport.call(
            routes.POST_NACK, queue, body=body, query=_partition_query(partition)
        )

    async def extend(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ms: int,
        lease_ids: Sequence[str] | None = None,
        partition: int = 0,
    ) -> ExtendResult:
        """Extend the leases of these jobs to `lease_ms` from now.

        Example:
            client.extend("emails", [job.seq], node="worker-1", lease_ms=60_000)
        """
        body = ExtendJobsBody(node, list(seqs), _listed(lease_ids), lease_ms=lease_ms)
        return await self._transport.call(
            routes.POST_EXTEND, queue, body=body, query=_partition_query(partition)
        )

    def worker(
        self,
        queue: str,
        *,
        node: str | None = None,
        concurrency: int = 1,
        lease_ms: int | None = None,
        auto_extend: bool = True,
        retry_delay_ms: int = 0,
        retry_backoff: float = 2.0,
        retry_delay_max_ms: int = 600_000,
        partition: int = 0,
    ) -> AsyncWorker:
        """A worker that receives jobs as they arrive, at most `concurrency` unsettled at a time.

        It extends the lease of a job until the job is settled. A job that fails is delivered again after
        `retry_delay_ms`, and each time it fails again after `retry_backoff` times as long, up to `retry_delay_max_ms`.
        Iterate over it, or decorate a function.

        Example:
            with client.worker("emails") as worker:
                for job in worker:
                    with job:                 # ack at the end, nack if it raises
                        send(job.value)

            @client.worker("emails", concurrency=4)
            def send(job): ...
            send.run()                        # until send.stop()
        """
        options = WorkerOptions(
            node or f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(3)}",
            concurrency,
            lease_ms,
            auto_extend,
            retry_delay_ms,
            retry_backoff,
            retry_delay_max_ms,
            partition,
        )
        return AsyncWorker(self._transport, queue, options)


def _partition_query(partition: int) -> Query:
    return {"partition": partition or None}


def _listed(lease_ids: Sequence[str] | None) -> list[str] | None:
    return None if lease_ids is None else list(lease_ids)
