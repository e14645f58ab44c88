"""Work: jobs pushed to a worker as events, for as long as it stays connected."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import msgspec

from mainstem import limits
from mainstem.api.access import ResourceType
from mainstem.api.routes import GET_WORK
from mainstem.broker.queues.service import ClaimedJob, check_node
from mainstem.broker.workers import JobWorker
from mainstem.doors.http.live import sse
from mainstem.doors.http.routes.queues import job_fields
from mainstem.doors.http.routes.rendering import quoted
from mainstem.doors.http.transport.errors import Refusal, answer, invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Push, Receive, Send
from mainstem.doors.http.transport.throttle import reading
from mainstem.errors import Closed, MainstemError

_UNSET = -1


async def get_work(request: HttpRequest) -> WorkStream:
    """Stream jobs of a queue, each leased to this worker while it stays connected."""
    sse.check_accept(request)
    node = request.text("node")
    if not node:
        raise invalid("name the worker with ?node=")
    check_node(node)
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    broker.queues.ready(topic.name, request.partition)  # raises unless it is a queue
    await broker.routers.drain(topic.name)
    broker.activity.read(topic.topic_id)
    with ExitStack() as held:
        held.enter_context(sse.admitted(request))
        return WorkStream(request, node, held.pop_all())


class WorkStream(Push):
    """One worker's connection. Its leases end with it."""

    def __init__(self, request: HttpRequest, node: str, held: ExitStack) -> None:
        self._request = request
        self._node = node
        self._held = held  # what is given back when it ends
        self._topic = quoted(request.shown_topic.encode())
        self._sent = 0

    async def serve(self, receive: Receive, send: Send) -> int:
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held.close()
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            # Its leases are given back by the time it ends.
            outcome = (await asyncio.gather(sending, leaving, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            raise outcome
        return self._sent

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})
        await self._push(send, sse.RETRY)
        try:
            await self._work(send)
        except Closed:
            await self._push(send, sse.SHUTTING_DOWN)
        except (MainstemError, Refusal) as error:
            await self._push(send, sse.event(b"error", _error_data(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _work(self, send: Send) -> None:
        request = self._request
        lease_ms = request.number("lease_ms", _UNSET)
        worker = JobWorker(
            request.broker.queues,
            request.topic,
            self._node,
            limit=min(max(request.number("max", 1), 1), limits.CLAIM_JOBS_MAX),
            lease_ms=None if lease_ms == _UNSET else lease_ms,
            partition=request.partition,
        )
        async with worker:
            await self._hand_over(worker, send)

    async def _hand_over(self, worker: JobWorker, send: Send) -> None:
        stopping = asyncio.ensure_future(self._request.context.stopping.wait())
        waiting: asyncio.Future[list[ClaimedJob]] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(worker.jobs())
                await asyncio.wait(
                    (waiting, stopping),
                    timeout=limits.WATCH_HEARTBEAT_MS_DEFAULT / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if waiting.done():
                    jobs, waiting = waiting.result(), None
                    self._check_rights()
                    await self._push(send, b"".join(map(self._frame, jobs)))
                    limiter = reading(self._request, self._request.topic)
                    if limiter is not None:
                        held_ms = limiter.take(sum(len(job.value or b"") for job in jobs), len(jobs))
                        await asyncio.wait((stopping,), timeout=held_ms / 1000)
                elif stopping.done():
                    raise Closed("the server is shutting down")
                else:
                    await self._push(send, sse.heartbeat(self._request.broker.clock.now_ms()))
        finally:
            # Before the worker leaves: nothing may be claimed for it any more.
            unfinished: list[asyncio.Future[Any]] = [stopping] if waiting is None else [stopping, waiting]
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def _check_rights(self) -> None:
        """Raises Refusal 403 if the access rules changed so that the client may not take jobs any more."""
        for operation in GET_WORK.operations:
            self._request.require(operation, ResourceType.QUEUE, self._request.topic)

    def _frame(self, job: ClaimedJob) -> bytes:
        data = b'{"topic":%b,%b}' % (self._topic, job_fields(job))
        return sse.event(b"job", data, b"%d" % (job.offset + 1))

    async def _push(self, send: Send, frames: bytes) -> None:
        self._sent += len(frames)
        await send({"type": "http.response.body", "body": frames, "more_body": True})


def _error_data(error: MainstemError | Refusal) -> bytes:
    """The inside of the answer that a request would get for it."""
    data: msgspec.Raw = msgspec.json.decode(answer(error).body, type=dict[str, msgspec.Raw])["error"]
    return bytes(data)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
