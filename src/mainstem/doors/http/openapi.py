"""The interface described for machines and people: OpenAPI 3.1 and one page of HTML, made from the routes."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.response_shapes import ERRORS, responses
from mainstem.doors.http.responses import Response
from mainstem.doors.http.routing import Body, Route
from mainstem.version import VERSION

_JSON = ((b"content-type", b"application/json"),)
_HTML = ((b"content-type", b"text/html; charset=utf-8"),)
_REF = "#/components/schemas/{name}"

# Query parameters by path: (name, type, what it does).
_QUERY: dict[tuple[str, str], tuple[tuple[str, str, str], ...]] = {
    ("GET", "/v0/topics"): (
        ("prefix", "string", "Only topics whose name begins so."),
        ("page_size", "integer", "1 to 1000, 100 unless given."),
        ("cursor", "string", "next_cursor of the page before."),
        ("touch", "boolean", "Counts as a read of every topic listed; false unless given."),
    ),
    ("GET", "/v0/topics/{topic}"): (
        ("touch", "boolean", "Counts as a read; true unless given."),
        ("partition", "integer", "0 unless given."),
    ),
    ("POST", "/v0/topics/{topic}"): (
        ("return_seqs", "boolean", "List every sequence number; true unless given."),
        ("partition", "integer", "0 unless given."),
    ),
    ("GET", "/v0/topics/{topic}/offsets"): (
        ("at", "string", "earliest, latest, or milliseconds since 1970; latest unless given."),
        ("partition", "integer", "All of them unless given."),
        ("isolation", "string", "read_committed unless given, or read_uncommitted: where the end is."),
    ),
    ("POST", "/v0/topics/{topic}/batches"): (("partition", "integer", "0 unless given."),),
    ("POST", "/v0/topics/{topic}/diff"): (("partition", "integer", "0 unless given."),),
    ("POST", "/v0/topics/{topic}/delete"): (("partition", "integer", "0 unless given."),),
    ("POST", "/v0/topics/{topic}/raw"): (
        ("partition", "integer", "0 unless given."),
        ("create", "boolean", "Make the topic if there is none; true unless given."),
    ),
    ("GET", "/v0/topics/{topic}/messages"): (
        ("partition", "integer", "0 unless given."),
        ("from", "integer", "The first offset to look at."),
        ("before", "integer", "Instead: look at what stands before this offset, the newest unless given."),
        ("limit", "integer", "1 to 500, 50 unless given."),
        ("key", "string", "Only records whose key contains this."),
        ("value", "string", "Only records whose value contains this."),
        ("header", "string", "Only records with a header that contains this, as name=content."),
        ("value_bytes", "integer", "Cut longer values off here; 16384 unless given."),
    ),
    ("GET", "/v0/overview/topics"): (
        ("search", "string", "Only topics whose name contains this."),
        ("type", "string", "log or queue; both unless given."),
        ("sort", "string", "name, records, bytes, partitions or written; name unless given."),
        ("descending", "boolean", "The other way round; false unless given."),
        ("skip", "integer", "How many rows to leave out at the beginning."),
        ("limit", "integer", "1 to 1000, 100 unless given."),
    ),
    ("GET", "/v0/topics/{topic}/leases"): (("partition", "integer", "0 unless given."),),
    ("GET", "/v0/routers"): (
        ("prefix", "string", "Only routers whose name begins so."),
        ("source", "string", "Only routers from this topic."),
        ("dest", "string", "Only routers to this topic."),
        ("page_size", "integer", "1 to 1000, 100 unless given."),
        ("cursor", "string", "next_cursor of the page before."),
    ),
    ("DELETE", "/v0/topics/{topic}"): (("if_empty", "boolean", "Only if it holds no records."),),
}

_described: dict[str, bytes] = {}


def describe(routes: Sequence[Route]) -> None:
    """Take the table in: what is served is made from it when first asked for."""
    _described.clear()
    _routes[:] = routes


_routes: list[Route] = []


async def get_openapi(request: HttpRequest) -> Response:
    """This description."""
    if "openapi" not in _described:
        _described["openapi"] = msgspec.json.format(msgspec.json.encode(document(_routes)))
    return Response(200, _described["openapi"], _JSON)


async def get_docs(request: HttpRequest) -> Response:
    """This page."""
    if "docs" not in _described:
        _described["docs"] = page(document(_routes)).encode()
    return Response(200, _described["docs"], _HTML)


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of some routes."""
    bodies = sorted({route.takes for route in routes if route.takes}, key=lambda kind: kind.__name__)
    found, schemas = msgspec.json.schema_components(bodies, ref_template=_REF)
    of_body = dict(zip(bodies, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        schema = of_body[route.takes] if route.takes else {"type": "object"}
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainstem", "version": VERSION, "description": "One durable log, many doors."},
        "paths": paths,
        "components": {
            "schemas": {**schemas, **ERRORS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(route: Route, body: dict[str, Any]) -> dict[str, Any]:
    name = route.handler.__name__
    scopes = "+".join(scope.name.lower() for scope in route.scope if scope.name)
    operation: dict[str, Any] = {
        "operationId": f"{name}_{_slug(route.path)}",
        "summary": (route.handler.__doc__ or name.replace("_", " ")).strip().splitlines()[0],
        "parameters": _parameters(route),
        "responses": responses(route, _REF),
    }
    if scopes:
        operation["description"] = f"Scope: {scopes}."
    if route.body is not Body.NONE:
        content = {"application/json": {"schema": body}}
        if route.body is Body.BYTES:
            content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": route.body is not Body.OPTIONAL, "content": content}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    in_query = [
        {"name": name, "in": "query", "schema": {"type": kind}, "description": text}
        for name, kind, text in _QUERY.get((route.method, route.path), ())
    ]
    return in_path + in_query


def _slug(path: str) -> str:
    return re.sub(r"\W+", "_", path).strip("_")


def page(document: dict[str, Any]) -> str:
    """The document as HTML that needs nothing from elsewhere."""
    rows = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            asked = ", ".join(
                f"<code>{html.escape(parameter['name'])}</code>"
                for parameter in operation["parameters"]
                if parameter["in"] == "query"
            )
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            named = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            link = f'<a href="#{named}">{named}</a>' if named else "JSON" if body else ""
            rows.append(
                f"<tr><td><b>{method.upper()}</b></td><td><code>{html.escape(path)}</code></td>"
                f"<td>{html.escape(operation.get('description', ''))}</td><td>{asked}</td><td>{link}</td></tr>"
            )
    schemas = "".join(
        f'<h3 id="{name}">{name}</h3><pre>{html.escape(_indented(schema))}</pre>'
        for name, schema in document["components"]["schemas"].items()
    )
    return _PAGE.format(version=html.escape(document["info"]["version"]), rows="".join(rows), schemas=schemas)


def _indented(schema: object) -> str:
    return msgspec.json.format(msgspec.json.encode(schema)).decode()


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Mainstem HTTP</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top }}
pre {{ background: #f6f6f6; overflow: auto; padding: .6rem }}
</style></head><body>
<h1>Mainstem {version}</h1>
<p>Bodies are JSON, sent with <code>Content-Type: application/json</code>. The same as
<a href="/openapi.json">OpenAPI 3.1</a>.</p>
<pre>curl localhost:4000/v0/topics/hello -H 'Content-Type: application/json' \\
  -d '{{"records":[{{"data":{{"hello":"world"}}}}]}}'
curl -X POST localhost:4000/v0/topics/hello/diff</pre>
<table><tr><th></th><th>Path</th><th>Rights</th><th>Query</th><th>Body</th></tr>{rows}</table>
<h2>Bodies</h2>{schemas}
</body></html>
"""
