"""From .proto text to descriptors: what protoc does. proto-schema-parser reads the text; names are resolved here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from mainstem.errors import MalformedSchema

_F = pb.FieldDescriptorProto
SCALARS = {
    "double": _F.TYPE_DOUBLE,
    "float": _F.TYPE_FLOAT,
    "int64": _F.TYPE_INT64,
    "uint64": _F.TYPE_UINT64,
    "int32": _F.TYPE_INT32,
    "fixed64": _F.TYPE_FIXED64,
    "fixed32": _F.TYPE_FIXED32,
    "bool": _F.TYPE_BOOL,
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
    "uint32": _F.TYPE_UINT32,
    "sfixed32": _F.TYPE_SFIXED32,
    "sfixed64": _F.TYPE_SFIXED64,
    "sint32": _F.TYPE_SINT32,
    "sint64": _F.TYPE_SINT64,
}
_LABELS = {
    ast.FieldCardinality.OPTIONAL: _F.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: _F.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: _F.LABEL_REPEATED,
}
_FIELD_NUMBER_END = 536870912  # past the last one
_ENUM_NUMBER_MAX = 2147483647
_ENUM, _MESSAGE = "enum", "message"

# Files that any schema may import without a reference, in addition to those of the protobuf library.
_CONFLUENT_FILES = {
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "google/type/date.proto": """
syntax = "proto3";
package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
""",
    "google/type/timeofday.proto": """
