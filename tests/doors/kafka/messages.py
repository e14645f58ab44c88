"""Requests from plain values: one description works for every version of a message."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from typing import Any


def make(schema: type[Any], values: dict[str, Any]) -> Any:
    """A message with these values; values without a field in this version are left out."""
    hints = typing.get_type_hints(schema)
    known = {field.name for field in fields(schema)}
    return schema(**{name: _made(hints[name], value) for name, value in values.items() if name in known})


def _made(hint: Any, value: Any) -> Any:
    inner = _message_in(hint)
    if isinstance(value, list | tuple):
        return tuple(_made(hint, item) for item in value)
    return make(inner, value) if inner is not None and isinstance(value, dict) else value


def _message_in(hint: Any) -> type[Any] | None:
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    return next((found for part in typing.get_args(hint) if (found := _message_in(part))), None)
