"""A client of a cluster in this process: every request goes to another broker, as behind a load balancer."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from mainstem.doors.http.transport.app import App

_POSITION = "mainstem-position"
_CATCH_UP_S = 30.0
_STAYS = "/v0/watch"  # a watch stays with the broker that created it


class AnyBroker(httpx.AsyncBaseTransport):
    """Uses the brokers in turn. Every request carries the position of the last response, so the next broker knows it.

    Tests use the first broker directly too: it applies everything before a test continues, and the others apply
    what it knows."""

    def __init__(self, apps: Sequence[App]) -> None:
        self._first = apps[0].context.broker.log
        self._doors = {host(number): httpx.ASGITransport(app) for number, app in enumerate(apps)}
        self._asked = 0
        self._position = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # A redirect names its broker.
        door = self._doors.get(request.url.host) or self._turn(request.url.path)
        self._position = max(self._position, self._first.ledger.position)
        if _POSITION not in request.headers:
            request.headers[_POSITION] = str(self._position)
        response = await door.handle_async_request(request)
        self._position = max(self._position, int(response.headers.get(_POSITION, 0)))
        if self._first.sharing is not None:
            await self._first.sharing.reached(self._position, _CATCH_UP_S)
        return response

    def _turn(self, path: str) -> httpx.ASGITransport:
        if path.startswith(_STAYS):
            return self._doors[host(0)]
        self._asked += 1
        return self._doors[host(self._asked % len(self._doors))]


def host(number: int) -> str:
    """The host name of a broker of the cluster."""
    return f"broker{number}"
