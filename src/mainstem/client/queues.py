"""Queues over HTTP: claim jobs, settle them, work through them."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

from mainstem.client.calls import Calls
from mainstem.client.responses import ClaimResult, JobBody, SettleResult
from mainstem.client.transport import Query, topic_path
from mainstem.client.worker import AsyncWorker, WorkerOptions


class QueueCalls(Calls):
    async def claim(
        self, queue: str, *, node: str, max: int = 1, lease_ms: int | None = None, partition: int = 0
    ) -> list[JobBody]:
        """Lease up to `max` jobs to `node`, those that were given back first. Raises NotAQueue.

        Example:
            for job in client.claim("emails", node="worker-1", max=10): ...
        """
        body = {"node": node, "max": max, "lease_ms": lease_ms}
        path = topic_path(queue, "claim")
        return (
            await self._transport.ask("POST", path, ClaimResult, body, query=_partition_query(partition))
        ).claimed

    async def ack(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ids: Sequence[str] | None = None,
        partition: int = 0,
    ) -> SettleResult:
        """These jobs are done: they are deleted for good. Those the node holds no lease on are skipped.

        Example:
            client.ack("emails", [job.seq], node="worker-1", lease_ids=[job.lease_id])
        """
        body = _settle_body(node, seqs, lease_ids)
        return await self._transport.ask(
            "POST", topic_path(queue, "ack"), SettleResult, body, query=_partition_query(partition)
        )

    async def nack(
        self,
        queue: str,
        seqs: Sequence[int],
        *,
        node: str,
        delay_ms: int = 0,
        lease_ids: Sequence[str] | None = None,
        partition: int = 0,
    ) -> SettleResult:
        """Give these jobs back, to be claimed again after `delay_ms`.

        Example:
            client.nack("emails", [job.seq], node="worker-1", delay_ms=5_000)
        """
        body = {**_settle_body(node, seqs, lease_ids), "delay_ms": delay_ms}
        return await self._transport.ask(
            "POST", topic_path(queue, "nack"), SettleResult, body, query=_partition_query(partition)
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
    ) -> SettleResult:
        """Keep these jobs for `lease_ms` from now on.

        Example:
            client.extend("emails", [job.seq], node="worker-1", lease_ms=60_000)
        """
        body = {**_settle_body(node, seqs, lease_ids), "lease_ms": lease_ms}
        return await self._transport.ask(
            "POST", topic_path(queue, "extend"), SettleResult, body, query=_partition_query(partition)
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
        partition: int = 0,
    ) -> AsyncWorker:
        """A worker that is handed jobs as they come, at most `concurrency` unsettled at a time.

        Leases are extended for as long as a job is unsettled. Iterate over it, or decorate a function.

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
            partition,
        )
        return AsyncWorker(self._transport, queue, options)


def _partition_query(partition: int) -> Query:
    return {"partition": partition or None}


def _settle_body(node: str, seqs: Sequence[int], lease_ids: Sequence[str] | None) -> dict[str, object]:
    body: dict[str, object] = {"node": node, "seqs": list(seqs)}
    if lease_ids is not None:
        body["lease_ids"] = list(lease_ids)
    return body
