"""POST raw: records as the batch that is stored, for what JSON cannot say; as safe to repeat as JSON writes."""

from __future__ import annotations

from mainstem.broker.batches import append_batch
from mainstem.doors.http.records import acknowledgement, idempotency_key
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import JSON, Response
from mainstem.doors.http.topics import DEFAULT_BODY
from mainstem.errors import TopicExists, TopicNotFound
from mainstem.ledger.topics import Topic


async def post_raw(request: HttpRequest) -> Response:
    """Append one RecordBatch v2, all or nothing."""
    key = idempotency_key(None, request.header(b"idempotency-key"))
    topic, created = await _topic(request)
    written = await append_batch(
        request.broker, topic, bytearray(request.body), partition=request.partition, idempotency_key=key
    )
    written = written._replace(created=created)
    return Response(201 if created else 200, acknowledgement(request, written, request.elapsed_ms()), (JSON,))


async def _topic(request: HttpRequest) -> tuple[Topic, bool]:
    """The topic, and whether it was made for this write."""
    broker, name = request.broker, request.topic
    topic = broker.streams.get(name)
    if topic is not None:
        return topic, False
    config = DEFAULT_BODY.over(broker.options.default_config)
    if not request.flag("create", config.auto_create):
        raise TopicNotFound(name)
    try:
        await broker.make_topic(name, config)
    except TopicExists:
        return broker.streams.topic(name), False  # another write was first
    return broker.streams.topic(name), True
