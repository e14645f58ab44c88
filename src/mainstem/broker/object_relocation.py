"""A data directory that kept its objects in a folder of its own gets an object store: they move there.

Nothing of the folder goes before all of it is durable in the store. A move that was cut off begins anew; until it is
done the directory serves without the store as it did before.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from mainstem import events
from mainstem.log.backup_contents import OBJECTS
from mainstem.ports.files import OsFiles
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.port import ObjectStore

_MOVED = ".objects-moved"
_log = events.named("tiers")


async def move_objects(directory: Path, store: ObjectStore) -> None:
    """The caller holds the directory. Raises StoreRefused, StoreUnreachable."""
    local, moved = directory / OBJECTS, directory / _MOVED
    await asyncio.to_thread(shutil.rmtree, moved, True)  # of one that was cut off at its very end
    folder = LocalObjectStore(local)
    found = [one async for one in folder.list()]
    if not found:
        return
    total = sum(one.size_bytes for one in found)
    _log.info("moving objects of the directory into the store", files=len(found), bytes=total)
    for one in found:
        await store.put(one.key, await folder.get(one.key))
    await asyncio.to_thread(local.rename, moved)
    await asyncio.to_thread(OsFiles().fsync_dir, directory)
    await asyncio.to_thread(shutil.rmtree, moved, True)
    _log.info("moved objects of the directory into the store", files=len(found), bytes=total)
