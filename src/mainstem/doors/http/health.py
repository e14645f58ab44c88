"""Is it alive, is it ready."""

from __future__ import annotations

import time
from email.utils import formatdate

from mainstem.doors.http.errors import RETRY_SOON, Refusal
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.version import VERSION


async def get_health(request: HttpRequest) -> Response:
    """Whether the process answers, its version, and for how long it has been up."""
    uptime_ms = int((time.monotonic() - request.context.started) * 1000)
    healthy = reply({"status": "ok", "version": VERSION, "uptime_ms": uptime_ms})
    # The one answer with a date: by it a client can tell how far its clock is off.
    return healthy._replace(headers=(*healthy.headers, (b"date", formatdate(usegmt=True).encode())))


async def get_ready(request: HttpRequest) -> Response:
    """Whether it takes requests: 503 while it is stopping or cannot write."""
    if request.context.stopping.is_set():
        raise Refusal(503, "shutting_down", "the server is stopping", headers=(RETRY_SOON,))
    refusal = request.broker.log.refusal
    if refusal is not None:
        # The log is replayed before the door opens, so there is no progress to show but the whole.
        raise Refusal(503, "not_ready", str(refusal), {"replay_progress": 1.0}, (RETRY_SOON,))
    topics = len(request.broker.log.ledger.topics)
    return reply({"status": "ready", "wal_replay_complete": True, "topics": topics})
