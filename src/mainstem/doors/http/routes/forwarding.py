"""Forward a request to the broker that coordinates a group, for clients that cannot follow a redirect.

A page of the console may call only the server that it was loaded from, so it sends `Mainstem-Forward: true`.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import NamedTuple

from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response
from mainstem.errors import Unavailable

FORWARD_S_MAX = 10.0

_FORWARD = b"mainstem-forward"
_SENT_ON = (b"authorization", b"content-type", b"accept", b"idempotency-key", b"mainstem-position")
_DROPPED = frozenset({b"connection", b"content-length", b"transfer-encoding", b"content-encoding", b"date"})


class RequestTarget(NamedTuple):
    """Where a request was sent to, but for the host."""

    method: str
    scheme: str
    target: bytes  # path and query


def wanted(request: HttpRequest) -> bool:
    return request.header(_FORWARD) == b"true"


async def forward(request: HttpRequest, where: RequestTarget, address: str) -> Response:
    """The response of the broker at the address, whom the client authenticates to as to this one.

    Raises Unavailable if it does not respond. It is asked without the header, so requests cannot loop."""
    httpx = await asyncio.to_thread(import_module, "httpx")
    headers = [(name, text) for name in _SENT_ON if (text := request.header(name)) is not None]
    url = f"{where.scheme}://{address}{where.target.decode('latin-1')}"
    try:
        async with httpx.AsyncClient(timeout=FORWARD_S_MAX, trust_env=False) as client:
            answer = await client.request(where.method, url, headers=headers, content=request.body)
    except httpx.HTTPError as error:
        raise Unavailable(
            f"the broker at {address}, which coordinates the group, does not respond ({error}): try again"
        ) from None
    kept = tuple((name, text) for name, text in answer.headers.raw if name.lower() not in _DROPPED)
    return Response(answer.status_code, answer.content, kept)
