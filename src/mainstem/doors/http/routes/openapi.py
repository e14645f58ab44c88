"""The description of the interface, for machines and people: OpenAPI 3.1 and one HTML page, from the contract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import fields

from mainstem.api.base import ErrorResponse
from mainstem.api.catalog import CatalogError
from mainstem.api.route import ARROW, CATALOG, JSON, OCTETS, REGISTRY, REGISTRY_JSON, Body, Route
from mainstem.api.routes import structs_in
from mainstem.api.schemas import SchemaError
from mainstem.doors.http.routes.openapi_page import HEADERS, page
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.http.transport.routing import Endpoint
from mainstem.version import VERSION

_JSON_TYPE = ((b"content-type", b"application/json"),)
_REF = "#/components/schemas/{name}"

_described: dict[str, bytes] = {}


def describe(endpoints: Sequence[Endpoint]) -> None:
    """Describe these endpoints; the documents are made on first use."""
    _described.clear()
    _endpoints[:] = endpoints


_endpoints: list[Endpoint] = []


async def get_openapi(request: HttpRequest) -> Response:
    """Get the OpenAPI description."""
    if "openapi" not in _described:
        _described["openapi"] = msgspec.json.format(msgspec.json.encode(document(_endpoints)))
    return Response(200, _described["openapi"], _JSON_TYPE)


async def get_docs(request: HttpRequest) -> Response:
    """Get the documentation page."""
    if "docs" not in _described:
        _described["docs"] = page(document(_endpoints)).encode()
    return Response(200, _described["docs"], HEADERS)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of some endpoints."""
    schemas = _Schemas([endpoint.route for endpoint in endpoints])
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operations = paths.setdefault(endpoint.route.path, {})
        operations[endpoint.route.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainstem", "version": VERSION, "description": "One durable log, many doors."},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


class _Schemas:
    """The JSON Schemas of all requests and responses."""

    def __init__(self, routes: Sequence[Route[Any]]) -> None:
        requests = {route.request for route in routes if route.request}
        answers = {ErrorResponse, CatalogError, SchemaError} | {
            route.response for route in routes if route.response
        }
        answers |= {kind for route in routes for kind in (*route.events.values(), *route.variants)}
        kinds = sorted(requests | answers, key=str)
        found, self.components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._of = dict(zip(kinds, found, strict=True))
        for kind in structs_in(answers) - structs_in(requests):
            self._require_all(kind)

    def _require_all(self, kind: type[msgspec.Struct]) -> None:
        """The server leaves a field out only if the struct omits defaults."""
        if not kind.__struct_config__.omit_defaults:
            schema = self.components[kind.__name__]
            schema["required"] = [field.encode_name for field in fields(kind)]

    def of(self, kind: type[Any]) -> dict[str, Any]:
        return self._of[kind]


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    route, name = endpoint.route, endpoint.handler.__name__
    scopes = "+".join(scope.name.lower() for scope in route.scope if scope.name)
    operation: dict[str, Any] = {
        "operationId": f"{name}_{_slug(route.path)}",
        "summary": (endpoint.handler.__doc__ or name.replace("_", " ")).strip().splitlines()[0],
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
    }
    if scopes:
        operation["description"] = f"Scope: {scopes}."
    if route.body is not Body.NONE:
        schema = schemas.of(route.request) if route.request else {"type": "object"}
        content = {JSON: {"schema": schema}}
        if route.body is Body.BYTES:
            content = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": route.body is not Body.OPTIONAL, "content": content}
    if route.events:
        operation["x-events"] = {event: schemas.of(kind) for event, kind in route.events.items()}
    return operation


def _responses(route: Route[Any], schemas: _Schemas) -> dict[str, Any]:
    """Everything a route may answer, by status."""
    described: dict[str, Any] = {}
    for status in route.statuses:
        described[str(status)] = {"description": "Created." if status == 201 else "Done."}
        if status != 204:
            described[str(status)]["content"] = {kind: _content(route, kind, schemas) for kind in route.media}
    refused: dict[str, Any] = {"description": "Refused: error.code says why."}
    failed: dict[str, Any] = {"description": "The server is stopping or cannot write. Retry later."}
    if route.method != "HEAD":  # a response to HEAD has no body, whatever its status
        shape: type[Any] = CatalogError if route.path.startswith(CATALOG) else ErrorResponse
        media = JSON
        if route.path.startswith(REGISTRY):
            shape, media = SchemaError, REGISTRY_JSON
        refused["content"] = failed["content"] = {media: {"schema": schemas.of(shape)}}
    return {**described, "4XX": refused, "5XX": failed}


def _content(route: Route[Any], media: str, schemas: _Schemas) -> dict[str, Any]:
    if media in (JSON, REGISTRY_JSON) and route.response is not None:
        if route.variants:
            shapes = (route.response, *route.variants)
            return {"schema": {"anyOf": [schemas.of(kind) for kind in shapes]}}
        return {"schema": schemas.of(route.response)}
    return {} if media in (OCTETS, ARROW) else {"schema": {"type": "string"}}


def _parameters(route: Route[Any]) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    in_query = [
        {"name": query.name, "in": "query", "schema": {"type": query.kind}, "description": query.help}
        for query in route.query
    ]
    return in_path + in_query


def _slug(path: str) -> str:
    return re.sub(r"\W+", "_", path).strip("_")
