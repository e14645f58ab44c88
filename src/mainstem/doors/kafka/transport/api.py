"""The interface between a Kafka API and the door.

Each API has a file of its own that exports `API`. Its handler is written once, against the message classes of
the newest version it supports; requests of older versions are converted to it, and responses from it (versions.py).
The hot APIs (Produce, Fetch, Metadata) parse and write bytes by hand and export a `FastApi`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mainstem import limits
from mainstem.broker.namespaces import ID_SEPARATOR, shown_id
from mainstem.doors.budget import holder_of
from mainstem.errors import MalformedRequest, invariant

if TYPE_CHECKING:
    from mainstem.broker.access.principal import Principal
    from mainstem.broker.access.rules import Operation, ResourceType
    from mainstem.broker.namespaces import NamespaceView
    from mainstem.broker.rates import RateLimiter, TokenBucket
    from mainstem.broker.topics.service import Topic
    from mainstem.doors.kafka.security.session import LoginSession
    from mainstem.doors.kafka.transport.connection import KafkaConnection
    from mainstem.doors.kafka.transport.context import KafkaContext
    from mainstem.doors.kafka.transport.dispatch import ApiRoute

Part = bytes | bytearray | memoryview
T = TypeVar("T")

_HEAD = struct.Struct(">ii")  # length of what follows, correlation id
_TAGGED_HEAD = struct.Struct(">iib")
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


@dataclass(slots=True)
class Call:
    """One request: its client, its version, and what the handler needs."""

    context: KafkaContext
    version: int  # that the client speaks; the request is already of the newest version
    client_id: str | None
    host: str  # where the client connects from
    principal: Principal
    memory: ConnectionState | None = None
    session: LoginSession | None = None  # None: clients need not log in
    view: NamespaceView | None = None  # of the namespace that the client is bound to

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the access rules, if there are any, let this client do it."""
        if not self.restricted:
            return True
        if self.view is not None:
            name = shown_id(name)
        return self.context.access.allows(self.principal, self.host, operation, kind, name)

    def may_or_audit(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """As `may`, for a resource that the client names: a denial goes to the audit log."""
        allowed = self.may(operation, kind, name)
        if not allowed:
            self.denied(operation.name, kind, name)
        return allowed

    def denied(self, operation: str, kind: ResourceType, name: str) -> None:
        """Note in the audit log that the access rules denied something."""
        self.context.broker.audit.record(
            self.principal, self.host, "kafka", operation, kind.name.lower(), name, "denied"
        )

    @property
    def restricted(self) -> bool:
        """Whether rules decide what this client may do."""
        access, principal = self.context.access, self.principal
        decides = access.enforced or principal.grants or access.admitted
        return bool(decides) and not access.open_to(principal)

    # Names, where an API reads its bytes by hand

    def topic(self, name: str) -> Topic | None:
        """The topic that the client names."""
        return self.context.broker.streams.get(self.full_name(name))

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id, unless the client is bound to another namespace."""
        topic = self.context.broker.streams.get_by_id(topic_id)
        return topic if topic is None or self.view is None or self.view.has(topic) else None

    def full_name(self, name: str) -> str:
        return name if self.view is None else self.view.topic(name)

    def stored_id(self, id: str) -> str:
        """The stored form of a transactional id that the client names. Raises MalformedRequest."""
        if ID_SEPARATOR in id:
            raise MalformedRequest("ids of groups and transactions cannot contain U+001F")
        return id if self.view is None else self.view.id(id)

    def plain_name(self, topic: Topic) -> str:
        """The name that the client knows a topic by."""
        return topic.name if self.view is None else topic.plain_name

    def text(self, message: str) -> str:
        """An error message as the client may read it."""
        return message if self.view is None else self.view.text(message)

    def request_meter(self) -> TokenBucket | None:
        """The limiter of this client's time on the loop; None: no limit."""
        return self.context.broker.rates.requests(self.principal, self.client_id)

    def producing(self, topic: str) -> RateLimiter | None:
        """The limiter of this client's appends to a topic; None: no limit."""
        return self.context.broker.rates.producing(self.principal, topic, self.client_id)

    def consuming(self, topic: str, group: str | None) -> RateLimiter | None:
        """The limiter of this client's reads from a topic; None: no limit."""
        return self.context.broker.rates.consuming(self.principal, topic, group, self.client_id)

    def throttle(self, quota: str, held_ms: int, reply: Reply) -> int:
        """Throttle the client for this time. Returns the throttle_time_ms of the response."""
        if held_ms:
            self.context.metrics.throttled[quota] += 1
            reply.mute(held_ms)
        return held_ms


async def off_loop(call: Call, work: Callable[[], T]) -> T:
    """The result of work that takes long, done on a thread where principals take turns."""
    holder = holder_of(call.principal, call.host)
    return await call.context.broker.decoding.run(holder, work, bounded=False)


class ConnectionState(Protocol):
    """State that a handler keeps between requests of one connection and version."""

    def forget(self) -> None:
        """The connection is closed."""
        ...


class ApiCounters:
    """Requests of one API."""

    __slots__ = ("count", "errors", "latencies", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0  # responded to with an error code, or not at all
        self.seconds = 0.0
        self.latencies = [0] * (len(LATENCY_BUCKETS_S) + 1)  # by bucket; the last has no upper bound

    def finished(self, seconds: float, failed: bool, requests: int = 1) -> None:
        """`requests` took `seconds` each."""
        self.count += requests
        self.errors += requests * failed
        self.seconds += requests * seconds
        self.latencies[bisect_left(LATENCY_BUCKETS_S, seconds)] += requests


class Reply:
    """One request in progress, and its place in the queue of responses, which are sent in the order of the requests."""

    held_ms = 0  # for how long a quota of time throttles the client (request_quota.py)

    __slots__ = (
        "alone",
        "answered",
        "connection",
        "correlation",
        "hurry",
        "parts",
        "route",
        "size",
        "started",
        "tagged",
    )

    def __init__(
        self, connection: KafkaConnection, route: ApiRoute, correlation: int, tagged: bool, size: int
    ) -> None:
        self.connection = connection
        self.route = route
        self.correlation = correlation
        self.tagged = tagged  # the answer's header has tagged fields
        self.size = size  # bytes received
        self.started = connection.now()
        self.alone = route.alone
        self.answered = False
        self.parts: Sequence[Part] | None = None
        self.hurry: Callable[[], None] | None = None

    def send(self, parts: Sequence[Part], *, failed: bool = False) -> None:
        """Answer with the body after the header, as buffers that do not change any more.

        `failed`: it counts as an error."""
        invariant(not self.answered, "a request is answered once")
        self.parts = parts
        self._finish(failed)

    def send_nothing(self, *, failed: bool = False) -> None:
        """The request is done, and the protocol has no response to it."""
        invariant(not self.answered, "a request is answered once")
        self._finish(failed)

    def _finish(self, failed: bool) -> None:
        self.answered = True
        self.hurry = None
        connection = self.connection
        self.route.counters.finished(connection.now() - self.started, failed)
        connection.answered(self)

    def hang_up(self, reason: str) -> None:
        """Close the connection."""
        self.connection.drop(reason)

    def fail(self, error: Exception) -> None:
        """An unexpected error: log it, and close the connection."""
        self.connection.fail(error)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue in a task of the connection; if it fails, the connection is closed."""
        self.connection.run(work)

    def step(self, work: Callable[[], None]) -> None:
        """Continue now, after an event that the request waited for."""
        work()

    def hold_others(self) -> None:
        """Start no later request of the connection before the response to this one."""
        self.alone = True
        self.connection.hold()

    def mute(self, ms: int) -> None:
        """Stop reading from the client for this long: it is over its quota."""
        self.connection.mute(ms)

    def expect(self, alike: RequestMatcher) -> None:
        """Offer the following requests of the connection to this matcher first."""
        self.connection.expect(alike, self.route)

    def on_hurry(self, callback: Callable[[], None]) -> None:
        """Set what to call if the door closes, or the client disconnects, while the request waits."""
        self.hurry = callback

    def write(self, out: list[Part]) -> int:
        """Add the bytes to send, none if the protocol has no response. Returns their number."""
        parts = self.parts
        if parts is None:
            return 0
        length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if self.tagged:
            out.append(_TAGGED_HEAD.pack(length + 5, self.correlation, 0))
        else:
            out.append(_HEAD.pack(length + 4, self.correlation))
        out += parts
        return length


class RequestMatcher(Protocol):
    """Recognises requests that repeat an earlier one."""

    def serve(self, connection: KafkaConnection, route: ApiRoute, frame: memoryview) -> bool:
        """Start a request, given with its header; its memory may be used only during the call.

        False: the request differs and takes the general path."""
        ...

    def serve_run(
        self, connection: KafkaConnection, route: ApiRoute, buffer: memoryview, at: int, end: int
    ) -> int:
        """Start several requests at once, which follow each other in the buffer from `at`, with their lengths.

        Returns where they end; `at`: nothing was started. The memory may be used only during the call."""
        ...


Handler = Callable[[Call, Any], Awaitable[Any]]
FastHandler = Callable[[Call, memoryview, Reply], None]


class RequestOrder(Enum):
    """Which other requests of the connection may run beside a request."""

    ALONE = "nothing later starts before it is answered"
    SINGLE = "one of its kind at a time, and only while the client reads its answers"
    OVERLAPPING = "any number"


# Of a request without records: decoded it takes about twenty times its bytes.
KAFKA_CONTROL_REQUEST_BYTES_MAX = 2 * limits.MIB


@dataclass(frozen=True, slots=True)
class Api:
    """An API whose messages a library reads and writes."""

    key: int
    first: int  # oldest version spoken
    last: int  # newest version spoken: that of the handler
    handle: Handler
    metered: bool = True  # its time counts against the client's request quota
    fresh: bool = False  # it needs what other brokers just created or changed
    coordinated: bool = False  # it is for the coordinator of the groups that it names
    bytes_max: int = KAFKA_CONTROL_REQUEST_BYTES_MAX


def _in_front(version: int) -> int | None:
    return 0


@dataclass(frozen=True, slots=True)
class FastApi:
    """An API read and written by hand. Its handler gets the body after the request header, and must copy what it keeps
    after it returns. Raises MalformedRequest."""

    key: int
    first: int
    last: int
    flexible_from: int  # first version with tagged fields in its headers
    handle: FastHandler
    turn: RequestOrder = RequestOrder.ALONE
    large: bool = False  # its requests may be as large as the door accepts; others have a tighter limit
    plain_answer_header: bool = False  # no tagged fields in the response header, in any version
    metered: bool = True
    throttle_at: Callable[[int], int | None] = (
        _in_front  # where a response's throttle_time_ms is; None: nowhere
    )
