"""The bucket `tables`: the files of tables, as keys of the object store.

Files of topics' tables are read-only, and their metadata has `s3:` locations. Files of a user's own table may be
written by principals who may alter it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mainstem.broker.buckets.blobs import Span
from mainstem.broker.buckets.service import ObjectVersion
from mainstem.broker.streams import StreamService
from mainstem.errors import InvalidName, ObjectNotFound
from mainstem.ledger.namespaces import split
from mainstem.ledger.parts import PARTS
from mainstem.log.log import Log
from mainstem.ports.objectstore.port import ObjectStore, StoredObject, check_key
from mainstem.tables.catalog import FOLDER, TOPIC_SUFFIX, Catalog, Table, TableName
from mainstem.tables.s3_locations import BUCKET, S3Locations, is_converted

__all__ = ["BUCKET", "TableFiles", "TableOwner"]

NAMES_KEPT = 10_000
LISTED_MAX = 100_000  # files that one listing looks at
_FOLDERS = (f"{FOLDER}/", PARTS)


@dataclass(frozen=True, slots=True)
class TableOwner:
    """Whose file it is: a table or topic, as access rules name it."""

    name: str
    namespace: str  # of the topic; empty: not of a topic
    writable: bool


class TableFiles:
    def __init__(
        self, log: Log, store: ObjectStore, streams: StreamService, catalog: Catalog, locations: S3Locations
    ) -> None:
        self._log = log
        self._store = store
        self._streams = streams
        self._catalog = catalog
        self.locations = locations
        self._names: dict[str, TableName] = {}  # by folder: the table that was found there last

    def owner(self, key: str) -> TableOwner | None:
        """None: that table or topic does not exist."""
        if key.startswith(PARTS):
            return self._of_topic(key.removeprefix(PARTS).partition("/")[0])
        if not key.startswith(f"{FOLDER}/"):
            return None
        table = self._table_of(key)
        if table is None:
            return None
        if table.topic_id:
            return self._of_topic(table.topic_id.hex())
        name = self._catalog.rule_name(table.namespace, table.name)
        return TableOwner(name, split(name)[0], True)

    @staticmethod
    def may_be_staged(key: str) -> bool:
        """Whether a file that belongs to no table may be one of a table whose creation is staged."""
        return key.startswith(f"{FOLDER}/") and f"{TOPIC_SUFFIX}/" not in key and key.count("/") > 2

    def _table_of(self, key: str) -> Table | None:
        """The table in whose folder a file is. A client may have put a table around a namespace that came later: the
        inner folder decides."""
        short = "/".join(key.split("/", 3)[:3])
        known = self._names.get(short)
        found = None if known is None else self._log.ledger.tables.get(*known)
        if found is not None and self._folder(found) == short:
            return found
        around = [each for each in self._catalog.all_tables() if key.startswith(f"{self._folder(each)}/")]
        table = max(around, key=lambda each: len(self._folder(each)), default=None)
        if table is not None and self._folder(table) == short:
            if len(self._names) >= NAMES_KEPT:
                self._names.clear()
            self._names[short] = (table.namespace, table.name)
        return table

    def _folder(self, table: Table) -> str:
        return self._catalog.key_of(table.location).rpartition("/metadata/")[0]

    def _of_topic(self, id: str) -> TableOwner | None:
        try:
            topic = self._streams.get_by_id(bytes.fromhex(id))
        except ValueError:
            return None
        return None if topic is None else TableOwner(topic.name, topic.namespace, False)

    def prefixes_of(self, table_location: str, topic_id: bytes) -> tuple[str, ...]:
        """The prefixes of the keys of a table's files."""
        folder = self._catalog.key_of(table_location).rpartition("/metadata/")[0] + "/"
        return (folder, f"{PARTS}{topic_id.hex()}/") if topic_id else (folder,)

    async def head(self, key: str) -> ObjectVersion:
        """Raises ObjectNotFound."""
        found = await self._stored(key)
        if is_converted(key):
            size = len(await self.locations.get(key))
            found = StoredObject(key, size, found.modified_ms)
        return _described(found)

    async def converted(self, key: str) -> bytes | None:
        """The content of an object that is not served as it is stored."""
        return await self.locations.get(key) if is_converted(key) else None

    def spans(self, key: str, start: int, length: int) -> list[Span]:
        return [Span(key, start, length)]

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, ObjectVersion]]:
        """The files of all tables, by key."""
        left = LISTED_MAX
        for folder in sorted(_FOLDERS):
            if not (folder.startswith(prefix) or prefix.startswith(folder)):
                continue
            async for found in self._store.list(max(folder, prefix)):
                left -= 1
                if left < 0:
                    return
                if is_converted(found.key):
                    yield found.key, await self.head(found.key)
                else:
                    yield found.key, _described(found)

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> ObjectVersion:
        """Store a file of a user's own table. Raises InvalidName."""
        check_key(key)
        await self._store.put_stream(key, chunks)
        return await self.head(key)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)

    async def _stored(self, key: str) -> StoredObject:
        try:
            check_key(key)
        except InvalidName:
            raise ObjectNotFound(key) from None
        if not key.startswith(_FOLDERS):
            raise ObjectNotFound(key)
        return await self._store.head(key)


def _described(found: StoredObject) -> ObjectVersion:
    digest = hashlib.md5(
        f"{found.key}\0{found.size_bytes}\0{found.modified_ms}".encode(), usedforsecurity=False
    )
    return ObjectVersion("null", found.modified_ms, found.size_bytes, digest.hexdigest())
