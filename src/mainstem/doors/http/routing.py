"""Which handler serves a path. One table, in routes.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from mainstem.doors.http.errors import Refusal

if TYPE_CHECKING:
    from mainstem.doors.http.requests import HttpRequest
    from mainstem.doors.http.responses import Push, Response, Stream

Handler = Callable[["HttpRequest"], Awaitable["Response | Stream | Push"]]


_PATHS_KEPT = 4096


class Scope(IntFlag):
    """What a key may do."""

    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4
    ADMIN = 8
    ALL = 15


class Body(Enum):
    """What a route makes of a request's body."""

    NONE = "ignored"
    JSON = "needs a JSON content type, even if it is empty"
    OPTIONAL = "an empty one needs no content type, and means all defaults"
    NEEDED = "an empty one needs no content type, and is invalid"
    BYTES = "needs the content type of plain bytes"


@dataclass(frozen=True, slots=True)
class Route:
    """`path` names its parameters in braces: /v0/topics/{topic}/diff."""

    method: str
    path: str
    handler: Handler
    scope: Scope = Scope.NONE
    body: Body = Body.NONE
    probe: bool = False  # health and the like: open to everyone unless asked otherwise
    public: bool = False  # a page that browsers open before anybody can give them a key
    takes: type[Any] | None = None  # what the body holds, for the description of the interface
    streams: bool = False  # an event stream: it may carry its key as ?token=, and is not in flight for long


class Routes:
    """Looks routes up by the shape of the path: its fixed segments, and how many there are."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._shapes: dict[tuple[str | None, ...], dict[str, Route]] = {}
        self._names: dict[tuple[str | None, ...], tuple[str, ...]] = {}
        self._found: dict[tuple[str, bytes], tuple[Route, dict[str, str]]] = {}  # the paths asked for lately
        for route in routes:
            segments = route.path.split("/")[1:]
            shape = tuple(None if segment.startswith("{") else segment for segment in segments)
            self._shapes.setdefault(shape, {})[route.method] = route
            self._names[shape] = tuple(s[1:-1] for s in segments if s.startswith("{"))

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route and the path's parameters. Raises Refusal: 404, or 405 where only the method is wrong."""
        known = self._found.get((method, raw_path))
        if known is not None:
            return known
        found = self._look_up(method, raw_path)
        if len(self._found) >= _PATHS_KEPT:
            self._found.clear()
        self._found[method, raw_path] = found
        return found

    def _look_up(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        segments = raw_path.decode("latin-1").split("/")[1:]
        for shape in _shapes_of(segments):
            methods = self._shapes.get(shape)
            if methods is None:
                continue
            route = methods.get(method)
            if route is None:
                allowed = ", ".join(sorted(methods))
                raise Refusal(
                    405,
                    "method_not_allowed",
                    f"this path takes {allowed}, not {method}",
                    headers=((b"allow", allowed.encode()),),
                )
            values = [_decoded(s) for s, fixed in zip(segments, shape, strict=True) if fixed is None]
            return route, dict(zip(self._names[shape], values, strict=True))
        raise Refusal(404, "not_found", "there is nothing at this path")


def _shapes_of(segments: list[str]) -> tuple[tuple[str | None, ...], ...]:
    """The shapes a path can have: all fixed, or with a name as its third segment from /v0 on, or the catalog's."""
    whole: tuple[str | None, ...] = tuple(segments)
    if len(segments) < 3:
        return (whole,)
    if segments[0] == "iceberg":
        return (whole, *_catalog_shapes(segments))
    return (whole, (*segments[:2], None, *segments[3:]))


def _catalog_shapes(segments: list[str]) -> tuple[tuple[str | None, ...], ...]:
    """Below /iceberg/v1/namespaces stands a namespace, and two further on maybe a table."""
    in_namespace = (*segments[:3], None, *segments[4:])
    if len(segments) < 6:
        return (in_namespace,)
    return ((*in_namespace[:5], None, *segments[6:]),)


def _decoded(segment: str) -> str:
    if "%" not in segment:
        return segment
    # What is no UTF-8 becomes a sign that no name has.
    return unquote_to_bytes(segment).decode("utf-8", "replace")
