"""Checks responses of the HTTP door against the structs of the contract."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec

from mainstem.api.base import ErrorResponse
from mainstem.api.catalog import CatalogError, TokenRefused
from mainstem.api.route import CATALOG, JSON, REGISTRY, REGISTRY_JSON, Route
from mainstem.api.routes import POST_OAUTH_TOKEN
from mainstem.api.schemas import SchemaError
from mainstem.doors.http.routes.table import ROUTES
from mainstem.doors.http.transport.errors import Refusal


def check_response(
    method: str, raw_path: str, status: int, content_type: str, body: bytes
) -> Route[Any] | None:
    """Raises AssertionError unless the response is one that its route declares. Returns the route, if there is one."""
    try:
        route = ROUTES.find(method, raw_path.partition("?")[0].encode())[0].route
    except Refusal:
        route = None
    if status >= 300:
        if method != "HEAD" and status != 304:
            kind: Any = CatalogError if raw_path.startswith(CATALOG) else ErrorResponse
            if raw_path.startswith(REGISTRY):
                kind = SchemaError
            if route is POST_OAUTH_TOKEN and status in (400, 401):
                kind = TokenRefused
            check_body(kind, body)
        return route
    assert route is not None, raw_path
    assert status in route.statuses, f"{method} {raw_path} answered {status}, not one of {route.statuses}"
    if status != 204 and method != "HEAD":
        media = content_type.partition(";")[0]
        assert media in route.media, f"{method} {raw_path} answered {media}, not one of {route.media}"
        if media == JSON or (media == REGISTRY_JSON and route.response is not None):
            assert route.response is not None
            check_shapes((route.response, *route.variants), body)
    return route


def check_shapes(kinds: tuple[Any, ...], body: bytes) -> None:
    """Raises AssertionError unless the body has one of these shapes."""
    for kind in kinds[:-1]:
        with contextlib.suppress(AssertionError, msgspec.ValidationError):
            check_body(kind, body)
            return
    check_body(kinds[-1], body)


def check_body(kind: Any, body: bytes) -> None:
    """Raises AssertionError unless the body has exactly the keys of a struct: what is unknown would be lost."""
    again = msgspec.json.encode(msgspec.json.decode(body, type=kind))
    assert json.loads(again) == json.loads(body), f"not a {kind.__name__}: {body[:500]!r}"
