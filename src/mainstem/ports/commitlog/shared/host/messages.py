"""The protocol of the writer's Unix socket. Little-endian; both ends run the same version, because they run together.

A connection starts with `HELLO` and a descriptor of the follower's payload memory (SCM_RIGHTS). After that both sides
send frames:

| field  | type | meaning                                                     |
|--------|------|-------------------------------------------------------------|
| length | u4   | bytes of the body                                           |
| kind   | u1   | `Kind`                                                      |
| id     | u8   | of the request; an answer repeats it; 0: nobody asked       |
| body   |      | by kind                                                     |

| kind    | from     | body                                                                              |
|---------|----------|-----------------------------------------------------------------------------------|
| APPEND  | follower | `APPEND`, the entry, and the payload unless it is in the payload memory           |
| OBJECTS | follower | –                                                                                 |
| ROLL    | follower | –                                                                                 |
| SEAL    | follower | object u8, index                                                                  |
| DROP    | follower | object u8                                                                         |
| WELCOME | writer   | log id s16, end u8, segments: the first frame of a connection                     |
| COMMITS | writer   | for each commit `COMMIT` and the entry: every commit from the welcome's end on    |
| WRITTEN | writer   | `WRITTEN`: the commit is durable; its COMMITS came before                         |
| SEGMENTS| writer   | segments: for each `SEGMENT`                                                      |
| DONE    | writer   | –                                                                                 |
| FAILED  | writer   | name of an error in errors.py, 0, its text: nothing was written, or as it says    |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from mainstem import errors
from mainstem.errors import MainstemError, StorageError
from mainstem.ports.commitlog.local.segments import Segment
from mainstem.ports.commitlog.port import Committed, Placement

FRAME = struct.Struct("<IBQ")
APPEND = struct.Struct(
    "<IIIB"
)  # bytes of the entry and of the payload, CRC32C of the payload, IN_MEMORY or not
COMMIT = struct.Struct("<QQQII")  # position, object, start; bytes of the payload and of the entry
WRITTEN = struct.Struct("<QQQ")  # position, object, start
SEGMENT = struct.Struct("<QQQQQB")  # number, first, end, data_end, size_bytes, sealed
WELCOME = struct.Struct("<16sQ")
NUMBER = struct.Struct("<Q")
HELLO = struct.Struct("<8sI16s")  # magic, version, id of the follower
HELLO_MAGIC = b"MNSTMHST"
VERSION = 1
IN_MEMORY = 1
FRAME_BYTES_MAX = 1 << 30


class Kind(IntEnum):
    APPEND = 1
    OBJECTS = 2
    ROLL = 3
    SEAL = 4
    DROP = 5
    WELCOME = 16
    COMMITS = 17
    WRITTEN = 18
    SEGMENTS = 19
    DONE = 20
    FAILED = 21


class WriterMessage(NamedTuple):
    kind: int
    id: int
    body: memoryview


class Frames:
    """Cuts what arrives on a connection into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[WriterMessage]:
        """The messages that are complete now. Their bodies stay valid."""
        if self._pending:
            self._pending += data
            if len(self._pending) < FRAME.size:
                return
            length, _, _ = FRAME.unpack_from(self._pending)
            if len(self._pending) < FRAME.size + length:
                return
            data, self._pending = bytes(self._pending), bytearray()
        view, at = memoryview(data), 0
        while at + FRAME.size <= len(data):
            length, kind, id = FRAME.unpack_from(data, at)
            if length > FRAME_BYTES_MAX:
                raise StorageError(f"a message of {length} bytes on the writer's socket")
            end = at + FRAME.size + length
            if end > len(data):
                break
            yield WriterMessage(kind, id, view[at + FRAME.size : end])
            at = end
        self._pending += view[at:]


def frame(kind: Kind, id: int, *body: bytes | memoryview) -> bytes:
    return b"".join((FRAME.pack(sum(map(len, body)), kind, id), *body))


def commits_body(commits: Iterable[Committed]) -> bytes:
    parts: list[bytes] = []
    for (position, number, start), entry, payload_bytes, _ in commits:
        parts += (COMMIT.pack(position, number, start, payload_bytes, len(entry)), bytes(entry))
    return b"".join(parts)


def read_commits(body: memoryview) -> list[Committed]:
    found, at = [], 0
    while at < len(body):
        position, number, start, payload_bytes, length = COMMIT.unpack_from(body, at)
        at += COMMIT.size
        entry = bytes(body[at : at + length])
        found.append(Committed(Placement(position, number, start), entry, payload_bytes, payload_intact=True))
        at += length
    return found


def segments_body(segments: Iterable[Segment]) -> bytes:
    return b"".join(
        SEGMENT.pack(one.number, one.first, one.end, one.data_end, one.size_bytes, one.sealed)
        for one in segments
    )


def read_segments(body: memoryview) -> list[Segment]:
    return [
        Segment(number, first, end, data_end, bool(sealed), size_bytes)
        for number, first, end, data_end, size_bytes, sealed in SEGMENT.iter_unpack(body)
    ]


def error_body(error: Exception) -> bytes:
    return type(error).__name__.encode() + b"\0" + str(error).encode()


def read_error(body: memoryview) -> Exception:
    name, _, text = bytes(body).partition(b"\0")
    if name == b"FileNotFoundError":
        return FileNotFoundError(text.decode())
    kind = getattr(errors, name.decode(), None)
    if isinstance(kind, type) and issubclass(kind, MainstemError | errors.InvariantBroken):
        return kind(text.decode())
    return StorageError(f"the writer failed: {name.decode()}: {text.decode()}")
