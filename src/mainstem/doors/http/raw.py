"""POST raw: records as the batch that is stored, for what JSON cannot say; as safe to repeat as JSON writes."""

from __future__ import annotations

from mainstem.doors.http.records import acknowledgement, idempotency_key
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import JSON, Response
from mainstem.doors.http.topics import DEFAULT_BODY


async def post_raw(request: HttpRequest) -> Response:
    """Append one RecordBatch v2, all or nothing."""
    config = DEFAULT_BODY.over(request.broker.options.default_config)
    written = await request.broker.writes.write(
        request.topic,
        bytearray(request.body),
        partition=request.partition,
        idempotency_key=idempotency_key(None, request.header(b"idempotency-key")),
        create=request.flag("create", config.auto_create),
        config=lambda: config,
    )
    status = 201 if written.created else 200
    return Response(status, acknowledgement(request, written, request.elapsed_ms()), (JSON,))
