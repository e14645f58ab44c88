"""An entry object: one commit. Version 1, little-endian.

| part    | bytes          | meaning                                     |
|---------|----------------|---------------------------------------------|
| head    | 92             | `HEAD`                                      |
| entry   | entry_length   | unless ENTRY_APART                          |
| payload | payload_length | unless PAYLOAD_APART                        |

What is apart goes into WAL objects named after the commit, the payload before the entry, in parts of
`STORE_OBJECT_BYTES_MAX`.

Head (`HEAD`):

| field          | type | meaning                                                               |
|----------------|------|-----------------------------------------------------------------------|
| magic          | s8   | `MNSTMENT`                                                            |
| crc            | u4   | CRC32C of the rest of the head and of the entry                       |
| version        | u2   | 1                                                                     |
| flags          | u2   | bit 0: PAYLOAD_APART, bit 1: ENTRY_APART                              |
| position       | u8   | place in the log                                                      |
| log            | u8   | low 64 bits of the log id: entries of other logs do not pass          |
| id             | s16  | of the commit, random: distinguishes a lost answer from a lost race   |
| object         | u8   | number of the object that it is a part of, from 1 on                  |
| first          | u8   | position of that object's first commit                                |
| start          | u8   | bytes of payload in the object before it                              |
| weight         | u8   | the same with heads and entries, which decides when the object is full |
| entry_length   | u4   |                                                                       |
| payload_length | u4   |                                                                       |
| payload_crc    | u4   | CRC32C of the payload                                                 |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ports.commitlog.port import Buffer, Placement

HEAD = struct.Struct("<8sIHHQQ16sQQQQIII")
MAGIC = b"MNSTMENT"
VERSION = 1
PAYLOAD_APART = 1
ENTRY_APART = 2
_COVERED = 12  # the crc covers what comes after it


class EntryHead(NamedTuple):
    """The head of an entry."""

    flags: int
    position: int
    log: int
    id: bytes
    object: int
    first: int
    start: int
    weight: int
    entry_length: int
    payload_length: int
    payload_crc: int

    @property
    def placement(self) -> Placement:
        return Placement(self.position, self.object, self.start)

    @property
    def stored_bytes(self) -> int:
        """What the commit counts towards the size of its object."""
        return HEAD.size + self.entry_length + self.payload_length

    @property
    def payload_apart(self) -> bool:
        return bool(self.flags & PAYLOAD_APART)

    @property
    def entry_apart(self) -> bool:
        return bool(self.flags & ENTRY_APART)

    @property
    def apart_bytes(self) -> int:
        """How many bytes are in WAL objects."""
        return self.payload_length * self.payload_apart + self.entry_length * self.entry_apart

    @property
    def entry_in_wal(self) -> int:
        """Where the entry starts in the WAL objects."""
        return self.payload_length * self.payload_apart

    @property
    def payload_in_object(self) -> int:
        """Where the payload starts in the entry object."""
        return HEAD.size + self.entry_length * (not self.entry_apart)


def pack_head(commit: EntryHead, entry: Buffer) -> bytes:
    head = HEAD.pack(MAGIC, 0, VERSION, *commit)
    crc = crc32c(entry, crc32c(head[_COVERED:]))
    return HEAD.pack(MAGIC, crc, VERSION, *commit)


def unpack_head(stored: Buffer, position: int, log: int) -> EntryHead:
    """The head of the entry object at `position`, without its checksum: see `check_entry`. Raises LogDamaged."""
    if len(stored) < HEAD.size:
        raise damaged(position)
    magic, _, version, *fields = HEAD.unpack_from(stored)
    if magic != MAGIC:
        raise damaged(position)
    if version > VERSION:
        raise NewerVersion(
            f"the entry at position {position} has version {version}: upgrade this Mainstem to read it"
        )
    commit = EntryHead(*fields)
    if commit.position != position or commit.log != log:
        raise damaged(position)
    return commit


def check_entry(stored: Buffer, entry: Buffer, position: int) -> None:
    """Raises LogDamaged unless head and entry match their checksum."""
    _, crc = struct.unpack_from("<8sI", stored)
    if crc32c(entry, crc32c(memoryview(stored)[_COVERED : HEAD.size])) != crc:
        raise damaged(position)


def damaged(position: int) -> LogDamaged:
    return LogDamaged(
        f"the entry at position {position} is damaged: restore its object from the bucket's versions"
    )
