"""Convert messages between versions: handlers use one version.

Messages are frozen dataclasses, one set per version. A conversion copies the fields that both versions have, gives new
fields their defaults, and drops fields that the target does not have. Where versions differ in structure, the API's
module registers a `bridge` between them.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

_converters: dict[tuple[type[Any], type[Any]], Callable[[Any], Any]] = {}  # by source and target

# The protocol's default of a new field that declares none.
_ZEROS: tuple[tuple[type[Any], Any], ...] = (
    (bool, False),
    (int, 0),
    (str, ""),
    (bytes, b""),
    (UUID, None),
    (timedelta, timedelta(0)),
    (datetime, datetime.fromtimestamp(0, UTC)),
)


def bridge(source: type[Any], target: type[Any], function: Callable[[Any], Any]) -> None:
    """Register `function` as the conversion from `source` to `target`."""
    _converters[source, target] = function


def convert(entity: Any, target: type[Any]) -> Any:
    """The same message in another version."""
    source = type(entity)
    if source is target:
        return entity
    converter = _converters.get((source, target))
    if converter is None:
        converter = _converters[source, target] = _by_fields(source, target)
    return converter(entity)


def _by_fields(source: type[Any], target: type[Any]) -> Callable[[Any], Any]:
    known = {field.name for field in fields(source)}
    hints = typing.get_type_hints(target)
    plan: list[tuple[str, Callable[[Any], Any]]] = []
    for field in fields(target):
        if field.name in known:
            plan.append((field.name, _taker(field.name, hints[field.name])))
        elif field.default is MISSING and field.default_factory is MISSING:
            plan.append((field.name, _always(_zero(field, hints[field.name], source))))
    return lambda entity: target(**{name: take(entity) for name, take in plan})


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _taker(name: str, hint: Any) -> Callable[[Any], Any]:
    """The conversion of a field of this type, with the messages inside it."""
    get = attrgetter(name)
    inner = _message_in(hint)
    if inner is None:
        return get
    return lambda entity: _convert_any(get(entity), inner)


def _convert_any(value: Any, inner: type[Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(convert(item, inner) for item in value)
    return convert(value, inner)


def _message_in(hint: Any) -> type[Any] | None:
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        found = _message_in(argument)
        if found is not None:
            return found
    return None


def _zero(field: Field[Any], hint: Any, source: type[Any]) -> Any:
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is tuple:
            return ()
        for kind, zero in _ZEROS:
            if isinstance(part, type) and issubclass(part, kind):
                return zero
    raise TypeError(f"{source.__qualname__} lacks {field.name}, which has no default")
