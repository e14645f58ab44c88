"""The values in etcd. All version 1, each with a CRC32C of the rest.

`CommitRecord`, little-endian (`COMMIT`), followed by the entry unless the object store has it:

| field          | type | meaning                                                            |
|----------------|------|--------------------------------------------------------------------|
| crc            | u4   | CRC32C of the rest of the header and the entry, wherever it is     |
| version        | u2   | 1                                                                  |
| flags          | u2   | bit 0: the store has the entry; bit 1: etcd has the payload; bit 2: MOVED |
| entry_length   | u4   |                                                                    |
| payload_length | u4   |                                                                    |
| payload_crc    | u4   | CRC32C of the payload                                              |
| position       | u8   | place in the log                                                   |
| object         | u8   | number of the object the commit belongs to                         |
| start          | u8   | bytes of payload in that object before this commit's               |
| tried          | u8   | the first position its writer tried; part of the payload's key     |
| log            | u8   | low 64 bits of the log id                                          |
| id             | s16  | the commit's own, and the name of its payload                      |

A MOVED commit was written behind commits that its writer did not know: its payload starts where theirs end, and `start`
says nothing.

`Seal`, little-endian (`SEAL`):

| field      | type | meaning                                                   |
|------------|------|-----------------------------------------------------------|
| crc        | u4   | CRC32C of the rest                                        |
| version    | u2   | 1                                                         |
| flags      | u2   | bit 0: dropped; the record goes once its commits are truncated |
| number     | u8   | of the object                                             |
| first      | u8   | position of its first commit                              |
| end        | u8   | one past its last                                         |
| size       | u8   | bytes of payload                                          |
| index_length | u8 | bytes of index                                            |
| sealed_ms  | u8   | when                                                      |
| body       | u4   | CRC32C of the stored object: directory, then index        |
| token      | s16  | names the stored object                                   |

`Floor`, big-endian (`FLOOR`), so that etcd itself can compare it with a position:

| field    | type | meaning                                        |
|----------|------|------------------------------------------------|
| position | u8   | commits before this are truncated              |
| object   | u8   | number of the last object they were in, or 0   |

`EpochGuard`, big-endian (`GUARD`):

| field | type | meaning                                               |
|-------|------|-------------------------------------------------------|
| epoch | u8   | of the process that may write; rises by one           |
| token | s16  | who set it: distinguishes a lost answer from a lost race |

`LastCommit`, big-endian (`LAST`):

| field    | type | meaning                              |
|----------|------|--------------------------------------|
| position | u8   | of the last commit of a broker       |
| id       | s16  | its id                               |

`Pointer`, little-endian (`POINTER`):

| field    | type | meaning                              |
|----------|------|--------------------------------------|
| crc      | u4   | CRC32C of the rest                   |
| version  | u2   | 1                                    |
| flags    | u2   | 0                                    |
| position | u8   | the state holds every commit before  |
| size     | u8   | bytes of the state                   |
| body     | u4   | CRC32C of the stored object          |
| token    | s16  | names the stored object              |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ports.commitlog.port import Buffer, LogObject
from mainstem.ports.commitlog.shared.core.backend import Floor

COMMIT = struct.Struct("<IHHIIIQQQQQ16s")
SEAL = struct.Struct("<IHHQQQQQQI16s")
FLOOR = struct.Struct(">QQ")
GUARD = struct.Struct(">Q16s")
LAST = struct.Struct(">Q16s")
POINTER = struct.Struct("<IHHQQI16s")
POSITION = struct.Struct(">Q")
VERSION = 1
ENTRY_APART = 1
PAYLOAD_IN_ETCD = 2
MOVED = 4
DROPPED = 1
_COVERED = 4  # a crc covers what comes after it
_VERSION_AT = struct.Struct("<H")


class CommitRecord(NamedTuple):
    flags: int
    entry_length: int
    payload_length: int
    payload_crc: int
    position: int
    object: int
    start: int
    tried: int
    log: int
    id: bytes

    @property
    def end(self) -> int:
        """Where the payload of the next commit of the object starts."""
        return self.start + self.payload_length

    @property
    def moved(self) -> bool:
        return bool(self.flags & MOVED)

    @property
    def first(self) -> None:
        """Not recorded."""
        return

    @property
    def stored_bytes(self) -> int:
        """What the commit counts towards the size of its object."""
        return COMMIT.size + self.entry_length + self.payload_length

    @property
    def entry_apart(self) -> bool:
        return bool(self.flags & ENTRY_APART)

    @property
    def payload_in_etcd(self) -> bool:
        return bool(self.flags & PAYLOAD_IN_ETCD)


def pack_commit(record: CommitRecord, entry: Buffer) -> bytes:
    header = COMMIT.pack(0, VERSION, *record)[_COVERED:]
    crc = crc32c(entry, crc32c(header)).to_bytes(4, "little")
    return b"".join((crc, header) if record.entry_apart else (crc, header, entry))


def unpack_commit(value: bytes, position: int, log: int) -> CommitRecord:
    """The header. Raises LogDamaged or NewerVersion."""
    if len(value) < COMMIT.size:
        raise LogDamaged(
            f"the commit at position {position} has only {len(value)} bytes: restore etcd from a backup"
        )
    _, version, *fields = COMMIT.unpack_from(value)
    _check_version(version, f"the commit at position {position}")
    record = CommitRecord(*fields)
    if record.position != position or record.log != log:
        raise LogDamaged(
            f"the commit at position {position} is of another position or log: restore etcd from a backup"
        )
    return record


def check_entry(record: CommitRecord, value: bytes, entry: Buffer) -> None:
    """Raises LogDamaged."""
    expected = int.from_bytes(value[:_COVERED], "little")
    found = crc32c(entry, crc32c(memoryview(value)[_COVERED : COMMIT.size]))
    if len(entry) != record.entry_length or found != expected:
        raise LogDamaged(
            f"the commit at position {record.position} fails its checksum: restore etcd from a backup"
        )


class Seal(NamedTuple):
    flags: int
    number: int
    first: int
    end: int
    size: int
    index_length: int
    sealed_ms: int
    body: int
    token: bytes

    @property
    def dropped(self) -> bool:
        return bool(self.flags & DROPPED)

    @classmethod
    def new(cls, described: LogObject, directory: bytes, index: bytes, *, now_ms: int, token: bytes) -> Seal:
        return cls(
            0,
            described.number,
            described.first_position,
            described.end_position,
            described.size_bytes,
            len(index),
            now_ms,
            crc32c(index, crc32c(directory)),
            token,
        )

    def pack(self) -> bytes:
        return _checksummed(SEAL.pack(0, VERSION, *self))

    @classmethod
    def unpack(cls, value: bytes) -> Seal:
        """Raises LogDamaged or NewerVersion."""
        _check(value, SEAL.size, "the record of a sealed object")
        _, _, *fields = SEAL.unpack(value)
        return cls(*fields)


def pack_floor(floor: Floor) -> bytes:
    return FLOOR.pack(*floor)


def unpack_floor(value: bytes) -> Floor:
    return Floor(*FLOOR.unpack(value))


def floor_bound(position: int) -> bytes:
    """A floor's value sorts before this if and only if the position is not truncated."""
    return POSITION.pack(position + 1)


