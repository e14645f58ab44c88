"""The Iceberg REST catalog, for Spark, Trino, DuckDB, PyIceberg and other clients.

Its errors have a shape of their own: {"error": {"message", "type", "code"}}, where `type` is the name of an
exception in Iceberg's Java library.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
from mainstem.doors.http.transport.errors import WIRE, Refusal, invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response, reply
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    NamespaceNotFound,
    TableExists,
    TableNotFound,
    Unauthorized,
)
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
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "POST /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/views/rename",
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
    errors.ViewNotFound: (404, "NoSuchViewException"),
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


ILLEGAL_ARGUMENT = "IllegalArgumentException"  # what Iceberg's library raises for an invalid view
_KINDS = {kind for _, kind in _TYPES.values()} | {ILLEGAL_ARGUMENT}


def catalog_refusal(status: int, kind: str, message: str) -> Refusal:
    """`kind`: the name of the exception in Iceberg's library."""
    return Refusal(status, kind, message)


def answer(error: MainstemError | Refusal) -> Response:
    """A failed request's answer, in the catalog's own shape."""
    if isinstance(error, Refusal):
        status, headers = error.status, error.headers
        kind = error.code if error.code in _KINDS else _BY_STATUS.get(status, "RESTException")
    else:
        status, kind = next((_TYPES[each] for each in type(error).__mro__ if each in _TYPES), (0, ""))
        row = next((WIRE[each] for each in type(error).__mro__ if each in WIRE), None)
        headers = row.headers if row else ()
        if not status:
            status = row.status if row else 500
            kind = _BY_STATUS.get(status, "InternalServerError")
    body = CatalogError(CatalogErrorBody(_worded(error) or type(error).__name__, kind, status))
    return Response(status, msgspec.json.encode(body), (JSON, *headers))


def _worded(error: MainstemError | Refusal) -> str:
    """The message of an error, in the words of Iceberg's library: engines compare and show them."""
    match error:
        case errors.NamespaceNotFound():
            return f"Namespace does not exist: {_rule_name(error.namespace)}"
        case errors.NamespaceExists():
            return f"Namespace already exists: {_rule_name(error.namespace)}"
        case errors.NamespaceNotEmpty():
            return f"Namespace {_rule_name(error.namespace)} is not empty"
        case errors.TableNotFound():
            return f"Table does not exist: {_rule_name(error.namespace)}.{error.name}"
        case errors.ViewNotFound():
            return f"View does not exist: {_rule_name(error.namespace)}.{error.name}"
        case errors.TableExists(requirement=True):
            return f"Requirement failed: table already exists: {_rule_name(error.namespace)}.{error.name}"
        case errors.TableExists(view=True):
            return f"View with same name already exists: {_rule_name(error.namespace)}.{error.name}"
        case errors.TableExists():
            return f"Table already exists: {_rule_name(error.namespace)}.{error.name}"
    return str(error)


# Handlers


async def post_token(request: HttpRequest) -> Response:
    """Exchange client credentials, an API key or a user's password, for a token (OAuth2)."""
    form = parse_qs(request.body.decode("utf-8", "replace"), keep_blank_values=True)
    client, secret = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
    if not secret:
        client, secret = basic(request.header(b"authorization") or b"") or ("", "")
    grant = form.get("grant_type", [""])[0]
    if grant != "client_credentials":
        return _oauth_error(400, "unsupported_grant_type", "this server supports only client_credentials")
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
        catalog.properties(stored_namespace(request, parent.split(LEVELS)))
    depth = len(parent.split(LEVELS)) + 1 if parent else 1
    inside = set()
    for stored in catalog.namespaces():
        levels = namespace_levels(request, stored)
        name = LEVELS.join(levels)
        if levels and (not parent or name.startswith(parent + LEVELS)) and _sees_namespace(request, stored):
            inside.add(tuple(levels[:depth]))
    return reply(NamespaceList(sorted(inside)))


async def create_namespace(request: HttpRequest) -> Response:
    """Create a namespace."""
    body = request.json(_namespace_body)
    _require_namespace(request, Operation.CREATE, stored_namespace(request, body.namespace))
    await request.broker.catalog.create_namespace(stored_namespace(request, body.namespace), body.properties)
    return reply(NamespaceDescription(body.namespace, body.properties))


async def get_namespace(request: HttpRequest) -> Response:
    """Get the properties of a namespace."""
    namespace = catalog_namespace(request)
    _require_sight(request, namespace)
    catalog = request.broker.catalog
    location = iceberg_files.location_for(request, catalog.location_of(namespace))
    properties = {"location": location, **catalog.properties(namespace)}
    return reply(NamespaceDescription(namespace_levels(request, namespace), properties))


