"""Handlers speak one version of a message; this brings the others to it and back.

Messages are frozen dataclasses, one set a version. Converting copies the fields that both versions have, gives new
fields their default and drops those the target does not know.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any


def convert(entity: Any, target: type[Any]) -> Any:
    """The same message in another version."""
    if type(entity) is target:
        return entity
    return target(**{name: take(getattr(entity, name)) for name, take in _plan(type(entity), target)})


@cache
def _plan(source: type[Any], target: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    known = {field.name for field in fields(source)}
    hints = typing.get_type_hints(target)
    plan = []
    for field in fields(target):
        if field.name in known:
            plan.append((field.name, _converter(hints[field.name])))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise TypeError(f"{source.__qualname__} lacks {field.name}, which {target.__qualname__} needs")
    return tuple(plan)


def _converter(hint: Any) -> Callable[[Any], Any]:
    """How a field of this type is taken over: messages inside it are converted too."""
    inner = _message_in(hint)
    if inner is None:
        return lambda value: value
    return lambda value: _convert_any(value, inner)


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
