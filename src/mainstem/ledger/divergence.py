"""How two states of a ledger differ: which section, which key, which values."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from mainstem.ledger.checkpoint import LedgerState

_SHOWN_CHARS = 120
_ABSENT = "(absent)"


class Difference(NamedTuple):
    section: str  # a field of checkpoint.State
    key: str  # path inside the section
    stored: str
    replayed: str


def differences(stored: LedgerState, replayed: LedgerState, limit: int) -> list[Difference]:
    """The first `limit` differences, in the order of the sections."""
    return list(islice(_sections(stored, replayed), limit))


def _sections(stored: LedgerState, replayed: LedgerState) -> Iterator[Difference]:
    for name in LedgerState.__struct_fields__:
        # A digest that was recorded is no state of its own.
        if name != "last_digest":
            for key, one, other in _walk("", getattr(stored, name), getattr(replayed, name)):
                yield Difference(name, key or "(whole)", _shown(one), _shown(other))


def _walk(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Down to the smallest parts that differ."""
    if type(one) is type(other):
        pairs = _children(one, other)
        if pairs is not None:
            for name, first, second in pairs:
                yield from _walk(f"{path}.{name}" if path else name, first, second)
            return
    if one != other or type(one) is not type(other):
        yield path, one, other


def _children(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """What two values of one type consist of, by name; None: they are compared as they are."""
    if isinstance(one, msgspec.Struct):
        return ((name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    if dataclasses.is_dataclass(one):
        return (
            (field.name, getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
        )
    if isinstance(one, Mapping):
        return _by_key({str(key): value for key, value in one.items()}, {str(k): v for k, v in other.items()})
    if isinstance(one, (list, tuple)):
        return _by_key(_keyed(one), _keyed(other))
    return None


def _keyed(items: Sequence[Any]) -> dict[str, Any]:
    """Items by their own name where they have one, else by their place."""
    names = [_name(item) for item in items]
    if None in names or len(set(names)) < len(names):
        return {f"[{place}]": item for place, item in enumerate(items)}
    return {f"[{name}]": item for name, item in zip(names, items, strict=True)}


def _name(item: Any) -> Hashable | None:
    """What tells an item of a list from the others: its `name`, or its first field."""
    if isinstance(item, msgspec.Struct):
        fields: Sequence[str] = item.__struct_fields__
    elif dataclasses.is_dataclass(item):
        fields = [field.name for field in dataclasses.fields(item)]
    else:
        return None
    found = getattr(item, "name" if "name" in fields else fields[0])
    return found.hex() if isinstance(found, bytes) else repr(found)


def _by_key(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*one, *other)):
        yield key, one.get(key, _ABSENT), other.get(key, _ABSENT)


def _shown(value: Any) -> str:
    text = value if value is _ABSENT else repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
