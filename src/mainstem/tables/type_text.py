"""The texts of column types, as users write them: `long`, `decimal(10, 2)`, `list<string>`, `struct<id: long>`."""

from __future__ import annotations

import re
from functools import cache
from typing import cast

from mainstem.tables.column_types import (
    DECIMAL_DIGITS_MAX,
    DEPTH_MAX,
    FIXED_BYTES_MAX,
    PRIMITIVES,
    ColumnType,
    DecimalType,
    Field,
    FixedType,
    ListType,
    MapType,
    Primitive,
    PrimitiveType,
    StructType,
    list_of,
    map_of,
)

TYPES_TEXT = (
    f"{', '.join(PRIMITIVES)}, decimal(P, S), fixed(L), list<…>, map<string, …> or struct<name: …, …>"
)
MAP_KEYS = ("string", "int", "long")

TYPE_CHARS_MAX = 16_384  # that a user may write
FIELDS_MAX = 512
_PARSED_DEPTH_MAX = 64  # types from schemas may be deeper than those that users write

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"\s*(" + _WORD.pattern + r"|`(?:[^`]|``)+`|\d{1,5}|[<>(),:])")


@cache
def parsed_type(text: str) -> ColumnType:
    """A type without ids. Raises ValueError."""
    parser = _Parser(text)
    found = parser.type(_PARSED_DEPTH_MAX)
    parser.end()
    return found


def declared_type(text: str) -> ColumnType:
    """A type that a user wrote. Raises ValueError."""
    if len(text) > TYPE_CHARS_MAX:
        raise ValueError(f"a type may have up to {TYPE_CHARS_MAX} characters")
    found = parsed_type(text)
    if sum(1 for _ in Field("", found).walk()) >= FIELDS_MAX:
        raise ValueError(f"a type may have up to {FIELDS_MAX} fields")
    if _depth(Field("", found)) > DEPTH_MAX:
        raise ValueError(f"a type may be nested {DEPTH_MAX} levels deep")
    return found


def _depth(field: Field) -> int:
    return 1 + max(map(_depth, field.inside), default=0)


def type_text(kind: ColumnType) -> str:
    """The one spelling of a type."""
    match kind:
        case PrimitiveType(name):
            return name
        case DecimalType(precision, scale):
            return f"decimal({precision}, {scale})"
        case FixedType(length):
            return f"fixed({length})"
        case ListType(element):
            return f"list<{type_text(element.type)}>"
        case MapType(key, value):
            return f"map<{type_text(key.type)}, {type_text(value.type)}>"
        case StructType(fields):
            return (
                f"struct<{', '.join(f'{_name_text(each.name)}: {type_text(each.type)}' for each in fields)}>"
            )


def _name_text(name: str) -> str:
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self, depth: int) -> ColumnType:
        word = self._next()
        if depth == 0:
            raise ValueError("the type is nested too deeply")
        if word in PRIMITIVES:
            return PrimitiveType(cast(Primitive, word))
        match word:
            case "decimal":
                return self._decimal()
            case "fixed":
                return self._fixed()
            case "list":
                self._expect("<")
                element = self.type(depth - 1)
                self._expect(">")
                return list_of(element)
            case "map":
                return self._map(depth)
            case "struct":
                return self._struct(depth)
        raise ValueError(f"unknown type {word[:64]!r}")

    def _decimal(self) -> DecimalType:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise ValueError(
                f"a decimal has 1 to {DECIMAL_DIGITS_MAX} digits, of which the scale are decimal places"
            )
        return DecimalType(precision, scale)

    def _fixed(self) -> FixedType:
        self._expect("(")
        length = self._number()
        self._expect(")")
        if not 1 <= length <= FIXED_BYTES_MAX:
            raise ValueError(f"fixed has a length of 1 to {FIXED_BYTES_MAX} bytes")
        return FixedType(length)

    def _map(self, depth: int) -> MapType:
        self._expect("<")
        key = self.type(1)
        if type_text(key) not in MAP_KEYS:
            raise ValueError(f"the keys of a map must be {', '.join(MAP_KEYS)}, not {type_text(key)[:64]}")
        self._expect(",")
        value = self.type(depth - 1)
        self._expect(">")
        return map_of(key, value)

    def _struct(self, depth: int) -> StructType:
        self._expect("<")
        fields: list[Field] = []
        while True:
            name = self._name()
            if name.lower() in {known.name.lower() for known in fields}:
                raise ValueError(f"{name[:64]!r} cannot be a field here")
            self._expect(":")
            fields.append(Field(name, self.type(depth - 1)))
            if (mark := self._next()) != ",":
                break
        if mark != ">":
            raise ValueError(f"expected ',' or '>', not {mark[:64]!r}")
        return StructType(tuple(fields))

    def _name(self) -> str:
        word = self._next()
        if word.startswith("`"):
            word = word[1:-1].replace("``", "`")
            if not word.isprintable():
                raise ValueError(f"{word[:64]!r} cannot be a field here")
            return word
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word[:64]!r} cannot be a field here")
        return word

    def _number(self) -> int:
        word = self._next()
        if not word.isdecimal():
            raise ValueError(f"{word[:64]!r} is not a number")
        return int(word)

    def _expect(self, mark: str) -> None:
        found = self._next()
        if found != mark:
            raise ValueError(f"expected {mark!r}, not {found[:64]!r}")

    def _next(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise ValueError(
                "the type ends too early" if not self._text[self._at :].strip() else "unexpected character"
            )
        self._at = found.end()
        return found[1]

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise ValueError(f"unexpected {self._text[self._at :].strip()[:64]!r}")
