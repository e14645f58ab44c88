"""Whose payloads a store holds: the object `id` says which log's, as it does for a log that is in the store alone.

Without it two logs could have one prefix of a store, by an etcd that was set up anew or a broker that was not told of
its etcd; and each would in the end delete what the other one needs, as something that no commit of its own names.
"""

from __future__ import annotations

from mainstem.errors import InvalidConfig, NotFound
from mainstem.ports.commitlog.shared.bucket.identity import OF_ETCD, pack, unpack
from mainstem.ports.commitlog.shared.bucket.keys import LOG_FOLDER, Keys
from mainstem.ports.objectstore.port import ObjectStore


async def own_store(store: ObjectStore, log: bytes, *, folder: str = LOG_FOLDER) -> None:
    """Leave a word that the store is that log's. Raises InvalidConfig if it is another one's, LogDamaged."""
    key = Keys(folder).id
    try:
        stored = await store.get(key)
    except NotFound:
        await store.put(key, pack(log, OF_ETCD))  # unconditional: such a log serves where conditions do not
        stored = await store.get(key)
    if unpack(stored, OF_ETCD) != log:
        raise InvalidConfig(
            "this store holds the payloads of a log in another etcd: name that one with --etcd, restore it if it was "
            "lost, or name another --store"
        )
