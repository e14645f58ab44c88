"""From the bytes of a request to the handler of its API.

Request header, after the four bytes of length:

| field          | type            | meaning                                     |
|----------------|-----------------|---------------------------------------------|
| api_key        | i2              |                                             |
| api_version    | i2              |                                             |
| correlation_id | i4              | repeated in the answer                      |
| client_id      | nullable string | i2 length even in flexible versions         |
| tagged fields  |                 | in flexible versions only                   |
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mainstem import limits
from mainstem.broker.groups.service import Groups
from mainstem.broker.namespaces import ID_SEPARATOR, NamespaceView, view_of
from mainstem.broker.rates import REQUEST_PERCENTAGE, TokenBucket
from mainstem.doors.kafka.apis import messages
from mainstem.doors.kafka.apis.api_versions import API as API_VERSIONS
from mainstem.doors.kafka.apis.api_versions import unknown_version_answer
from mainstem.doors.kafka.security import enforcement
from mainstem.doors.kafka.security.auditing import ADMINISTRATIVE, administered
from mainstem.doors.kafka.transport import namespaces
from mainstem.doors.kafka.transport.api import Api, ApiCounters, Call, FastApi, Reply, RequestOrder
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.group_names import NAMES_GROUP
from mainstem.doors.kafka.transport.metrics import KafkaMetrics
from mainstem.doors.kafka.transport.request_quota import MeteredReply, named_in, spend
from mainstem.doors.kafka.transport.wire import UNREADABLE, skip_tags
from mainstem.errors import MalformedRequest, Unavailable

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection


def _coordinated_elsewhere(groups: Groups, message: Any) -> bool:
    """Whether another broker coordinates a group of the request. A lagging broker may not know yet that it is the
    coordinator."""
    return not all(map(groups.coordinates, _groups_in(message)))


def _groups_in(message: Any) -> Iterator[str]:
    """The groups that a request names, in its newest version."""
    if hasattr(message, "group_id"):
        yield message.group_id
    for field in ("group_ids", "groups_names", "groups"):
        for named in getattr(message, field, ()):
            yield getattr(named, "group_id", named)


_HEAD = struct.Struct(">hhih")
_SEPARATOR = ID_SEPARATOR.encode()
_KEY = struct.Struct(">h")


class ApiRoute:
    """One API: what handles it, in which order, and its counters."""

    __slots__ = ("alone", "api", "counters", "large", "metered", "single")

    def __init__(self, api: Api | FastApi, counters: ApiCounters) -> None:
        self.api = api
        self.counters = counters
        self.large = isinstance(api, FastApi) and api.large
        self.metered = api.metered
        turn = api.turn if isinstance(api, FastApi) else RequestOrder.ALONE
        self.alone = turn is RequestOrder.ALONE
        self.single = turn is RequestOrder.SINGLE


class Dispatch:
    def __init__(self, context: KafkaContext, apis: dict[int, Api | FastApi], metrics: KafkaMetrics) -> None:
        self._context = context
        self.turns = context.broker.streams.turns
        self._rates = context.broker.rates.stored
        self._now = context.clock.monotonic  # the loop's own clock does not advance within a turn
        self._routes = {key: ApiRoute(api, metrics.of(key)) for key, api in apis.items()}

    def route(self, frame: memoryview) -> ApiRoute:
        """Which API a frame is for. Raises MalformedRequest."""
        if len(frame) < _HEAD.size:
            raise MalformedRequest(f"a request of {len(frame)} bytes has no header")
        (key,) = _KEY.unpack_from(frame)
        route = self._routes.get(key)
        if route is None:
            raise MalformedRequest(f"API key {key} is not spoken here")
        if len(frame) > limits.KAFKA_CONTROL_REQUEST_BYTES_MAX and not route.large:
            raise MalformedRequest(f"a request of API {key} has {len(frame)} bytes, too many for it")
        return route

    def start(self, connection: KafkaConnection, route: ApiRoute, frame: memoryview) -> None:
        """Begin to serve a request; `frame` may be used only during the call. Raises MalformedRequest."""
        _, version, correlation, length = _HEAD.unpack_from(frame)
        body_at = _HEAD.size + max(length, 0)
        if body_at > len(frame) or length < -1:
            raise MalformedRequest("the client id runs over the end")
        api = route.api
        if not api.first <= version <= api.last:
            self._unsupported_version(connection, route, version, correlation, len(frame))
            return
        session = connection.session
        if session is not None and not session.admits(api.key):
            raise MalformedRequest(f"API {api.key} is not for clients that have not logged in")
        client_id = connection.client_id(frame[_HEAD.size : body_at]) if length >= 0 else None
        call = connection.calls.get((api.key, version))
        if call is None or call.client_id is not client_id:
            if call is not None and call.memory is not None:
                call.memory.forget()
            call = Call(
                self._context,
                version,
                client_id,
                connection.host,
                connection.principal,
                session=session,
                view=self._view(connection),
            )
            connection.calls[api.key, version] = call
        meter = call.request_meter() if self._rates.active and route.metered else None
        began = 0.0 if meter is None else self._now()
        try:
            if isinstance(api, FastApi):
                self._start_fast(connection, route, api, call, correlation, frame, body_at, meter)
            else:
                self._start_slow(connection, route, api, call, correlation, frame, body_at, meter)
        except UNREADABLE as error:
            raise MalformedRequest(f"API {api.key} version {version} is unreadable: {error}") from None
        if meter is not None:
            spend(meter, self._now() - began)

    def _view(self, connection: KafkaConnection) -> NamespaceView | None:
        """The namespace that the listener or the principal is bound to. Raises MalformedRequest."""
        listener, bound = self._context.view, connection.principal.namespace
        if not bound:
            return listener
        if listener is not None and listener.namespace != bound:
            raise MalformedRequest(
                f"{connection.principal.name} is bound to namespace {bound!r}, and this address serves "
                f"{listener.namespace!r}"
            )
        return view_of(bound)

    def _start_fast(
        self,
        connection: KafkaConnection,
        route: ApiRoute,
        api: FastApi,
        call: Call,
        correlation: int,
        frame: memoryview,
        body_at: int,
        meter: TokenBucket | None,
    ) -> None:
        flexible = call.version >= api.flexible_from
        if flexible:
            body_at = skip_tags(frame, body_at)
        tagged = flexible and not api.plain_answer_header
        if meter is None:
            request = Reply(connection, route, correlation, tagged, len(frame))
        else:
            request = self._metered(connection, route, call, correlation, tagged, len(frame), meter)
        connection.enqueue(request)
        api.handle(call, frame[body_at:], request)

    def _start_slow(
        self,
        connection: KafkaConnection,
        route: ApiRoute,
        api: Api,
        call: Call,
        correlation: int,
        frame: memoryview,
        body_at: int,
        meter: TokenBucket | None,
    ) -> None:
        flexible = messages.flexible(api.key, call.version)
        if flexible:
            body_at = skip_tags(frame, body_at)
        body = bytes(frame[body_at:])
        message = messages.read(api, call.version, body)
        if call.view is not None:
            message = namespaces.qualified(call.view, self._context.broker.streams, message)
        elif _SEPARATOR in body:
            namespaces.check_ids(message)
        if meter is None:
            request = Reply(connection, route, correlation, flexible, len(frame))
        else:
            request = self._metered(connection, route, call, correlation, flexible, len(frame), meter)
        connection.enqueue(request)
        request.run(_handle(api, call, message, request))

    def _metered(
        self,
        connection: KafkaConnection,
        route: ApiRoute,
        call: Call,
        correlation: int,
        tagged: bool,
        size: int,
        meter: TokenBucket,
    ) -> Reply:
        request = MeteredReply(
            connection, route, correlation, tagged, size, version=call.version, meter=meter, now=self._now
        )
        if request.held_ms:
            call.context.metrics.throttled[REQUEST_PERCENTAGE] += 1
            request.mute(request.held_ms)
        return request

    def _unsupported_version(
        self, connection: KafkaConnection, route: ApiRoute, version: int, correlation: int, size: int
    ) -> None:
        """Only ApiVersions has a response that a client with an unknown version can read."""
        if route.api is not API_VERSIONS:
            api = route.api
            raise MalformedRequest(
                f"API {api.key} is spoken in versions {api.first} to {api.last}, not {version}"
            )
        request = Reply(connection, route, correlation, False, size)
        connection.enqueue(request)
        request.send([unknown_version_answer()], failed=True)


async def _handle(api: Api, call: Call, message: object, request: Reply) -> None:
    if api.fresh or (api.coordinated and _coordinated_elsewhere(call.context.groups, message)):
        with contextlib.suppress(Unavailable):  # respond with what is known if the store is unreachable
            await call.context.broker.barrier()
    if call.restricted:
        answer = await enforcement.handle(api, call, message)
    else:
        answer = await api.handle(call, message)
    if api.key in ADMINISTRATIVE:
        administered(api.key, call, message, answer)
    if api.key in NAMES_GROUP:
        call.context.group_names.learn(api.key, call, message, request.connection)
    if call.view is None:
        answer = namespaces.default_lists(api.key, message, answer)
    else:
        answer = namespaces.plain(call.view, answer)
    if request.held_ms:
        answer = named_in(answer, request.held_ms)
    if not request.connection.closed:
        failed = bool(getattr(answer, "error_code", 0))
        request.send([messages.write(api, call.version, answer)], failed=failed)
