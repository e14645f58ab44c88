"""Avro payloads that a decoder must not read: nested without end, or a few bytes that stand for millions of values.

The decoder's own code recurses without a limit, and ends the process at some thousand levels. Only some schemas can
describe such payloads: those that contain themselves, that have arrays or maps of values with parts without bytes, or
whose records use others so often that one value has very many parts. Others need no check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from mainstem.errors import UndecodablePayload

_DEPTH_MAX = 100
_EMPTY_VALUES_MAX = 100_000  # in one payload, besides one for each of its bytes
_PARTS_MAX = 10_000  # of a value with arrays of one element; above it, payloads are checked
_VARINT_BYTES_MAX = 10
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class _Extent(NamedTuple):
    """How large a value can be, if arrays and maps have one element."""

    parts: float
    levels: float
    empty: float  # parts that take no bytes
    may_be_empty: bool  # take no bytes as a whole


_ENDLESS = _Extent(inf, inf, inf, False)


class AvroBounds:
    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema = schema
        self._named = named
        self._records: dict[str, _Extent] = {}
        extent = self._extent(schema)
        self.needed = extent.parts > _PARTS_MAX or extent.levels > _DEPTH_MAX

    def check(self, payload: bytes) -> None:
        """Raises UndecodablePayload. A truncated payload passes: the decoder reports what is missing."""
        if self.needed:
            try:
                _Walk(payload, self._inner).skip(self._schema, 0)
            except IndexError:
                return

    def _inner(self, schema: Any) -> Any:
        """A type without its name and without wrappers: its definition, a union, or a primitive's name."""
        while True:
            if isinstance(schema, str):
                if schema not in self._named:
                    return schema
                schema = self._named[schema]
            if isinstance(schema, list):
                return schema
            inner = schema["type"]
            if isinstance(inner, str) and inner in ("record", "error", "enum", "fixed", "array", "map"):
                return schema
            schema = inner

    def _extent(self, schema: Any) -> _Extent:
        schema = self._inner(schema)
        if isinstance(schema, str):
            return _Extent(1, 1, int(schema == "null"), schema == "null")
        if isinstance(schema, list):
            branches = [self._extent(branch) for branch in schema]
            return _Extent(
                1 + max((one.parts for one in branches), default=0),
                1 + max((one.levels for one in branches), default=0),
                max((one.empty - 1 for one in branches), default=0),  # the number of a branch takes a byte
                False,
            )
        kind = schema["type"]
        if kind in ("array", "map"):
            items = self._extent(schema["items" if kind == "array" else "values"])
            if items.empty > 1 or (kind == "array" and items.may_be_empty):
                return _ENDLESS
            return _Extent(1 + items.parts, 1 + items.levels, 0, False)
        if kind not in ("record", "error"):
            empty = kind == "fixed" and schema["size"] == 0
            return _Extent(1, 1, int(empty), empty)
        name = schema["name"]
        if name not in self._records:
            self._records[name] = _ENDLESS  # for its own fields
            fields = [self._extent(field["type"]) for field in schema["fields"]]
            empty = all(one.may_be_empty for one in fields)
            self._records[name] = _Extent(
                1 + sum(one.parts for one in fields),
                1 + max((one.levels for one in fields), default=0),
                sum(one.empty for one in fields) + int(empty),
                empty,
            )
        return self._records[name]


class _Walk:
    """Reads over one payload without keeping its values. Raises IndexError at the end of the bytes."""

    def __init__(self, payload: bytes, inner: Callable[[Any], Any]) -> None:
        self._payload = payload
        self._inner = inner
        self._at = 0
        self._empty_left = _EMPTY_VALUES_MAX + len(payload)  # parts that take no bytes

    def skip(self, schema: Any, depth: int) -> None:
        begin = self._at
        self._skip(self._inner(schema), depth)
        if self._at == begin:
            self._empty_left -= 1
            if self._empty_left < 0:
                raise UndecodablePayload(
                    f"the value has more than {_EMPTY_VALUES_MAX + len(self._payload)} parts that take no bytes"
                )

    def _skip(self, schema: Any, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise UndecodablePayload(f"the value is nested deeper than {_DEPTH_MAX} levels")
        if isinstance(schema, str):
            self._primitive(schema)
        elif isinstance(schema, list):
            branch = self._long()
            if not 0 <= branch < len(schema):
                raise UndecodablePayload(f"a union of {len(schema)} types has no type {branch}")
            self.skip(schema[branch], depth + 1)
        elif schema["type"] in ("record", "error"):
            for field in schema["fields"]:
                self.skip(field["type"], depth + 1)
        elif schema["type"] == "fixed":
            self._advance(schema["size"])
        elif schema["type"] == "enum":
            self._long()
        else:
            self._blocks(schema, depth)

    def _blocks(self, schema: Any, depth: int) -> None:
        keyed = schema["type"] == "map"
        values = schema["values"] if keyed else schema["items"]
        while (count := self._long()) != 0:
            if count < 0:
                self._long()  # bytes of the block
            for _ in range(abs(count)):
                if keyed:
                    self._advance(self._long())
                self.skip(values, depth + 1)

    def _primitive(self, name: str) -> None:
        if name in ("string", "bytes"):
            self._advance(self._long())
        elif name in _FIXED_BYTES:
            self._advance(_FIXED_BYTES[name])
        else:
            self._long()

    def _advance(self, count: int) -> None:
        if count < 0:
            raise UndecodablePayload(f"a length is {count}")
        self._at += count
        if self._at > len(self._payload):
            raise IndexError

    def _long(self) -> int:
        result = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self._payload[self._at]
            self._at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)
        raise UndecodablePayload(f"a number has more than {_VARINT_BYTES_MAX} bytes")
