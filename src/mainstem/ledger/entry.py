"""An entry: the commands of one commit, as the commit log holds them.

Head, 48 bytes, little-endian (`HEAD`):

| field           | type | meaning                                                              |
|-----------------|------|----------------------------------------------------------------------|
| version         | u2   | of the entry and of the rules that apply it; now 1                   |
| flags           | u2   | bit 0 PLAIN: just one append run, not a timed one; bit 3 DIGEST;     |
|                 |      | bits 1 and 2 OLD_DIGEST: not comparable, see digest.py               |
| parts           | u4   | how many parts follow                                                |
| time_ms         | i8   | the proposer's clock                                                 |
| broker          | u4   | the broker that proposed it                                          |
| broker_epoch    | u4   | the epoch its `Boot` gave it; 0 in the entry that carries the `Boot` |
| commit_id       | u8   | rises within a broker epoch                                          |
| digest_position | u8   | entries applied when the digest was taken, 0 without DIGEST          |
| digest          | u8   | digest of the state then, 0 without DIGEST                           |

Then the parts, each:

| field  | type | meaning                                               |
|--------|------|-------------------------------------------------------|
| kind   | u4   | 1 append run, 2 command (msgpack)                     |
| length | u4   | bytes of the body                                     |
| body   | …    |                                                       |

An append run is many slices as one array: appends are the only commands that must be fast. It is encoded as
u4 slices, u4 records, then the slice rows, then the record rows.

Slice row, 48 bytes, little-endian (`SLICE`):

| field         | type | meaning                                                              |
|---------------|------|----------------------------------------------------------------------|
| stream        | u4   | stream number                                                        |
| count         | u4   | offsets taken: the sum of lastOffsetDelta + 1 over the slice's batches |
| length        | u4   | payload bytes                                                        |
| crc           | u4   | CRC32C of those bytes                                                |
| max_timestamp | i8   | latest record time, ms                                               |
| producer      | i8   | idempotent producer id, -1 = none                                    |
| base_sequence | i4   | first sequence of the (single) batch of an idempotent slice, -1 = none |
| producer_epoch| i2   | -1 = none                                                            |
| flags         | u2   | SLICE_* bits                                                         |
| size          | u4   | logical bytes, what caps and `bytes` count                           |
| batches       | u4   | record batches in the slice                                          |

Record row, 12 bytes (`RECORD`), `count` of them for each slice flagged SLICE_TRACKED, in slice order:

| field | type | meaning            |
|-------|------|--------------------|
| size  | u4   | logical bytes      |
| time  | i8   | record time, ms    |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mainstem.errors import InvalidInput, LogDamaged, NewerVersion, invariant
from mainstem.ledger import registry
from mainstem.ledger.section import Buffer, Command

ENTRY_VERSION = 1

PLAIN = 1
OLD_DIGEST = 6
DIGEST = 8

KIND_APPENDS = 1
KIND_COMMAND = 2

HEAD = struct.Struct("<HHIqIIQQQ")
PART = struct.Struct("<II")

SLICE = np.dtype(
    [
        ("stream", "<u4"),
        ("count", "<u4"),
        ("length", "<u4"),
        ("crc", "<u4"),
        ("max_timestamp", "<i8"),
        ("producer", "<i8"),
        ("base_sequence", "<i4"),
        ("producer_epoch", "<i2"),
        ("flags", "<u2"),
        ("size", "<u4"),
        ("batches", "<u4"),
    ]
)
SLICE_PACK = struct.Struct("<IIIIqqihHII")  # one row, for building a run without numpy calls a slice
RECORD = np.dtype([("size", "<u4"), ("time", "<i8")])

SLICE_TRACKED = 1  # the run carries a size and a time for each record of the slice
SLICE_TRANSACTIONAL = 2
SLICE_JOINS = 4  # its stream becomes part of its producer's transaction by it, which it may begin
SLICE_RESUMES = 8  # if nothing is known of its producer, it continues at whatever sequence it has reached
SLICE_KEYED = 256  # producer, base_sequence and producer_epoch hold an idempotency key (idempotency.py)

_TIMED = SLICE_KEYED | SLICE_JOINS  # what these leave in the state holds the time of their entry

_RUN_HEAD = struct.Struct("<II")
_LONE = struct.Struct("<HHIqIIQQQIIIIIIIIqqihHII")  # HEAD, PART, _RUN_HEAD and a row
_LONE_BODY_BYTES = _RUN_HEAD.size + SLICE.itemsize

Rows = npt.NDArray[Any]

_NO_SLICES: Rows = np.empty(0, SLICE)
NO_RECORDS: Rows = np.empty(0, RECORD)


@dataclass(slots=True)
class AppendRun:
    """Consecutive appends of one entry."""

    slices: Rows  # of SLICE
    records: Rows = field(default_factory=lambda: NO_RECORDS)

    def encode(self) -> bytes:
        return (
            _RUN_HEAD.pack(len(self.slices), len(self.records))
            + self.slices.tobytes()
            + self.records.tobytes()
        )

    @classmethod
    def decode(cls, body: bytes | memoryview) -> AppendRun:
        """Rows stay views of `body`. Raises LogDamaged."""
        size = len(body)
        if size < _RUN_HEAD.size:
            raise LogDamaged("an append run in the log is shorter than its head")
        slices, records = _RUN_HEAD.unpack_from(body)
        split = _RUN_HEAD.size + slices * SLICE.itemsize
        if size != split + records * RECORD.itemsize:
            raise LogDamaged("an append run in the log has the wrong length: written by a faulty version?")
        if not records:
            return cls(
                np.frombuffer(body, SLICE, slices, _RUN_HEAD.size) if slices else _NO_SLICES, NO_RECORDS
            )
        run = cls(
            np.frombuffer(body, SLICE, slices, _RUN_HEAD.size), np.frombuffer(body, RECORD, records, split)
        )
        if run.tracked_records() != records:
            raise LogDamaged("an append run in the log does not hold one record row for each tracked record")
        return run

    @property
    def timed(self) -> bool:
        """Some slice has an idempotency key, or may begin a transaction."""
        return bool((self.slices["flags"] & _TIMED).any())

    def tracked_records(self) -> int:
        """How many record rows the slices ask for."""
        tracked = (self.slices["flags"] & SLICE_TRACKED) != 0
        return int(self.slices["count"][tracked].sum(dtype=np.int64))


Part = AppendRun | Command

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Entry:
    """One commit's commands, in the order they apply."""

    broker: int
    broker_epoch: int
    commit_id: int
    time_ms: int
    parts: list[Part] = field(default_factory=list)
    digest: tuple[int, int] | None = None  # (entries applied, digest then)
    old_digest: bool = False  # it has a digest of an older definition, which cannot be compared

    @property
    def plain(self) -> bool:
        """Exactly one append run, in which nothing depends on the entry's own time."""
        return len(self.parts) == 1 and type(self.parts[0]) is AppendRun and not self.parts[0].timed

    def encode(self, bodies: Sequence[bytes | None] = ()) -> bytes:
        """`bodies`: the results of `encode_command`, one per part, where it has run already."""
        flags = (PLAIN if self.plain else 0) | (DIGEST if self.digest else 0)
        position, digest = self.digest or (0, 0)
        pieces = [
            HEAD.pack(
                ENTRY_VERSION,
                flags,
                len(self.parts),
                self.time_ms,
                self.broker,
                self.broker_epoch,
                self.commit_id,
                position,
                digest,
            )
        ]
        for number, part in enumerate(self.parts):
            if isinstance(part, AppendRun):
                kind, body = KIND_APPENDS, part.encode()
            else:
                kind, body = KIND_COMMAND, (bodies[number] if bodies else None) or encode_command(part)
            pieces.append(PART.pack(kind, len(body)))
            pieces.append(body)
        return b"".join(pieces)

    @classmethod
    def decode(cls, buffer: Buffer) -> Entry:
        """Rows stay views of `buffer`. Raises NewerVersion or LogDamaged."""
        if len(buffer) < HEAD.size:
            raise LogDamaged(f"an entry of {len(buffer)} bytes is shorter than its header")
        version, flags, count, time_ms, broker, epoch, commit_id, position, digest = HEAD.unpack_from(buffer)
        if version > ENTRY_VERSION:
            raise NewerVersion(f"an entry of version {version}: this Mainstem reads up to {ENTRY_VERSION}")
        if version == 0 or flags & ~(PLAIN | DIGEST | OLD_DIGEST):
            raise LogDamaged(f"an entry header has version {version} and flags {flags:#x}")
        parts = _decode_parts(memoryview(buffer), count)
        recorded = (position, digest) if flags & DIGEST else None
        entry = cls(broker, epoch, commit_id, time_ms, parts, recorded, bool(flags & OLD_DIGEST))
        if entry.plain != bool(flags & PLAIN):
            raise LogDamaged("an entry's PLAIN flag contradicts its parts")
        return entry


