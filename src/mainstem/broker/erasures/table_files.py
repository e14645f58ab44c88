"""What an erasure waits for among the files of tables: parts that serve reads, snapshots, and files they replaced.

The lake's driver does the work: it rewrites parts and publishes tables. The broker tells it which snapshots to remove
(`TableWork.erased`), and deletes replaced files after their grace period, as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from mainstem import limits
from mainstem.errors import NotFound
from mainstem.ledger.erasures import Erasure
from mainstem.ledger.parts import prefix_of
from mainstem.ledger.table import Table
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.ports.objectstore.blocking import open_blocking
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.ports.objectstore.refusals import RefusalsAsOutages
from mainstem.tables.catalog import Catalog
from mainstem.tables.garbage import lease_token

_DRIVER = "the lake's driver (`mainstem lake run`)"


class TableErasure:
    def __init__(
        self, log: Log, objects: ObjectStore, objects_url: str, catalog: Catalog, clock: Clock
    ) -> None:
        self._log = log
        self._objects = objects
        self._objects_url = objects_url
        self._catalog = catalog
        self._clock = clock
        self._listed_s: dict[str, float] = {}  # by id: when files of tables were last listed

    def stale_parts(self, one: Erasure) -> str:
        """Which parts that serve reads still hold deleted records, if any."""
        for topic in self._topics(one):
            stale = sum(len(self._log.ledger.generations.stale(stream)) for stream in topic.streams)
            if stale:
                return f"{_DRIVER} must rewrite {stale} parts of topic {topic.name!r}"
        return ""

    async def left(self, one: Erasure) -> str:
        """What still holds the records although no read is served from it, if anything."""
        waits_for = await self._published(one) or self._garbage(one) or await self._unfinished_files(one)
        if waits_for:
            return waits_for
        now = self._clock.monotonic()
        if one.id in self._listed_s and now - self._listed_s[one.id] < limits.LAKE_COLLECT_EVERY_S:
            return "files that a killed driver left must be an hour old before they are deleted"
        self._listed_s[one.id] = now
        waits_for = await self._orphans(one)
        if not waits_for:
            del self._listed_s[one.id]
        return waits_for

    def _topics(self, one: Erasure) -> Iterator[Topic]:
        for covered in one.topics:
            topic = self._log.ledger.topics.by_id(covered.topic_id)
            if topic is not None:
                yield topic

    def _tables(self, one: Erasure) -> Iterator[tuple[Topic, Table]]:
        for topic in self._topics(one):
            for kind in ("records", "errors"):
                table = self._log.ledger.tables.of_topic(topic.topic_id, kind)
                if table is not None:
                    yield topic, table

    async def _published(self, one: Erasure) -> str:
        """Tables must show the rewritten parts, and have no other snapshot of before."""
        for topic, table in self._tables(one):
            parts = self._log.ledger.generations.parts
            changes = [table.stream(stream).pending(parts(stream)) for stream in topic.streams]
            if any(old for some in changes for old, _ in some):
                return f"{_DRIVER} must publish the rewritten parts to table {table.name!r}"
            current = (await self._metadata(table)).current_snapshot_id
            old_ones = [id for id, at in table.snapshots.items() if at <= one.position and id != current]
            if old_ones:
                return f"{_DRIVER} must remove {len(old_ones)} snapshots of table {table.name!r}"
        return ""

    async def _metadata(self, table: Table) -> Any:
        try:
            return await self._catalog.metadata_at(table.location)
        except NotFound:  # replaced meanwhile
            return await self._catalog.metadata_at(table.location)

    def _garbage(self, one: Erasure) -> str:
        topic_ids = {topic.topic_id for topic in one.topics}
        left = sum(
            found.topic_id in topic_ids and found.position <= one.position
            for found in self._log.ledger.generations.garbage()
        )
        return f"current readers may still use {left} replaced files of tables" if left else ""

    async def _unfinished_files(self, one: Erasure) -> str:
        """Files of a local store that killed processes did not complete."""
        store = self._objects.inner if isinstance(self._objects, RefusalsAsOutages) else self._objects
        if not isinstance(store, LocalObjectStore):
            return ""
        left = 0
        for path, changed_ms in await store.staged_files():
            if changed_ms < self._clock.now_ms() - limits.LAKE_ORPHAN_GRACE_MS:
                await store.discard(path)
            else:
                left += changed_ms <= one.changed_ms
        return f"{left} unfinished files in the object store may belong to running programs" if left else ""

    async def _orphans(self, one: Erasure) -> str:
        """Complete files that killed workers and publishers left: nothing refers to them."""
        generations, tasks = self._log.ledger.generations, self._log.ledger.tasks
        held = {lease.token for lease in tasks}
        for topic in self._topics(one):
            for stream in topic.streams:
                async for found in self._objects.list(prefix_of(topic, stream)):
                    known = generations.knows(found.key) or lease_token(found.key) in held
                    if not known and found.modified_ms <= one.changed_ms:
                        return f"files that a killed worker left for topic {topic.name!r} must be an hour old"
        for _, table in self._tables(one):
            if await asyncio.to_thread(
                self._unreferenced, await self._metadata(table), table, one.changed_ms
            ):
                return f"files that a killed publisher left for table {table.name!r} must be an hour old"
        return ""

    def _unreferenced(self, metadata: Any, table: Table, before_ms: int) -> list[str]:
        # PyIceberg is slow to import, and only tables need it.
        from mainstem.tables.file_io import StoreIO
        from mainstem.tables.publishing.snapshots import unreferenced_files

        files = StoreIO(open_blocking(self._objects_url), self._catalog.store_url)
        found = unreferenced_files(metadata, table.location, table.kind, files, before_ms)
        return [location for location in found if not location.endswith(".metadata.json")]
