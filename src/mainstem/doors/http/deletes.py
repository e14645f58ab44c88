"""POST delete: records by sequence number and tag."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.doors.http.errors import invalid
from mainstem.doors.http.matching import parse_match
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.doors.http.topics import U64


class DeleteBody(msgspec.Struct, frozen=True):
    before_seq: U64 | None = None
    match: Any = None


_delete_body = msgspec.json.Decoder(DeleteBody)


async def post_delete(request: HttpRequest) -> Response:
    """Delete records before a sequence number, with a tag, or both."""
    body = request.json(_delete_body)
    if body.before_seq is None and body.match is None:
        raise invalid("say what to delete: before_seq, match, or both")
    match = None if body.match is None else parse_match(body.match)
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routing.drain(topic.name)
    deleted = await broker.deletes.delete(
        topic, before_seq=body.before_seq, match=match, partition=request.partition
    )
    state = broker.states.state(topic, request.partition)
    return reply(
        {
            "topic": topic.name,
            "deleted": deleted,
            "earliest_seq": state.earliest_seq,
            "head_seq": state.head_seq,
            "count": state.count,
            "bytes": state.bytes,
            "performance": request.performance(),
        }
    )
