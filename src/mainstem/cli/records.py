"""Records as text: the JSON line both `produce` and `consume` speak, and `consume`'s formats.

The JSON object of a record, one a line:

| field                     | meaning                                                            |
|---------------------------|--------------------------------------------------------------------|
| topic, partition, offset  | where it is; ignored on the way in                                 |
| timestamp_ms              | record time                                                        |
| key, value                | text, or null; on the way in a value may be any JSON and stays so  |
| key_base64, value_base64  | instead of these, for bytes that are not UTF-8                     |
| headers                   | list of {"key", "value" or "value_base64"}; left out if empty      |
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
    """A record to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        """Its bytes, and no less than what the batch adds to them."""
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
    """Raises InvalidInput."""
    try:
        found = _decoder.decode(line)
        raw = bytes(found.value)
        if not raw and found.value_base64 is None:
            raise InvalidInput("a record needs a value or a value_base64; null is a value, too")
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
        raise InvalidInput(f"not a record in JSON: {wrong}") from None


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
    "T": lambda _, __, record: b"%d" % record.timestamp_ms,
    "h": lambda _, __, record: b",".join(
        b"%b=%b" % (key.encode(), value or b"") for key, value in record.headers
    ),
    "%": lambda _, __, ___: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def formatter(text: str) -> Formatter:
    """Compile a format: %t topic, %p partition, %o offset, %k key, %s value, %T time, %h headers, %%, \\n …

    Raises ValueError with what is wrong, as the end of a sentence."""
    parts: list[Formatter] = []
    signs = iter(text)
    for sign in signs:
        if sign == "%":
            field = next(signs, "")
            if field not in _FIELDS:
                raise ValueError(f"knows %{', %'.join(_FIELDS)}; not %{field}")
            parts.append(_FIELDS[field])
        elif sign == "\\":
            escape = next(signs, "")
            if escape not in _ESCAPES:
                known = ", ".join("\\" + sign for sign in _ESCAPES)
                raise ValueError(f"knows {known}; not \\{escape}")
            parts.append(_literal(_ESCAPES[escape]))
        else:
            parts.append(_literal(sign.encode()))
    return lambda topic, partition, record: b"".join([part(topic, partition, record) for part in parts])


def _literal(data: bytes) -> Formatter:
    return lambda _, __, ___: data
