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


class Answer(NamedTuple):
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


_DONE = Answer((204,))
_MADE_OR_DONE = (201, 200)
_SETTLED = ("topic", "skipped", "ready", "in_flight", "performance")
_WRITTEN = (
    "topic", "first_seq", "last_seq", "head_seq", "count", "created", "deduped", "performance",
)  # fmt: skip

_ANSWERS: dict[tuple[str, str], Answer] = {
    ("PUT", "/v0/topics/{topic}"): Answer(_MADE_OR_DONE, keys=("topic", "created", "config", "performance")),
    ("POST", "/v0/topics/{topic}"): Answer(_MADE_OR_DONE, keys=_WRITTEN),
    ("POST", "/v0/topics/{topic}/raw"): Answer(_MADE_OR_DONE, keys=_WRITTEN),
    ("GET", "/v0/topics"): Answer(keys=("topics", "performance")),
    ("GET", "/v0/topics/{topic}"): Answer(
        keys=(
            "topic", "type", "head_seq", "earliest_seq", "next_seq", "count", "bytes", "config",
            "effective_priority", "last_write_ts", "last_read_ts", "performance",
        )
    ),
    ("DELETE", "/v0/topics/{topic}"): Answer(keys=("topic", "deleted", "routers_removed", "performance")),
    ("POST", "/v0/topics/{topic}/diff"): Answer(
        keys=(
            "topic", "records", "next_from_seq", "head_seq", "earliest_seq", "caught_up", "tombstone", "lag",
            "performance",
        )
    ),
    ("POST", "/v0/topics/{topic}/delete"): Answer(
        keys=("topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance")
    ),
    ("POST", "/v0/topics/{topic}/claim"): Answer(keys=("topic", "claimed", "count", "ready", "performance")),
    ("POST", "/v0/topics/{topic}/ack"): Answer(keys=("acked", *_SETTLED)),
    ("POST", "/v0/topics/{topic}/nack"): Answer(keys=("nacked", *_SETTLED)),
    ("POST", "/v0/topics/{topic}/extend"): Answer(
        keys=("topic", "extended", "skipped", "deadlines", "performance")
    ),
    ("GET", "/v0/topics/{topic}/work"): Answer(types=(EVENTS,)),
    ("GET", "/v0/topics/{topic}/batches"): Answer(types=(OCTETS,)),
    ("PATCH", "/v0/topics/{topic}/settings"): Answer(_MADE_OR_DONE),
    ("PUT", "/v0/routers/{router}"): Answer(
        _MADE_OR_DONE,
        keys=(
            "router", "created", "source", "dest", "preserve_node", "preserve_tag", "filter", "allow_cycle",
            "guarantee", "performance",
        ),
    ),
    ("GET", "/v0/routers"): Answer(keys=("routers", "performance")),
    ("DELETE", "/v0/routers/{router}"): Answer(keys=("router", "deleted", "performance")),
    ("POST", "/v0/watch"): Answer(keys=("wid", "stream_url", "session_ttl_ms", "topics", "performance")),
    ("GET", "/v0/watch/{wid}"): Answer(types=(EVENTS,)),
    ("GET", "/v0/ws"): Answer((101,), types=()),
    ("GET", "/v0/metrics"): Answer(types=(TEXT, JSON)),
    ("GET", "/docs"): Answer(types=(HTML,)),
    ("GET", "/"): Answer(types=(HTML,)),
    ("GET", "/console/assets/{file}"): Answer(types=("text/javascript", "text/css", "image/svg+xml")),
    ("GET", "/v0/key"): Answer(keys=("authentication", "scopes", "prefixes")),
    ("GET", "/v0/overview"): Answer(keys=("version", "doors", "brokers", "tiers", "performance")),
    ("GET", "/v0/overview/topics"): Answer(keys=("topics", "total", "performance")),
    ("GET", "/v0/storage"): Answer(keys=("objects", "parts", "performance")),
    ("GET", "/v0/topics/{topic}/storage"): Answer(keys=("objects", "parts", "performance")),
    ("GET", "/v0/topics/{topic}/messages"): Answer(keys=("messages", "next_from", "next_before", "performance")),
    ("GET", "/v0/topics/{topic}/consumers"): Answer(keys=("topic", "consumers", "performance")),
    ("GET", "/v0/topics/{topic}/leases"): Answer(keys=("leases", "delayed", "performance")),
    ("POST", "/v0/topics/{topic}/requeue"): Answer(keys=("requeued", "skipped", "performance")),
    ("GET", "/v0/pipelines"): Answer(keys=("pipelines", "performance")),
    ("POST", "/v0/pipelines/report"): Answer(keys=("heard", "performance")),
    ("GET", "/v0/transactions"): Answer(keys=("transactions", "performance")),
    ("POST", "/v0/transactions/{transaction}/abort"): Answer(keys=("transaction", "aborted", "performance")),
    ("HEAD", "/iceberg/v1/namespaces/{namespace}"): _DONE,
    ("DELETE", "/iceberg/v1/namespaces/{namespace}"): _DONE,
    ("HEAD", "/iceberg/v1/namespaces/{namespace}/tables/{table}"): _DONE,
    ("DELETE", "/iceberg/v1/namespaces/{namespace}/tables/{table}"): _DONE,
    ("POST", "/iceberg/v1/tables/rename"): _DONE,
    ("POST", "/iceberg/v1/transactions/commit"): _DONE,
}  # fmt: skip
_PLAIN = Answer()

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
