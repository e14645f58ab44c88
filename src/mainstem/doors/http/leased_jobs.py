"""Jobs that are under way, and dead letters that shall be tried anew."""

from __future__ import annotations

import msgspec

from mainstem.broker.requeue import requeue
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.doors.http.topics import U64


class RequeueBody(msgspec.Struct, frozen=True):
    """Which dead letters, and to which queue; none = to the one that each comes from."""

    seqs: list[U64]
    queue: str | None = None


_requeue_body = msgspec.json.Decoder(RequeueBody)


async def get_leases(request: HttpRequest) -> Response:
    """Jobs that are leased or delayed: to whom, until when, how often handed out."""
    counts = await request.broker.queues.state(request.topic, request.partition)
    held = request.broker.queues.held(request.topic, request.partition)
    return reply(
        {
            "topic": request.topic,
            **counts._asdict(),
            "now_ms": request.broker.clock.now_ms(),
            "leases": [
                {
                    "$seq": job.offset + 1,
                    "node": job.node,
                    "deadline": job.until_ms,
                    "deliveries": job.deliveries,
                    "lease_id": f"lease_{job.token:016x}{job.offset + 1:016x}",
                }
                for job in held
                if job.node
            ],
            "delayed": [
                {"$seq": job.offset + 1, "due": job.until_ms, "deliveries": job.deliveries}
                for job in held
                if not job.node
            ],
            "performance": request.performance(),
        }
    )


async def post_requeue(request: HttpRequest) -> Response:
    """Give dead letters back to the queue they came from."""
    body = request.json(_requeue_body)
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    if body.queue is not None:
        request.require_name(body.queue)
    done = await requeue(broker, topic, [seq - 1 for seq in body.seqs if seq], body.queue, request.key.allows)
    return reply(
        {
            "topic": topic.name,
            "requeued": [
                {"$seq": offset + 1, "queue": queue, "queue_seq": placed + 1}
                for offset, (queue, placed) in done.moved.items()
            ],
            "skipped": [offset + 1 for offset in done.skipped],
            "performance": request.performance(),
        }
    )
