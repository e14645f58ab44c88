"""Finding the endpoint of a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.route import REGISTRY, Route, Scope
from mainstem.broker.namespaces import ID_SEPARATOR
from mainstem.doors.http.transport.errors import Refusal
from mainstem.schemas import subjects

if TYPE_CHECKING:
    from mainstem.doors.http.transport.requests import HttpRequest
    from mainstem.doors.http.transport.responses import Push, Response, Stream

Handler = Callable[["HttpRequest"], Awaitable["Response | Stream | Push"]]


_PATHS_KEPT = 4096
IDS = (
    "group",
    "router",
    "transaction",
    "subject",
)  # parameters that are stored with a namespace prefix


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route of the contract, and its handler."""

    route: Route[Any]
    handler: Handler
    name: str  # in metrics
    operations: tuple[Operation, ...] = field(init=False)
    kind: ResourceType = field(init=False)
    parameter: str = field(init=False)
    audited: bool = field(init=False)  # it is administrative
    changes_by_get: bool = field(
        init=False
    )  # a page of another site could have the browser of a user send it

    def __post_init__(self) -> None:
        kind, parameter = self.route.resource
        for name, value in (
            ("operations", self.route.operations),
            ("kind", kind),
            ("parameter", parameter),
            ("audited", _administrative(self.route)),
            ("changes_by_get", self.route.method == "GET" and Scope.WRITE in self.route.scope),
        ):
            object.__setattr__(self, name, value)  # looked up once, not for each request


def _administrative(route: Route[Any]) -> bool:
    """Whether the route is administrative. The lake's work and table commits are routine, and are not."""
    if route.method in ("GET", "HEAD") or not route.scope & (Scope.ADMIN | Scope.DELETE):
        return False
    commits = route.method == "POST" and route.path.endswith(("/{table}", "/commit"))
    return not (route.path.startswith("/v0/lake/") or commits)


class Routes:
    """Looks up routes by the shape of the path: its fixed segments and their number."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._shapes: dict[tuple[str | None, ...], dict[str, Endpoint]] = {}
        self._names: dict[tuple[str | None, ...], tuple[str, ...]] = {}
        self.cached: dict[tuple[str, bytes], tuple[Endpoint, dict[str, str]]] = {}  # recently requested paths
        for endpoint in endpoints:
            route = endpoint.route
            segments = route.path.split("/")[1:]
            shape = tuple(None if segment.startswith("{") else segment for segment in segments)
            self._shapes.setdefault(shape, {})[route.method] = endpoint
            self._names[shape] = tuple(s[1:-1] for s in segments if s.startswith("{"))

    def find(self, method: str, raw_path: bytes) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint and the path's parameters. Raises Refusal: 404, or 405 where only the method is wrong."""
        known = self.cached.get((method, raw_path))
        if known is not None:
            return known
        found = self._look_up(method, raw_path)
        if len(raw_path) > limits.KEPT_NAME_CHARS_MAX:
            return found
        if len(self.cached) >= _PATHS_KEPT:
            self.cached.clear()
        self.cached[method, raw_path] = found
        return found

    def _look_up(self, method: str, raw_path: bytes) -> tuple[Endpoint, dict[str, str]]:
        segments = raw_path.decode("latin-1").split("/")[1:]
        if segments[0] == "contexts" and len(segments) > 2:  # the registry of one context
            return self._in_context(method, _decoded(segments[1]), segments[2:])
        for shape in _shapes_of(segments):
            methods = self._shapes.get(shape)
            if methods is None:
                continue
            endpoint = methods.get(method)
            get = methods.get("GET")
            heads = get is not None and not get.route.streams  # an event stream has no length
            if endpoint is None and method == "HEAD" and heads:
                endpoint = get  # the server omits the body
            if endpoint is None:
                allowed = ", ".join(sorted(methods.keys() | ({"HEAD"} if heads else set())))
                raise Refusal(
                    405,
                    "method_not_allowed",
                    f"this path takes {allowed}, not {method}",
                    headers=((b"allow", allowed.encode()),),
                )
            values = [_decoded(s) for s, fixed in zip(segments, shape, strict=True) if fixed is None]
            if not all(values):
                break  # a slash too many
            parameters = dict(zip(self._names[shape], values, strict=True))
            if "subject" in parameters:
                parameters["subject"] = subjects.normal(parameters["subject"])
            if any(ID_SEPARATOR in parameters.get(name, "") for name in IDS):
                raise Refusal(400, "invalid_request", "names cannot contain U+001F")
            return endpoint, parameters
        raise Refusal(404, "not_found", "there is nothing at this path")

    def _in_context(self, method: str, context: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
        endpoint, parameters = self._look_up(method, ("/" + "/".join(segments)).encode("latin-1"))
        if not endpoint.route.path.startswith(REGISTRY) or "context" in parameters:
            raise Refusal(404, "not_found", "there is nothing at this path")
        if ID_SEPARATOR in context:
            raise Refusal(400, "invalid_request", "names cannot contain U+001F")
        if "subject" in parameters:
            parameters["subject"] = subjects.in_context(context, parameters["subject"])
        return endpoint, {**parameters, "context": context}


def _shapes_of(segments: list[str]) -> tuple[tuple[str | None, ...], ...]:
    """The possible shapes of a path: all segments fixed, or a name as the third one below /v0, or the catalog's."""
    whole: tuple[str | None, ...] = tuple(segments)
    if len(segments) < 3 and segments[0] not in _REGISTRY_NAMES:
        return (whole,)
    if segments[0] in _REGISTRY_NAMES:
        return (whole, _registry_shape(segments))
    if segments[0] == "iceberg":
        return (whole, *_catalog_shapes(segments))
    return (whole, (*segments[:2], None, *segments[3:]))


# The positions of names in paths of the schema registry.
_REGISTRY_NAMES = {"subjects": (1, 3), "schemas": (2,), "config": (1,), "mode": (1,), "compatibility": (2, 4)}


def _registry_shape(segments: list[str]) -> tuple[str | None, ...]:
    places = _REGISTRY_NAMES[segments[0]]
    return tuple(None if place in places else segment for place, segment in enumerate(segments))


def _catalog_shapes(segments: list[str]) -> tuple[tuple[str | None, ...], ...]:
    """Below /iceberg/v1/namespaces comes a namespace, and two segments later maybe a table."""
    in_namespace = (*segments[:3], None, *segments[4:])
    if len(segments) < 6:
        return (in_namespace,)
    return ((*in_namespace[:5], None, *segments[6:]),)


def _decoded(segment: str) -> str:
    if "%" not in segment:
        return segment
    # Invalid UTF-8 becomes a character that no name contains.
    return unquote_to_bytes(segment).decode("utf-8", "replace")
