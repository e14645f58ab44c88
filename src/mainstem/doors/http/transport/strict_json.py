"""JSON that the contract refuses although it is valid: duplicate fields, and deeply nested values."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_type_hints

import msgspec
import numpy as np

from mainstem import limits
from mainstem.api.routes import structs_in
from mainstem.doors.http.transport.errors import invalid

JSON_CHECKED_BYTES_MAX = 64 * limits.KIB  # a larger body is not checked for duplicate fields
DATA_NESTING_MAX = 128  # levels of arrays and objects in the data of a record

_OPENERS = np.zeros(256, np.int8)
_OPENERS[[ord("["), ord("{")]] = 1
_OPENERS[[ord("]"), ord("}")]] = -1


def check_fields(kind: Any, body: bytes, records: int = 0) -> None:
    """Raises Refusal 400 if the body has a field of the struct twice; with `records`, if one of that many has."""
    if len(body) > JSON_CHECKED_BYTES_MAX or not (
        isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ):
        return
    own, inner = _names(kind)
    suspect = inner if records else own
    for name in suspect:
        if body.count(name) > (records or 1):
            _check_exactly(body, {name.decode()[1:-1] for name in suspect})
            return


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The quoted names of the fields that only the struct itself has, and of the fields of its records."""
    hints = get_type_hints(kind)
    nested = {
        field.encode_name
        for name, hint in hints.items()
        for struct in structs_in([hint])
        for field in msgspec.structs.fields(struct)
    }
    own = tuple(
        b'"%b"' % field.encode_name.encode()
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in nested
    )
    records = structs_in([hints["records"]]) if "records" in hints else set()
    inner = {field.encode_name for struct in records for field in msgspec.structs.fields(struct)}
    return own, tuple(b'"%b"' % name.encode() for name in sorted(inner))


def _check_exactly(body: bytes, names: set[str]) -> None:
    try:
        pairs = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return  # the decoder reports the error
    if not isinstance(pairs, _Pairs):
        return
    for one in (pairs, *_records(pairs)):
        seen: set[str] = set()
        for name, _ in one:
            if name in seen and name in names:
                raise invalid(f"the body has the field {name!r} twice")
            seen.add(name)


class _Pairs(list[tuple[str, Any]]):
    """An object, with all its fields."""


def _records(pairs: _Pairs) -> list[_Pairs]:
    return [
        record
        for name, value in pairs
        if name == "records" and isinstance(value, list)
        for record in value
        if isinstance(record, _Pairs)
    ]


def too_deep(value: bytes) -> bool:
    """Whether JSON is nested deeper than DATA_NESTING_MAX: estimated quickly, and then counted."""
    if len(value) <= DATA_NESTING_MAX or value.count(b"[") + value.count(b"{") <= DATA_NESTING_MAX:
        return False
    steps = _OPENERS[np.frombuffer(value, np.uint8)]
    if int(np.cumsum(steps, dtype=np.int32).max()) <= DATA_NESTING_MAX:
        return False
    return _depth(value) > DATA_NESTING_MAX


def _depth(value: bytes) -> int:
    depth = deepest = 0
    in_text = escaped = False
    for sign in value:
        if in_text:
            in_text, escaped = sign != 34 or escaped, sign == 92 and not escaped
        elif sign == 34:
            in_text = True
        else:
            depth += int(_OPENERS[sign])
            deepest = max(deepest, depth)
    return deepest
