"""Views in the Iceberg REST catalog. Access rules name a view as they name a table."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.api.access import Operation
from mainstem.api.catalog import CommitBody, Identifier, RenameBody, TableList, ViewLoaded
from mainstem.doors.http.routes.iceberg import (
    ILLEGAL_ARGUMENT,
    catalog_namespace,
    catalog_refusal,
    check_catalog_place,
    check_catalog_updates,
    describable_tables,
    namespace_levels,
    no_content,
    renaming_refusal,
    require_table,
    stored_namespace,
    table_subject,
)
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import InvalidInput, TableExists
from mainstem.tables.catalog import LoadedTable, TableName
from mainstem.tables.table_metadata import TableUpdates

_body = msgspec.json.Decoder(dict[str, Any])
_commit_body = msgspec.json.Decoder(CommitBody)
_rename_body = msgspec.json.Decoder(RenameBody)


async def list_views(request: HttpRequest) -> Response:
    """List the views of a namespace."""
    namespace = catalog_namespace(request)
    levels = namespace_levels(request, namespace)
    shown = describable_tables(request, request.broker.catalog.views(namespace))
    return reply(TableList([Identifier(levels, view.name) for view in shown]))


async def create_view(request: HttpRequest) -> Response:
    """Create a view."""
    body = request.json(_body)
    namespace = catalog_namespace(request)
    catalog = request.broker.catalog
    require_table(request, Operation.CREATE, catalog.rule_name(namespace, str(body.get("name", ""))))
    check_catalog_place(request, body.get("location"), Operation.ALTER)
    try:
        return _loaded(await catalog.create_view(namespace, body))
    except TableExists as error:
        text = "View already exists" if error.view else "Table with same name already exists"
        name = ".".join((*namespace_levels(request, namespace), error.name))
        raise catalog_refusal(409, "AlreadyExistsException", f"{text}: {name}") from None
    except InvalidInput as error:
        raise catalog_refusal(400, ILLEGAL_ARGUMENT, str(error)) from None


async def get_view(request: HttpRequest) -> Response:
    """Get the metadata of a view and its location."""
    return _loaded(await request.broker.catalog.load_view(_view(request, Operation.READ)))


async def head_view(request: HttpRequest) -> Response:
    """Check whether a view exists."""
    request.broker.catalog.view(_view(request, Operation.READ))
    return no_content()


async def commit_view(request: HttpRequest) -> Response:
    """Replace a view, or change its properties and its location."""
    body = request.json(_commit_body)
    name = _view(request, Operation.ALTER)
    check_catalog_updates(request, body.updates, name)
    asked = TableUpdates(body.requirements, body.updates)
    try:
        return _loaded(await request.broker.catalog.commit_view(name, asked))
    except InvalidInput as error:
        raise catalog_refusal(400, ILLEGAL_ARGUMENT, str(error)) from None


async def drop_view(request: HttpRequest) -> Response:
    """Drop a view."""
    await request.broker.catalog.drop_view(_view(request, Operation.DELETE))
    return no_content()


async def rename_view(request: HttpRequest) -> Response:
    """Rename a view."""
    body = request.json(_rename_body)
    catalog = request.broker.catalog
    source = (stored_namespace(request, body.source.namespace), body.source.name)
    require_table(request, Operation.ALTER, table_subject(request, source))
    destination = (stored_namespace(request, body.destination.namespace), body.destination.name)
    require_table(request, Operation.CREATE, catalog.rule_name(*destination))
    try:
        await catalog.rename_view(source, destination)
    except TableExists as error:
        raise renaming_refusal(body, error) from None
    return no_content()


def _view(request: HttpRequest, operation: Operation) -> TableName:
    """The view of the path. Raises Refusal 403 unless the client may do this to it."""
    name = (catalog_namespace(request), request.parameters["table"])
    require_table(request, operation, table_subject(request, name))
    return name


def _loaded(view: LoadedTable) -> Response:
    return reply(ViewLoaded(view.location, msgspec.Raw(view.metadata), {}))
