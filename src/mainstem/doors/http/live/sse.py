"""Server-sent events: framing, and the limits on open streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.api.base import ErrorEvent
from mainstem.doors.http.transport.errors import Refusal, throttled
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Header
from mainstem.errors import TooLarge

WATCH_RETRY_MS = 2_000  # how soon a client reconnects after a lost connection

HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies must not buffer frames
)
RETRY = b"retry: %d\n\n" % WATCH_RETRY_MS
SHUTTING_DOWN = (
    b'event: error\ndata: {"code":"server_shutting_down",'
    b'"message":"the server is shutting down: connect again soon"}\n\n'
)

# In JSON a line break occurs only between tokens, where a space is equivalent; in a frame it would end the field.
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def event(name: bytes, data: bytes, id: bytes = b"") -> bytes:
    """One frame. `data` is JSON."""
    data = data.translate(_ONE_LINE) if b"\n" in data or b"\r" in data else data
    if id:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (id, name, data)
    return b"event: %b\ndata: %b\n\n" % (name, data)


def read_failure(topic: str, error: Exception) -> ErrorEvent:
    """Why the watch of a topic ended."""
    if isinstance(error, TooLarge):
        return ErrorEvent("payload_too_large", str(error), topic)
    return ErrorEvent("internal", f"topic {topic!r} cannot be read", topic)


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def check_accept(request: HttpRequest) -> None:
    """Raises Refusal 406 unless the client accepts an event stream."""
    accept = request.header(b"accept") or b""
    if not accept.strip():
        return
    for choice in accept.split(b","):
        media, *parameters = (part.strip().lower() for part in choice.split(b";"))
        if media in (b"text/event-stream", b"*/*") and b"q=0" not in parameters:
            return
    raise Refusal(406, "not_acceptable", "this path answers with text/event-stream only")


@contextmanager
def admitted(request: HttpRequest) -> Iterator[None]:
    """Count an open stream while the block runs. Raises Refusal 429, or 503 while the server stops."""
    context, client = request.context, request.client
    if context.stopping.is_set():
        raise Refusal(503, "shutting_down", "the server is shutting down: connect again soon")
    bound = context.limits.streams
    if bound and context.streams >= bound:
        raise throttled("max_sse_connections", bound, f"{bound} event streams are open, the maximum")
    bound = context.limits.streams_per_key
    if bound and context.clients.required and client.streams >= bound:
        raise throttled(
            "max_sse_connections_per_key",
            bound,
            f"this key has {bound} event streams open, the maximum for a key",
        )
    context.streams += 1
    client.streams += 1
    try:
        yield
    finally:
        context.streams -= 1
        client.streams -= 1
