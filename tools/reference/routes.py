"""Generates the request reference from the routes of the HTTP door."""

from __future__ import annotations

from mainstem.doors.http.routes import TABLE
from mainstem.doors.http.routing import Route
from tools.reference.markdown import MADE, code, table

_TEXT = """# HTTP requests

This page lists every path of the HTTP door. A running server documents bodies and parameters at `/docs`, and as
OpenAPI at `/openapi.json`. [The HTTP door](http.md) explains the common requests. `/iceberg` is the Iceberg REST
catalog.

"""


def routes_page() -> str:
    rows = [(code(f"{route.method} {route.path}"), _said(route), _scope(route)) for route in TABLE]
    return MADE + _TEXT + table(("request", "effect", "scope"), rows)


def _said(route: Route) -> str:
    text = (route.handler.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""


def _scope(route: Route) -> str:
    return "+".join(scope.name.lower() for scope in route.scope if scope.name) or "–"
