"""The door as an ASGI application: checks every request in the contract's order, then serves it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Token
from functools import partial
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import quote

from mainstem import events, limits
from mainstem.api import routes
from mainstem.api.access import CLUSTER_NAME, Operation, ResourceType
from mainstem.api.route import CATALOG, REGISTRY, Body, Route
from mainstem.broker.access.principal import ANONYMOUS
from mainstem.broker.streams import ClientActivity
from mainstem.doors.budget import Budget
from mainstem.doors.http.live import websocket
from mainstem.doors.http.routes import iceberg, positions, schemas
from mainstem.doors.http.routes.forwarding import RequestTarget
from mainstem.doors.http.routes.table import ROUTES
from mainstem.doors.http.transport.auth import HttpClient
from mainstem.doors.http.transport.context import Context, MountedApi
from mainstem.doors.http.transport.encodings import packed, unpacked
from mainstem.doors.http.transport.errors import (
    Refusal,
    answer,
    error_response,
    invalid,
    throttled,
    unauthorized,
)
from mainstem.doors.http.transport.namespaces import NamespaceView, current, plain_text
from mainstem.doors.http.transport.origins import preflight
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Asgi, Header, Push, Receive, Response, Send, Stream
from mainstem.doors.http.transport.routing import Endpoint
from mainstem.errors import MainstemError, drop_frames

HTTP_PACKED_BYTES_MIN = 1 * limits.KIB  # a smaller response is never compressed

_log = events.named("http")

_NAMESPACE = b"namespace="
_JSON = (b"application/json",)
_CONTENT_TYPES = {
    Body.BYTES: (b"application/octet-stream",),
    Body.FORM: (b"application/x-www-form-urlencoded",),
    Body.REGISTRY: (b"application/vnd.schemaregistry", *_JSON),
}
_FORBIDDEN = 403
# Headers that decide who calls and what it means: of two, a proxy may have checked the other one.
_SINGLE = (b"host", b"authorization", b"content-type", b"content-encoding", b"origin")
_UNKNOWN_SUBROUTE = b"/v0/topics/"
_REPEATED = (routes.POST_RECORDS, routes.POST_DIFF)

T = TypeVar("T")
Write = Callable[[Response], Awaitable[None]]


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


class App:
    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def budget(self) -> Budget:
        return self.context.budget

    @property
    def client_activity(self) -> ClientActivity:
        return self.context.broker.streams.client_activity

    def connected(self, transport: asyncio.Transport) -> None:
        """A connection was made."""
        self.context.clients.connected(transport)

    def repeats(self, scope: Asgi) -> bool:
        """Appends and reads of a broker alone: in a cluster, another broker may have to be asked."""
        found = ROUTES.cached.get((scope["method"], scope["raw_path"]))
        return found is not None and found[0].route in _REPEATED and not self.context.broker.cluster.shared

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await websocket.serve(self.context, scope, receive, send)
            return
        await self.serve(scope, receive, send, None)

    async def serve(self, scope: Asgi, receive: Receive, send: Send, write: Write | None) -> None:
        """Serve one request. `write` sends a complete response in one call, if the server supports that."""
        started = perf_counter()
        exchange = _Exchange(self.context, scope, receive, started)
        activity = self.client_activity
        activity.tasks += 1
        try:
            response = await _response(exchange, scope)
            allowed = self.context.origins.response_headers(exchange.header(b"origin"))
            if allowed and isinstance(response, Response):
                response = response._replace(headers=(*response.headers, *allowed))
            elif allowed:
                send = _with_headers(send, allowed)
            if isinstance(response, Response):
                if len(response.body) >= HTTP_PACKED_BYTES_MIN:
                    response = await packed(
                        response, exchange.header(b"accept-encoding") or b"", exchange.off_loop
                    )
                sent = len(response.body)
                await (_send(response, send) if write is None else write(response))
            elif isinstance(response, Push):
                exchange.release()  # a stream may last for hours, and counts as a stream instead
                with activity.waiting():
                    sent = await response.serve(receive, send)
            else:
                exchange.release()
                with activity.waiting():
                    sent = await _send_stream(response, receive, send)
        except ClientDisconnected:
            return
        finally:
            activity.tasks -= 1
            exchange.release()
        self.context.traffic.served(
            exchange.route_name, response.status, perf_counter() - started, exchange.received, sent
        )


async def _response(exchange: _Exchange, scope: Asgi) -> Response | Stream | Push:
    try:
        return await exchange.run()
    except (MainstemError, Refusal) as error:
        drop_frames(error)
        response = _answer_of(scope["path"])(error)
        return (
            response
            if exchange.view is None
            else response._replace(body=plain_text(exchange.view, response.body))
        )
    except ClientDisconnected:
        raise
    except Exception as error:  # noqa: BLE001 - one request must not take the server down
        _log.exception("request failed", path=scope["path"], method=scope["method"])
        drop_frames(error)
        return error_response(500, "internal", f"an internal error: {type(error).__name__}")


def _with_headers(send: Send, more: Sequence[Header]) -> Send:
    """Send these headers with the head of a response."""

    async def sending(message: Asgi) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


def _check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises Refusal 400."""
    names = [name for name, _ in headers]
    for name in _SINGLE:
        if names.count(name) > 1:
            raise invalid(f"the request has more than one header {name.decode()}")


