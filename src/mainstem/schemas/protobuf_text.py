"""From descriptors to .proto text, the form in which the registry returns a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from mainstem.schemas.protobuf_descriptors import SCALARS

_F = pb.FieldDescriptorProto
_NAMES = {number: name for name, number in SCALARS.items()}
_LABELS = {_F.LABEL_OPTIONAL: "optional ", _F.LABEL_REQUIRED: "required ", _F.LABEL_REPEATED: "repeated "}
_FIELD_NUMBER_END, _ENUM_NUMBER_MAX = 536870912, 2147483647
_MESSAGE_SET_END = 2147483647


def text_of(file: pb.FileDescriptorProto) -> str:
    """The text of a file. Compiling it gives the descriptor again, unless that has custom options."""
    return "\n".join(_file(file)) + "\n"


def _file(file: pb.FileDescriptorProto) -> Iterator[str]:
    proto3 = file.syntax == "proto3"
    yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    if file.dependency:
        yield ""
    for index, name in enumerate(file.dependency):
        how = (
            "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
        )
        yield f'import {how}"{name}";'
    options = list(_options(file.options))
    if options:
        yield ""
    for option in options:
        yield f"option {option};"
    for message in file.message_type:
        yield ""
        yield from _message(message, proto3, "")
    for enum in file.enum_type:
        yield ""
        yield from _enum(enum, "")
    yield from _extensions(file.extension, file.message_type, proto3, "")
    for service in file.service:
        yield ""
        yield from _service(service)


def _message(message: pb.DescriptorProto, proto3: bool, indent: str, opening: str = "") -> Iterator[str]:
    yield f"{indent}{opening or f'message {message.name}'} {{"
    inner = indent + "  "
    for option in _options(message.options):
        yield f"{inner}option {option};"
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    groups = {
        field.type_name.rpartition(".")[2]
        for field in (*message.field, *message.extension)
        if field.type == _F.TYPE_GROUP
    }
    nested = {one.name: one for one in message.nested_type}
    shown: set[int] = set()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index in shown:
                continue
            shown.add(field.oneof_index)
            oneof = message.oneof_decl[field.oneof_index]
            yield f"{inner}oneof {oneof.name} {{"
            for option in _options(oneof.options):
                yield f"{inner}  option {option};"
            for member in message.field:
                if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                    yield from _field(member, nested, proto3, inner + "  ", label="")
            yield f"{inner}}}"
            continue
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type == _F.TYPE_MESSAGE else None
        if entry is not None and field.type_name.endswith(f".{message.name}.{entry.name}"):
            key, value = (_type(one) for one in entry.field)
            yield f"{inner}map<{key}, {value}> {field.name} = {field.number}{_field_options(field)};"
            continue
        plain = proto3 and field.label == _F.LABEL_OPTIONAL and not field.proto3_optional
        yield from _field(field, nested, proto3, inner, label="" if plain else _LABELS[field.label])
    for one in message.nested_type:
        if one.name not in entries and one.name not in groups:
            yield from _message(one, proto3, inner)
    for enum in message.enum_type:
        yield from _enum(enum, inner)
    for start, end in ((one.start, one.end) for one in message.extension_range):
        last = "max" if end in (_FIELD_NUMBER_END, _MESSAGE_SET_END) else str(end - 1)
        yield f"{inner}extensions {start}{'' if last == str(start) else f' to {last}'};"
    yield from _reserved(
        ((one.start, one.end - 1) for one in message.reserved_range),
        message.reserved_name,
        inner,
        _FIELD_NUMBER_END - 1,
    )
    yield from _extensions(message.extension, message.nested_type, proto3, inner)
    yield f"{indent}}}"


def _field(
    field: pb.FieldDescriptorProto,
    nested: dict[str, pb.DescriptorProto],
    proto3: bool,
    indent: str,
    label: str,
) -> Iterator[str]:
    if field.type == _F.TYPE_GROUP:
        group = nested[field.type_name.rpartition(".")[2]]
        yield from _message(group, proto3, indent, f"{label}group {group.name} = {field.number}")
        return
    yield f"{indent}{label}{_type(field)} {field.name} = {field.number}{_field_options(field)};"


def _type(field: pb.FieldDescriptorProto) -> str:
    return field.type_name or _NAMES[field.type]


def _field_options(field: pb.FieldDescriptorProto) -> str:
    options = []
    if field.HasField("default_value"):
        quoted = field.type in (_F.TYPE_STRING, _F.TYPE_BYTES)
        options.append(f"default = {_quoted(field.default_value) if quoted else field.default_value}")
    if field.HasField("json_name"):
        options.append(f"json_name = {_quoted(field.json_name)}")
    options += _options(field.options)
    return f" [{', '.join(options)}]" if options else ""


def _enum(enum: pb.EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for option in _options(enum.options):
        yield f"{indent}  option {option};"
    for value in enum.value:
        options = ", ".join(_options(value.options))
        yield f"{indent}  {value.name} = {value.number}{f' [{options}]' if options else ''};"
    ranges = ((one.start, one.end) for one in enum.reserved_range)
    yield from _reserved(ranges, enum.reserved_name, indent + "  ", _ENUM_NUMBER_MAX)
    yield f"{indent}}}"


def _reserved(
    ranges: Iterable[tuple[int, int]], names: Iterable[str], indent: str, largest: int
) -> Iterator[str]:
    numbers = [
        str(start) if start == end else f"{start} to {'max' if end == largest else end}"
        for start, end in ranges
    ]
    if numbers:
        yield f"{indent}reserved {', '.join(numbers)};"
    if names:
        yield f"{indent}reserved {', '.join(map(_quoted, names))};"


def _extensions(
    extensions: Iterable[pb.FieldDescriptorProto],
    messages: Iterable[pb.DescriptorProto],
    proto3: bool,
    indent: str,
) -> Iterator[str]:
    nested = {one.name: one for one in messages}
    for field in extensions:
        plain = proto3 and field.label == _F.LABEL_OPTIONAL and not field.proto3_optional
        yield f"{indent}extend {field.extendee} {{"
        yield from _field(field, nested, proto3, indent + "  ", label="" if plain else _LABELS[field.label])
        yield f"{indent}}}"


def _service(service: pb.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for option in _options(service.options):
        yield f"  option {option};"
    for method in service.method:
        takes = ("stream " if method.client_streaming else "") + method.input_type
        gives = ("stream " if method.server_streaming else "") + method.output_type
        options = list(_options(method.options))
        yield f"  rpc {method.name} ({takes}) returns ({gives}){' {' if options else ';'}"
        for option in options:
            yield f"    option {option};"
        if options:
            yield "  }"
    yield "}"


def _options(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            for one in value:
                name = ".".join(
                    f"({part.name_part})" if part.is_extension else part.name_part for part in one.name
                )
                yield f"{name} = {_uninterpreted(one)}"
        elif field.message_type is None:
            for one in value if field.is_repeated else (value,):
                yield f"{field.name} = {_value(field, one)}"


def _uninterpreted(option: Any) -> str:
    if option.HasField("string_value"):
        return _quoted(option.string_value.decode("utf-8", "replace"))
    if option.HasField("aggregate_value"):
        return f"{{ {option.aggregate_value} }}"
    for name in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(name):
            return str(getattr(option, name))
    return '""'


def _value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def default_json_name(name: str) -> str:
    """What protoc derives from the name of a field."""
    return re.sub(r"_+(.?)", lambda found: found.group(1).upper(), name)
