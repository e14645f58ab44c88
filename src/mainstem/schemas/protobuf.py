"""Protobuf schemas, as .proto text or as a serialised FileDescriptorProto in base64.

Both forms of a file are the same schema. The text is kept; a descriptor is kept as text too, unless it has custom
options that text cannot show without their definitions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from mainstem.errors import MalformedSchema, UndecodablePayload
from mainstem.schemas.protobuf_compatibility import reading_problems
from mainstem.schemas.protobuf_descriptors import Files, closure, compile_text
from mainstem.schemas.protobuf_text import default_json_name, text_of
from mainstem.schemas.schema import (
    PROTOBUF,
    ParsedSchema,
    ReferencedSchema,
)

_NAME = "default.proto"  # of a schema as a file; references have the names that imports use
_INDEXES_MAX = 100


class ProtobufSchema(ParsedSchema):
    kind = PROTOBUF

    def __init__(self, text: str, references: Sequence[ReferencedSchema] = ()) -> None:
        known: Files = {}
        for reference in references:
            known[reference.name] = _file_of(reference.name, reference.text, known)
        self._given = text
        self.file = _file_of(_NAME, text, known)
        self.files = closure(self.file, known)
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in self.files.values():
                pool.Add(file)
            pool.Add(self.file)
            self._descriptor = pool.FindFileByName(_NAME)
        except (TypeError, KeyError, ValueError) as wrong:
            raise MalformedSchema(f"Invalid schema: {' '.join(str(wrong).split())[:500]}") from None
        self._known = known
        self._messages: dict[tuple[int, ...], Any] = {}  # by path

    @cached_property
    def text(self) -> str:
        printed = text_of(self.file)
        try:
            same = _file_of(_NAME, printed, self._known) == self.file
        except MalformedSchema:
            same = False
        return printed if same else self._given

    def normal_text(self) -> str:
        normal = pb.FileDescriptorProto()
        normal.CopyFrom(self.file)
        public = {normal.dependency[index] for index in normal.public_dependency}
        names = sorted(normal.dependency)
        del normal.dependency[:], normal.public_dependency[:], normal.weak_dependency[:]
        normal.dependency.extend(names)
        normal.public_dependency.extend(index for index, name in enumerate(names) if name in public)
        for message in normal.message_type:
            _sort_fields(message)
        return text_of(normal)

    def formatted(self, format: str) -> str:
        """`serialized`: the descriptor in base64."""
        if format != "serialized":
            return self.text
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def differences(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        return reading_problems((self.file, *self.files.values()), (writer.file, *writer.files.values()))

    def message(self, path: Iterable[int]) -> Any:
        """The descriptor of a message by its index, and the indexes of nested messages. Raises UndecodablePayload."""
        path = tuple(path)
        if path in self._messages:
            return self._messages[path]
        try:
            first, *rest = path
            name = self.file.message_type[first].name
            found = self._descriptor.message_types_by_name[name]
            within = self.file.message_type[first]
            for index in rest:
                within = within.nested_type[index]
                found = found.nested_types_by_name[within.name]
        except (IndexError, ValueError, KeyError):
            raise UndecodablePayload("the message index names no message of the schema") from None
        self._messages[path] = found
        return found

    def message_named(self, full_name: str) -> Any:
        """The descriptor of a message of this file. Raises UndecodablePayload."""
        try:
            found = self._descriptor.pool.FindMessageTypeByName(full_name)
        except KeyError:
            found = None
        if found is None or found.file.name != _NAME:
            raise UndecodablePayload(f"the schema has no message {full_name[:64]!r}")
        return found

    def decode(self, payload: bytes) -> Any:
        indexes, body = split_indexes(payload)
        return json_format.MessageToDict(self.decode_message(indexes, body), preserving_proto_field_name=True)

    def decode_message(self, indexes: Sequence[int], body: bytes) -> Message:
        """The message that a payload holds. Raises UndecodablePayload."""
        descriptor = self.message(indexes)
        message: Message = _message_class(descriptor)()
        try:
            message.ParseFromString(body)
        except (DecodeError, RecursionError) as wrong:
            raise UndecodablePayload(
                f"the bytes do not fit message {descriptor.full_name!r}: {wrong}"
            ) from None
        missing = message.FindInitializationErrors()
        if missing:
            raise UndecodablePayload(f"field {missing[0]!r} of message {descriptor.full_name!r} is required")
        return message

    def encode(self, value: Any) -> bytes:
        """Encode a value as the first message of the file."""
        descriptor = self.message((0,))
        try:
            message = json_format.ParseDict(value, message_factory.GetMessageClass(descriptor)())
            body: bytes = message.SerializeToString()
        except (json_format.ParseError, EncodeError, TypeError, ValueError) as wrong:
            raise UndecodablePayload(
                f"the value does not fit message {descriptor.full_name!r}: {wrong}"
            ) from None
        return b"\0" + body


_message_class = lru_cache(1_024)(message_factory.GetMessageClass)


def _sort_fields(message: pb.DescriptorProto) -> None:
    ordered = sorted(message.field, key=lambda field: field.number)
    del message.field[:]
    message.field.extend(ordered)
    for nested in message.nested_type:
        _sort_fields(nested)


def _file_of(name: str, text: str, known: Files) -> pb.FileDescriptorProto:
    """The file of a text or of a descriptor in base64, without what does not belong to its meaning."""
    file = _serialised(text)
    if file is None:
        file = compile_text(name, text, known)
    file.name = name
    file.ClearField("source_code_info")
    if file.syntax == "proto2":
        file.ClearField("syntax")
    for message in file.message_type:
        _clear_derived(message)
    for extension in file.extension:
        extension.ClearField("json_name")
    return file


def _clear_derived(message: pb.DescriptorProto) -> None:
    for field in message.field:
        if field.json_name == default_json_name(field.name):
            field.ClearField("json_name")
    for extension in message.extension:
        extension.ClearField("json_name")
    for nested in message.nested_type:
        _clear_derived(nested)


def _serialised(text: str) -> pb.FileDescriptorProto | None:
    try:
        file = pb.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.dependency or file.extension else None


def split_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The message indexes at the start of a payload, as zigzag varints, and the rest. Raises UndecodablePayload."""
    count, at = _varint(payload, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise UndecodablePayload(f"the payload has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return tuple(indexes) or (0,), payload[at:]


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(payload) or shift > 63:
            raise UndecodablePayload("the payload has no message indexes")
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