class EpochGuard(NamedTuple):
    epoch: int
    token: bytes

    def pack(self) -> bytes:
        return GUARD.pack(*self)

    @classmethod
    def unpack(cls, value: bytes) -> EpochGuard:
        return cls(*GUARD.unpack(value))


class LastCommit(NamedTuple):
    """The last commit of a broker: shows whether an attempt whose answer was lost went through, and where."""

    position: int
    id: bytes

    def pack(self) -> bytes:
        return LAST.pack(*self)

    @classmethod
    def unpack(cls, value: bytes) -> LastCommit:
        return cls(*LAST.unpack(value))


class Pointer(NamedTuple):
    flags: int
    position: int
    size: int
    body: int
    token: bytes

    def pack(self) -> bytes:
        return _checksummed(POINTER.pack(0, VERSION, *self))

    @classmethod
    def unpack(cls, value: bytes) -> Pointer:
        """Raises LogDamaged or NewerVersion."""
        _check(value, POINTER.size, "the record of a checkpoint")
        _, _, *fields = POINTER.unpack(value)
        return cls(*fields)


def _checksummed(packed: bytes) -> bytes:
    rest = packed[_COVERED:]
    return crc32c(rest).to_bytes(4, "little") + rest


def _check(value: bytes, size: int, what: str) -> None:
    if len(value) < size or crc32c(value[_COVERED:]) != int.from_bytes(value[:_COVERED], "little"):
        raise LogDamaged(f"{what} fails its checksum: restore etcd from a backup")
    _check_version(_VERSION_AT.unpack_from(value, _COVERED)[0], what)


def _check_version(version: int, what: str) -> None:
    if version > VERSION:
        raise NewerVersion(f"{what} has version {version}: upgrade this Mainstem to read it")
