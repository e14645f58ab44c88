"""What a route of the HTTP contract is: method, path, rights, request and response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from mainstem.api.access import Operation, ResourceType
from mainstem.errors import InvalidInput

T = TypeVar("T")

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
OCTETS = "application/octet-stream"
EVENTS = "text/event-stream"
ARROW = "application/vnd.apache.arrow.stream"
REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"

CATALOG = "/iceberg/"  # errors below it have the shape that Iceberg specifies

# Paths of the schema registry: errors below them have the shape that Confluent's registry gives them.
REGISTRY = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts")


class Scope(IntFlag):
    """What a key may do."""

    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4
    ADMIN = 8
    ALL = 15


_OPERATIONS = {
    Scope.READ: Operation.READ,
    Scope.WRITE: Operation.WRITE,
    Scope.DELETE: Operation.DELETE,
    Scope.ADMIN: Operation.ALTER_CONFIGS,
}
_NAMED = {
    "topic": ResourceType.TOPIC,
    "router": ResourceType.ROUTER,
    "subject": ResourceType.SUBJECT,
}
# What the end of a topic's path makes of it: the rules of the topic hold as well.
_OF_TOPICS = {
    **dict.fromkeys(("claim", "ack", "nack", "extend", "work", "leases", "requeue"), ResourceType.QUEUE),
    "table": ResourceType.TABLE,
}
# The handler looks at the name; before that, the caller needs the operation on some resource of the type.
_OTHER = {
    "/groups": ResourceType.GROUP,
    "/transactions/{": ResourceType.TRANSACTIONAL_ID,
    "/iceberg/": ResourceType.TABLE,
    "/v0/routers": ResourceType.ROUTER,
}
_OPERATIONS_OF: dict[tuple[ResourceType, Scope], Operation] = {
    (ResourceType.GROUP, Scope.ADMIN): Operation.DELETE,  # of its offsets, also where they are reset
    (ResourceType.TRANSACTIONAL_ID, Scope.ADMIN): Operation.ALTER,
    (ResourceType.TABLE, Scope.ADMIN): Operation.ALTER,
    (ResourceType.ROUTER, Scope.ADMIN): Operation.CREATE,
}


class Body(Enum):
    """How a route treats the body of a request."""

    NONE = "ignored"
    JSON = "needs a JSON content type, even if it is empty"
    OPTIONAL = "an empty one needs no content type, and means all defaults"
    NEEDED = "an empty one needs no content type, and is invalid"
    BYTES = "needs the content type of plain bytes"
    FORM = "needs the content type of a form"
    REGISTRY = "needs a JSON content type, or the schema registry's own"


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter."""

    name: str
    kind: str  # a JSON Schema type
    help: str


@dataclass(frozen=True, slots=True, eq=False)
class Route(Generic[T]):
    """`path` names its parameters in braces: /v0/topics/{topic}/diff. `response` is None without a JSON body."""

    method: str
    path: str
    response: type[T] | None
    scope: Scope = Scope.NONE
    body: Body = Body.NONE
    request: type[Any] | None = None
    statuses: tuple[int, ...] = (200,)
    media: tuple[str, ...] = (JSON,)
    query: tuple[Query, ...] = ()
    events: Mapping[str, type[Any]] = field(default_factory=dict)  # of an event stream, by name
    probe: bool = False  # health and the like: needs no key unless the server is configured to ask for one
    public: bool = False  # a page that a browser opens before its user can give a key
    variants: tuple[type[Any], ...] = ()  # other shapes of the response
    cluster: Operation | None = None  # it concerns the whole server, and needs this right to it
    carries: bool = (
        False  # its body has records, or names the files of a lake: the server's limit holds for it
    )

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What a caller must be allowed to do to the resource that the path names; without a name, to some topic."""
        kind, parameter = self.resource
        of_kind = {} if parameter == "topic" else _OPERATIONS_OF
        return tuple(of_kind.get((kind, scope), _OPERATIONS[scope]) for scope in self.scope)

    @property
    def resource(self) -> tuple[ResourceType, str]:
        """The type of the resource, and the parameter of the path that names it: none if it is empty."""
        for parameter, kind in _NAMED.items():
            if f"{{{parameter}}}" in self.path:
                return _OF_TOPICS.get(self.path.rpartition("/")[2], kind), parameter
        for part, kind in _OTHER.items():
            if part in self.path:
                return kind, ""
        if self.path.startswith(REGISTRY):
            return ResourceType.SUBJECT, ""
        return ResourceType.TOPIC, ""

    @property
    def streams(self) -> bool:
        """Whether it is an event stream: it may carry its key as ?token=, and is not in flight for long."""
        return bool(self.events)

    def url(self, *names: str) -> str:
        """The path with its parameters filled in, in order. Raises InvalidInput for a name that no path can hold."""
        path = self.path
        for name in names:
            before, _, rest = path.partition("{")
            path = before + quoted(name) + rest.partition("}")[2]
        return path


def quoted(name: str) -> str:
    """A name as one segment of a path."""
    if name in ("", ".", ".."):
        raise InvalidInput(f"{name!r} names nothing")
    return quote(name, safe="")
