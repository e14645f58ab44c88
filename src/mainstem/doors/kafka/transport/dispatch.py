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
from dataclasses import replace
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
from mainstem.doors.kafka.security.rules import RULES, EachItemRule
from mainstem.doors.kafka.transport import namespaces
from mainstem.doors.kafka.transport.api import (
    KAFKA_CONTROL_REQUEST_BYTES_MAX,
    Api,
    ApiCounters,
    Call,
    FastApi,
    Reply,
    RequestOrder,
    off_loop,
)
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.group_names import NAMES_GROUP
from mainstem.doors.kafka.transport.metrics import KafkaMetrics
from mainstem.doors.kafka.transport.request_quota import MeteredReply, named_in, spend
from mainstem.doors.kafka.transport.wire import UNREADABLE, skip_tags
from mainstem.errors import MalformedRequest, Unavailable

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection

KAFKA_READ_INLINE_BYTES_MAX = 8 * limits.KIB  # a larger one is read on a thread
KAFKA_ITEMS_PER_TURN = 500  # described in one turn of the event loop


# The APIs that describe items one by one: the list of the request, and that of the response.
_LISTED = {
    key: next(rule for rule in RULES[key] if isinstance(rule, EachItemRule))
    for key in (2, 9, 10, 15, 23, 61, 65, 69, 77, 89, 90)
}


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

    __slots__ = ("alone", "api", "bytes_max", "counters", "metered", "single")

    def __init__(self, api: Api | FastApi, counters: ApiCounters) -> None:
        self.api = api
        self.counters = counters
        if isinstance(api, FastApi):  # 0: the door's own limit
            self.bytes_max = 0 if api.large else KAFKA_CONTROL_REQUEST_BYTES_MAX
        else:
            self.bytes_max = api.bytes_max
        self.metered = api.metered
        turn = api.turn if isinstance(api, FastApi) else RequestOrder.ALONE
        self.alone = turn is RequestOrder.ALONE
        self.single = turn is RequestOrder.SINGLE


class Dispatch:
    def __init__(self, context: KafkaContext, apis: dict[int, Api | FastApi], metrics: KafkaMetrics) -> None:
        self._context = context
        self.client_activity = context.broker.streams.client_activity
        self._rates = context.broker.rates.stored
        self._now = context.clock.monotonic  # the loop's own clock does not advance within a turn
        self._routes = {key: ApiRoute(api, metrics.of(key)) for key, api in apis.items()}

    def route(self, frame: memoryview) -> ApiRoute:
        """Which API a frame is for. Raises MalformedRequest."""
        if len(frame) < _HEAD.size:
            raise MalformedRequest(f"a request of {len(frame)} bytes has no header")
        return self.check_size(frame, len(frame))

    def check_size(self, begun: memoryview, size: int) -> ApiRoute:
        """Which API a request is for, by its first bytes: one that is too large need not be received.

        Raises MalformedRequest."""
        (key,) = _KEY.unpack_from(begun)
        route = self._routes.get(key)
        if route is None:
            raise MalformedRequest(f"API key {key} is not supported")
        if route.bytes_max and size > route.bytes_max:
            raise MalformedRequest(f"a request of API {key} has {size} bytes, too many for it")
        return route

    def start(self, connection: KafkaConnection, route: ApiRoute, frame: memoryview) -> None:
        """Begin to serve a request; `frame` may be used only during the call. Raises MalformedRequest."""
        _, version, correlation, length = _HEAD.unpack_from(frame)
        body_at = _HEAD.size + max(length, 0)
        if body_at > len(frame) or length < -1:
            raise MalformedRequest("the client id extends past the end of the request")
        api = route.api
        if not api.first <= version <= api.last:
            self._unsupported_version(connection, route, version, correlation, len(frame))
            return
        session = connection.session
        if session is not None and not session.admits(api.key):
            raise MalformedRequest(f"API {api.key} needs a login")
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
        large = len(body) > KAFKA_READ_INLINE_BYTES_MAX
        message = None if large else _read(api, call, body)
        if meter is None:
            request = Reply(connection, route, correlation, flexible, len(frame))
        else:
            request = self._metered(connection, route, call, correlation, flexible, len(frame), meter)
        connection.enqueue(request)
        request.run(
            _handle_large(api, call, body, request) if large else _handle(api, call, message, request)
        )

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
                f"API {api.key} is supported in versions {api.first} to {api.last}, not {version}"
            )
        request = Reply(connection, route, correlation, False, size)
        connection.enqueue(request)
        request.send([unknown_version_answer()], failed=True)


def _read(api: Api | FastApi, call: Call, body: bytes) -> Any:
    """Raises MalformedRequest."""
    message = messages.read(api, call.version, body)
    if call.view is not None:
        return namespaces.qualified(call.view, call.context.broker.streams, message)
    if _SEPARATOR in body:
        namespaces.check_ids(message)
    return message


async def _handle_large(api: Api, call: Call, body: bytes, request: Reply) -> None:
    """Its many items are read and written on a thread, so that other clients do not wait for that."""
    try:
        message = await off_loop(call, lambda: _read(api, call, body))
    except UNREADABLE as error:
        raise MalformedRequest(f"API {api.key} version {call.version} is unreadable: {error}") from None
    answer = await _answer_in_slices(api, call, message, request)
    if not request.connection.closed:
        written = await off_loop(call, lambda: messages.write(api, call.version, answer))
        request.send([written], failed=bool(getattr(answer, "error_code", 0)))


async def _answer_in_slices(api: Api, call: Call, message: Any, request: Reply) -> Any:
    """The answer to a request that may list many items. Where the answer to an item depends on that item alone, others
    are served between the slices."""
    items = _LISTED.get(api.key)
    listed = getattr(message, items.items) if items is not None else None
    if items is None or not listed or len(listed) <= KAFKA_ITEMS_PER_TURN:
        return await _answer(api, call, message, request)
    answers: list[Any] = []
    for first in range(0, len(listed), KAFKA_ITEMS_PER_TURN):
        part = replace(message, **{items.items: listed[first : first + KAFKA_ITEMS_PER_TURN]})
        answer = await _answer(api, call, part, request)
        answers += getattr(answer, items.answers)
        await request.connection.turn()
    return replace(answer, **{items.answers: tuple(answers)})


async def _handle(api: Api, call: Call, message: object, request: Reply) -> None:
    answer = await _answer(api, call, message, request)
    if not request.connection.closed:
        failed = bool(getattr(answer, "error_code", 0))
        request.send([messages.write(api, call.version, answer)], failed=failed)


async def _answer(api: Api, call: Call, message: object, request: Reply) -> Any:
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
    return answer
