"""Generates the request reference from the routes of the HTTP door."""

from __future__ import annotations

from mainstem.doors.http.routes.table import TABLE
from mainstem.doors.http.transport.routing import Endpoint
from tools.reference.markdown import MADE, code, table

_TEXT = """# HTTP requests

This page lists every path of the HTTP door. A running server documents bodies and parameters at `/docs`, and as
OpenAPI at `/openapi.json`. [The HTTP door](http.md) explains the common requests. `/iceberg` is the Iceberg REST
catalog.

"""


def routes_page() -> str:
    rows = [(code(endpoint.name), _said(endpoint), _scope(endpoint)) for endpoint in TABLE]
    return MADE + _TEXT + table(("request", "effect", "scope"), rows)


def _said(endpoint: Endpoint) -> str:
    text = (endpoint.handler.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""


def _scope(endpoint: Endpoint) -> str:
    return "+".join(scope.name.lower() for scope in endpoint.route.scope if scope.name) or "–"
