"""The Iceberg REST catalog, for Spark, Trino, DuckDB, PyIceberg and whoever else speaks it.

Its errors have a shape of their own: {"error": {"message", "type", "code"}}, where `type` is the name of an
exception in Iceberg's Java library.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import msgspec

from mainstem import errors, limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.catalog import (
    CatalogConfig,
    CatalogError,
    CatalogErrorBody,
    CommitBody,
    Identifier,
    NamespaceBody,
    NamespaceDescription,
    NamespaceList,
    PropertiesBody,
    PropertiesChanged,
    RenameBody,
    TableList,
    TokenIssued,
    TokenRefused,
    TransactionBody,
)
from mainstem.doors.http.routes import iceberg_files
from mainstem.doors.http.transport.auth import basic
from mainstem.doors.http.transport.errors import WIRE, Refusal
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response, reply
from mainstem.errors import InvalidInput, MainstemError, NamespaceNotFound, TableNotFound, Unauthorized
from mainstem.tables.catalog import (
    DEFAULT_NAMESPACE,
    LEVELS,
    Catalog,
    Table,
    TableChange,
    TableName,
    table_namespace,
)
from mainstem.tables.table_metadata import TableUpdates

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
    body = CatalogError(CatalogErrorBody(str(error) or type(error).__name__, kind, status))
    return Response(status, msgspec.json.encode(body), (JSON, *headers))


# Handlers


async def post_token(request: HttpRequest) -> Response:
    """Exchange client credentials, an API key or a user's password, for a token (OAuth2)."""
    form = parse_qs(request.body.decode("utf-8", "replace"), keep_blank_values=True)
    client, secret = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
    if not secret:
        client, secret = basic(request.header(b"authorization") or b"") or ("", "")
    grant = form.get("grant_type", [""])[0]
    if grant != "client_credentials":
        return _oauth_error(400, "unsupported_grant_type", "this server knows client_credentials only")
    try:
        token = await request.broker.authentication.issue_token(client, secret) if secret else None
    except Unauthorized as error:
        return _oauth_error(401, "invalid_client", str(error))
    if token is None:
        return _oauth_error(401, "invalid_client", "these client credentials are unknown")
    return reply(TokenIssued(token, "bearer", limits.ACCESS_TOKEN_S))


def _oauth_error(status: int, code: str, message: str) -> Response:
    return Response(
        status, msgspec.json.encode(TokenRefused(code, message)), (JSON, (b"cache-control", b"no-store"))
    )


async def get_config(request: HttpRequest) -> Response:
    """Get the configuration and the endpoints of the catalog."""
    return reply(CatalogConfig({}, {}, _ENDPOINTS))


async def list_namespaces(request: HttpRequest) -> Response:
    """List the namespaces of the catalog."""
    parent = request.text("parent") or ""
    catalog = request.broker.catalog
    if parent:
        catalog.properties(_stored(request, parent.split(LEVELS)))
    depth = len(parent.split(LEVELS)) + 1 if parent else 1
    inside = set()
    for stored in catalog.namespaces():
        levels = _levels(request, stored)
        name = LEVELS.join(levels)
        if levels and (not parent or name.startswith(parent + LEVELS)) and _sees_namespace(request, stored):
            inside.add(tuple(levels[:depth]))
    return reply(NamespaceList(sorted(inside)))


async def create_namespace(request: HttpRequest) -> Response:
    """Create a namespace."""
    body = request.json(_namespace_body)
    _require_namespace(request, Operation.CREATE, _stored(request, body.namespace))
    await request.broker.catalog.create_namespace(_stored(request, body.namespace), body.properties)
    return reply(NamespaceDescription(body.namespace, body.properties))


async def get_namespace(request: HttpRequest) -> Response:
    """Get the properties of a namespace."""
    namespace = _namespace(request)
    _require_sight(request, namespace)
    properties = request.broker.catalog.properties(namespace)
    return reply(NamespaceDescription(_levels(request, namespace), properties))


async def head_namespace(request: HttpRequest) -> Response:
    """Check whether a namespace exists."""
    _require_sight(request, _namespace(request))
    request.broker.catalog.properties(_namespace(request))
    return _done()


async def drop_namespace(request: HttpRequest) -> Response:
    """Delete a namespace without tables."""
    namespace = _namespace(request)
    _require_namespace(request, Operation.DELETE, namespace)
    await request.broker.catalog.drop_namespace(namespace)
    return _done()


