"""Conditions on JSON values, for searches: `$.customer.city = Rome`, `$.items[0].price >= 10`, `$.error`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from mainstem.errors import InvalidInput

_STEP = r'\.[^\s.\[\]=<>!"]+|\[\d{1,18}\]|\["[^"]*"\]'
_CONDITION = re.compile(rf"\$((?:{_STEP})*)\s*(?:(!=|>=|<=|=|>|<)\s*(.*))?", re.DOTALL)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A path, and what its value must be; without an operator, it must exist."""

    path: tuple[str | int, ...]
    compare: Callable[[Any, Any], bool] | None = None
    wanted: Any = None

    def fits(self, value: bytes | None) -> bool:
        """False for values that are not JSON, or have nothing at the path."""
        try:
            found = self._at(msgspec.json.decode(value or b""))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if found is _MISSING or self.compare is None:
            return found is not _MISSING
        try:
            return bool(self.compare(found, self.wanted))
        except TypeError:  # a text and a number have no order
            return False

    def _at(self, value: Any) -> Any:
        for step in self.path:
            if isinstance(value, dict):
                has = step in value
            else:
                has = isinstance(value, list) and isinstance(step, int) and step < len(value)
            if not has:
                return _MISSING
            value = value[step]
        return value


def json_condition(text: str) -> JsonCondition:
    """Raises InvalidInput."""
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{text[:100]!r} is not a condition such as $.customer.city = Rome")
    path = tuple(_step(step) for step in re.findall(_STEP, found[1]))
    if found[2] is None:
        return JsonCondition(path)
    return JsonCondition(path, _OPERATORS[found[2]], _wanted(found[3]))


def _step(text: str) -> str | int:
    if text.startswith("."):
        return text[1:]
    return text[2:-2] if text.startswith('["') else int(text[1:-1])


def _wanted(text: str) -> Any:
    """JSON, or else a text."""
    try:
        return msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError):
        return text.strip()
