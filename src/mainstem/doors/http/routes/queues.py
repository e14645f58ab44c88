"""Queues: claim jobs, settle them, show leases, and requeue dead letters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import msgspec

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.queues import (
    AckResult,
    ClaimBody,
    DelayedJob,
    ExtendJobsBody,
    ExtendResult,
    JobLease,
    LeaseList,
    NackBody,
    NackResult,
    RequeueBody,
    RequeuedJob,
    RequeueResult,
    SettleBody,
)
from mainstem.broker.queues.requeue import requeue
from mainstem.broker.queues.service import ClaimedJob
from mainstem.doors.http.routes.rendering import data_field, is_json, quoted
from mainstem.doors.http.transport.errors import Refusal, invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.http.transport.throttle import read_allowed
from mainstem.records.reserved_headers import META, TRACE

_LEASE_ID = re.compile(r"lease_([0-9A-Fa-f]+)")
_HEX_DIGITS = 16  # of a token, and again of the sequence number
_NO_TOKEN = 0  # that no lease has


_claim_body = msgspec.json.Decoder(ClaimBody)
_ack_body = msgspec.json.Decoder(SettleBody)
_nack_body = msgspec.json.Decoder(NackBody)
_extend_body = msgspec.json.Decoder(ExtendJobsBody)
_requeue_body = msgspec.json.Decoder(RequeueBody)


async def post_claim(request: HttpRequest) -> Response:
    """Lease jobs of a queue to a node."""
    body = request.json(_claim_body)
    routers = request.broker.routers
    routed = routers.copies_to(request.topic)
    await routers.drain(request.topic)
    limiter = await read_allowed(request, request.topic)
    claim = partial(
        request.broker.queues.claim,
        request.topic,
        body.node,
        limit=body.max,
        lease_ms=body.lease_ms,
        partition=request.partition,
    )
    claims = await claim()
    if not claims.jobs and not routed and routers.copies_to(request.topic):
        # The claim applied all earlier commits, and among them was a router to this queue.
        await routers.drain(request.topic)
        claims = await claim()
    if limiter is not None:
        limiter.take(sum(len(job.value or b"") for job in claims.jobs), len(claims.jobs))
    jobs = b",".join([b"{%b}" % job_fields(job) for job in claims.jobs])
    return Response(
        200,
        b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":{"server_total_ms":%b%b}}'
        % (
            quoted(request.topic.encode()),
            jobs,
            len(claims.jobs),
            claims.ready,
            str(request.elapsed_ms()).encode(),
            request.throttle_field.encode(),
        ),
    )


async def post_ack(request: HttpRequest) -> Response:
    """Acknowledge jobs, which deletes them."""
    body = request.json(_ack_body)
    offsets, tokens = _offsets_and_tokens(body)
    done = await request.broker.queues.ack(request.topic, body.node, offsets, tokens, request.partition)
    return reply(
        AckResult(
            request.topic,
            len(done.offsets),
            _seqs(done.skipped),
            done.ready,
            done.in_flight,
            request.performance(),
        )
    )


async def post_nack(request: HttpRequest) -> Response:
    """Return jobs to the queue, at once or after a delay."""
    body = request.json(_nack_body)
    offsets, tokens = _offsets_and_tokens(body)
    done = await request.broker.queues.nack(
        request.topic,
        body.node,
        offsets,
        tokens,
        delay_ms=body.delay_ms,
        partition=request.partition,
        error=body.error,
    )
    return reply(
        NackResult(
            request.topic,
            len(done.offsets),
            _seqs(done.skipped),
            done.ready,
            done.in_flight,
            request.performance(),
        )
    )


async def post_extend(request: HttpRequest) -> Response:
    """Extend the leases of jobs."""
    body = request.json(_extend_body)
    offsets, tokens = _offsets_and_tokens(body)
    done = await request.broker.queues.extend(
        request.topic, body.node, offsets, tokens, lease_ms=body.lease_ms, partition=request.partition
    )
    deadlines = {str(offset + 1): done.deadline_ms for offset in done.offsets}
    return reply(
        ExtendResult(request.topic, len(done.offsets), _seqs(done.skipped), deadlines, request.performance())
    )


async def get_leases(request: HttpRequest) -> Response:
    """Jobs that are leased or delayed: to whom, until when, how often delivered."""
    counts = await request.broker.queues.state(request.topic, request.partition)
    held = request.broker.queues.held(request.topic, request.partition)
    leases = [
        JobLease(job.offset + 1, job.node, job.until_ms, job.deliveries, _lease_id(job.token, job.offset + 1))
        for job in held
        if job.node
    ]
    delayed = [DelayedJob(job.offset + 1, job.until_ms, job.deliveries) for job in held if not job.node]
    now_ms = request.broker.ledger_time_ms
    return reply(LeaseList(request.topic, *counts, now_ms, leases, delayed, request.performance()))


async def post_requeue(request: HttpRequest) -> Response:
    """Return dead letters to the queue they came from."""
    body = request.json(_requeue_body)
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    if body.queue is not None:
        request.require_topic(body.queue, Operation.WRITE)
    may_write = partial(request.may, Operation.WRITE, ResourceType.TOPIC)
    done = await requeue(broker, topic, [seq - 1 for seq in body.seqs if seq], body.queue, may_write)
    moved = [RequeuedJob(offset + 1, queue, placed + 1) for offset, (queue, placed) in done.moved.items()]
    return reply(RequeueResult(topic.name, moved, _seqs(done.skipped), request.performance()))


def _lease_id(token: int, seq: int) -> str:
    return f"lease_{token:016x}{seq:016x}"


def job_fields(job: ClaimedJob) -> bytes:
    """A job as JSON, without the braces."""
    seq = job.offset + 1
    pieces = [
        b'"$seq":%d,"lease_id":"lease_%016x%016x","deadline":%d,"$ts":%d'
        % (seq, job.token, seq, job.deadline_ms, job.timestamp_ms)
    ]
    if job.key is not None:
        pieces += (b',"$tag":', quoted(job.key))
    pieces.append(b',"deliveries":%d' % job.deliveries)
    pieces += data_field(job.value)
    for name, label in ((META, b',"meta":'), (TRACE, b',"$trace":')):
        content = next((held for known, held in job.headers if known == name and held is not None), None)
        if content is not None:
            pieces += (label, content if name == META and is_json(content) else quoted(content))
    return b"".join(pieces)


def _offsets_and_tokens(body: SettleBody) -> tuple[list[int], list[int]]:
    """The offsets that a body names, and the token of each if it gives any. Raises Refusal 400."""
    if len(body.seqs) > limits.CLAIM_JOBS_MAX:
        raise Refusal(
            400,
            "batch_too_large",
            f"{len(body.seqs)} jobs at once: the limit is {limits.CLAIM_JOBS_MAX}",
            {"max": limits.CLAIM_JOBS_MAX},
        )
    offsets = [seq - 1 for seq in body.seqs]
    if body.lease_ids is None:
        return offsets, []
    if len(body.lease_ids) != len(body.seqs):
        raise invalid(f"{len(body.lease_ids)} lease_ids for {len(body.seqs)} seqs: give one for each")
    return offsets, [_token(lease, seq) for lease, seq in zip(body.lease_ids, body.seqs, strict=True)]


def _token(lease_id: str, seq: int) -> int:
    """The token in a lease id; one that matches nothing if the id is of another job, or not one of ours."""
    written = _LEASE_ID.fullmatch(lease_id)
    if written is None:
        raise invalid(f"{lease_id[:64]!r} is not a lease id: send the one that the claim returned")
    digits = written[1]
    if len(digits) != 2 * _HEX_DIGITS or int(digits[_HEX_DIGITS:], 16) != seq:
        return _NO_TOKEN
    return int(digits[:_HEX_DIGITS], 16)


def _seqs(offsets: Sequence[int]) -> list[int]:
    return [offset + 1 for offset in offsets]
