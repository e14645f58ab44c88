"""The id of a log: the object `id`. Version 1, little-endian.

| field   | type | meaning                                              |
|---------|------|------------------------------------------------------|
| magic   | s8   | `MNSTMBKT`; `MNSTMETC` if the log is in etcd and     |
|         |      | only its payloads are here                           |
| version | u4   | 1                                                    |
| id      | s16  | random, never changes                                |
| crc     | u4   | CRC32C of the bytes before                           |
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from mainstem.errors import InvalidConfig, LogDamaged, NewerVersion, NotFound, StoreRefused
from mainstem.ports.clock import Random
from mainstem.ports.commitlog.shared.bucket.keys import TOKEN_BYTES, BucketKeys
from mainstem.ports.objectstore.port import ObjectStore

ID = struct.Struct("<8sI16sI")
MAGIC = b"MNSTMBKT"
OF_ETCD = b"MNSTMETC"
VERSION = 1


async def identify(store: ObjectStore, keys: BucketKeys, random: Random) -> bytes:
    """The log's id; the first process makes it. Raises StoreRefused if the store ignores conditions, InvalidConfig if
    it holds only the payloads of a log in etcd."""
    try:
        return unpack(await store.get(keys.id))
    except NotFound:
        await check_conditions(store, keys.probe(random.token(TOKEN_BYTES)))
        await store.put(keys.id, pack(random.token(TOKEN_BYTES)), if_absent=True)
        return unpack(await store.get(keys.id))


async def check_conditions(store: ObjectStore, key: str) -> None:
    """The order of the log depends on conditional puts: a store that ignores the condition, usually silently, would let
    writers replace each other's commits."""
    await store.put(key, b"first", if_absent=True)
    try:
        second = await store.put(key, b"second", if_absent=True)
        if second or await store.get(key) != b"first":
            raise StoreRefused(
                "this object store ignores If-None-Match, so it cannot hold a commit log: "
                "use one with conditional writes, or keep the commit log in etcd"
            )
    finally:
        await store.delete(key)


def pack(id: bytes, magic: bytes = MAGIC) -> bytes:
    said = ID.pack(magic, VERSION, id, 0)[:-4]
    return said + crc32c(said).to_bytes(4, "little")


def unpack(stored: bytes, magic: bytes = MAGIC) -> bytes:
    """Raises InvalidConfig if the log is of the other kind, LogDamaged or NewerVersion."""
    if stored[:8] == OF_ETCD != magic:
        raise InvalidConfig(
            "this store belongs to a log in etcd: name that etcd with --etcd, or name another --store"
        )
    if stored[:8] == MAGIC != magic:
        raise InvalidConfig(
            "this store holds a log of its own, without etcd: leave --etcd out, or name another --store"
        )
    if (
        len(stored) != ID.size
        or stored[:8] != magic
        or crc32c(stored[:-4]) != int.from_bytes(stored[-4:], "little")
    ):
        raise LogDamaged("the object with the log's id is damaged: restore it from the bucket's versions")
    _, version, id, _ = ID.unpack(stored)
    if version > VERSION:
        raise NewerVersion(f"the log in this bucket has version {version}: upgrade this Mainstem to open it")
    return bytes(id)
