"""A request, as handlers see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

import msgspec

from mainstem import limits
from mainstem.api.access import CLUSTER_NAME, EVERYTHING, Operation, ResourceType
from mainstem.api.base import Performance
from mainstem.broker.access.audit import Outcome
from mainstem.broker.access.principal import Principal
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import DEFAULT, NamespaceView, shown_id, view_of
from mainstem.broker.topics.service import Topic
from mainstem.doors.budget import holder_of
from mainstem.doors.http.transport.auth import HttpClient
from mainstem.doors.http.transport.errors import Refusal, invalid
from mainstem.doors.http.transport.namespaces import qualified
from mainstem.doors.http.transport.routing import IDS
from mainstem.doors.http.transport.strict_json import check_fields
from mainstem.errors import InvalidName

if TYPE_CHECKING:
    from mainstem.doors.http.transport.context import Context

T = TypeVar("T")

_SCOPES = {
    Operation.READ: "read",
    Operation.DESCRIBE: "read",
    Operation.WRITE: "write",
    Operation.DELETE: "delete",
}
_OF_TOPICS = (ResourceType.TOPIC, ResourceType.QUEUE, ResourceType.TABLE)
_TRUE = {"true", "1"}
_FALSE = {"false", "0"}


class HttpRequest:
    """`started`: when the request arrived, by `perf_counter`."""

    def __init__(
        self,
        context: Context,
        client: HttpClient,
        host: str,
        parameters: dict[str, str],
        query_string: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        started: float,
    ) -> None:
        self.context = context
        self.client = client
        self.host = host
        self.parameters = parameters
        self.query_string = query_string
        self.headers = headers
        self.body = body
        self.started = started
        self.holder = holder_of(client.principal, host)  # the principal that the budget counts it for
        self._reserved_bytes = 0
        self.throttle_wait_ms = 0  # how long a rate limit delayed it
        self.waited_to_publish = False  # the socket already waited before this write
        self.view: NamespaceView | None = None  # of the namespace that the request is about
        self.left: Callable[[], Awaitable[None]] | None = (
            None  # once the body is read: waits until the client leaves
        )

    def bind(self) -> NamespaceView | None:
        """Serve the names of one namespace: the listener's, the principal's or that of ?namespace=. Raises Refusal."""
        bound = {
            namespace
            for namespace in (
                self.context.view.namespace if self.context.view is not None else "",
                self.client.principal.namespace,
                self.text("namespace") or "",
            )
            if namespace
        }
        if not bound:
            return None
        if len(bound) > 1:
            raise Refusal(403, "forbidden", "this client is bound to another namespace")
        try:
            self.view = view = view_of(bound.pop())
            self.parameters = {
                name: view.own_topic(value) if name == "topic" else view.id(value) if name in IDS else value
                for name, value in self.parameters.items()
            }
        except InvalidName as error:
            raise invalid(str(error)) from None
        return view

    @property
    def shown_topic(self) -> str:
        """The topic in the path, by the name that the client uses."""
        return self.topic if self.view is None else self.view.plain_topic(self.topic) or self.topic

    @property
    def broker(self) -> Broker:
        return self.context.broker

    @property
    def topic(self) -> str:
        return self.parameters["topic"]

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        return self.headers.get(name)

    # Memory of the response

    async def reserve(self, amount: int) -> None:
        """Count this many bytes for the response, instead of the last estimate, until the client has read it.

        Waits while the client's other responses, or those of all clients, hold too much."""
        self.release()
        await self.context.budget.responses.reserve(self.holder, amount)
        self._reserved_bytes = amount

    def reserved_is(self, amount: int) -> None:
        """The response has this size."""
        self.context.budget.responses.take(self.holder, amount)
        self.release()
        self._reserved_bytes = amount

    async def before_large(self) -> None:
        """Reserve memory to decode a very large batch for the response."""
        await self.reserve(limits.LARGE_READ_BYTES)

    def release(self) -> None:
        if self._reserved_bytes:
            self.context.budget.responses.give(self.holder, self._reserved_bytes)
            self._reserved_bytes = 0

    # Query parameters

    @cached_property
    def _query(self) -> dict[str, list[str]]:
        if not self.query_string:
            return {}
        return parse_qs(self.query_string.decode("latin-1"), keep_blank_values=True, errors="replace")

    def text(self, name: str) -> str | None:
        return self._query[name][0] if self.query_string and name in self._query else None

    def flag(self, name: str, default: bool) -> bool:
        """true/1 or false/0; anything else is the default."""
        if not self.query_string:
            return default
        given = self.text(name)
        return True if given in _TRUE else False if given in _FALSE else default

    def number(self, name: str, default: int) -> int:
        """An integer of 0 or more; anything else is the default."""
        given = self.text(name) if self.query_string else None
        if given is None or not (given.isascii() and given.isdigit()) or len(given) > 20:
            return default
        return int(given)

    @property
    def partition(self) -> int:
        return self.number("partition", 0)

    @property
    def chosen_partition(self) -> int | None:
        """The partition that the client names, if any."""
        return None if not self.query_string or self.text("partition") is None else self.partition

    def partitions_of(self, topic: Topic) -> Sequence[int]:
        """The partition that the client names, or else all; of a queue, the first."""
        chosen = self.chosen_partition
        if chosen is None and topic.config.type == "queue":
            chosen = 0
        return range(len(topic.streams)) if chosen is None else (chosen,)

    # Body

    def json(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The decoded body. Raises Refusal 400."""
        body = decoded(decoder, self.body)
        check_fields(decoder.type, self.body)
        return body if self.view is None else qualified(self.view, body)

    # Rights

    @property
    def principal(self) -> Principal:
        return self.client.principal

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        if self.view is not None:
            name = shown_id(name)
        return self.broker.access.allows(self.client.principal, self.host, operation, kind, name)

    def denied(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether a rule denies it, which overrides every other right of the client."""
        if self.view is not None:
            name = shown_id(name)
        return self.broker.access.denies(self.client.principal, self.host, operation, kind, name)

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raises Refusal 403 unless the access rules allow it."""
        if not self.may(operation, kind, name):
            self.audit(operation.name, kind, name, "denied")
            self._check_scope(operation, kind)
            raise forbidden(operation, kind, name)

    def require_some(self, operation: Operation, kind: ResourceType) -> None:
        """Raises Refusal 403 unless the access rules allow the operation on any resource of this type."""
        if not self.broker.access.allows_some(self.client.principal, self.host, operation, kind):
            self.audit(operation.name, kind, EVERYTHING, "denied")
            self._check_scope(operation, kind)
            what = kind.name.lower().replace("_", " ")
            raise Refusal(403, "forbidden", f"the access rules do not allow {operation.name} on any {what}")

    def _check_scope(self, operation: Operation, kind: ResourceType) -> None:
        """Raises a Refusal that names the scope, for a key that lacks the scope altogether."""
        principal = self.client.principal
        if principal.grants and not self.broker.access.allows_some(principal, self.host, operation, kind):
            on_server = kind is ResourceType.CLUSTER
            scope = "admin" if on_server else _SCOPES.get(operation, "admin")
            what = "the server" if on_server else f"any {kind.name.lower().replace('_', ' ')}"
            raise Refusal(403, "forbidden", f"this key lacks the scope {scope}: {operation.name} on {what}")

    def audit(self, operation: str, kind: ResourceType, name: str, outcome: Outcome) -> None:
        """Note in the audit log what the client did, or was denied."""
        self.broker.audit.record(
            self.principal, self.host, "http", operation, kind.name.lower(), name, outcome
        )

    def require_cluster(self, operation: Operation) -> None:
        """Raises Refusal 403 unless the access rules allow it on the server as a whole."""
        self.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def require_topic(self, name: str, operation: Operation) -> None:
        self.require(operation, ResourceType.TOPIC, name)

    def require_create(self, topic: str) -> None:
        """Raises Refusal 403 unless the client may create this topic: by a rule on its name, or on the cluster."""
        if not self.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            self.require_topic(topic, Operation.CREATE)

    def sees(self, topic: str) -> bool:
        """Whether lists show this topic to the client."""
        if self.view is not None and self.view.plain_topic(topic) is None:
            return False
        return self.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def sees_id(self, stored: str) -> bool:
        """Whether a group, transaction or router is of the namespace that the request is about."""
        return (self.view or view_of(DEFAULT)).plain_id(stored) is not None

    # Responding

    def performance(self, *, records_scanned: int | None = None) -> Performance:
        """How long the request took so far."""
        wait_ms = float(self.throttle_wait_ms) if self.throttle_wait_ms else None
        return Performance(self.elapsed_ms(), records_scanned=records_scanned, throttle_wait_ms=wait_ms)

    @property
    def throttle_field(self) -> str:
        """The delay by a rate limit, for responses that are assembled as text: a field of `performance`, or nothing."""
        return f',"throttle_wait_ms":{float(self.throttle_wait_ms)}' if self.throttle_wait_ms else ""

    def elapsed_ms(self) -> float:
        return round((perf_counter() - self.started) * 1000, 3)


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises Refusal 400 for invalid JSON, or JSON that does not match the type."""
    try:
        if not body.isascii():
            body.decode()  # raw parts are copied unchecked, so the whole body must be valid UTF-8
        return decoder.decode(body)
    except UnicodeDecodeError:
        raise invalid("the body is not UTF-8") from None
    except msgspec.ValidationError as wrong:
        raise invalid(f"the body does not fit: {wrong}") from None
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise invalid(f"the body is not valid JSON: {wrong}") from None


def forbidden(operation: Operation, kind: ResourceType, name: str) -> Refusal:
    name = shown_id(name)
    what = kind.name.lower().replace("_", " ")
    if kind is ResourceType.CLUSTER:
        return Refusal(
            403,
            "forbidden",
            f"the access rules, or the rights of this key, do not allow {operation.name} on the server",
        )
    return Refusal(
        403,
        "forbidden",
        f"the access rules, or the scopes and prefixes of this key, do not allow {operation.name} on {what} {name!r}",
        {"topic" if kind in _OF_TOPICS else kind.name.lower(): name},
    )
