"""The tables of topics with `s3:` locations, for readers that reach the files through the S3 door only.

The metadata of a topic's table names files by the URL of the object store, which is a directory of this machine unless
the server has a bucket. The S3 door serves the same metadata with `s3://tables/…` instead. JSON, manifest lists and
manifests are immutable, so the result depends on the key alone; the lengths that a manifest list gives of its
manifests are those of the converted ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.tables.avro_locations import MAGIC, with_locations
from mainstem.tables.catalog import TOPIC_SUFFIX, Catalog
from mainstem.tables.locations import FOLDER, S3_PREFIX

BUCKET = "tables"
PREFIX = S3_PREFIX
CONVERTED_BYTES_MAX = 64 * limits.MIB  # kept in memory
CONVERTED_FILE_BYTES_MAX = 64 * limits.MIB
LENGTHS_KEPT = 100_000


def is_converted(key: str) -> bool:
    """Whether the S3 door serves this object with other locations than the store has."""
    folder, found, name = key.partition("/metadata/")
    return (
        bool(found) and folder.startswith(f"{FOLDER}/") and folder.endswith(TOPIC_SUFFIX) and "/" not in name
    )


class S3Locations:
    """Converts the metadata of topics' tables."""

    def __init__(self, store: ObjectStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lengths: OrderedDict[str, int] = OrderedDict()  # of converted files
        self._converting = asyncio.Lock()  # one at a time: it takes memory and a core

    @property
    def needed(self) -> bool:
        """Whether readers on other machines need `s3:` locations: the store is a directory of this one."""
        return self._catalog.store_url.startswith("file:")

    def metadata(self, metadata: bytes) -> bytes:
        """The JSON of a table's metadata with `s3:` locations."""
        return metadata.replace(self._old, PREFIX.encode())

    def location(self, location: str) -> str:
        return PREFIX + self._catalog.key_of(location)

    @property
    def _old(self) -> bytes:
        return msgspec.json.encode(f"{self._catalog.store_url}/")[1:-1]

    async def get(self, key: str) -> bytes:
        """A converted object. Raises NotFound, InvalidInput."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        async with self._converting:
            store = BlockingStore(self._store, asyncio.get_running_loop())
            return await asyncio.to_thread(self._converted, store, key)

    def _converted(self, store: BlockingStore, key: str) -> bytes:
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        content = store.get(key)
        if len(content) > CONVERTED_FILE_BYTES_MAX:
            raise InvalidInput(f"the metadata file {key!r} is too large to convert")
        if content.startswith(MAGIC):
            content = with_locations(content, self._new, partial(self._length, store))
        else:
            content = self.metadata(content)
        self._keep(key, content)
        return content

    def _length(self, store: BlockingStore, manifest: str) -> int:
        """The length of a converted manifest."""
        key = self._catalog.key_of(manifest)
        known = self._lengths.get(key)
        return len(self._converted(store, key)) if known is None else known

    def _keep(self, key: str, content: bytes) -> None:
        if key not in self._kept:
            self._kept[key] = content
            self._kept_bytes += len(content)
        while self._kept_bytes > CONVERTED_BYTES_MAX:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)
        self._lengths[key] = len(content)
        while len(self._lengths) > LENGTHS_KEPT:
            self._lengths.popitem(last=False)

    def _new(self, location: str) -> str:
        inside = location.removeprefix(f"{self._catalog.store_url}/")
        return location if inside == location else PREFIX + inside
