"""Columns from the registry: the versions of a subject, in their order, become the columns of a topic's table."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import Protocol

import msgspec

from mainstem import limits
from mainstem.api.lake import ColumnSource, TableColumns, WriterSchema
from mainstem.errors import (
    InvalidConfig,
    MalformedSchema,
    TableChanged,
    TableIncompatible,
    UndecodablePayload,
)
from mainstem.ledger.namespaces import qualify_id
from mainstem.ledger.tables import DeclareTable
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.schemas import subjects as names
from mainstem.tables.columns import column_of, decode_columns, encode_columns, field_of, next_id
from mainstem.tables.evolution import evolved_fields

REGISTRY = "registry"  # as the schema of a table: the columns come from there
_RESOLVED_KEPT = 256  # topics


class SchemaVersions(Protocol):
    """The registry of schemas."""

    def ids(self, namespace: str, subject: str) -> tuple[int, ...]:
        """The ids of the subject's schemas in the order of their versions, with deleted ones. Empty without any."""
        ...

    def writer(self, namespace: str, subject: str, id: int) -> WriterSchema:
        """Raises MalformedSchema if a schema that it refers to is gone."""
        ...


def column_source(topic: Topic, schema: object) -> ColumnSource | None:
    """The source that a declaration names; None if it declares columns itself. Raises InvalidConfig."""
    if schema == REGISTRY:
        return ColumnSource(f"{topic.plain_name}-value")
    if not isinstance(schema, dict) or not schema.keys() & {"subject", "message"}:
        return None
    wrong = set(schema) - {"subject", "message"} or not all(isinstance(each, str) for each in schema.values())
    if wrong:
        raise InvalidConfig('columns from the registry are {"subject": …, "message": …}, or "registry"')
    subject, message = schema.get("subject") or f"{topic.plain_name}-value", schema.get("message", "")
    if not names.is_valid(subject) or len(message) > limits.NAME_CHARS_MAX:
        raise InvalidConfig(f"{subject[:64]!r} is not a subject, or {message[:64]!r} not a message")
    return ColumnSource(subject, message)


class RegistryColumns:
    """Declares columns for the schemas that were registered since, and adds the schemas to what decodes values."""

    def __init__(self, log: Log, schemas: SchemaVersions) -> None:
        self._log = log
        self._schemas = schemas
        self._resolved: dict[
            bytes, tuple[tuple[str, tuple[int, ...]], str]
        ] = {}  # topic → (of what, the result)

    def stored_subject(self, topic: Topic, source: ColumnSource) -> str:
        """The subject with its namespace."""
        return qualify_id(topic.namespace, names.normal(source.subject))

    async def current(self, topic: Topic) -> str:
        """The topic's columns as JSON, with the schemas of its subject, after `include`.

        A schema is registered before its records are written, so each known record has its columns."""
        with suppress(TableIncompatible):  # settling the tables reports it; the columns stay as they are
            await self.include(topic)
        return self.resolved(topic)

    def resolved(self, topic: Topic) -> str:
        """The declared columns as JSON, with the schemas of the subject."""
        text = self._log.ledger.tables.declaration(topic.topic_id).columns
        table = decode_columns(text)
        if table.registry is None:
            return text
        key = text, table.registry.ids
        known = self._resolved.get(topic.topic_id)
        if known is None or known[0] != key:
            writers = tuple(self._writers(topic, table.registry))
            known = key, encode_columns(msgspec.structs.replace(table, writers=writers))
            self._resolved[topic.topic_id] = known
            if len(self._resolved) > _RESOLVED_KEPT:
                del self._resolved[next(iter(self._resolved))]
        return known[1]

    def _writers(self, topic: Topic, source: ColumnSource) -> list[WriterSchema]:
        present = self._schemas.ids(topic.namespace, source.subject)
        found = []
        for id in source.ids:
            if id in present:  # else it was deleted for good
                try:
                    found.append(self._schemas.writer(topic.namespace, source.subject, id))
                except MalformedSchema:
                    continue  # what it refers to is gone, so nothing decodes its values
        return found

    async def include(self, topic: Topic) -> None:
        """Declare columns for schemas that were registered since the last call. Raises TableIncompatible."""
        for _ in range(limits.TABLE_COMMIT_TRIES):
            present = self._log.ledger.tables.declaration(topic.topic_id)
            table = decode_columns(present.columns)
            if table.registry is None:
                return
            ids = self._schemas.ids(topic.namespace, table.registry.subject)
            new = [id for id in ids if id not in table.registry.ids]
            if not new:
                return
            writers = []
            for id in new:
                try:
                    writers.append(self._schemas.writer(topic.namespace, table.registry.subject, id))
                except MalformedSchema:
                    continue
            extended = await asyncio.to_thread(extended_columns, table, writers, new)
            text = encode_columns(extended)
            if len(text) > limits.TABLE_DECLARATION_CHARS_MAX:
                raise TableIncompatible(
                    f"the schemas of subject {table.registry.subject!r} need {len(text)} characters of columns, over "
                    f"the limit of {limits.TABLE_DECLARATION_CHARS_MAX}"
                )
            try:
                keeps = _names_by_id(table).items() <= _names_by_id(extended).items()
                await self._log.propose(
                    DeclareTable(topic.topic_id, present.revision, text, present.copy, keeps_parts=keeps)
                )
            except TableChanged:
                continue
            return
        raise TableChanged(f"the columns of topic {topic.name!r} change faster than they can be read")


def _names_by_id(table: TableColumns) -> dict[int, str]:
    columns = [field_of(column) for column in table.columns]
    return {each.id: each.name for column in columns for each in (column, *column.walk())}


def extended_columns(table: TableColumns, writers: list[WriterSchema], ids: list[int]) -> TableColumns:
    """The columns after further versions of the subject."""
    from mainstem.tables.payloads.decoding import payloads

    source = table.registry
    assert source is not None
    fields = [field_of(column) for column in table.columns]
    numbers = count(next_id(table.columns))
    for writer in writers:
        try:
            new = payloads(writer, source.message).fields
        except (MalformedSchema, UndecodablePayload):
            continue  # its values go to the table of errors
        fields = evolved_fields(fields, new, numbers)
    if len(fields) > limits.TABLE_COLUMNS_MAX:
        raise TableIncompatible(
            f"the schemas of subject {source.subject!r} have {len(fields)} fields; a table may have "
            f"{limits.TABLE_COLUMNS_MAX} typed columns"
        )
    return TableColumns(
        tuple(map(column_of, fields)), msgspec.structs.replace(source, ids=(*source.ids, *ids))
    )
