"""What each route answers when all goes well, for the description of the interface: statuses, type, and keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from mainstem.doors.http.routing import Route

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
OCTETS = "application/octet-stream"
EVENTS = "text/event-stream"

CATALOG = "/iceberg/"  # errors below it have the shape that the catalog's own specification gives them


class ResponseShape(NamedTuple):
    statuses: tuple[int, ...] = (200,)
    types: tuple[str, ...] = (JSON,)
    keys: tuple[str, ...] = ()  # that a JSON object always has

    def responses(self) -> dict[str, Any]:
        """As OpenAPI has it."""
        described: dict[str, Any] = {}
        for status in self.statuses:
            described[str(status)] = {"description": "Created." if status == 201 else "Done."}
            if status != 204:
                described[str(status)]["content"] = {kind: self._content(kind) for kind in self.types}
        return described

    def _content(self, kind: str) -> dict[str, Any]:
        if kind != JSON:
            return {"schema": {"type": "string"}} if kind != OCTETS else {}
        schema: dict[str, Any] = {"type": "object"}
        if self.keys:
            schema["required"] = list(self.keys)
        return {"schema": schema}


_DONE = ResponseShape((204,))
_MADE_OR_DONE = (201, 200)
_SETTLED = ("topic", "skipped", "ready", "in_flight", "performance")
_WRITTEN = (
    "topic", "first_seq", "last_seq", "head_seq", "count", "created", "deduped", "performance",
)  # fmt: skip

_ANSWERS: dict[tuple[str, str], ResponseShape] = {
    ("PUT", "/v0/topics/{topic}"): ResponseShape(_MADE_OR_DONE, keys=("topic", "created", "config", "performance")),
    ("POST", "/v0/topics/{topic}"): ResponseShape(_MADE_OR_DONE, keys=_WRITTEN),
    ("POST", "/v0/topics/{topic}/raw"): ResponseShape(_MADE_OR_DONE, keys=_WRITTEN),
    ("GET", "/v0/topics"): ResponseShape(keys=("topics", "performance")),
    ("GET", "/v0/topics/{topic}"): ResponseShape(
        keys=(
            "topic", "type", "head_seq", "earliest_seq", "next_seq", "count", "bytes", "config",
            "effective_priority", "last_write_ts", "last_read_ts", "performance",
        )
    ),
    ("DELETE", "/v0/topics/{topic}"): ResponseShape(keys=("topic", "deleted", "routers_removed", "performance")),
    ("POST", "/v0/topics/{topic}/diff"): ResponseShape(
        keys=(
            "topic", "records", "next_from_seq", "head_seq", "earliest_seq", "caught_up", "tombstone", "lag",
            "performance",
        )
    ),
    ("POST", "/v0/topics/{topic}/delete"): ResponseShape(
        keys=("topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance")
    ),
    ("POST", "/v0/topics/{topic}/claim"): ResponseShape(keys=("topic", "claimed", "count", "ready", "performance")),
    ("POST", "/v0/topics/{topic}/ack"): ResponseShape(keys=("acked", *_SETTLED)),
    ("POST", "/v0/topics/{topic}/nack"): ResponseShape(keys=("nacked", *_SETTLED)),
    ("POST", "/v0/topics/{topic}/extend"): ResponseShape(
        keys=("topic", "extended", "skipped", "deadlines", "performance")
    ),
    ("GET", "/v0/topics/{topic}/work"): ResponseShape(types=(EVENTS,)),
    ("GET", "/v0/topics/{topic}/batches"): ResponseShape(types=(OCTETS,)),
    ("PATCH", "/v0/topics/{topic}/settings"): ResponseShape(_MADE_OR_DONE),
    ("PUT", "/v0/routers/{router}"): ResponseShape(
        _MADE_OR_DONE,
        keys=(
            "router", "created", "source", "dest", "preserve_node", "preserve_tag", "filter", "allow_cycle",
            "guarantee", "performance",
        ),
    ),
    ("GET", "/v0/routers"): ResponseShape(keys=("routers", "performance")),
    ("DELETE", "/v0/routers/{router}"): ResponseShape(keys=("router", "deleted", "performance")),
    ("POST", "/v0/watch"): ResponseShape(keys=("wid", "stream_url", "session_ttl_ms", "topics", "performance")),
    ("GET", "/v0/watch/{wid}"): ResponseShape(types=(EVENTS,)),
    ("GET", "/v0/ws"): ResponseShape((101,), types=()),
    ("GET", "/v0/metrics"): ResponseShape(types=(TEXT, JSON)),
    ("GET", "/docs"): ResponseShape(types=(HTML,)),
    ("GET", "/"): ResponseShape(types=(HTML,)),
    ("GET", "/console/assets/{file}"): ResponseShape(types=("text/javascript", "text/css", "image/svg+xml")),
    ("GET", "/v0/key"): ResponseShape(keys=("authentication", "scopes", "prefixes")),
    ("GET", "/v0/overview"): ResponseShape(keys=("version", "doors", "brokers", "tiers", "performance")),
    ("GET", "/v0/overview/topics"): ResponseShape(keys=("topics", "total", "performance")),
    ("GET", "/v0/storage"): ResponseShape(keys=("objects", "parts", "performance")),
    ("GET", "/v0/topics/{topic}/storage"): ResponseShape(keys=("objects", "parts", "performance")),
    ("GET", "/v0/topics/{topic}/messages"): ResponseShape(keys=("messages", "next_from", "next_before", "performance")),
    ("GET", "/v0/topics/{topic}/consumers"): ResponseShape(keys=("topic", "consumers", "performance")),
    ("GET", "/v0/topics/{topic}/leases"): ResponseShape(keys=("leases", "delayed", "performance")),
    ("POST", "/v0/topics/{topic}/requeue"): ResponseShape(keys=("requeued", "skipped", "performance")),
    ("GET", "/v0/pipelines"): ResponseShape(keys=("pipelines", "performance")),
    ("POST", "/v0/pipelines/report"): ResponseShape(keys=("heard", "performance")),
    ("GET", "/v0/transactions"): ResponseShape(keys=("transactions", "performance")),
    ("POST", "/v0/transactions/{transaction}/abort"): ResponseShape(keys=("transaction", "aborted", "performance")),
    ("HEAD", "/iceberg/v1/namespaces/{namespace}"): _DONE,
    ("DELETE", "/iceberg/v1/namespaces/{namespace}"): _DONE,
    ("HEAD", "/iceberg/v1/namespaces/{namespace}/tables/{table}"): _DONE,
    ("DELETE", "/iceberg/v1/namespaces/{namespace}/tables/{table}"): _DONE,
    ("POST", "/iceberg/v1/tables/rename"): _DONE,
    ("POST", "/iceberg/v1/transactions/commit"): _DONE,
}  # fmt: skip
_PLAIN = ResponseShape()

ERRORS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "additionalProperties": False,
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "additionalProperties": False,
                "properties": {
                    "code": {"type": "string", "pattern": "^[a-z_]+$"},
                    "message": {"type": "string", "minLength": 1},
                    "detail": {},
                },
            }
        },
    },
    "CatalogError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "code": {"type": "integer", "minimum": 400, "maximum": 599},
                },
            }
        },
    },
}


def responses(route: Route, reference: str) -> dict[str, Any]:
    """Everything a route may answer, by status; `reference` is where schemas are found by name."""
    answer = _ANSWERS.get((route.method, route.path), _PLAIN)
    name = "CatalogError" if route.path.startswith(CATALOG) else "Error"
    # HEAD is answered without a body, whatever the status.
    refused: dict[str, Any] = {"description": "Refused: error.code says why."}
    failed: dict[str, Any] = {"description": "Not now: it is stopping, or cannot write. Retry later."}
    if route.method != "HEAD":
        content = {JSON: {"schema": {"$ref": reference.format(name=name)}}}
        refused["content"] = failed["content"] = content
    return {**answer.responses(), "4XX": refused, "5XX": failed}