async def post_properties(request: HttpRequest) -> Response:
    """Set and remove properties of a namespace."""
    body = request.json(_properties_body)
    _require_namespace(request, Operation.ALTER, _namespace(request))
    updated, removed, missing = await request.broker.catalog.change_properties(
        _namespace(request), body.updates, body.removals
    )
    return reply(PropertiesChanged(updated, removed, missing))


async def list_tables(request: HttpRequest) -> Response:
    """List the tables of a namespace."""
    namespace = _namespace(request)
    levels = _levels(request, namespace)
    tables = request.broker.catalog.tables(namespace)
    shown = [
        table
        for table in tables
        if request.may(Operation.DESCRIBE, ResourceType.TABLE, _subject(request, table))
    ]
    return reply(TableList([Identifier(levels, table.name) for table in shown]))


async def create_table(request: HttpRequest) -> Response:
    """Create a table, or stage its creation."""
    body = request.json(_body)
    namespace = _namespace(request)
    _require(
        request, Operation.CREATE, request.broker.catalog.rule_name(namespace, str(body.get("name", "")))
    )
    body = iceberg_files.with_location(request, namespace, body)
    _check_place(request, body.get("location"), Operation.ALTER)
    name = (namespace, str(body.get("name", "")))
    return iceberg_files.loaded(request, name, await request.broker.catalog.create(namespace, body))


async def register_table(request: HttpRequest) -> Response:
    """Register a table with existing metadata."""
    body = request.json(_body)
    namespace = _namespace(request)
    _require(
        request, Operation.CREATE, request.broker.catalog.rule_name(namespace, str(body.get("name", "")))
    )
    _check_place(request, body.get("metadata-location"), Operation.ALTER)
    name = (namespace, str(body.get("name", "")))
    return iceberg_files.loaded(request, name, await request.broker.catalog.register(namespace, body))


async def get_table(request: HttpRequest) -> Response:
    """Get the metadata of a table and its location."""
    name = _table_of_path(request, Operation.READ)
    return iceberg_files.loaded(request, name, await request.broker.catalog.load(name))


async def head_table(request: HttpRequest) -> Response:
    """Check whether a table exists."""
    request.broker.catalog.table(_table_of_path(request, Operation.READ))
    return _done()


async def drop_table(request: HttpRequest) -> Response:
    """Drop a table. With `purgeRequested`, also delete its files."""
    purge = (request.text("purgeRequested") or "").lower() == "true"
    await request.broker.catalog.drop(_table_of_path(request, Operation.DELETE), purge=purge)
    return _done()


async def rename_table(request: HttpRequest) -> Response:
    """Rename a table."""
    body = request.json(_rename_body)
    source = (_stored(request, body.source.namespace), body.source.name)
    _check_rights(request, request.broker.catalog.table(source), Operation.ALTER)
    destination = (_stored(request, body.destination.namespace), body.destination.name)
    _require(request, Operation.CREATE, request.broker.catalog.rule_name(*destination))
    await request.broker.catalog.rename(source, destination)
    return _done()


async def commit_table(request: HttpRequest) -> Response:
    """Commit changes to a table, if its requirements still hold."""
    body = request.json(_commit_body)
    name = _table_of_path(request, Operation.ALTER, new=Operation.CREATE)
    _check_updates(request, body.updates, name)
    loaded = await request.broker.catalog.commit(
        TableChange(name, TableUpdates(body.requirements, body.updates))
    )
    if not loaded.metadata:  # nothing was to be changed
        loaded = await request.broker.catalog.load(name)
    return iceberg_files.loaded(request, name, loaded)


async def commit_transaction(request: HttpRequest) -> Response:
    """Commit changes to several tables, all or none."""
    catalog: Catalog = request.broker.catalog
    changes = []
    for change in request.json(_transaction_body).table_changes:
        if change.identifier is None:
            raise InvalidInput("every change of a transaction names its table")
        name = (_stored(request, change.identifier.namespace), change.identifier.name)
        _check_rights(request, catalog.table(name), Operation.ALTER)
        _check_updates(request, change.updates, name)
        changes.append(TableChange(name, TableUpdates(change.requirements, change.updates)))
    await catalog.commit_all(changes)
    return _done()


def _table_of_path(request: HttpRequest, operation: Operation, *, new: Operation | None = None) -> TableName:
    """The table of the path. Raises Refusal 403 unless the client may do this to it, or `new` if it does not exist."""
    name = (_namespace(request), request.parameters["table"])
    try:
        _check_rights(request, request.broker.catalog.table(name), operation)
    except (TableNotFound, NamespaceNotFound):
        _require(request, new or operation, request.broker.catalog.rule_name(*name))
        if new is None:
            raise
    return name


