"""Messages: records of a partition with all their parts, for people and their tools."""

from __future__ import annotations

import base64
import codecs
from functools import partial

from mainstem import limits
from mainstem.api.topics import (
    DecodedContent,
    LostOffsets,
    Message,
    MessageContent,
    MessageHeader,
    MessageList,
)
from mainstem.broker.json_search import json_condition
from mainstem.broker.messages import MessageFilter, MessagePage, Messages
from mainstem.broker.schemas.decoded import Decoded, DecodedPayloads
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.http.transport.throttle import read_allowed
from mainstem.records.decoding import StoredRecord

MESSAGES_SHOWN_DEFAULT = 50
MESSAGES_SHOWN_MAX = 500
MESSAGE_VALUE_BYTES_DEFAULT = 16 * limits.KIB  # of a value, unless the request asks for all of it

_DIGITS_MAX = 18
_CHECKED_BYTES_MAX = limits.MIB  # of a value, unless more of it is shown


async def get_messages(request: HttpRequest) -> Response:
    """Search records `from` an offset on or `before` one. The default is the newest records."""
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routers.drain(topic.name)
    limit = max(1, min(request.number("limit", MESSAGES_SHOWN_DEFAULT), MESSAGES_SHOWN_MAX))
    payloads = DecodedPayloads(broker.schemas, topic)
    sought = _sought(request, payloads)
    messages = Messages(broker)
    limiter = await read_allowed(request, request.topic)
    await request.reserve(limits.LARGE_READ_BYTES)
    first, before = _offset(request, "from"), _offset(request, "before")
    if first is not None:
        page = await messages.after(topic, request.partition, first, limit, sought)
    else:
        until = limits.OFFSET_MAX if before is None else before
        page = await messages.before(topic, request.partition, until, limit, sought)
    if limiter is not None:
        limiter.take(sum(len(record.value or b"") for record in page.records), len(page.records))
    bound = request.number("value_bytes", MESSAGE_VALUE_BYTES_DEFAULT)
    shown = partial(_messages, page, bound, payloads)
    return reply(_answer(request, page, await broker.decoding.run(f"messages {topic.name}", shown)))


def _sought(request: HttpRequest, payloads: DecodedPayloads) -> MessageFilter:
    key, value, header = ((request.text(name) or "").encode() for name in ("key", "value", "header"))
    json, until_ms = request.text("json"), _offset(request, "until")
    return MessageFilter(
        key,
        value,
        header,
        json_condition(json) if json else None,
        _offset(request, "since") or 0,
        limits.OFFSET_MAX if until_ms is None else until_ms,
        lambda record: None if (found := payloads.value(record)) is None else found.json,
    )


def _offset(request: HttpRequest, name: str) -> int | None:
    given = request.text(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS_MAX):
        raise invalid(f"{name}={given[:64]} is not a whole number of at most {_DIGITS_MAX} digits")
    return int(given)


def _answer(request: HttpRequest, page: MessagePage, messages: list[Message]) -> MessageList:
    return MessageList(
        topic=request.topic,
        partition=request.partition,
        start=page.start,
        end=page.end,
        next_from=page.from_offset,
        next_before=page.before,
        messages=messages,
        lost=[LostOffsets(*lost) for lost in page.lost],
        performance=request.performance(records_scanned=page.scanned),
    )


def _messages(page: MessagePage, bound: int, payloads: DecodedPayloads) -> list[Message]:
    return [_message(record, bound, payloads) for record in page.records]


def _message(record: StoredRecord, bound: int, payloads: DecodedPayloads) -> Message:
    value = record.value
    return Message(
        record.offset,
        record.timestamp_ms,
        _content(record.key, bound),
        _content(value, bound),
        -1 if value is None else len(value),
        [MessageHeader(name, _content(content, bound)) for name, content in record.headers],
        _decoded(payloads.key(record), bound),
        _decoded(payloads.value(record), bound),
    )


def _decoded(found: Decoded | None, bound: int) -> DecodedContent | None:
    if found is None:
        return None
    text = found.json[:bound].decode(errors="ignore")
    return DecodedContent(found.schema_id, found.kind, text, len(found.json))


def _content(content: bytes | None, bound: int) -> MessageContent | None:
    """Text if its start is UTF-8, else base64. Text is cut between characters."""
    if content is None:
        return None
    checked = content[: max(bound, _CHECKED_BYTES_MAX)]
    try:
        text, _ = codecs.utf_8_decode(checked, "strict", len(checked) == len(content))
    except UnicodeDecodeError:
        return MessageContent(base64=base64.b64encode(content[:bound]).decode())
    if len(content) > bound:
        text = content[:bound].decode(errors="ignore")
    return MessageContent(text)
