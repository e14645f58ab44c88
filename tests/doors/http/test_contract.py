"""The contract: every route is served, described, and answered as its struct says."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import httpx
import msgspec
import pytest
from msgspec.structs import fields

from mainstem.api import routes
from mainstem.api.base import ErrorEvent
from mainstem.api.queues import JobDelivery
from mainstem.api.records import CommandHead, DiffResult, RecordBody, WriteBody, WriteResult
from mainstem.api.route import CATALOG, JSON, OCTETS, REGISTRY_JSON, Body, Route
from mainstem.api.routes import ROUTES, structs_in
from mainstem.api.topics import TopicConfigBody, TopicConfigResponse
from mainstem.client.request_bodies import JsonBody, NewRecord
from mainstem.client.topics import TopicOptions
from mainstem.doors.http.routes.openapi import document
from mainstem.doors.http.routes.table import HANDLERS, TABLE
from mainstem.doors.http.routes.topics import applied, echo
from mainstem.doors.http.transport.errors import Refusal
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from tests.support.contract import check_body, check_response

from .conftest import Api

# The web socket, the streams and the pages are not JSON; the commit of a catalog table needs an Iceberg writer, and
# credentials need the S3 door.
_ELSEWHERE = {
    routes.GET_WORK,
    routes.GET_WATCH,
    routes.GET_WEBSOCKET,
    routes.GET_CONSOLE_ASSET,
    routes.REGISTER_CATALOG_TABLE,
    routes.ABORT_TRANSACTION,
    routes.COMMIT_TABLES,
    routes.POST_PUBLISH,
    routes.GET_GROUP,
    routes.GET_GROUP_HISTORY,
    routes.ISSUE_S3_CREDENTIALS,
    routes.SIGN_S3_REQUEST,
    routes.POST_ERASE,  # a cluster refuses it
    routes.GET_ERASURE,
}
_VERSION = {
    "version-id": 1,
    "schema-id": 0,
    "timestamp-ms": 1,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": ["n"],
}
_SCHEMA_TEXTS = {routes.GET_SCHEMA_TEXT, routes.GET_VERSION_TEXT}  # whose body may be .proto text
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
}


def test_every_route_has_a_handler_and_no_two_are_the_same() -> None:
    assert set(HANDLERS) == set(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        assert (route.request is None) or route.body is not Body.NONE, route.path
        described = {JSON, REGISTRY_JSON} & {*route.media} and route not in _SCHEMA_TEXTS
        assert (route.response is None) == (not described or route.statuses == (204,)), route.path


def test_a_path_is_filled_in_with_quoted_names() -> None:
    assert routes.GET_TOPIC.url("a b/c") == "/v0/topics/a%20b%2Fc"
    assert routes.GET_CATALOG_TABLE.url("n", "t") == "/iceberg/v1/namespaces/n/tables/t"


def test_openapi_describes_every_struct_with_the_keys_that_are_always_there() -> None:
    described = document(TABLE)
    schemas = described["components"]["schemas"]
    requests = structs_in(route.request for route in ROUTES)
    for kind in structs_in(route.response for route in ROUTES) - requests:
        if kind.__struct_config__.array_like:
            continue
        omits = kind.__struct_config__.omit_defaults
        always = {field.encode_name for field in fields(kind) if field.required or not omits}
        assert set(schemas[kind.__name__]["required"]) == always, kind
        assert list(schemas[kind.__name__]["properties"]) == [field.encode_name for field in fields(kind)]
    for route in ROUTES:
        operation = described["paths"][route.path][route.method.lower()]
        assert {*operation["responses"]} == {*map(str, route.statuses), "4XX", "5XX"}


@pytest.mark.alone("backs a running server up")
async def test_every_route_answers_what_it_declares(api: Api) -> None:
    """A walk through all routes. The client of the tests checks each response against the struct of its route.

    A GET commits nothing. What the broker does in its background may, so one that seems to gets two more tries."""
    met: set[Route[Any]] = set()

    async def call(route: Route[Any], *names: str, body: Any = None, query: str = "", **more: Any) -> Any:
        met.add(route)
        content = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        url = route.url(*names) + query
        for _ in range(3):
            before = api.broker.position
            response = await api.client.request(route.method, url, **content, **more)
            assert response.status_code in route.statuses, (route.path, response.text)
            if route.method not in ("GET", "HEAD") or api.broker.position == before:
                break
        else:
            pytest.fail(f"{route.method} {route.path} changes something")
        return response.json() if response.headers.get("content-type") in (JSON, REGISTRY_JSON) else None

    octets = {"headers": {"content-type": OCTETS}}
    batch = bytes(build_batch([b"plain"], timestamps_ms=0))
    record = {"data": {"n": 1}, "tag": "k", "node": "n", "meta": {"m": 1}}
    await call(routes.PUT_TOPIC, "t", body={"cap_records": 1000})
    await call(routes.POST_RECORDS, "t", body={"records": [record, {"data": None}]})
    await call(routes.POST_RECORDS, "t", body={"records": [record]}, query="?return_seqs=false")
    await call(routes.POST_RAW, "t", body=batch, **octets)
    await call(routes.POST_BATCHES, "t", body=batch, **octets)
    await call(routes.POST_DIFF, "t", body={"include_tags": True, "include_trace": True})
    for route in (
        routes.GET_TOPIC,
        routes.GET_SETTINGS,
        routes.GET_OFFSETS,
        routes.GET_BATCHES,
        routes.GET_TOPIC_STORAGE,
        routes.GET_TOPIC_HISTORY,
        routes.GET_MESSAGES,
        routes.GET_TABLE,
    ):
        await call(route, "t")
    await call(routes.PATCH_SETTINGS, "t", body={"settings": {"retention.ms": "1000000"}})
    await call(routes.POST_DELETE, "t", body={"before_seq": 2})
    await call(routes.COMMIT_OFFSETS, "g", body={"offsets": [{"topic": "t", "offset": 1}]})
    joined = await call(routes.JOIN_GROUP, "members", body={"topics": ["t"]})
    member = {"member_id": joined["member_id"], "epoch": joined["epoch"]}
    await call(routes.HEARTBEAT_GROUP, "members", body={**member, "owned": [{"topic": "t", "partition": 0}]})
    await call(routes.LEAVE_GROUP, "members", body={"member_id": joined["member_id"]})
    writes = [{"topic": "t", "records": [{"data": 1, "tag": "k"}]}]
    await call(routes.COMMIT_TRANSACTION, body={"transaction": "x", "key": "once", "writes": writes})
    await call(routes.LIST_GROUPS)
    await call(routes.GET_CONSUMERS, "t")
    await call(routes.RESET_GROUP, "g", body={"topic": "t", "to": "latest", "dry_run": True})
    await call(routes.DELETE_GROUP, "g")
    await call(routes.PUT_RATE, body={"group": "g", "limits": {"consumer_byte_rate": 1e9, "burst_s": None}})
    await call(routes.LIST_RATES)
    await call(routes.DELETE_RATE, query="?group=g")

    await call(routes.PUT_TOPIC, "dead", body={"type": "log"})
    await call(routes.PUT_TOPIC, "q", body={"type": "queue", "dead_letter": "dead"})
    await call(routes.GET_TOPIC, "q")
    await call(routes.POST_RECORDS, "q", body={"records": [record, record, record]})
    claim = await call(routes.POST_CLAIM, "q", body={"node": "w", "max": 3})
    seqs = [job["$seq"] for job in claim["claimed"]]
    await call(routes.POST_EXTEND, "q", body={"node": "w", "seqs": seqs[:1], "lease_ms": 60_000})
    await call(routes.POST_NACK, "q", body={"node": "w", "seqs": seqs[1:2], "delay_ms": 60_000})
    await call(routes.GET_LEASES, "q")
    await call(routes.POST_ACK, "q", body={"node": "w", "seqs": seqs[:1]})
    await call(routes.POST_REQUEUE, "dead", body={"seqs": [1], "queue": "q"})

    await call(routes.PUT_ROUTER, "r", body={"source": "t", "dest": "copy", "filter": "k*"})
    await call(routes.GET_ROUTER, "r")
    await call(routes.LIST_ROUTERS)
    await call(routes.DELETE_ROUTER, "r")
    await call(routes.POST_WATCH, body={"topics": {"t": {}}})
    await call(routes.LIST_TOPICS, query="?page_size=1")

    task = await call(routes.BEGIN_SINK_TASK, body={"query": "x", "run": "r", "batch": 0, "attempt": "a"})
    attempt = {"attempt": "a", "producer": task["producer"], "epoch": task["epoch"]}
    await call(routes.EXTEND_SINK, body={"query": "x", "run": "r"})
    await call(routes.LIST_TRANSACTIONS)
    await call(routes.COMMIT_SINK, body={"query": "x", "run": "r", "batch": 0, "attempts": [attempt]})
    await call(routes.ABORT_SINK, body={"query": "x", "run": "r"})

    await call(routes.REPORT_DRIVER, body={"holder": "h", "state": "idle"})
    await call(routes.GET_LAKE_STATUS)
    await call(routes.POST_COLLECT)
    await call(routes.PUT_TABLE, "t", body={"schema": [{"name": "n", "type": "long"}]})
    await call(routes.SETTLE_TABLES)
    await call(routes.GET_TABLE_WORK)
    plan = await call(routes.POST_PLAN, body={"holder": "h", "topics": ["t"]})
    await call(routes.POST_SOURCES, body={"topic": "t", "from": 1})
    lease = {"stream": plan["tasks"][0]["stream"], "token": plan["tasks"][0]["token"]}
    await call(routes.EXTEND_TASK, body={**lease, "lease_ms": 60_000})
    await call(routes.GET_LAKE_STATUS)
    await call(routes.RELEASE_TASK, body=lease)
    await call(routes.DELETE_TABLE, "t")
    output = {"output": "o", "target": "copy", "positions": [["t", 0, 1]]}
    pipeline = {"pipeline": "p", "run": "r", "state": "running", "started_ms": 1, "outputs": [output]}
    await call(routes.REPORT_PIPELINE, body=pipeline)
    await call(routes.LIST_PIPELINES)

    for route in ROUTES:
        if route.method == "GET" and "{" not in route.path and route not in met | _ELSEWHERE:
            await call(route)
    await call(routes.GET_METRICS, headers={"accept": JSON})
    backup = api.broker.options.data_dir.with_name("backup")
    await call(routes.POST_BACKUP, body={"to": str(backup)})

    await call(routes.POST_SQL, body={"query": "SELECT 1"})
    await call(routes.CREATE_NAMESPACE, body={"namespace": ["n"]})
    for route in (routes.GET_NAMESPACE, routes.HEAD_NAMESPACE):
        await call(route, "n")
    await call(routes.POST_PROPERTIES, "n", body={"updates": {"a": "b"}})
    await call(routes.CREATE_CATALOG_TABLE, "n", body={"name": "x", "schema": _SCHEMA})
    await call(routes.LIST_CATALOG_TABLES, "n")
    for route in (routes.GET_CATALOG_TABLE, routes.HEAD_CATALOG_TABLE):
        await call(route, "n", "x")
    await call(routes.COMMIT_CATALOG_TABLE, "n", "x", body={})
    names = [{"namespace": ["n"], "name": name} for name in ("x", "y")]
    changed = {"action": "set-properties", "updates": {"owner": "me"}}
    await call(
        routes.COMMIT_CATALOG, body={"table-changes": [{"identifier": names[0], "updates": [changed]}]}
    )
    await call(routes.RENAME_CATALOG_TABLE, body={"source": names[0], "destination": names[1]})
    await call(routes.DROP_CATALOG_TABLE, "n", "y")
    await call(routes.CREATE_VIEW, "n", body={"name": "x", "schema": _SCHEMA, "view-version": _VERSION})
    await call(routes.LIST_VIEWS, "n")
    for route in (routes.GET_VIEW, routes.HEAD_VIEW):
        await call(route, "n", "x")
    await call(routes.COMMIT_VIEW, "n", "x", body={"updates": [changed]})
    await call(routes.RENAME_VIEW, body={"source": names[0], "destination": names[1]})
    await call(routes.DROP_VIEW, "n", "y")
    await call(routes.DROP_NAMESPACE, "n")
    await call(routes.DELETE_TOPIC, "t")
    await call(routes.PUT_NAMESPACE, "acme", body={"topics_max": 5})
    await call(routes.GET_NAMESPACE_POLICIES, "acme")
    await call(routes.DELETE_NAMESPACE, "acme")
    await schema_registry(call)
    await call(routes.PUT_USER, "ann", body={"password": "secret"})
    await call(routes.DELETE_USER, "ann")
    rules = {"rules": [{"principal": "User:ann", "operation": "read", "resource": "topic"}]}
    await call(routes.ADD_RULES, body=rules)
    await call(routes.DELETE_RULES, body=rules)
    owner = await call(routes.CREATE_KEY, body={"name": "owner"})  # from now on clients must authenticate
    key = {"headers": {"authorization": f"Bearer {owner['secret']}"}}
    other = await call(routes.CREATE_KEY, body={"name": "other", "scopes": "read"}, **key)
    await call(routes.ROTATE_KEY, other["id"], **key)
    await call(routes.REVOKE_KEY, other["id"], **key)
    form = {"grant_type": "client_credentials", "client_id": "owner", "client_secret": owner["secret"]}
    await call(routes.POST_OAUTH_TOKEN, data=form)
    assert set(ROUTES) - met - _ELSEWHERE == set()


async def schema_registry(call: Any) -> None:
    schema = {"schema": '{"type": "array", "items": "r"}', "references": [{"name": "r", "subject": "r"}]}
    fixed = {
        "schema": '{"type": "fixed", "name": "r", "size": 1}',
        "metadata": {"properties": {"owner": "me"}},
    }
    for subject, body in (("r", fixed), ("s", schema)):
        registered = await call(routes.REGISTER_SCHEMA, subject, body=body)
    await call(routes.LOOK_UP_SCHEMA, "s", body=schema)
    for route in (routes.LIST_SUBJECTS, routes.LIST_SCHEMAS, routes.LIST_SCHEMA_TYPES, routes.LIST_CONTEXTS):
        await call(route)
    for route in (
        routes.GET_SCHEMA,
        routes.GET_SCHEMA_TEXT,
        routes.LIST_ID_SUBJECTS,
        routes.LIST_ID_VERSIONS,
    ):
        await call(route, str(registered["id"]))
    for route in (routes.GET_SCHEMA_BY_GUID, routes.LIST_GUID_IDS):
        await call(route, registered["guid"])
    for route in (routes.GET_SCHEMA_VERSION, routes.GET_VERSION_TEXT, routes.LIST_SCHEMA_REFERRERS):
        await call(route, "r", "latest")
    await call(routes.LIST_SCHEMA_VERSIONS, "s")
    await call(routes.CHECK_COMPATIBILITY, "s", "1", body=schema, query="?verbose=true")
    await call(routes.CHECK_SUBJECT_COMPATIBILITY, "s", body=schema)
    await call(routes.PUT_REGISTRY_CONFIG, body={"compatibility": "FULL", "normalize": True})
    await call(routes.PUT_SUBJECT_CONFIG, "s", body={"compatibility": "NONE"})
    await call(routes.PUT_REGISTRY_MODE, body={"mode": "READWRITE"})
    await call(routes.PUT_SUBJECT_MODE, "s", body={"mode": "READWRITE"})
    for route in (routes.GET_REGISTRY_CONFIG, routes.GET_REGISTRY_MODE):
        await call(route)
    for route in (routes.GET_SUBJECT_CONFIG, routes.GET_SUBJECT_MODE):
        await call(route, "s")
    for route in (routes.DELETE_SUBJECT_CONFIG, routes.DELETE_SUBJECT_MODE):
        await call(route, "s")
    for route in (routes.DELETE_REGISTRY_CONFIG, routes.DELETE_REGISTRY_MODE):
        await call(route)
    await call(routes.DELETE_SCHEMA_VERSION, "s", "1")
    await call(routes.DELETE_SUBJECT, "s", query="?permanent=true")


async def test_every_route_refuses_in_the_shape_of_an_error(api: Api) -> None:
    for route in ROUTES:
        if route.path.startswith("/console"):
            continue
        path = route.url(*["absent"] * route.path.count("{"))
        response = await api.client.request("TRACE", path)
        assert response.status_code == 405
        check_response("TRACE", path, 405, JSON, response.content)
        if route.body is not Body.NONE and route.body is not Body.BYTES:
            refused = await api.client.request(
                route.method, path, content=b"[", headers={"content-type": JSON}
            )
            if route.request is not None or route.path.startswith(CATALOG):
                assert refused.status_code == (415 if route.body is Body.FORM else 400), path


# Responses that the door assembles as bytes


@pytest.mark.parametrize("count", [1, 300], ids=["few", "many"])
async def test_what_is_assembled_as_bytes_is_what_the_structs_say(api: Api, count: int) -> None:
    await api.put("t", type="queue")
    plain = {"data": {"text": "ü\n"}, "tag": 'a"b', "node": "n", "meta": {"a": [1]}}
    bare: dict[str, object] = {"data": None}
    written = await api.client.post("/v0/topics/t", json={"records": [plain, bare] * count})
    check_body(WriteResult, written.content)
    raw = bytes(build_batch([b"\xff", None], keys=[b"\xfe", None], timestamps_ms=1))
    await api.client.post("/v0/topics/t/raw", content=raw, headers={"content-type": OCTETS})
    for body in ({}, {"include_tags": True, "include_meta": False}, {"include_trace": True}):
        page = await api.client.post("/v0/topics/t/diff", json={"limit": 1000, **body})
        check_body(DiffResult, page.content)
        assert set(json.loads(page.content)["records"][-1]) <= {f.encode_name for f in fields(_record())}
    claimed = (await api.client.post("/v0/topics/t/claim", json={"node": "w", "max": 1000})).json()
    for job in claimed["claimed"]:
        check_body(JobDelivery, json.dumps(job).encode())


def _record() -> type[msgspec.Struct]:
    (kind,) = get_type_hints(DiffResult)["records"].__args__
    assert issubclass(kind, msgspec.Struct)
    return kind


def test_the_client_writes_what_the_server_reads() -> None:
    body = JsonBody()
    body.add(NewRecord({"a": 1}, "k", "n", {"m": 1}, delay_ms=5, ttl_ms=6))
    body.add(NewRecord(None))
    sent = msgspec.json.decode(b'{"records":[%b]}' % b",".join(body.parts), type=WriteBody)
    assert sent.records[0] == RecordBody(sent.records[0].data, "k", "n", sent.records[0].meta, 5, 6)
    keys = {key for part in body.parts for key in json.loads(part)}
    assert keys == set(RecordBody.__struct_fields__)


# The configuration of a topic


def test_the_configuration_of_a_topic_is_declared_once() -> None:
    names = TopicConfigBody.__struct_fields__
    assert TopicConfigResponse.__struct_fields__ == names
    assert len(names) == 17
    assert set(names) - {"durable"} <= set(TopicConfig.__struct_fields__)
    # A TypedDict cannot be derived from a struct: it is compared with it instead.
    wanted = get_type_hints(TopicConfigBody)
    given = get_type_hints(TopicOptions)
    assert set(given) == set(wanted)
    for name, hint in given.items():
        assert wanted[name] in (hint, hint | None), name


def test_a_configuration_reads_back_as_it_was_given() -> None:
    body = TopicConfigBody(
        "queue", 1, 2, 3, "reject", None, "memory", -4, False, False, 5, False, 600, 7, 8, "d", True
    )
    shown = echo(applied(body, TopicConfig()))
    assert shown == TopicConfigResponse(**{**msgspec.structs.asdict(body), "durable": False})
    assert echo(applied(TopicConfigBody(durable=True), TopicConfig())).durability == "fsync"
    bounded = echo(applied(TopicConfigBody(lease_ms=1, claim_jitter_ms=10**9, ttl_ms=2**63), TopicConfig()))
    assert (bounded.lease_ms, bounded.claim_jitter_ms) == (100, 5_000)
    assert bounded.ttl_ms < 2**63
    with pytest.raises(Refusal, match="ttl_ms"):
        applied(TopicConfigBody(ttl_ms=2**70), TopicConfig())


# Events


def test_the_events_of_a_stream_are_declared() -> None:
    assert set(routes.GET_WATCH.events) == {"record", "tombstone", "caught-up", "topic-deleted", "error"}
    assert routes.GET_WORK.events == {"job": JobDelivery, "error": ErrorEvent}
    assert CommandHead.__struct_fields__ == ("op", "request_id")
    assert httpx.URL(routes.GET_WEBSOCKET.path).path == "/v0/ws"