def _check_updates(request: HttpRequest, updates: list[dict[str, Any]], name: TableName) -> None:
    for update in updates:
        _check_place(request, update.get("location"), Operation.ALTER, name)


def _check_place(
    request: HttpRequest, location: object, operation: Operation, own: TableName | None = None
) -> None:
    """Raises Refusal 403 for files in the folder of another table, unless the client may do this to that table."""
    if not isinstance(location, str):
        return
    key_of = request.broker.catalog.key_of  # a location has two forms: in the store, and at the S3 door
    folder = f"{key_of(location).rstrip('/')}/"
    for table in request.broker.catalog.all_tables():
        theirs = f"{key_of(table.location).rpartition('/metadata/')[0]}/"
        if (table.namespace, table.name) != own and (folder.startswith(theirs) or theirs.startswith(folder)):
            _check_rights(request, table, operation)


def _check_rights(request: HttpRequest, table: Table, operation: Operation) -> None:
    _require(request, operation, _subject(request, table))


def _require(request: HttpRequest, operation: Operation, table: str) -> None:
    request.require(operation, ResourceType.TABLE, table)


def _subject(request: HttpRequest, table: Table) -> str:
    """What access rules name: the topic that a table shows, or else the table itself."""
    topic = request.broker.streams.get_by_id(table.topic_id) if table.topic_id else None
    return request.broker.catalog.rule_name(table.namespace, table.name) if topic is None else topic.name


def _require_namespace(request: HttpRequest, operation: Operation, namespace: str) -> None:
    request.require(operation, ResourceType.NAMESPACE, _shown(namespace))


def _require_sight(request: HttpRequest, namespace: str) -> None:
    """Raises NamespaceNotFound for a namespace that the client may not see."""
    if not _sees_namespace(request, namespace):
        raise NamespaceNotFound(namespace)


def _sees_namespace(request: HttpRequest, namespace: str) -> bool:
    """By a rule about it or about a table in it. Everybody sees the namespace of the topics' tables."""
    if namespace == DEFAULT_NAMESPACE or request.may(
        Operation.DESCRIBE, ResourceType.NAMESPACE, _shown(namespace)
    ):
        return True
    try:
        tables = request.broker.catalog.tables(namespace)
    except NamespaceNotFound:
        return False
    return any(
        request.may(Operation.DESCRIBE, ResourceType.TABLE, _subject(request, table)) for table in tables
    )


def _shown(namespace: str) -> str:
    """A namespace as access rules write it."""
    return namespace.replace(LEVELS, ".")


# Namespaces of a bound client: `default` holds the tables of its topics, and the others are below it


def _namespace(request: HttpRequest) -> str:
    """The namespace of the path, as it is stored."""
    return _stored(request, request.parameters["namespace"].split(LEVELS))


def _stored(request: HttpRequest, levels: list[str]) -> str:
    namespace, view = _joined(levels), request.view
    if view is None:
        return namespace
    if view.namespace == DEFAULT_NAMESPACE:
        if namespace != DEFAULT_NAMESPACE and request.broker.catalog.of_topics(namespace):
            raise NamespaceNotFound(namespace)
        return namespace
    base = table_namespace(view.namespace)
    return base if namespace == DEFAULT_NAMESPACE else base + LEVELS + namespace


def _levels(request: HttpRequest, stored: str) -> list[str]:
    """The levels of a namespace as the client knows them; none if it cannot see it."""
    view = request.view
    if view is None:
        return stored.split(LEVELS)
    if view.namespace == DEFAULT_NAMESPACE:
        hidden = stored != DEFAULT_NAMESPACE and request.broker.catalog.of_topics(stored)
        return [] if hidden else stored.split(LEVELS)
    base = table_namespace(view.namespace)
    if stored == base:
        return [DEFAULT_NAMESPACE]
    inside = stored.startswith(base + LEVELS) and not request.broker.catalog.of_topics(stored)
    return stored.removeprefix(base + LEVELS).split(LEVELS) if inside else []


def _joined(levels: list[str]) -> str:
    if not levels or any(LEVELS in level for level in levels):
        raise InvalidInput("a namespace has at least one level")
    return LEVELS.join(levels)


def _done() -> Response:
    return Response(204, b"", ())
