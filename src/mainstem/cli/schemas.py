"""Values by the schema registry, for `consume --decode` and `produce --schema`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click

from mainstem.cli.records import Formatter, InputRecord
from mainstem.errors import InvalidInput, MainstemError

if TYPE_CHECKING:
    from mainstem.cli.store import ReadRecord
    from mainstem.cli.target import Target
    from mainstem.client.schemas import SchemaRegistry


class DecodedRecord(NamedTuple):
    """A record whose key and value are text."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _registry(target: Target) -> SchemaRegistry:
    if target.offline:
        raise click.UsageError("--decode and --schema need a server: its registry has the schemas")
    from mainstem.client.schemas import SchemaRegistry

    registry = SchemaRegistry(target.url, api_key=target.api_key)
    click.get_current_context().call_on_close(registry.close)
    return registry


def decoding(target: Target, show: Formatter) -> Formatter:
    """Show keys and values that begin with a schema id as JSON, and all others as they are."""
    registry = _registry(target)

    def decoded(payload: bytes | None) -> bytes | None:
        if payload is None or len(payload) < 5 or payload[0]:
            return payload
        try:
            value = registry.deserialize(payload)
        except MainstemError as wrong:
            click.echo(f"warning: {wrong}", err=True)
            return payload
        return json.dumps(value, default=_plain, ensure_ascii=False).encode()

    def shown(topic: str, partition: int, record: ReadRecord) -> bytes:
        key, value = decoded(record.key), decoded(record.value)
        return show(
            topic, partition, DecodedRecord(record.offset, record.timestamp_ms, key, value, record.headers)
        )

    return shown


def encoding(
    target: Target, subject: str, parse: Callable[[bytes], InputRecord]
) -> Callable[[bytes], InputRecord]:
    """Read values as JSON, and write them by the latest schema of the subject."""
    registry = _registry(target)
    serialize, schema = registry.serializer(subject), registry.latest(subject)[1]

    def encoded(line: bytes) -> InputRecord:
        record = parse(line)
        if record.value is None:
            return record
        try:
            value = json.loads(record.value)
        except ValueError as wrong:
            raise InvalidInput(f"the value is not JSON: {wrong}") from None
        return replace(record, value=serialize(schema.from_json(value)))

    return encoded


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    return str(value)
