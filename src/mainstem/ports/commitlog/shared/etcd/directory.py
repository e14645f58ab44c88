"""The directory of an object: where the payload of each commit starts, and its id, which names it in the store.

Stored with a sealed object as rows, little-endian (`DIRECTORY_ROW`), by rising start:

| field  | type | meaning                                    |
|--------|------|--------------------------------------------|
| start  | u8   | bytes of payload in the object before it   |
| length | u4   | bytes of payload; commits without any have no row |
| id     | s16  | of the commit                              |
"""

from __future__ import annotations

import struct

from mainstem.ports.commitlog.shared.core.objects import OpenObject, PayloadMap
from mainstem.ports.commitlog.shared.etcd.records import CommitRecord

DIRECTORY_ROW = struct.Struct("<QI16s")


class Directory(PayloadMap[bytes]):
    """The payloads of one object, by commit id."""

    __slots__ = ()

    @classmethod
    def of(cls, unsealed: OpenObject[CommitRecord]) -> Directory:
        found = cls()
        found.starts, found.lengths = unsealed.payloads.starts, unsealed.payloads.lengths
        found.holders = [record.id for record in unsealed.payloads.holders]
        return found

    @property
    def ids(self) -> list[bytes]:
        return self.holders

    def pack(self) -> bytes:
        rows = zip(self.starts, self.lengths, self.holders, strict=True)
        return b"".join(DIRECTORY_ROW.pack(*row) for row in rows)

    @classmethod
    def unpack(cls, packed: bytes) -> Directory:
        found = cls()
        for start, length, id in DIRECTORY_ROW.iter_unpack(packed):
            found.add(start, length, id)
        return found
