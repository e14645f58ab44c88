"""Positions: what one broker has acknowledged, a client finds at every other broker.

Where brokers share a log, every answer carries `Mainstem-Position: N`, the position up to which this broker knows
the log. A request that sends it back is served once the broker it reaches knows as much. And before a broker says that
something is not there, it makes sure that no other one has just made it. A request about what exists now is served as
if it had sent the newest position.
"""

from __future__ import annotations

from mainstem.api import routes as api
from mainstem.broker.cluster.service import Cluster
from mainstem.doors.http.routes import forwarding
from mainstem.doors.http.routes.forwarding import RequestTarget
from mainstem.doors.http.transport.errors import RETRY_SOON, Refusal, error_response, invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Push, Response, Stream
from mainstem.doors.http.transport.routing import Endpoint
from mainstem.errors import NotCoordinator, NotFound, OffsetOutOfRange

POSITION_WAIT_S = 5.0  # how long a reader waits for a position that it names

# Requests about what exists now, or about everything that was written before.
_FRESH = frozenset(
    {
        api.LIST_TOPICS,
        api.GET_TOPIC,
        api.PUT_TOPIC,
        api.DELETE_TOPIC,
        api.POST_DELETE,
        api.GET_SETTINGS,
        api.PATCH_SETTINGS,
        api.GET_OFFSETS,
        api.GET_CONSUMERS,
        api.GET_LEASES,
        api.LIST_ROUTERS,
        api.GET_ROUTER,
        api.PUT_ROUTER,
        api.DELETE_ROUTER,
        api.LIST_GROUPS,
        api.GET_GROUP,
        api.POST_WATCH,
    }
)

_HEADER = b"mainstem-position"
_DIGITS_MAX = 19


async def serve(endpoint: Endpoint, request: HttpRequest, where: RequestTarget) -> Response | Stream | Push:
    """Have the endpoint serve a request of a broker that shares its log."""
    broker = request.broker
    await (broker.refresh() if endpoint.route in _FRESH else broker.catch_up())
    asked = request.header(_HEADER)
    if asked is not None:
        await _reach(broker.cluster, asked)
    try:
        response = await endpoint.handler(request)
    except NotCoordinator as moved:
        return await _elsewhere(request, moved, where)
    except (NotFound, OffsetOutOfRange):
        known = broker.position
        await broker.barrier()
        if broker.position == known:
            raise
        response = await endpoint.handler(request)
    if isinstance(response, Response):
        told = (_HEADER, b"%d" % broker.position)
        response = response._replace(headers=(*response.headers, told))
    return response


async def _elsewhere(request: HttpRequest, moved: NotCoordinator, where: RequestTarget) -> Response:
    """Forward or redirect the client to the broker that knows the members of a group."""
    address = request.broker.cluster.other_coordinator(moved.group, "http")
    if address is None:
        raise moved
    if forwarding.wanted(request):
        return await forwarding.forward(request, where, address)
    place = b"%s://%s%s" % (where.scheme.encode(), address.encode(), where.target)
    return error_response(307, "not_coordinator", f"{moved}, at {address}", headers=((b"location", place),))


async def _reach(cluster: Cluster, asked: bytes) -> None:
    if not asked.isdigit() or len(asked) > _DIGITS_MAX:
        raise invalid("Mainstem-Position takes a whole number, as an earlier response returned it")
    if not await cluster.reached(int(asked), POSITION_WAIT_S):
        raise Refusal(
            503,
            "not_ready",
            f"this broker has not reached position {int(asked)} of the log within {POSITION_WAIT_S:g} s",
            {"replay_progress": 1.0},
            (RETRY_SOON,),
        )
