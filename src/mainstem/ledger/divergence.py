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
    section: str  # its name in the registry, or a field of the checkpoint
    key: str  # path inside the section
    stored: str
    replayed: str


def differences(stored: LedgerState[Any], replayed: LedgerState[Any], limit: int) -> list[Difference]:
    """The first `limit` differences, in the order of the sections."""
    return list(islice(_sections(stored, replayed), limit))


def _sections(stored: LedgerState[Any], replayed: LedgerState[Any]) -> Iterator[Difference]:
    one, other = _by_section(stored), _by_section(replayed)
    for name in dict.fromkeys((*one, *other)):
        for key, first, second in _walk("", one.get(name, _ABSENT), other.get(name, _ABSENT)):
            yield Difference(name, key or "(whole)", _abbreviated(first), _abbreviated(second))


def _by_section(state: LedgerState[Any]) -> dict[str, Any]:
    """The sections, after the fields of the ledger itself. Digests follow from the state, so they are left out."""
    return {"position": state.position, "time_ms": state.time_ms, **state.sections}


def _walk(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Descend to the smallest parts that differ."""
    if type(one) is type(other):
        pairs = _children(one, other)
        if pairs is not None:
            for name, first, second in pairs:
                yield from _walk(f"{path}.{name}" if path else name, first, second)
            return
    if one != other or type(one) is not type(other):
        yield path, one, other


def _children(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """The parts of two values of one type, by name; None: compare the values themselves."""
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
    """Items by name where they have one, else by index."""
    names = [_name(item) for item in items]
    if None in names or len(set(names)) < len(names):
        return {f"[{place}]": item for place, item in enumerate(items)}
    return {f"[{name}]": item for name, item in zip(names, items, strict=True)}


def _name(item: Any) -> Hashable | None:
    """What identifies an item of a list: its `name`, or its first field, as a group in (group, offsets)."""
    if isinstance(item, tuple) and len(item) > 1 and isinstance(item[0], str | int | bytes):
        return item[0].hex() if isinstance(item[0], bytes) else repr(item[0])
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


def _abbreviated(value: Any) -> str:
    text = value if value is _ABSENT else repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
