"""Messages between the broker and a SQL worker: frames of a length and MessagePack, over pipes."""

from __future__ import annotations

import struct
from typing import BinaryIO, Literal

import msgspec

from mainstem.api.lake import Sources

LENGTH = struct.Struct(">I")

SqlFormat = Literal["json", "arrow"]


class SqlTableName(msgspec.Struct, frozen=True, array_like=True):
    """A table as a query writes it; empty parts are absent."""

    catalog: str
    schema: str
    name: str


class SqlPartition(msgspec.Struct, frozen=True):
    partition: int
    sources: list[Sources]
    batches: list[bytes]  # stamped record batches that only the broker has


class SqlTable(msgspec.Struct, frozen=True):
    names: list[SqlTableName]  # all the spellings of it in the query
    topic: str
    topic_id: bytes
    columns: str  # JSON of the declared columns; empty: none
    partitions: list[SqlPartition]


class ParseQuery(msgspec.Struct, frozen=True, tag=1):
    query: str


class RunQuery(msgspec.Struct, frozen=True, tag=2):
    query: str
    tables: list[SqlTable]
    rows_max: int
    format: SqlFormat


class Prepare(msgspec.Struct, frozen=True, tag=6):
    """Load what every query needs, before the first one comes."""


class Prepared(msgspec.Struct, frozen=True, tag=7):
    pass


class QueryParsed(msgspec.Struct, frozen=True, tag=3):
    tables: list[SqlTableName]
    defined: list[str]  # by the query itself, in WITH


class QueryDone(msgspec.Struct, frozen=True, tag=4):
    body: bytes
    rows: int
    truncated: bool


class QueryFailed(msgspec.Struct, frozen=True, tag=5):
    kind: Literal["invalid", "too_large", "missing", "failed"]
    message: str


Request = ParseQuery | RunQuery | Prepare
Answer = QueryParsed | QueryDone | QueryFailed | Prepared


class SqlReply(msgspec.Struct, frozen=True, array_like=True):
    answer: Answer
    last: bool  # the worker ends now


requests = msgspec.msgpack.Decoder(Request)
replies = msgspec.msgpack.Decoder(SqlReply)


def framed(message: Request | SqlReply) -> bytes:
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end."""
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None
