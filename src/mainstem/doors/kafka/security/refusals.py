"""Refusals: an API's own response, with an error code in every field for one.

The response repeats what it has in common with the request, such as names and partitions; the rest is zero.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.transport.versions import convert

FORBIDDEN = "the access rules do not allow it"


@dataclass(frozen=True)
class _NoFields:
    """Has no field in common with anything."""


def zeroed(answer: type[Any]) -> Any:
    """A response of zeros."""
    return stamped(convert(_NoFields(), answer), ErrorCode.none)


def refused(request: Any, answer: type[Any], code: ErrorCode) -> Any:
    """The fields that `answer` repeats of a request, or of an item of one, with the code in every error field."""
    return stamped(convert(request, answer), code)


def refused_name(name: str, answer: type[Any], field: str, code: ErrorCode) -> Any:
    """As `refused`, where the request's item is only a name."""
    return replace(stamped(zeroed(answer), code), **{field: name})


def refused_partitions(
    request: Any, answer: type[Any], indexes: Iterable[int], field: str, code: ErrorCode
) -> Any:
    """As `refused`, where the request lists a topic's partitions by number."""
    each = stamped(zeroed(message_in(answer, field)), code)
    partitions = tuple(replace(each, partition_index=index) for index in indexes)
    repeated = {
        name: getattr(request, name)
        for name in ("name", "topic_id")
        if hasattr(request, name) and name in {one.name for one in fields(answer)}
    }
    return replace(zeroed(answer), **repeated, **{field: partitions})


def stamped(entity: Any, code: ErrorCode) -> Any:
    changes: dict[str, Any] = {}
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.name.endswith("error_code"):
            changes[field.name] = code
        elif field.name == "error_message":
            changes[field.name] = FORBIDDEN if code else None
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            changes[field.name] = tuple(stamped(item, code) for item in value)
    return replace(entity, **changes) if changes else entity


def message_in(message: type[Any], field: str) -> type[Any]:
    """The class of the messages in a list field."""
    hint = typing.get_type_hints(message)[field]
    found = [part for part in _parts(hint) if isinstance(part, type) and is_dataclass(part)]
    return found[0]


def _parts(hint: Any) -> Iterable[Any]:
    yield hint
    for argument in typing.get_args(hint):
        yield from _parts(argument)