async def head_namespace(request: HttpRequest) -> Response:
    """Check whether a namespace exists."""
    _require_sight(request, catalog_namespace(request))
    request.broker.catalog.properties(catalog_namespace(request))
    return no_content()


async def drop_namespace(request: HttpRequest) -> Response:
    """Delete a namespace without tables."""
    namespace = catalog_namespace(request)
    _require_namespace(request, Operation.DELETE, namespace)
    await request.broker.catalog.drop_namespace(namespace)
    return no_content()


async def post_properties(request: HttpRequest) -> Response:
    """Set and remove properties of a namespace."""
    body = request.json(_properties_body)
    _require_namespace(request, Operation.ALTER, catalog_namespace(request))
    updated, removed, missing = await request.broker.catalog.change_properties(
        catalog_namespace(request), body.updates, body.removals
    )
    return reply(PropertiesChanged(updated, removed, missing))


async def list_tables(request: HttpRequest) -> Response:
    """List the tables of a namespace."""
    namespace = catalog_namespace(request)
    levels = namespace_levels(request, namespace)
    shown = describable_tables(request, request.broker.catalog.tables(namespace))
    return reply(TableList([Identifier(levels, table.name) for table in shown]))


def describable_tables(request: HttpRequest, tables: Sequence[Table]) -> list[Table]:
    """Those that the client may see."""
    return [
        table
        for table in tables
        if request.may(Operation.DESCRIBE, ResourceType.TABLE, _subject(request, table))
    ]


async def create_table(request: HttpRequest) -> Response:
    """Create a table, or stage its creation."""
    body = request.json(_body)
    namespace = catalog_namespace(request)
    require_table(
        request, Operation.CREATE, request.broker.catalog.rule_name(namespace, str(body.get("name", "")))
    )
    body = iceberg_files.with_location(request, namespace, body)
    place = body.get("location") or f"{request.broker.catalog.place_of(namespace)}/new"
    check_catalog_place(request, place, Operation.ALTER)
    name = (namespace, str(body.get("name", "")))
    return iceberg_files.loaded(request, name, await request.broker.catalog.create(namespace, body))


async def register_table(request: HttpRequest) -> Response:
    """Register a table with existing metadata."""
    body = request.json(_body)
    namespace = catalog_namespace(request)
    require_table(
        request, Operation.CREATE, request.broker.catalog.rule_name(namespace, str(body.get("name", "")))
    )
    check_catalog_place(request, body.get("metadata-location"), Operation.ALTER)
    name = (namespace, str(body.get("name", "")))
    check = partial(check_catalog_place, request, operation=Operation.ALTER)
    return iceberg_files.loaded(request, name, await request.broker.catalog.register(namespace, body, check))


async def get_table(request: HttpRequest) -> Response:
    """Get the metadata of a table and its location."""
    name = _table_of_path(request, Operation.READ)
    return iceberg_files.loaded(request, name, await request.broker.catalog.load(name))


async def head_table(request: HttpRequest) -> Response:
    """Check whether a table exists."""
    request.broker.catalog.table(_table_of_path(request, Operation.READ))
    return no_content()


async def drop_table(request: HttpRequest) -> Response:
    """Drop a table. With `purgeRequested`, also delete its files."""
    purge = (request.text("purgeRequested") or "").lower() == "true"
    await request.broker.catalog.drop(_table_of_path(request, Operation.DELETE), purge=purge)
    return no_content()


async def rename_table(request: HttpRequest) -> Response:
    """Rename a table."""
    body = request.json(_rename_body)
    source = (stored_namespace(request, body.source.namespace), body.source.name)
    _check_rights(request, request.broker.catalog.table(source), Operation.ALTER)
    destination = (stored_namespace(request, body.destination.namespace), body.destination.name)
    require_table(request, Operation.CREATE, request.broker.catalog.rule_name(*destination))
    try:
        await request.broker.catalog.rename(source, destination)
    except TableExists as error:
        raise renaming_refusal(body, error) from None
    return no_content()


def renaming_refusal(body: RenameBody, error: TableExists) -> Refusal:
    source, destination = (".".join((*each.namespace, each.name)) for each in (body.source, body.destination))
    kind = "View" if error.view else "Table"
    return catalog_refusal(
        409, "AlreadyExistsException", f"Cannot rename {source} to {destination}. {kind} already exists"
    )


async def commit_table(request: HttpRequest) -> Response:
    """Commit changes to a table, if its requirements still hold."""
    body = request.json(_commit_body)
    name = _table_of_path(request, Operation.ALTER, new=Operation.CREATE)
    check_catalog_updates(request, body.updates, name)
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
        name = (stored_namespace(request, change.identifier.namespace), change.identifier.name)
        _check_table(request, name, Operation.ALTER, new=Operation.CREATE)
        check_catalog_updates(request, change.updates, name)
        changes.append(TableChange(name, TableUpdates(change.requirements, change.updates)))
    await catalog.commit_all(changes)
    return no_content()


