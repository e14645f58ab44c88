"""Records as text: the JSON lines of `produce` and `consume`, and the formats of `consume`.

The JSON object of a record, one per line:

| field                     | meaning                                                            |
|---------------------------|--------------------------------------------------------------------|
| topic, partition, offset  | position; ignored in input                                         |
| timestamp_ms              | timestamp of the record                                            |
| key, value                | text or null; in input a value may be any JSON and is kept as JSON |
| key_base64, value_base64  | replace key and value for bytes that are not UTF-8                 |
| headers                   | list of {"key", "value" or "value_base64"}; absent if empty        |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from mainstem.errors import InvalidInput

if TYPE_CHECKING:
    from mainstem.cli.store import ReadRecord

Formatter = Callable[[str, int, "ReadRecord"], bytes]


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        """An upper bound of its size in a batch."""
        headers = sum(len(key) * 4 + len(value or b"") + 16 for key, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers + 32


class _HeaderLine(msgspec.Struct):
    key: str
    value: str | None = None
    value_base64: str | None = None


class _RecordLine(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw()
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: list[_HeaderLine] = []
    timestamp_ms: int | None = None


_decoder = msgspec.json.Decoder(_RecordLine)


def from_json(line: bytes) -> InputRecord:
    """Parse a line. Raises InvalidInput."""
    try:
        found = _decoder.decode(line)
        raw = bytes(found.value)
        if not raw and found.value_base64 is None:
            raise InvalidInput("a record needs a value or a value_base64; null is a value")
        value = (
            None
            if raw == b"null"
            else msgspec.json.decode(raw, type=str).encode()
            if raw[:1] == b'"'
            else raw
        )
        return InputRecord(
            value=_unpacked(found.value_base64) if found.value_base64 is not None else value,
            key=_bytes(found.key, found.key_base64),
            headers=tuple(
                (header.key, _bytes(header.value, header.value_base64)) for header in found.headers
            ),
            timestamp_ms=found.timestamp_ms,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error) as wrong:
        raise InvalidInput(f"not a valid JSON record: {wrong}") from None


def to_json(topic: str, partition: int, record: ReadRecord) -> bytes:
    line: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
    }
    if record.headers:
        line["headers"] = [{"key": key, **_text("value", value)} for key, value in record.headers]
    return msgspec.json.encode(line) + b"\n"


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def _bytes(text: str | None, packed: str | None) -> bytes | None:
    if packed is not None:
        return _unpacked(packed)
    return None if text is None else text.encode()


def _unpacked(packed: str) -> bytes:
    return base64.b64decode(packed, validate=True)


_FIELDS: dict[str, Formatter] = {
    "t": lambda topic, _, __: topic.encode(),
    "p": lambda _, partition, __: b"%d" % partition,
    "o": lambda _, __, record: b"%d" % record.offset,
    "k": lambda _, __, record: record.key or b"",
    "s": lambda _, __, record: record.value or b"",
    "K": lambda _, __, record: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda _, __, record: b"%d" % (-1 if record.value is None else len(record.value)),
    "R": lambda _, __, record: (-1 if record.value is None else len(record.value)).to_bytes(
        4, "big", signed=True
    ),
    "T": lambda _, __, record: b"%d" % record.timestamp_ms,
    "h": lambda _, __, record: b",".join(
        b"%b=%b" % (key.encode(), value or b"") for key, value in record.headers
    ),
    "%": lambda _, __, ___: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def formatter(text: str) -> Formatter:
    """Compile a format: %t topic, %p partition, %o offset, %k key, %s value, %T time, %h headers, %%, \\n …

    Raises ValueError with a message that ends a sentence about the format."""
    parts: list[Formatter] = []
    signs = iter(text)
    for sign in signs:
        if sign == "%":
            field = next(signs, "")
            if field not in _FIELDS:
                raise ValueError(f"supports %{', %'.join(_FIELDS)}; not %{field}")
            parts.append(_FIELDS[field])
        elif sign == "\\":
            escape = next(signs, "")
            if escape == "x":
                parts.append(_literal(_hex(next(signs, "") + next(signs, ""))))
                continue
            if escape not in _ESCAPES:
                known = ", ".join("\\" + sign for sign in _ESCAPES)
                raise ValueError(f"supports {known}; not \\{escape}")
            parts.append(_literal(_ESCAPES[escape]))
        else:
            parts.append(_literal(sign.encode()))
    return lambda topic, partition, record: b"".join([part(topic, partition, record) for part in parts])


def _hex(digits: str) -> bytes:
    try:
        return bytes([int(digits, 16)])
    except ValueError:
        raise ValueError(f"takes two hexadecimal digits after \\x, not {digits!r}") from None


def _literal(data: bytes) -> Formatter:
    return lambda _, __, ___: data
