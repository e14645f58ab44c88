"""The Iceberg REST catalog, for Spark, Trino, DuckDB, PyIceberg and whoever else speaks it.

Its errors have a shape of their own: {"error": {"message", "type", "code"}}, where `type` is the name of an
exception in Iceberg's Java library.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem import errors
from mainstem.broker.catalog import Catalog, LoadedTable, TableChange
from mainstem.broker.table_metadata import TableUpdates
from mainstem.doors.http.errors import WIRE, Refusal
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import JSON, Response, reply
from mainstem.errors import InvalidInput, MainstemError, NamespaceNotFound, TableNotFound
from mainstem.ledger.table import Table
from mainstem.ledger.tables import TableName

PREFIX = "/iceberg/"
LEVELS = "\x1f"  # what joins the levels of a namespace, in paths and in the ledger

_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
)

_body = msgspec.json.Decoder(dict[str, Any])


class NamespaceBody(msgspec.Struct, frozen=True):
    namespace: list[str]
    properties: dict[str, str] = {}


class PropertiesBody(msgspec.Struct, frozen=True):
    updates: dict[str, str] = {}
    removals: list[str] = []


class Identifier(msgspec.Struct, frozen=True):
    namespace: list[str]
    name: str


class RenameBody(msgspec.Struct, frozen=True):
    source: Identifier
    destination: Identifier


class CommitBody(msgspec.Struct, frozen=True):
    requirements: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    identifier: Identifier | None = None


class TransactionBody(msgspec.Struct, frozen=True, rename="kebab"):
    table_changes: list[CommitBody]


_namespace_body = msgspec.json.Decoder(NamespaceBody)
_properties_body = msgspec.json.Decoder(PropertiesBody)
_rename_body = msgspec.json.Decoder(RenameBody)
_commit_body = msgspec.json.Decoder(CommitBody)
_transaction_body = msgspec.json.Decoder(TransactionBody)


# Errors

_TYPES: dict[type[BaseException], tuple[int, str]] = {
    errors.NamespaceNotFound: (404, "NoSuchNamespaceException"),
    errors.TableNotFound: (404, "NoSuchTableException"),
    errors.NotFound: (404, "NotFoundException"),
    errors.NamespaceExists: (409, "AlreadyExistsException"),
    errors.TableExists: (409, "AlreadyExistsException"),
    errors.NamespaceNotEmpty: (409, "NamespaceNotEmptyException"),
    errors.TableChanged: (409, "CommitFailedException"),
    errors.InvalidInput: (400, "BadRequestException"),
}
_BY_STATUS = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "UnsupportedOperationException",
    429: "TooManyRequestsException",
    503: "ServiceUnavailableException",
}


def answer(error: MainstemError | Refusal) -> Response:
    """A failed request's answer, in the catalog's own shape."""
    if isinstance(error, Refusal):
        status, headers = error.status, error.headers
        kind = _BY_STATUS.get(status, "RESTException")
    else:
        status, kind = next((_TYPES[each] for each in type(error).__mro__ if each in _TYPES), (0, ""))
        row = next((WIRE[each] for each in type(error).__mro__ if each in WIRE), None)
        headers = row.headers if row else ()
        if not status:
            status = row.status if row else 500
            kind = _BY_STATUS.get(status, "InternalServerError")
    body = {"error": {"message": str(error) or "an error without words", "type": kind, "code": status}}
    return Response(status, msgspec.json.encode(body), (JSON, *headers))


# Handlers


async def get_config(request: HttpRequest) -> Response:
    """What a client of the catalog needs to know, and what this one can do."""
    return reply({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})


async def list_namespaces(request: HttpRequest) -> Response:
    """The namespaces of the catalog."""
    parent = request.text("parent") or ""
    catalog = request.broker.catalog
    if parent:
        catalog.properties(parent)
    depth = len(parent.split(LEVELS)) + 1 if parent else 1
    inside = {
        tuple(name.split(LEVELS)[:depth])
        for name in catalog.namespaces()
        if not parent or name.startswith(parent + LEVELS)
    }
    return reply({"namespaces": sorted(inside)})


async def create_namespace(request: HttpRequest) -> Response:
    """Make a namespace."""
    body = request.json(_namespace_body)
    await request.broker.catalog.create_namespace(_joined(body.namespace), body.properties)
    return reply({"namespace": body.namespace, "properties": body.properties})


async def get_namespace(request: HttpRequest) -> Response:
    """A namespace's properties."""
    namespace = request.parameters["namespace"]
    properties = request.broker.catalog.properties(namespace)
    return reply({"namespace": namespace.split(LEVELS), "properties": properties})


async def head_namespace(request: HttpRequest) -> Response:
    """Whether there is such a namespace."""
    request.broker.catalog.properties(request.parameters["namespace"])
    return _done()