def _table_of_path(request: HttpRequest, operation: Operation, *, new: Operation | None = None) -> TableName:
    """The table of the path. Raises Refusal 403 unless the client may do this to it, or `new` if it does not exist."""
    name = (catalog_namespace(request), request.parameters["table"])
    _check_table(request, name, operation, new=new)
    return name


def _check_table(
    request: HttpRequest, name: TableName, operation: Operation, *, new: Operation | None = None
) -> None:
    try:
        _check_rights(request, request.broker.catalog.table(name), operation)
    except TableNotFound:
        require_table(request, new or operation, request.broker.catalog.rule_name(*name))
        if new is None:
            raise


def check_catalog_updates(request: HttpRequest, updates: list[dict[str, Any]], name: TableName) -> None:
    for update in updates:
        check_catalog_place(request, update.get("location"), Operation.ALTER, name)


def check_catalog_place(
    request: HttpRequest, location: object, operation: Operation, own: TableName | None = None
) -> None:
    """Raises Refusal 403 for files in the folder of another table, unless the client may do this to that table, and
    400 for a folder that contains that of a namespace: later tables would be in it."""
    if not isinstance(location, str):
        return
    catalog = request.broker.catalog
    key_of = catalog.key_of  # a location has two forms: in the store, and at the S3 door
    folder = f"{key_of(location).rstrip('/')}/"
    for table in catalog.all_tables():
        theirs = f"{key_of(table.location).rpartition('/metadata/')[0]}/"
        if (table.namespace, table.name) != own and (folder.startswith(theirs) or theirs.startswith(folder)):
            _check_rights(request, table, operation)
    for namespace in catalog.namespaces():
        if f"{key_of(catalog.place_of(namespace)).rstrip('/')}/".startswith(folder):
            raise invalid(f"location {location[:512]!r} contains that of the namespace {namespace[:200]!r}")


def _check_rights(request: HttpRequest, table: Table, operation: Operation) -> None:
    require_table(request, operation, _subject(request, table))


def require_table(request: HttpRequest, operation: Operation, table: str) -> None:
    request.require(operation, ResourceType.TABLE, table)


def table_subject(request: HttpRequest, name: TableName) -> str:
    """What access rules name for a table or view, which may not exist."""
    catalog: Catalog = request.broker.catalog
    present = catalog.find(name)
    return catalog.rule_name(*name) if present is None else _subject(request, present)


def _subject(request: HttpRequest, table: Table) -> str:
    """What access rules name: the topic that a table shows, or else the table itself."""
    topic = request.broker.streams.get_by_id(table.topic_id) if table.topic_id else None
    return request.broker.catalog.rule_name(table.namespace, table.name) if topic is None else topic.name


def _require_namespace(request: HttpRequest, operation: Operation, namespace: str) -> None:
    request.require(operation, ResourceType.NAMESPACE, _rule_name(namespace))


def _require_sight(request: HttpRequest, namespace: str) -> None:
    """Raises NamespaceNotFound for a namespace that the client may not see."""
    if not _sees_namespace(request, namespace):
        raise NamespaceNotFound(namespace)


def _sees_namespace(request: HttpRequest, namespace: str) -> bool:
    """By a rule about it or about a table in it. Everybody sees the namespace of the topics' tables."""
    if namespace == DEFAULT_NAMESPACE or request.may(
        Operation.DESCRIBE, ResourceType.NAMESPACE, _rule_name(namespace)
    ):
        return True
    try:
        tables = request.broker.catalog.tables(namespace)
    except NamespaceNotFound:
        return False
    return any(
        request.may(Operation.DESCRIBE, ResourceType.TABLE, _subject(request, table)) for table in tables
    )


def _rule_name(namespace: str) -> str:
    """A namespace as access rules write it."""
    return namespace.replace(LEVELS, ".")


# Namespaces of a bound client: `default` holds the tables of its topics, and the others are below it


def catalog_namespace(request: HttpRequest) -> str:
    """The namespace of the path, as it is stored."""
    return stored_namespace(request, request.parameters["namespace"].split(LEVELS))


def stored_namespace(request: HttpRequest, levels: list[str]) -> str:
    namespace, view = _joined(levels), request.view
    if view is None:
        return namespace
    if view.namespace == DEFAULT_NAMESPACE:
        if namespace != DEFAULT_NAMESPACE and request.broker.catalog.of_topics(namespace):
            raise NamespaceNotFound(namespace)
        return namespace
    base = table_namespace(view.namespace)
    return base if namespace == DEFAULT_NAMESPACE else base + LEVELS + namespace


def namespace_levels(request: HttpRequest, stored: str) -> list[str]:
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


def no_content() -> Response:
    return Response(204, b"", ())