def _answer_of(path: str) -> Callable[[MainstemError | Refusal], Response]:
    """The function that formats the errors of a path."""
    if path.startswith(CATALOG):
        return iceberg.answer
    return schemas.answer if path.startswith(REGISTRY) else answer


class _Exchange:
    """One request while it is checked and served."""

    def __init__(self, context: Context, scope: Asgi, receive: Receive, started: float) -> None:
        self._context = context
        self._scope = scope
        self._receive = receive
        self._started = started
        self._client: HttpClient | None = None
        self._host = str((scope.get("client") or ("",))[0])
        self._headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # of several, the first one
        self._held_bytes = 0
        self._request: HttpRequest | None = None
        self.route_name = "none"
        self.received = 0
        self._holder = ""  # the principal that the budget counts it for
        self.view: NamespaceView | None = None  # of the namespace that the request is about
        self._bound: Token[NamespaceView | None] | None = None

    async def run(self) -> Response | Stream | Push:
        found: tuple[Endpoint, dict[str, str]] | Refusal
        scope = self._scope
        context = self._context
        if len(self._headers) != len(scope["headers"]):
            _check_single(scope["headers"])
        if scope["raw_path"][:1] != b"/":
            raise Refusal(404, "not_found", "there is nothing at this path")
        context.origins.check(scope["method"], self._headers, anonymous=not context.clients.required)
        if scope["method"] == "OPTIONS" and (answer := self._preflight()) is not None:
            return answer
        mounted = context.mounted and context.mounted.get(scope["path"].split("/", 2)[1])
        if mounted:
            context.origins.check_page(self._headers)  # some of its GETs create what they ask about
            return await self._serve_mounted(mounted)
        try:
            found = ROUTES.find(scope["method"], scope["raw_path"])
        except Refusal as refusal:
            found = refusal
        client = await self._authenticated(found)
        self._enter(client)
        if isinstance(found, Refusal):
            self._check_unknown(client, found)
            raise found
        endpoint, parameters = found
        route = endpoint.route
        self.route_name = endpoint.name
        if endpoint.changes_by_get:
            context.origins.check_page(self._headers)
        request = HttpRequest(
            self._context,
            client,
            self._host,
            parameters,
            scope["query_string"],
            self._headers,
            b"",
            self._started,
        )
        self._holder = request.holder
        self._request = request
        bound = self._context.view is not None or client.principal.namespace != ""
        if bound or _NAMESPACE in scope["query_string"]:
            self.view = request.bind()
        if self.view is not None:
            parameters = request.parameters
            if bound and route.cluster is not None:
                raise Refusal(
                    403, "forbidden", f"this is not for clients of namespace {self.view.namespace!r}"
                )
            self._bound = current.set(self.view)
        if route.cluster is not None:
            request.require_cluster(route.cluster)
        elif endpoint.parameter:
            for operation in endpoint.operations:
                request.require(operation, endpoint.kind, parameters[endpoint.parameter])
        else:
            for operation in endpoint.operations:
                request.require_some(operation, endpoint.kind)
        if route.body is not Body.NONE:
            request.body = await self._body(route)
            request.left = partial(_gone, self._receive)
        if not endpoint.audited or not self._context.broker.audit.on:
            return await self._serve(endpoint, request)
        kind = endpoint.kind if parameters else ResourceType.CLUSTER
        name = "/".join(parameters.values()) or CLUSTER_NAME
        try:
            response = await self._serve(endpoint, request)
        except (MainstemError, Refusal) as error:
            if getattr(error, "status", 0) != _FORBIDDEN:  # which is recorded already
                request.audit(endpoint.name, kind, name, "failed")
            raise
        request.audit(endpoint.name, kind, name, "done")
        return response

    def _preflight(self) -> Response | None:
        """The response to a browser's question before a request of another origin, if that origin is allowed."""
        if self.header(b"access-control-request-method") is None:
            return None
        if not self._context.origins.response_headers(self.header(b"origin")):
            return None
        try:
            ROUTES.find("OPTIONS", self._scope["raw_path"])
        except Refusal as refusal:
            allowed = dict(refusal.headers).get(b"allow")
            return None if allowed is None else preflight(allowed)
        return None

    async def _serve_mounted(self, api: MountedApi) -> Response:
        scope = self._scope
        client = await self._authenticated(Refusal(404, "not_found", ""))
        self._enter(client)
        self.route_name = "mounted"
        request = HttpRequest(
            self._context, client, self._host, {}, scope["query_string"], self._headers, b"", self._started
        )
        self._holder = request.holder
        self._request = request
        request.body = await self._receive_all(self._body_bound(carries=False))
        return await api.serve(request, scope["method"], scope["raw_path"].decode("latin-1"))

    async def _serve(self, endpoint: Endpoint, request: HttpRequest) -> Response | Stream | Push:
        scope = self._scope
        if self._context.broker.cluster.shared:
            query = scope["query_string"]
            view = self._context.view
            if view is not None and _NAMESPACE not in query:
                # The other broker may listen for another namespace, or for all.
                query = b"&".join(filter(None, (query, _NAMESPACE + quote(view.namespace).encode())))
            target = scope["raw_path"] + (b"?" + query if query else b"")
            where = RequestTarget(scope["method"], scope["scheme"], target)
            return await positions.serve(endpoint, request, where)
        return await endpoint.handler(request)

    def header(self, name: bytes) -> bytes | None:
        return self._headers.get(name)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run work that compresses or decompresses much."""
        return await self._context.broker.decoding.run(self._holder, work)

    async def _authenticated(self, found: tuple[Endpoint, dict[str, str]] | Refusal) -> HttpClient:
        clients = self._context.clients
        if not clients.required and not self._context.broker.access.restricted:
            return clients.everyone()
        authorization = self.header(b"authorization")
        if not isinstance(found, Refusal):
            route = found[0].route
            if route.public or (route.probe and not self._context.probe_auth):
                return clients.everyone()
            if authorization is None and route.streams:
                authorization = self._token()
        client = await clients.find(authorization, self._scope.get("client"))
        if client is None:
            self._context.broker.audit.record(
                ANONYMOUS, self._host, "http", "AUTHENTICATE", "cluster", CLUSTER_NAME, "denied"
            )
            raise unauthorized(given=authorization is not None)
        return client

    def _token(self) -> bytes | None:
        """?token=, for event streams opened by browsers, which cannot send headers with them."""
        query = HttpRequest(
            self._context,
            self._context.clients.everyone(),
            self._host,
            {},
            self._scope["query_string"],
            {},
            b"",
            self._started,
        )
        token = query.text("token")
        return b"Bearer " + token.encode() if token else None

    def _enter(self, client: HttpClient) -> None:
        bound = self._context.limits.inflight_per_key
        if bound and client.in_flight >= bound:
            raise throttled(
                "max_inflight_per_key",
                bound,
                f"this key has {bound} requests in progress, the maximum for a key",
            )
        client.in_flight += 1
        self._client = client

    def release(self) -> None:
        """Release everything that the budget counted for the request."""
        if self._bound is not None:
            current.reset(self._bound)
            self._bound = None
        if self._client is not None:
            self._client.in_flight -= 1
            self._client = None
        if self._held_bytes:
            self._context.bodies.give(self._holder, self._held_bytes)
            self._held_bytes = 0
        if self._request is not None:
            self._request.release()

    def _check_unknown(self, client: HttpClient, refusal: Refusal) -> None:
        """Unknown paths below a topic need write access, so that a client without it cannot probe for them."""
        if refusal.status == 404 and self._scope["raw_path"].startswith(_UNKNOWN_SUBROUTE):
            probing = HttpRequest(self._context, client, self._host, {}, b"", {}, b"", self._started)
            name = self._scope["path"].removeprefix(_UNKNOWN_SUBROUTE.decode()).split("/")[0]
            probing.require_topic(name, Operation.WRITE)

    # Body

    def _body_bound(self, *, carries: bool) -> int:
        """The largest body; 0: any. One without records is decoded and served in one turn of the event loop."""
        configured = self._context.limits.body_bytes
        if carries:
            return configured
        return min(configured or limits.HTTP_CONTROL_BODY_BYTES_MAX, limits.HTTP_CONTROL_BODY_BYTES_MAX)

    async def _body(self, route: Route[Any]) -> bytes:
        bound = self._body_bound(carries=route.carries)
        length = self.header(b"content-length")
        if bound and length is not None and (len(length) > 19 or (length.isdigit() and int(length) > bound)):
            raise _too_large(bound)
        wanted = _CONTENT_TYPES.get(route.body, _JSON)
        typed = (self.header(b"content-type") or b"").lower().startswith(wanted)
        if not typed and (route.body not in (Body.OPTIONAL, Body.NEEDED) or length not in (None, b"0")):
            raise _untyped(wanted[-1])
        body = await self._receive_all(bound)
        if not body:
            if route.body is Body.OPTIONAL:
                return b"{}"
        elif not typed:
            raise _untyped(wanted[-1])
        encoding = self.header(b"content-encoding")
        if encoding is not None:
            body = await unpacked(encoding, body, bound, self.off_loop)
            self._hold(len(body))
        return body

    async def _receive_all(self, bound: int) -> bytes:
        message = await self._receive()
        body: bytes = message.get("body", b"")
        self._count(len(body), bound)
        if message["type"] == "http.request" and not message.get("more_body"):
            return body
        parts = [body]
        while message.get("more_body"):
            message = await self._receive()
            parts.append(message.get("body", b""))
            self._count(len(parts[-1]), bound)
        if message["type"] != "http.request":
            raise ClientDisconnected
        return b"".join(parts)

    def _count(self, more: int, bound: int) -> None:
        self.received += more
        self._hold(more)
        if bound and self.received > bound:
            raise _too_large(bound)
        all_bound = limits.HTTP_INGEST_BYTES_MAX
        if self._context.bodies.over(self._holder):
            raise throttled("ingest_queue", all_bound, "too many bytes are being received at once: retry")

    def _hold(self, more: int) -> None:
        if more:
            self._held_bytes += more
            self._context.bodies.take(self._holder, more)


def _too_large(bound: int) -> Refusal:
    return Refusal(413, "payload_too_large", f"the body is over the limit of {bound} bytes", {"max": bound})


def _untyped(wanted: bytes) -> Refusal:
    return Refusal(415, "unsupported_media_type", f"send the body with Content-Type: {wanted.decode()}")


async def _send(response: Response, send: Send) -> None:
    length = (b"content-length", b"%d" % len(response.body))
    headers = [length, *response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def _send_stream(stream: Stream, receive: Receive, send: Send) -> int:
    """Send chunks until they end or the client leaves, whichever comes first."""
    sending = asyncio.ensure_future(_send_chunks(stream, send))
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not sending.done():
            sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
    return 0 if sending.cancelled() else sending.result()


async def _send_chunks(stream: Stream, send: Send) -> int:
    sent = 0
    await send({"type": "http.response.start", "status": stream.status, "headers": list(stream.headers)})
    try:
        async for chunk in stream.chunks:
            sent += len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        close = getattr(stream.chunks, "aclose", None)
        if close is not None:
            await close()
    await send({"type": "http.response.body", "body": b""})
    return sent


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
