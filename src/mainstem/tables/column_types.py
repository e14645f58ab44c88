"""Types of typed columns, as users write them: `long`, `decimal(10, 2)`, `list<string>`, `struct<id: long, at: date>`.

A nested type has fields of its own, each with a permanent id: those after the id of the column, in the order in which
they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast, get_args

Primitive = Literal["boolean", "int", "long", "float", "double", "string", "json", "date", "timestamp"]
PRIMITIVES: tuple[str, ...] = get_args(Primitive)
TYPES_TEXT = f"{', '.join(PRIMITIVES)}, decimal(P, S), list<…> or struct<name: …>"

DECIMAL_DIGITS_MAX = 38
DEPTH_MAX = 8
TYPE_CHARS_MAX = 4_096
FIELDS_MAX = 256

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d{1,3}|[<>(),:])")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    name: Primitive


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ListType:
    element: ParsedType


@dataclass(frozen=True, slots=True)
class StructType:
    fields: tuple[tuple[str, ParsedType], ...]


ParsedType = PrimitiveType | DecimalType | ListType | StructType


@cache
def parsed_type(text: str) -> ParsedType:
    """Raises ValueError."""
    if len(text) > TYPE_CHARS_MAX:
        raise ValueError(f"a type may have up to {TYPE_CHARS_MAX} characters")
    parser = _Parser(text)
    found = parser.type(DEPTH_MAX)
    parser.end()
    if width(found) > FIELDS_MAX:
        raise ValueError(f"a type may have up to {FIELDS_MAX} fields")
    return found


def type_text(kind: ParsedType) -> str:
    """The one spelling of a type."""
    match kind:
        case PrimitiveType(name):
            return name
        case DecimalType(precision, scale):
            return f"decimal({precision}, {scale})"
        case ListType(element):
            return f"list<{type_text(element)}>"
        case StructType(fields):
            return f"struct<{', '.join(f'{name}: {type_text(each)}' for name, each in fields)}>"


def width(kind: ParsedType) -> int:
    """How many ids a column of this type takes."""
    match kind:
        case ListType(element):
            return 1 + width(element)
        case StructType(fields):
            return 1 + sum(width(each) for _, each in fields)
    return 1


def ids_inside(kind: ParsedType, id: int) -> Iterator[tuple[ParsedType, int]]:
    """The types of the fields directly inside a type, with their ids."""
    id += 1
    inside = [kind.element] if isinstance(kind, ListType) else []
    inside += [each for _, each in kind.fields] if isinstance(kind, StructType) else []
    for each in inside:
        yield each, id
        id += width(each)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self, depth: int) -> ParsedType:
        word = self._next()
        if depth == 0:
            raise ValueError(f"a type may be nested {DEPTH_MAX} levels deep")
        if word in PRIMITIVES:
            return PrimitiveType(cast(Primitive, word))
        if word == "decimal":
            return self._decimal()
        if word == "list":
            self._expect("<")
            element = self.type(depth - 1)
            self._expect(">")
            return ListType(element)
        if word == "struct":
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

    def _struct(self, depth: int) -> StructType:
        self._expect("<")
        fields: list[tuple[str, ParsedType]] = []
        while True:
            name = self._next()
            if name.lower() in {known.lower() for known, _ in fields} or not name.isidentifier():
                raise ValueError(f"{name[:64]!r} cannot be a field here")
            self._expect(":")
            fields.append((name, self.type(depth - 1)))
            if (mark := self._next()) != ",":
                break
        if mark != ">":
            raise ValueError(f"expected ',' or '>', not {mark[:64]!r}")
        return StructType(tuple(fields))

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
