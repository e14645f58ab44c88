"""Bodies of writes: buffered records, as JSON or as one record batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from mainstem import limits
from mainstem.api.records import WriteResult
from mainstem.api.routes import POST_RAW, POST_RECORDS
from mainstem.client.transport import BATCHES, Transport, decoded
from mainstem.errors import InvalidInput, TooLarge
from mainstem.records.interpreted import build_interpreted

Headers = Sequence[tuple[str, bytes | None]]
HeadersInput = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
Node = str | list[str] | None

_BYTES = (bytes, bytearray, memoryview)
_encoder = msgspec.json.Encoder()


Serializer = Callable[[Any], bytes]


def serialized(value: Any, serializer: Serializer | None) -> Any:
    """The value as the serializer writes it; None stays a null."""
    return value if serializer is None or value is None else serializer(value)


class NewRecord(msgspec.Struct):
    """A record to write. Bytes stay unchanged, any other value becomes JSON."""

    value: Any
    key: str | bytes | None = None
    node: str | None = None
    meta: Any = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None  # None: that of its key
    delay_ms: int = 0
    ttl_ms: int = 0

    @property
    def needs_batch(self) -> bool:
        """Whether JSON cannot represent it."""
        return (
            self.value is None  # a null, not the text "null"
            or isinstance(self.value, _BYTES)
            or isinstance(self.key, bytes)
            or bool(self.headers)
            or self.timestamp_ms is not None
        )


def header_pairs(headers: HeadersInput) -> Headers:
    """Names and contents of headers; text is encoded as UTF-8. Raises InvalidInput."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: list[tuple[str, bytes | None]] = []
    for name, content in pairs:
        if not isinstance(name, str) or not (content is None or isinstance(content, str | bytes)):
            raise InvalidInput(
                f"a header has a name of text, and text, bytes or None, not {name!r}: {content!r}"
            )
        found.append((name, content.encode() if isinstance(content, str) else content))
    return found


class _JsonRecord(msgspec.Struct, omit_defaults=True):
    """A RecordBody whose data is a Python value."""

    data: Any  # no default, so that a null is written
    tag: str | None = None
    node: str | None = None
    meta: Any = None
    delay_ms: int = 0
    ttl_ms: int = 0


class JsonBody:
    """Records as the JSON of the HTTP door."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.parts: list[bytes] = []  # the JSON of each record

    def add(self, record: NewRecord) -> int:
        """Returns its size in bytes. Raises InvalidInput, TooLarge."""
        if not (record.key is None or isinstance(record.key, str)):
            raise InvalidInput(f"a key is text or bytes, not {type(record.key).__name__}")
        part = json_bytes(
            _JsonRecord(record.value, record.key, record.node, record.meta, record.delay_ms, record.ttl_ms)
        )
        if len(part) > limits.HTTP_RECORD_BYTES_MAX:
            raise TooLarge(
                f"a record has at most {limits.HTTP_RECORD_BYTES_MAX} bytes as JSON, not {len(part)}"
            )
        if record.key is not None and len(record.key.encode()) > limits.HTTP_TAG_BYTES_MAX:
            raise TooLarge(
                f"a text key has at most {limits.HTTP_TAG_BYTES_MAX} bytes; pass longer keys as bytes"
            )
        self.parts.append(part)
        self.count += 1
        self.bytes += len(part)
        return len(part)

    async def send(
        self,
        transport: Transport,
        topic: str,
        partition: int | None,
        key: str,
        *,
        create: bool | None = None,
        timeout_s: float | None = None,
    ) -> WriteResult:
        """Send exactly once: the idempotency key lets the server recognise retries."""
        options = b"" if create is None else b',"create":' + json_bytes(create)
        body = b'{"records":[%b],"idempotency_key":%b%b}' % (
            b",".join(self.parts),
            json_bytes(key),
            options,
        )
        answer = await transport.send(
            "POST",
            POST_RECORDS.url(topic),
            body,
            query={"partition": partition, "return_seqs": False},
            timeout_s=timeout_s,
        )
        return decoded(answer.body, WriteResult)


class BatchBody:
    """Records as one batch in their stored format."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self._records: list[tuple[bytes | None, bytes | None, Headers, int | None]] = []
        self._times = (0, 0)  # delay and time to live, of every record

    def add(self, record: NewRecord) -> int:
        """Returns its size in bytes. Raises InvalidInput."""
        value = _bytes(record.value)
        key = record.key.encode() if isinstance(record.key, str) else record.key
        if not (key is None or isinstance(key, bytes)):
            raise InvalidInput(f"a key is text or bytes, not {type(key).__name__}")
        headers = list(record.headers)
        if record.node is not None:
            headers.append(("node", record.node.encode()))
        if record.meta is not None:
            headers.append(("meta", json_bytes(record.meta)))
        size = 32 + len(value or b"") + len(key or b"")
        size += sum(16 + len(name) * 4 + len(content or b"") for name, content in headers)
        if self.count and (record.delay_ms, record.ttl_ms) != self._times:
            raise InvalidInput("records of one batch have the same delay_ms and ttl_ms")
        self._times = (record.delay_ms, record.ttl_ms)
        self._records.append((value, key, headers, record.timestamp_ms))
        self.count += 1
        self.bytes += size
        return size

    async def send(
        self,
        transport: Transport,
        topic: str,
        partition: int | None,
        key: str,
        *,
        create: bool | None = None,
        timeout_s: float | None = None,
    ) -> WriteResult:
        """Send exactly once: the idempotency key lets the server recognise retries."""
        answer = await transport.send(
            "POST",
            POST_RAW.url(topic),
            self._batch(),
            query={
                "partition": partition,
                "create": create,
                "delay_ms": self._times[0] or None,
                "ttl_ms": self._times[1] or None,
            },
            headers={"idempotency-key": key},
            content_type=BATCHES,
            timeout_s=timeout_s,
        )
        return decoded(answer.body, WriteResult)

    def _batch(self) -> bytes:
        values, keys, headers, times = zip(*self._records, strict=True)
        now = int(time.time() * 1000)
        return bytes(
            build_interpreted(
                values,
                keys=keys if any(key is not None for key in keys) else None,
                headers=headers if any(headers) else None,
                timestamps_ms=[now if given is None else given for given in times],
            )
        )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return bytes(value) if isinstance(value, _BYTES) else json_bytes(value)


def json_bytes(value: object) -> bytes:
    """Raises InvalidInput."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise InvalidInput(f"a value must be bytes or JSON-serialisable: {wrong}") from None