syntax = "proto3";
package google.type;
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
""",
}
_LIBRARY = (
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)


@cache
def well_known(name: str) -> pb.FileDescriptorProto | None:
    """A file that needs no reference."""
    if name in _CONFLUENT_FILES:
        return compile_text(name, _CONFLUENT_FILES[name], {})
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in _LIBRARY or f"google/protobuf/{stem}.proto" != name:
        return None
    __import__(f"google.protobuf.{stem}_pb2")
    found = pb.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(found)
    return found


Files = dict[str, pb.FileDescriptorProto]


def closure(file: pb.FileDescriptorProto, known: Files) -> Files:
    """The files that a file needs, each after those it needs itself. Raises MalformedSchema."""
    found: Files = {}

    def add(one: pb.FileDescriptorProto, above: tuple[str, ...]) -> None:
        for name in one.dependency:
            if name in found:
                continue
            if name in above:
                raise MalformedSchema(f"Invalid schema: {name!r} imports itself")
            needed = known.get(name) or well_known(name)
            if needed is None:
                raise MalformedSchema(f"Invalid schema: nothing is known as {name!r}, which is imported")
            add(needed, (*above, name))
            found[name] = needed

    add(file, ())
    return found


def compile_text(name: str, text: str, known: Files) -> pb.FileDescriptorProto:
    """The descriptor of a .proto text. `known` are the files that it may import. Raises MalformedSchema."""
    try:
        tree = Parser(setup_lexer=_strict, setup_parser=_strict).parse(text)
    except Exception as wrong:  # noqa: BLE001 - the parser's errors have no class of their own
        raise MalformedSchema(f"Invalid schema: {' '.join(str(wrong).split())[:500]}") from None
    try:
        file = _Compiler(name, tree).file
        _Names(file, closure(file, known)).resolve()
    except (ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise MalformedSchema(f"Invalid schema: {wrong}") from None
    return file


class _SyntaxErrors(ErrorListener):  # type: ignore[misc]
    def syntaxError(
        self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any
    ) -> None:
        raise ValueError(f"line {line}:{column} {message}")


def _strict(recognizer: Any) -> None:
    """Stop at the first syntax error: by default the parser prints it and goes on."""
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_SyntaxErrors())


class _Compiler:
    """Builds the descriptor; types keep the names that the text uses."""

    def __init__(self, name: str, tree: ast.File) -> None:
        self.file = file = pb.FileDescriptorProto(name=name)
        if tree.edition is not None:
            raise ValueError("editions are not supported: use proto2 or proto3")
        syntax = str(tree.syntax or "proto2").strip("\"'")
        if syntax not in ("proto2", "proto3"):
            raise ValueError(f"unknown syntax {syntax!r}")
        self._proto3 = syntax == "proto3"
        if self._proto3:
            file.syntax = syntax
        if not tree.file_elements:
            raise ValueError("the text defines nothing")
        for one in tree.file_elements:
            if isinstance(one, ast.Package):
                file.package = one.name
            elif isinstance(one, ast.Import):
                if one.public:
                    file.public_dependency.append(len(file.dependency))
                if one.weak:
                    file.weak_dependency.append(len(file.dependency))
                file.dependency.append(one.name.strip("\"'"))
            elif isinstance(one, ast.Option):
                set_option(file.options, one.name, one.value)
            elif isinstance(one, ast.Message):
                self._message(file.message_type.add(), one.name, one.elements)
            elif isinstance(one, ast.Enum):
                self._enum(file.enum_type.add(), one)
            elif isinstance(one, ast.Extension):
                self._extension(one, file.extension, file.message_type)
            elif isinstance(one, ast.Service):
                self._service(file.service.add(), one)

    def _message(self, message: pb.DescriptorProto, name: str, elements: Iterable[Any]) -> None:
        message.name = name
        optional: list[pb.FieldDescriptorProto] = []
        for one in elements:
            if isinstance(one, ast.Field):
                field = message.field.add()
                self._field(field, one)
                if self._proto3 and one.cardinality is ast.FieldCardinality.OPTIONAL:
                    optional.append(field)
            elif isinstance(one, ast.MapField):
                self._map(message, one)
            elif isinstance(one, ast.Group):
                self._group(message.field.add(), message.nested_type, one)
            elif isinstance(one, ast.OneOf):
                index = len(message.oneof_decl)
                oneof = message.oneof_decl.add(name=one.name)
                for member in one.elements:
                    if isinstance(member, ast.Option):
                        set_option(oneof.options, member.name, member.value)
                    elif isinstance(member, ast.Field | ast.Group):
                        field = message.field.add(oneof_index=index)
                        if isinstance(member, ast.Field):
                            self._field(field, member)
                        else:
                            self._group(field, message.nested_type, member)
            elif isinstance(one, ast.Option):
                set_option(message.options, one.name, one.value)
            elif isinstance(one, ast.ExtensionRange):
                for start, end in _ranges(one.ranges, _FIELD_NUMBER_END - 1):
                    message.extension_range.add(start=start, end=end + 1)
            elif isinstance(one, ast.Reserved):
                for start, end in _ranges(one.ranges, _FIELD_NUMBER_END - 1):
                    message.reserved_range.add(start=start, end=end + 1)
                message.reserved_name.extend(text.strip("\"'") for text in one.names)
            elif isinstance(one, ast.Message):
                self._message(message.nested_type.add(), one.name, one.elements)
            elif isinstance(one, ast.Enum):
                self._enum(message.enum_type.add(), one)
            elif isinstance(one, ast.Extension):
                self._extension(one, message.extension, message.nested_type)
        for field in optional:  # protoc gives each a oneof of its own, after the others
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _field(self, field: pb.FieldDescriptorProto, given: ast.Field) -> None:
        field.name, field.number = given.name, int(given.number)
        field.label = _LABELS[given.cardinality or ast.FieldCardinality.OPTIONAL]
        _set_type(field, given.type)
        _field_options(field, given.options)

    def _group(self, field: pb.FieldDescriptorProto, nested: Any, given: ast.Group) -> None:
        field.name, field.number = given.name.lower(), int(given.number)
        field.label = _LABELS[given.cardinality or ast.FieldCardinality.OPTIONAL]
        field.type, field.type_name = _F.TYPE_GROUP, given.name
        self._message(nested.add(), given.name, given.elements)

    def _map(self, message: pb.DescriptorProto, given: ast.MapField) -> None:
        entry = "".join(part[:1].upper() + part[1:] for part in given.name.split("_")) + "Entry"
        field = message.field.add(
            name=given.name,
            number=int(given.number),
            label=_F.LABEL_REPEATED,
            type=_F.TYPE_MESSAGE,
            type_name=entry,
        )
        _field_options(field, given.options)
        nested = message.nested_type.add(name=entry)
        nested.options.map_entry = True
        for number, (name, kind) in enumerate((("key", given.key_type), ("value", given.value_type)), 1):
            inner = nested.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
            _set_type(inner, kind)

    def _enum(self, enum: pb.EnumDescriptorProto, given: ast.Enum) -> None:
        enum.name = given.name
        for one in given.elements:
            if isinstance(one, ast.EnumValue):
                value = enum.value.add(name=one.name, number=int(one.number))
                for option in one.options:
                    set_option(value.options, option.name, option.value)
            elif isinstance(one, ast.Option):
                set_option(enum.options, one.name, one.value)
            elif isinstance(one, ast.EnumReserved):
                for start, end in _ranges(one.ranges, _ENUM_NUMBER_MAX):
                    enum.reserved_range.add(start=start, end=end)
                enum.reserved_name.extend(text.strip("\"'") for text in one.names)

    def _extension(self, given: ast.Extension, extensions: Any, nested: Any) -> None:
        for one in given.elements:
            if isinstance(one, ast.Field | ast.Group):
                field = extensions.add(extendee=given.typeName)
                if isinstance(one, ast.Field):
                    self._field(field, one)
                    if self._proto3 and one.cardinality is ast.FieldCardinality.OPTIONAL:
                        field.proto3_optional = True
                else:
                    self._group(field, nested, one)

    def _service(self, service: pb.ServiceDescriptorProto, given: ast.Service) -> None:
        service.name = given.name
        for one in given.elements:
            if isinstance(one, ast.Option):
                set_option(service.options, one.name, one.value)
            elif isinstance(one, ast.Method):
                method = service.method.add(
                    name=one.name, input_type=one.input_type.type, output_type=one.output_type.type
                )
                if one.input_type.stream:
                    method.client_streaming = True
                if one.output_type.stream:
                    method.server_streaming = True
                for option in one.elements:
                    if isinstance(option, ast.Option):
                        set_option(method.options, option.name, option.value)


def _set_type(field: pb.FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _field_options(field: pb.FieldDescriptorProto, options: Iterable[ast.Option]) -> None:
    for option in options:
        if option.name == "default":
            field.default_value = _default(field, option.value)
        elif option.name == "json_name":
            field.json_name = str(option.value)
        else:
            set_option(field.options, option.name, option.value)


def _default(field: pb.FieldDescriptorProto, value: Any) -> str:
    if isinstance(value, ast.Identifier):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if field.type in (_F.TYPE_DOUBLE, _F.TYPE_FLOAT) and isinstance(value, int | float):
        number = float(value)
        return str(int(number)) if math.isfinite(number) and number == int(number) else str(number)
    return str(value)


def _ranges(texts: Iterable[str], largest: int) -> Iterator[tuple[int, int]]:
    for text in texts:
        start, _, end = text.partition("to")
        first = int(start)
        yield first, largest if end.strip() == "max" else int(end) if end.strip() else first


def set_option(options: Any, name: str, value: Any) -> None:
    """Set a known option; keep any other as it is written."""
    fields = options.DESCRIPTOR.fields_by_name
    if name in fields and not isinstance(value, ast.MessageLiteral | list):
        field = fields[name]
        if field.enum_type is not None:
            value = field.enum_type.values_by_name[value.name].number
        elif isinstance(value, ast.Identifier):
            value = {"true": True, "false": False}.get(value.name, value.name)
        if field.is_repeated:
            getattr(options, name).append(value)
        else:
            setattr(options, name, value)
        return
    other = options.uninterpreted_option.add()
    for part in name.replace("(", "\0(").replace(")", ")\0").split("\0"):
        part = part.strip(".")
        if part:
            custom = part.startswith("(")
            other.name.add(name_part=part.strip("()"), is_extension=custom)
    if isinstance(value, bool):
        other.identifier_value = "true" if value else "false"
    elif isinstance(value, ast.Identifier):
        other.identifier_value = value.name
    elif isinstance(value, int):
        if value >= 0:
            other.positive_int_value = value
        else:
            other.negative_int_value = value
    elif isinstance(value, float):
        other.double_value = value
    elif isinstance(value, str):
        other.string_value = value.encode()
    else:
        other.aggregate_value = _aggregate(value)


def _aggregate(value: Any) -> str:
    if isinstance(value, ast.MessageLiteral):
        return " ".join(
            f"{field.name}: {_literal(field.value)}"
            for field in value.elements
            if isinstance(field, ast.MessageLiteralField)
        )
    return _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, ast.MessageLiteral):
        return f"{{ {_aggregate(value)} }}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, ast.Identifier):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value)


class _Names:
    """Gives every type its full name, as protoc resolves them: from the innermost scope outwards."""

    def __init__(self, file: pb.FileDescriptorProto, files: Files) -> None:
        self._file = file
        self._kinds: dict[str, str] = {}
        for one in (*files.values(), file):
            prefix = f".{one.package}" if one.package else ""
            for enum in one.enum_type:
                self._kinds[f"{prefix}.{enum.name}"] = _ENUM
            for message in one.message_type:
                self._collect(message, prefix)
            parts = one.package.split(".") if one.package else []
            for length in range(1, len(parts) + 1):
                self._kinds.setdefault("." + ".".join(parts[:length]), "package")

    def _collect(self, message: pb.DescriptorProto, prefix: str) -> None:
        name = f"{prefix}.{message.name}"
        self._kinds[name] = _MESSAGE
        for enum in message.enum_type:
            self._kinds[f"{name}.{enum.name}"] = _ENUM
        for nested in message.nested_type:
            self._collect(nested, name)

    def resolve(self) -> None:
        scope = f".{self._file.package}" if self._file.package else ""
        for message in self._file.message_type:
            self._message(message, scope)
        for extension in self._file.extension:
            self._field(extension, scope)
        for service in self._file.service:
            for method in service.method:
                method.input_type = self._full(method.input_type, scope)
                method.output_type = self._full(method.output_type, scope)

    def _message(self, message: pb.DescriptorProto, scope: str) -> None:
        scope = f"{scope}.{message.name}"
        for field in (*message.field, *message.extension):
            self._field(field, scope)
        for nested in message.nested_type:
            self._message(nested, scope)

    def _field(self, field: pb.FieldDescriptorProto, scope: str) -> None:
        if field.extendee:
            field.extendee = self._full(field.extendee, scope)
        if field.type_name:
            field.type_name = self._full(field.type_name, scope)
            if field.type != _F.TYPE_GROUP:
                is_enum = self._kinds[field.type_name] == _ENUM
                field.type = _F.TYPE_ENUM if is_enum else _F.TYPE_MESSAGE

    def _full(self, name: str, scope: str) -> str:
        if name.startswith("."):
            if self._kinds.get(name) in (_ENUM, _MESSAGE):
                return name
            raise ValueError(f"{name[1:]!r} is not defined")
        first = name.partition(".")[0]
        while True:
            if f"{scope}.{first}" in self._kinds and self._kinds.get(f"{scope}.{name}") in (_ENUM, _MESSAGE):
                return f"{scope}.{name}"
            if not scope:
                raise ValueError(f"{name!r} is not defined")
            scope = scope.rpartition(".")[0]
