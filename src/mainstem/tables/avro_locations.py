"""Other locations in the Avro files of Iceberg: manifest lists and manifests, every other byte of a record unchanged.

An Avro file is a header (magic, metadata with schema and codec, sync marker) and blocks: record count, size, records,
sync marker. Records have no lengths of their own, so the schema is walked to find the fields to change.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from mainstem.errors import InvalidInput

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_FIXED = {"boolean": 1, "float": 4, "double": 8}
_PATHS = ("manifest_path", "file_path", "referenced_data_file")
_LENGTH = "manifest_length"

NewLocation = Callable[[str], str]
LengthOf = Callable[[str], int]


def with_locations(content: bytes, new_location: NewLocation, length_of: LengthOf) -> bytes:
    """The file with other locations. `length_of` gives the length of a manifest, by its old location.

    Raises InvalidInput for a file that is not such a file."""
    try:
        return _Rewriter(content, new_location, length_of).run()
    except (IndexError, KeyError, ValueError, TypeError, zlib.error) as error:
        raise InvalidInput(f"not a manifest or manifest list: {error!r}") from None


class _Rewriter:
    def __init__(self, content: bytes, new_location: NewLocation, length_of: LengthOf) -> None:
        self._data = content
        self._at = 0
        self._out = bytearray()
        self._copied = 0  # bytes of `data` up to here are in `out`
        self._new_location = new_location
        self._length_of = length_of
        self._path = ""  # the location of the record, before it was changed
        self._named: dict[str, Any] = {}

    def run(self) -> bytes:
        if not self._data.startswith(MAGIC):
            raise ValueError("no Avro file")
        self._at = len(MAGIC)
        metadata = self._metadata()
        schema = msgspec.json.decode(metadata["avro.schema"])
        codec = metadata.get("avro.codec", b"null")
        if codec not in (b"null", b"deflate"):
            raise ValueError(f"codec {codec!r}")
        sync = self._data[self._at : self._at + _SYNC_BYTES]
        at = self._at + _SYNC_BYTES
        file, out = self._data, bytearray(self._data[:at])
        while at < len(file):
            self._data, self._at = file, at
            count, size = self._long(), self._long()
            block = file[self._at : self._at + size]
            at = self._at + size + _SYNC_BYTES
            content = self._block(
                schema, count, zlib.decompress(block, -15) if codec == b"deflate" else block
            )
            if codec == b"deflate":
                packer = zlib.compressobj(wbits=-15)
                content = packer.compress(content) + packer.flush()
            out += _encoded(count) + _encoded(len(content)) + content + sync
        return bytes(out)

    def _metadata(self) -> dict[str, bytes]:
        found = {}
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._bytes().decode()
                found[name] = self._bytes()
        return found

    def _block(self, schema: Any, count: int, content: bytes) -> bytes:
        self._data, self._at, self._copied, self._out = content, 0, 0, bytearray()
        for _ in range(count):
            self._walk(schema, "")
        self._out += content[self._copied :]
        return bytes(self._out)

    def _long(self) -> int:
        data, at, shift, value = self._data, self._at, 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        self._at = at
        return (value >> 1) ^ -(value & 1)

    def _bytes(self) -> bytes:
        size = self._long()
        self._at += size
        return self._data[self._at - size : self._at]

    def _walk(self, schema: Any, field: str) -> None:
        if isinstance(schema, list):
            self._walk(schema[self._long()], field)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            self._walk(kind, field)
        elif kind in ("int", "long", "enum"):
            self._whole_number(field)
        elif kind in ("string", "bytes"):
            self._text(field)
        elif kind in _FIXED:
            self._at += _FIXED[kind]
        elif kind == "fixed":
            self._named[schema.get("name", "")] = schema
            self._at += schema["size"]
        elif kind == "record":
            self._named[schema.get("name", "")] = schema
            for one in schema["fields"]:
                self._walk(one["type"], one["name"])
        elif kind in ("array", "map"):
            self._items(schema, kind)
        elif kind != "null":
            self._walk(self._named[kind], field)

    def _items(self, schema: Any, kind: str) -> None:
        while count := self._long():
            if count < 0:
                size = self._long()
                self._at += size  # no location is in an array or a map
                continue
            for _ in range(count):
                if kind == "map":
                    self._at += self._long()
                self._walk(schema["values" if kind == "map" else "items"], "")

    def _text(self, field: str) -> None:
        start = self._at
        if field not in _PATHS:
            size = self._long()
            self._at += size
            return
        location = self._bytes().decode()
        self._path = location
        changed = self._new_location(location).encode()
        self._replace(start, _encoded(len(changed)) + changed)

    def _whole_number(self, field: str) -> None:
        start = self._at
        self._long()
        if field == _LENGTH and self._new_location(self._path) != self._path:
            self._replace(start, _encoded(self._length_of(self._path)))

    def _replace(self, start: int, content: bytes) -> None:
        self._out += self._data[self._copied : start]
        self._out += content
        self._copied = self._at


def _encoded(value: int) -> bytes:
    """A long: zigzag, seven bits a byte, the lowest first."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
