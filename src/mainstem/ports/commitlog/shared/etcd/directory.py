"""The directory of a sealed object: which bytes of it are where in the store.

Stored with a sealed object as rows, little-endian (`DIRECTORY_ROW`), by rising start:

| field  | type | meaning                                    |
|--------|------|--------------------------------------------|
| start  | u8   | bytes of payload in the object before them   |
| length | u4   | bytes of payload                             |
| id     | s16  | names them in the store: of the commit, or of a copy of the payloads of several |
"""

from __future__ import annotations

import struct

from mainstem.ports.commitlog.shared.core.objects import PayloadMap

DIRECTORY_ROW = struct.Struct("<QI16s")


class Directory(PayloadMap[bytes]):
    """The payloads of one object, by their names in the store."""

    __slots__ = ()

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
