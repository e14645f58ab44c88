"""`python -m tools.console_types`: write the console's TypeScript types from the structs of the HTTP contract."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType
from msgspec.structs import FieldInfo, fields

from mainstem.api.base import ErrorResponse
from mainstem.api.route import CATALOG
from mainstem.api.routes import ROUTES, structs_in

TARGET = Path(__file__).parents[1] / "console" / "src" / "types.ts"

_HEAD = """// Requests and responses of the server. Made from src/mainstem/api by `make reference`: do not edit.
"""

_PLAIN: dict[object, str] = {
    str: "string",
    bytes: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    Any: "unknown",
    msgspec.Raw: "unknown",
}


def console_types() -> str:
    """The whole file."""
    routes = [route for route in ROUTES if not route.path.startswith(CATALOG)]
    requests = structs_in(route.request for route in routes)
    kinds: list[Any] = [ErrorResponse, *(route.response for route in routes)]
    kinds += [kind for route in routes for kind in (*route.events.values(), *route.variants)]
    responses = structs_in(kinds)
    found = sorted(requests | responses, key=lambda kind: kind.__name__)
    return _HEAD + "".join(_declared(kind, kind not in responses) for kind in found)


def _declared(kind: type[msgspec.Struct], is_request: bool) -> str:
    hints = get_type_hints(kind, include_extras=True)
    if kind.__struct_config__.array_like:
        items = ", ".join(f"{field.name}: {_written(hints[field.name])}" for field in fields(kind))
        return f"\nexport type {kind.__name__} = [{items}];\n"
    optional = is_request or kind.__struct_config__.omit_defaults
    lines = [_member(field, hints[field.name], optional) for field in fields(kind)]
    return f"\nexport interface {kind.__name__} {{\n{''.join(lines)}}}\n"


def _member(field: FieldInfo, hint: Any, optional: bool) -> str:
    """One line. What the server leaves out when it has none is never null."""
    absent = UnsetType in get_args(hint) or (optional and not field.required)
    name = (
        field.encode_name
        if re.fullmatch(r"[A-Za-z_$][\w$]*", field.encode_name)
        else f'"{field.encode_name}"'
    )
    text = _written(hint, without_null=absent and field.default is None)
    return f"  {name}{'?' if absent else ''}: {text};\n"


def _written(hint: Any, *, without_null: bool = False) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, given = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _written(given[0], without_null=without_null)
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in given)
    if origin in (Union, types.UnionType):
        left_out = {UnsetType, type(None)} if without_null else {UnsetType}
        return " | ".join(dict.fromkeys(_written(one) for one in given if one not in left_out))
    if origin is dict:
        return f"Record<string, {_written(given[1])}>"
    if origin in (list, Sequence) or (origin is tuple and given[1:] == (...,)):
        item = _written(given[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin is tuple:
        return f"[{', '.join(map(_written, given))}]"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint.__name__
    raise TypeError(f"no TypeScript type for {hint!r}")


if __name__ == "__main__":
    TARGET.write_text(console_types(), encoding="utf-8")
