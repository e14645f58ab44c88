"""How columns change: fields are added, renamed and widened, as Iceberg allows; none is ever removed.

A field is the same field as one of another schema if they share a source name: a name or an alias in Avro, a number
in Protobuf, a key in JSON. Without source names, the names decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mainstem.tables.column_types import (
    ColumnType,
    DecimalType,
    Field,
    PrimitiveType,
    StructType,
)

_WIDER = {("int", "long"), ("float", "double")}


def assigned(field: Field, ids: Iterator[int]) -> Field:
    """A new field, with ids for it and for those inside."""
    field = replace(field, id=next(ids))
    return field.with_inside(tuple(assigned(each, ids) for each in field.inside))


def evolved(old: Field, new: Field, ids: Iterator[int]) -> Field:
    """The old field after a newer schema has changed it. What Iceberg does not allow to change stays."""
    sources = (*(each for each in old.sources if each not in new.sources), *new.sources)
    return replace(old, sources=sources, type=_evolved_type(old, new, ids))


def _evolved_type(old: Field, new: Field, ids: Iterator[int]) -> ColumnType:
    before, after = old.type, new.type
    if isinstance(before, StructType) and isinstance(after, StructType):
        return StructType(tuple(evolved_fields(before.fields, after.fields, ids)))
    if old.inside and type(before) is type(after):
        return old.with_inside(
            tuple(evolved(*pair, ids) for pair in zip(old.inside, new.inside, strict=True))
        ).type
    return after if _widens(before, after) else before


def evolved_fields(old: Sequence[Field], new: Sequence[Field], ids: Iterator[int]) -> list[Field]:
    """Fields of a struct, or columns, after a newer schema: renamed and widened in place, new ones at the end."""
    result = list(old)
    matched = matches(old, new)
    for place, each in matched.items():
        result[place] = evolved(old[place], each, ids)
    # A rename may take the name of a field that this schema renames as well, so old names are freed first.
    for place, each in matched.items():
        others = [field.name for at, field in enumerate(result) if at not in matched or at < place]
        result[place] = replace(result[place], name=unique_name(each.name, others))
    for each in new:
        if not any(each is known for known in matched.values()):
            name = unique_name(each.name, [field.name for field in result])
            result.append(assigned(replace(each, name=name, sources=each.sources[-1:]), ids))
    return result


def matches(fields: Sequence[Field], of_schema: Sequence[Field]) -> dict[int, Field]:
    """Which of a schema's fields each of the table's fields is, by the place of the latter.

    The older of two fields chooses first, by its newest name: a schema may give a name that a field had before to a
    new one. Aliases come after names."""
    found: dict[int, Field] = {}
    names = {_names(each)[-1]: each for each in of_schema}
    aliases = {alias: each for each in of_schema for alias in _names(each)[:-1]}
    for known in (names, aliases):
        for place, field in enumerate(fields):
            for name in reversed(_names(field)) if place not in found else ():
                each = known.get(name)
                if each is not None and not any(each is taken for taken in found.values()):
                    found[place] = each
                    break
    return dict(sorted(found.items()))


def _names(field: Field) -> tuple[str, ...]:
    return field.sources or (field.name,)


def unique_name(name: str, taken: Sequence[str]) -> str:
    """The name, or with the first number behind it that makes it differ from the others; engines ignore case."""
    lowered = {each.lower() for each in taken}
    found, number = name, 2
    while found.lower() in lowered:
        found, number = f"{name}_{number}", number + 1
    return found


def _widens(before: ColumnType, after: ColumnType) -> bool:
    """Whether Iceberg allows to change a type so."""
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    if isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType):
        return (before.name, after.name) in _WIDER
    return False