async def drop_namespace(request: HttpRequest) -> Response:
    """Forget a namespace that has no tables."""
    await request.broker.catalog.drop_namespace(request.parameters["namespace"])
    return _done()


async def post_properties(request: HttpRequest) -> Response:
    """Set and remove properties of a namespace."""
    body = request.json(_properties_body)
    updated, removed, missing = await request.broker.catalog.change_properties(
        request.parameters["namespace"], body.updates, body.removals
    )
    return reply({"updated": updated, "removed": removed, "missing": missing})


async def list_tables(request: HttpRequest) -> Response:
    """The tables of a namespace."""
    namespace = request.parameters["namespace"]
    levels = namespace.split(LEVELS)
    tables = request.broker.catalog.tables(namespace)
    shown = [table for table in tables if request.key.allows(_subject(request, table))]
    return reply({"identifiers": [{"namespace": levels, "name": table.name} for table in shown]})


async def create_table(request: HttpRequest) -> Response:
    """Make a table, or stage its making."""
    body = request.json(_body)
    request.require_name(str(body.get("name", "")))
    return _loaded(await request.broker.catalog.create(request.parameters["namespace"], body))


async def register_table(request: HttpRequest) -> Response:
    """Take a table in whose metadata is there already."""
    body = request.json(_body)
    request.require_name(str(body.get("name", "")))
    return _loaded(await request.broker.catalog.register(request.parameters["namespace"], body))


async def get_table(request: HttpRequest) -> Response:
    """A table's metadata and where it is."""
    return _loaded(await request.broker.catalog.load(_table_of_path(request)))


async def head_table(request: HttpRequest) -> Response:
    """Whether there is such a table."""
    request.broker.catalog.table(_table_of_path(request))
    return _done()


async def drop_table(request: HttpRequest) -> Response:
    """Forget a table; its files go if `purgeRequested` says so."""
    purge = (request.text("purgeRequested") or "").lower() == "true"
    await request.broker.catalog.drop(_table_of_path(request), purge=purge)
    return _done()


async def rename_table(request: HttpRequest) -> Response:
    """Give a table another name."""
    body = request.json(_rename_body)
    source = (_joined(body.source.namespace), body.source.name)
    _check_rights(request, request.broker.catalog.table(source))
    request.require_name(body.destination.name)
    await request.broker.catalog.rename(source, (_joined(body.destination.namespace), body.destination.name))
    return _done()


async def commit_table(request: HttpRequest) -> Response:
    """Change a table, if it still is what the change was made for."""
    body = request.json(_commit_body)
    name = _table_of_path(request, may_be_new=True)
    loaded = await request.broker.catalog.commit(
        TableChange(name, TableUpdates(body.requirements, body.updates))
    )
    if not loaded.metadata:  # nothing was to be changed
        loaded = await request.broker.catalog.load(name)
    return _loaded(loaded)


async def commit_transaction(request: HttpRequest) -> Response:
    """Change several tables, all or none."""
    catalog: Catalog = request.broker.catalog
    changes = []
    for change in request.json(_transaction_body).table_changes:
        if change.identifier is None:
            raise InvalidInput("every change of a transaction names its table")
        name = (_joined(change.identifier.namespace), change.identifier.name)
        _check_rights(request, catalog.table(name))
        changes.append(TableChange(name, TableUpdates(change.requirements, change.updates)))
    await catalog.commit_all(changes)
    return _done()


def _table_of_path(request: HttpRequest, *, may_be_new: bool = False) -> TableName:
    """The table of the path. Raises Refusal 403 unless the key's prefixes cover it."""
    name = (request.parameters["namespace"], request.parameters["table"])
    try:
        _check_rights(request, request.broker.catalog.table(name))
    except (TableNotFound, NamespaceNotFound):
        request.require_name(name[1])
        if not may_be_new:
            raise
    return name


def _check_rights(request: HttpRequest, table: Table) -> None:
    request.require_name(_subject(request, table))


def _subject(request: HttpRequest, table: Table) -> str:
    """What a key's prefixes are held against: the topic that a table shows, or else the table's own name."""
    topic = request.broker.streams.get_by_id(table.topic_id) if table.topic_id else None
    return table.name if topic is None else topic.name


def _joined(levels: list[str]) -> str:
    if not levels or any(LEVELS in level for level in levels):
        raise InvalidInput("a namespace has at least one level")
    return LEVELS.join(levels)


def _loaded(table: LoadedTable) -> Response:
    content: dict[str, object] = {"metadata": msgspec.Raw(table.metadata), "config": {}}
    if table.location:
        content["metadata-location"] = table.location
    return reply(content)


def _done() -> Response:
    return Response(204, b"", ())
