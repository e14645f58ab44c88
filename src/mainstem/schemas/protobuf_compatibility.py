"""Whether a Protobuf reader's file can read a writer's. Messages match by name, fields by number.

Fields and messages may be added and fields removed. A field keeps its number, its wire type and its place outside
or inside a oneof; a message stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2 as pb

_F = pb.FieldDescriptorProto
# Types whose values have the same form on the wire.
_SAME_WIRE = (
    {_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
)
_TEXT = (_F.TYPE_STRING, _F.TYPE_BYTES)


def reading_problems(
    reader: Sequence[pb.FileDescriptorProto], writer: Sequence[pb.FileDescriptorProto]
) -> list[str]:
    """Why the first file of `reader` cannot read what the first of `writer` wrote. The others are imported."""
    new, old = reader[0], writer[0]
    if new.package != old.package:
        return [f"the package changed from {old.package!r} to {new.package!r}"]
    comparison = _FileComparison(_messages(reader), _messages(writer))
    prefix = f".{old.package}" if old.package else ""
    for message in old.message_type:
        comparison.message(f"{prefix}.{message.name}")
    return comparison.found


def _messages(files: Sequence[pb.FileDescriptorProto]) -> dict[str, pb.DescriptorProto]:
    found: dict[str, pb.DescriptorProto] = {}

    def add(message: pb.DescriptorProto, prefix: str) -> None:
        name = f"{prefix}.{message.name}"
        found[name] = message
        for nested in message.nested_type:
            add(nested, name)

    for file in files:
        for message in file.message_type:
            add(message, f".{file.package}" if file.package else "")
    return found


class _FileComparison:
    def __init__(
        self, readers: dict[str, pb.DescriptorProto], writers: dict[str, pb.DescriptorProto]
    ) -> None:
        self.found: list[str] = []
        self._readers = readers
        self._writers = writers
        self._compared: set[str] = set()

    def message(self, name: str) -> None:
        if name in self._compared or name not in self._writers:
            return
        self._compared.add(name)
        old, new = self._writers[name], self._readers.get(name)
        if new is None:
            self.found.append(f"message {name[1:]!r} was removed")
            return
        before, after = ({field.number: field for field in one.field} for one in (old, new))
        for number, field in before.items():
            if number in after:
                self._field(name, field, after[number])
            elif field.label == _F.LABEL_REQUIRED:
                self.found.append(f"{_place(name, field)}, which is required, was removed")
            elif _in_oneof(field):
                self.found.append(f"{_place(name, field)} was removed from oneof {_oneof(old, field)!r}")
        for number, field in after.items():
            if number not in before and field.label == _F.LABEL_REQUIRED:
                self.found.append(f"{_place(name, field)} was added, and is required")
        self._oneofs(name, old, new, before, after)
        for nested in old.nested_type:
            if not nested.options.map_entry:
                self.message(f"{name}.{nested.name}")

    def _oneofs(
        self,
        name: str,
        old: pb.DescriptorProto,
        new: pb.DescriptorProto,
        before: dict[int, Any],
        after: dict[int, Any],
    ) -> None:
        existing = {oneof.name for oneof in old.oneof_decl}
        moved: dict[str, list[Any]] = {}
        for number, field in after.items():
            if number in before and _in_oneof(field) and not _in_oneof(before[number]):
                moved.setdefault(_oneof(new, field), []).append(field)
        for oneof, fields in moved.items():
            if oneof in existing:
                self.found.append(f"{_place(name, fields[0])} moved into the existing oneof {oneof!r}")
            elif len(fields) > 1:
                names = ", ".join(field.name for field in fields)
                self.found.append(
                    f"the fields {names} of message {name[1:]!r} moved into one oneof {oneof!r}"
                )

    def _field(self, message: str, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto) -> None:
        place = _place(message, new)
        if _F.LABEL_REQUIRED in (old.label, new.label) and old.label != new.label:
            self.found.append(
                f"{place} is {'now' if new.label == _F.LABEL_REQUIRED else 'no longer'} required"
            )
        repeated = old.label == _F.LABEL_REPEATED, new.label == _F.LABEL_REPEATED
        if old.type != new.type:
            if not any(old.type in types and new.type in types for types in _SAME_WIRE):
                was, now = (_type_name(one) for one in (old, new))
                self.found.append(f"{place} changed its type from {was} to {now}")
                return
        elif old.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP):
            self._nested(place, old, new)
        if repeated[0] != repeated[1] and not (old.type in _TEXT and new.type in _TEXT):
            was, now = ("repeated" if one else "single" for one in repeated)
            self.found.append(f"{place} was {was} and is now {now}")

    def _nested(self, place: str, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto) -> None:
        was, now = self._writers.get(old.type_name), self._readers.get(new.type_name)
        both_maps = was is not None and now is not None and was.options.map_entry and now.options.map_entry
        if both_maps and was is not None and now is not None:
            for before, after in zip(was.field, now.field, strict=True):
                self._field(old.type_name, before, after)
        elif old.type_name != new.type_name:
            self.found.append(f"{place} changed its type from {old.type_name[1:]} to {new.type_name[1:]}")
        else:
            self.message(old.type_name)


def _in_oneof(field: Any) -> bool:
    return bool(field.HasField("oneof_index") and not field.proto3_optional)


def _oneof(message: Any, field: Any) -> str:
    return str(message.oneof_decl[field.oneof_index].name)


def _place(message: str, field: Any) -> str:
    return f"field {field.name!r} ({field.number}) of message {message[1:]!r}"


def _type_name(field: Any) -> str:
    return str(field.type_name[1:]) or str(_F.Type.Name(field.type)).removeprefix("TYPE_").lower()