def encode_lone(
    fields: tuple[int, ...], *, broker: int, broker_epoch: int, commit_id: int, time_ms: int
) -> bytes:
    """As `Entry.encode` of an entry whose only part is one slice, without record rows and digest.

    `fields`: the SLICE row, unpacked."""
    return _LONE.pack(
        ENTRY_VERSION,
        0 if fields[8] & _TIMED else PLAIN,
        1,
        time_ms,
        broker,
        broker_epoch,
        commit_id,
        0,
        0,
        KIND_APPENDS,
        _LONE_BODY_BYTES,
        1,
        0,
        *fields,
    )


def _decode_parts(view: memoryview, count: int) -> list[Part]:
    parts: list[Part] = []
    at, size = HEAD.size, len(view)
    for _ in range(count):
        if at + PART.size > size:
            raise LogDamaged("an entry ends inside the header of a part")
        kind, length = PART.unpack_from(view, at)
        at += PART.size
        if at + length > size:
            raise LogDamaged("an entry ends inside a part")
        body = view[at : at + length]
        at += length
        if kind == KIND_APPENDS:
            parts.append(AppendRun.decode(body))
        elif kind == KIND_COMMAND:
            parts.append(decode_command(body))
        else:
            raise LogDamaged(f"an entry holds a part of unknown kind {kind}")
    if at != size:
        raise LogDamaged(f"an entry has {size - at} bytes after its last part")
    invariant(len(parts) == count, "every part counted in the head was decoded")
    return parts


def encode_command(command: Command) -> bytes:
    """Encode a command as plain values. msgspec would encode a struct with a header that grows with its fields.

    Raises InvalidInput if a value does not fit."""
    try:
        return _encode(msgspec.to_builtins(command, builtin_types=(bytes,)))
    except (OverflowError, UnicodeEncodeError, TypeError) as error:
        raise InvalidInput(
            f"a {type(command).__name__} holds a value that cannot be stored: {error}"
        ) from error


def canonical_command(body: bytes) -> Command:
    """The command that replay will read from `body`: the one to apply, so that both give the same state.

    Raises InvalidInput if a value does not have the type of its field: replay could not read it."""
    try:
        return registry.REGISTRY.decode_command(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"a command holds a value of the wrong type: {error}") from error


def decode_command(body: Buffer) -> Command:
    try:
        return registry.REGISTRY.decode_command(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogDamaged(f"a command in the log cannot be read: {error}") from error
