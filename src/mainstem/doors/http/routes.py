"""The table of routes: every path the door knows, who may use it, and who serves it."""

from __future__ import annotations

from mainstem.doors.http import (
    deletes,
    exposition,
    health,
    openapi,
    queues,
    records,
    topics,
    watch,
    websocket,
    work,
)
from mainstem.doors.http import diff as diffs
from mainstem.doors.http.routing import Body, Route, Routes, Scope

TABLE: tuple[Route, ...] = (
    Route("GET", "/v0/topics", topics.list_topics, Scope.READ),
    Route("GET", "/v0/topics/{topic}", topics.get_topic, Scope.READ),
    Route("PUT", "/v0/topics/{topic}", topics.put_topic, Scope.ADMIN, Body.OPTIONAL, takes=topics.ConfigBody),
    Route("DELETE", "/v0/topics/{topic}", topics.delete_topic, Scope.DELETE),
    Route(
        "POST", "/v0/topics/{topic}", records.post_records, Scope.WRITE, Body.JSON, takes=records.WriteBody
    ),
    Route(
        "POST", "/v0/topics/{topic}/diff", diffs.post_diff, Scope.READ, Body.OPTIONAL, takes=diffs.DiffBody
    ),
    Route(
        "POST",
        "/v0/topics/{topic}/delete",
        deletes.post_delete,
        Scope.DELETE,
        Body.JSON,
        takes=deletes.DeleteBody,
    ),
    Route("POST", "/v0/topics/{topic}/claim", queues.post_claim, Scope.READ | Scope.WRITE, Body.NEEDED),
    Route("POST", "/v0/topics/{topic}/ack", queues.post_ack, Scope.WRITE, Body.JSON),
    Route("POST", "/v0/topics/{topic}/nack", queues.post_nack, Scope.WRITE, Body.JSON),
    Route("POST", "/v0/topics/{topic}/extend", queues.post_extend, Scope.WRITE, Body.JSON),
    Route("GET", "/v0/topics/{topic}/work", work.get_work, Scope.READ | Scope.WRITE, streams=True),
    Route("POST", "/v0/watch", watch.post_watch, Scope.READ, Body.JSON),
    Route("GET", "/v0/watch/{wid}", watch.get_watch, Scope.READ, streams=True),
    Route("GET", "/v0/ws", websocket.get_plain),
    Route("GET", "/v0/health", health.get_health, probe=True),
    Route("GET", "/v0/metrics", exposition.get_metrics, Scope.READ),
    Route("GET", "/healthz", health.get_health, probe=True),
    Route("GET", "/v0/ready", health.get_ready, probe=True),
    Route("GET", "/readyz", health.get_ready, probe=True),
    Route("GET", "/openapi.json", openapi.get_openapi, probe=True),
    Route("GET", "/docs", openapi.get_docs, probe=True),
)

ROUTES = Routes(TABLE)
openapi.describe(TABLE)
