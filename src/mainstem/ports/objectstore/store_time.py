"""The time of an object store, which all who use it have in common, whatever their own clocks say."""

from __future__ import annotations

from mainstem.ports.objectstore.port import ObjectStore


async def store_now_ms(store: ObjectStore, key: str) -> int:
    """That of an object put right now under the key, which is nobody else's. Many stores count whole seconds."""
    await store.put(key, b"")
    try:
        return max([one.modified_ms async for one in store.list(key)], default=0)
    finally:
        await store.delete(key)
