"""The catalog of tables, which Iceberg clients read and change over REST.

A change has three steps: make new metadata from the old, write it to the object store under a unique name, and propose
one command to the ledger, which decides. A change that loses leaves an unreferenced file, which the sweep deletes.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from mainstem import events, limits
from mainstem.api.lake import PartChange
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    NamespaceNotFound,
    NotFound,
    TableChanged,
    TableExists,
    TableNotFound,
    ViewNotFound,
    described,
)
from mainstem.ledger.table import Table
from mainstem.ledger.tables import (
    DEFAULT_NAMESPACE,
    LEVELS,
    CommitTables,
    CreateNamespace,
    CreateTable,
    DropNamespace,
    DropTable,
    NewTable,
    PutNamespaceProperties,
    RenameTable,
    TableCommit,
    TableName,
    table_namespace,
)
from mainstem.log.log import Log
from mainstem.ports.clock import Random
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.tables import table_metadata, view_metadata
from mainstem.tables.locations import FOLDER, S3_PREFIX, Locations
from mainstem.tables.table_metadata import Changed, TableUpdates

TABLE_METADATA_KEPT = 16  # tables whose parsed metadata a broker caches

__all__ = [
    "DEFAULT_NAMESPACE",
    "FOLDER",
    "LEVELS",
    "S3_PREFIX",
    "TOPIC_SUFFIX",
    "Catalog",
    "LoadedTable",
    "Table",
    "TableChange",
    "TableName",
    "found_in",
    "sanitised",
    "table_namespace",
]

_events = events.named("tables")

ID_DIGITS = 16  # of a table's id, in the name of its folder
TOPIC_SUFFIX = ".topic"  # of the folder of a topic's table: only the server writes there

_TOPIC_FOLDER = re.compile(rf"-([0-9a-f]{{{ID_DIGITS}}}){re.escape(TOPIC_SUFFIX)}/")
_VERSION = re.compile(r"/(\d{1,12})-[0-9a-f-]{36}\.metadata\.json$")
_METADATA_PATH = "write.metadata.path"  # property of a table or view: its folder of metadata


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as clients load it."""

    location: str  # of the metadata
    metadata: bytes  # JSON


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one table in a commit."""

    name: TableName
    asked: TableUpdates
    expected: str = ""  # location of the metadata that the change was made for; empty: the current one
    parts: tuple[PartChange, ...] = ()  # what a topic's table publishes
    owner: bool = False  # may change everything of a topic's table; others may only set properties


class Catalog:
    """`allowed`: URLs of prefixes outside the store below which clients may have tables."""

    def __init__(
        self, log: Log, random: Random, store: ObjectStore, store_url: str, allowed: Sequence[str] = ()
    ) -> None:
        self._log = log
        self._random = random
        self._store = store
        self._locations = Locations(store, store_url, allowed)
        self.store_url = self._locations.store_url
        self._parsed: OrderedDict[str, Any] = OrderedDict()  # location → metadata, most recently used last

    # Namespaces

    def namespaces(self) -> list[str]:
        return self._log.ledger.tables.namespaces()

    def of_topics(self, namespace: str) -> bool:
        """Whether a namespace holds the tables of topics, or one below it does."""
        return self._log.ledger.tables.of_topics(namespace)

    def properties(self, namespace: str) -> dict[str, str]:
        """Raises NamespaceNotFound."""
        found = self._log.ledger.tables.properties(namespace)
        if found is None:
            raise NamespaceNotFound(namespace)
        return dict(found)

    async def create_namespace(self, namespace: str, properties: dict[str, str]) -> None:
        """Raises NamespaceExists, InvalidName."""
        await self._log.propose(CreateNamespace(namespace, tuple(sorted(properties.items()))))

    async def drop_namespace(self, namespace: str) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty."""
        await self._log.propose(DropNamespace(namespace))

    async def change_properties(
        self, namespace: str, updates: dict[str, str], removals: Sequence[str]
    ) -> tuple[list[str], list[str], list[str]]:
        """Returns the names that were updated, removed, and missing although they should be removed."""
        present = self.properties(namespace)
        if set(updates) & set(removals):
            raise InvalidInput("a property cannot be both set and removed")
        command = PutNamespaceProperties(namespace, tuple(sorted(updates.items())), tuple(removals))
        await self._log.propose(command)
        removed = [name for name in removals if name in present]
        return sorted(updates), removed, [name for name in removals if name not in present]

    # Tables

    def all_tables(self) -> Iterable[Table]:
        return self._log.ledger.tables

    def rule_name(self, namespace: str, table: str) -> str:
        """A table that shows no topic, as access rules write it."""
        return self._log.ledger.tables.rule_name(namespace, table)

    def tables(self, namespace: str) -> list[Table]:
        """Raises NamespaceNotFound."""
        return [table for table in self._in(namespace) if table.kind != "view"]

    def views(self, namespace: str) -> list[Table]:
        """Raises NamespaceNotFound."""
        return [table for table in self._in(namespace) if table.kind == "view"]

    def _in(self, namespace: str) -> list[Table]:
        self.properties(namespace)
        return [table for table in self._log.ledger.tables if table.namespace == namespace]

    def find(self, name: TableName) -> Table | None:
        """The table or view of that name."""
        return self._log.ledger.tables.get(*name)

    def table(self, name: TableName) -> Table:
        """Raises TableNotFound, also where the namespace does not exist: engines ask for `table.snapshots` so."""
        table = self.find(name)
        if table is None or table.kind == "view":
            raise TableNotFound(*name)
        return table

    def view(self, name: TableName) -> Table:
        """Raises ViewNotFound."""
        view = self.find(name)
        if view is None or view.kind != "view":
            raise ViewNotFound(*name)
        return view

    async def load(self, name: TableName) -> LoadedTable:
        """Raises TableNotFound."""
        return await self._load(lambda: self.table(name))

    async def load_view(self, name: TableName) -> LoadedTable:
        """Raises ViewNotFound."""
        return await self._load(lambda: self.view(name))

    async def _load(self, find: Callable[[], Table]) -> LoadedTable:
        for _ in range(limits.TABLE_COMMIT_TRIES):
            location = find().location
            try:
                return LoadedTable(location, await self._get(location))
            except NotFound:
                if find().location == location:
                    raise  # else the table changed, and its old metadata was swept
        raise TableChanged(f"table {find().name!r} changes faster than it can be read: try again")

    async def create(self, namespace: str, body: dict[str, Any]) -> LoadedTable:
        """Create a user's own table from the body of a create request. A staged table is not stored or committed."""
        table_name = _text(body, "name")
        self._check_free((namespace, table_name))
        table_id = self._random.token(16)
        folder = self._new_folder(namespace, table_name, table_id, body.get("location"))
        metadata = await asyncio.to_thread(table_metadata.created, body, table_id, folder)
        loaded = await self._written(metadata, folder, 0, store=not body.get("stage-create"))
        if not body.get("stage-create"):
            await self._log.propose(CreateTable(namespace, table_name, table_id, loaded.location))
        return loaded

    async def create_with(
        self, namespace: str, name: str, table_id: bytes, topic_id: bytes, kind: Any, metadata: Any
    ) -> None:
        """Create a topic's table, with metadata made for it. Raises TableExists."""
        loaded = await self._written(metadata, metadata.location, 0)
        await self._log.propose(CreateTable(namespace, name, table_id, loaded.location, topic_id, kind))

    async def register(
        self, namespace: str, body: dict[str, Any], check_place: Callable[[str], None]
    ) -> LoadedTable:
        """Register a table whose metadata is in the store. `check_place` raises for a folder that it may not have.

        Raises TableExists, InvalidInput."""
        location = self._locations.checked(_text(body, "metadata-location"))
        try:
            data = await self._get(location)
        except NotFound:
            raise InvalidInput(f"no metadata at {location[:512]!r}") from None
        metadata = await asyncio.to_thread(table_metadata.parsed, data)
        check_place(self._locations.checked(metadata.location))
        if folder := folder_of_metadata(location):
            check_place(self._locations.checked(folder))
        table_id = metadata.table_uuid.bytes
        await self._log.propose(CreateTable(namespace, _text(body, "name"), table_id, location))
        return LoadedTable(location, data)

    async def drop(self, name: TableName, *, purge: bool = False) -> None:
        """Drop a user's own table. Raises TableNotFound."""
        table = self.table(name)
        if table.topic_id:
            raise InvalidInput(f"table {table.name!r} is the table of a topic: disable it at the topic")
        await self.drop_any(table, purge=purge)

    async def drop_any(self, table: Table, *, purge: bool) -> None:
        """`purge`: delete its objects too, those in its own folder."""
        folder = None
        if purge:
            loaded = await self.load((table.namespace, table.name))
            folder = (await asyncio.to_thread(table_metadata.parsed, loaded.metadata)).location
        await self._log.propose(DropTable(table.namespace, table.name, table.table_id))
        if folder is not None:
            await self.delete_folder(folder)

    async def delete_folder(self, location: str) -> None:
        """Delete the objects of a dropped table, unless another table's folder is in the folder, or around it."""
        store, key = self._locations.find(self._locations.checked(location))
        prefix = f"{key}/"
        for table in self._log.ledger.tables:
            other, used = self._locations.find(table.location)
            theirs = f"{folder_of_metadata(used)}/"
            if other is store and (used.startswith(prefix) or prefix.startswith(theirs)):
                return
        async for found in store.list(prefix):
            await store.delete(found.key)

    async def rename(self, name: TableName, to: TableName) -> None:
        """Raises TableNotFound, NamespaceNotFound, TableExists."""
        table = self.table(name)
        await self._log.propose(RenameTable(*name, table.table_id, *to))

    # Views

    async def create_view(self, namespace: str, body: dict[str, Any]) -> LoadedTable:
        """Raises NamespaceNotFound, TableExists, InvalidInput."""
        name = _text(body, "name")
        self._check_free((namespace, name))
        view_id = self._random.token(16)
        folder = self._new_folder(namespace, name, view_id, body.get("location"))
        view = view_metadata.created(body, view_id, folder)
        loaded = await self._put(view, folder, 0)
        await self._log.propose(CreateTable(namespace, name, view_id, loaded.location, kind="view"))
        return loaded

    async def commit_view(self, name: TableName, asked: TableUpdates) -> LoadedTable:
        """Raises ViewNotFound, TableChanged, InvalidInput."""
        for _ in range(limits.TABLE_COMMIT_TRIES):
            view = self.view(name)
            before = view.location
            after = view_metadata.changed(view_metadata.parsed(await self._get(before)), asked)
            folder = self._locations.checked(after["location"])
            loaded = await self._put(after, folder, _version(before) + 1)
            commit = TableCommit(*name, view.table_id, before, loaded.location)
            try:
                await self._log.propose(CommitTables((commit,)))
            except TableChanged:
                continue
            return loaded
        raise TableChanged("other commits came first each time: try again")

    async def drop_view(self, name: TableName) -> None:
        """Raises ViewNotFound."""
        view = self.view(name)
        await self._log.propose(DropTable(*name, view.table_id))

    async def rename_view(self, name: TableName, to: TableName) -> None:
        """Raises ViewNotFound, NamespaceNotFound, TableExists."""
        view = self.view(name)
        await self._log.propose(RenameTable(*name, view.table_id, *to))

    async def _put(self, view: view_metadata.View, folder: str, version: int) -> LoadedTable:
        location = self._next_location(folder, version, view["properties"])
        data = msgspec.json.encode(view)
        store, key = self._locations.find(location)
        await store.put(key, data)
        return LoadedTable(location, data)

    # Commits

    async def commit(self, change: TableChange) -> LoadedTable:
        return (await self.commit_all([change]))[0]

    async def commit_all(self, changes: Sequence[TableChange]) -> list[LoadedTable]:
        """Commit all of the changes, or none. Raises TableChanged, TableNotFound, InvalidInput."""
        if not 1 <= len(changes) <= limits.TABLES_PER_COMMIT_MAX:
            raise InvalidInput(
                f"a commit may change 1 to {limits.TABLES_PER_COMMIT_MAX} tables, not {len(changes)}"
            )
        for _ in range(limits.TABLE_COMMIT_TRIES):
            prepared = [await self._prepare(change) for change in changes]
            try:
                await self._log.propose(_command([proposed for proposed, _ in prepared]))
            except TableChanged:
                # Another commit came first. The requirements decide whether this one is still valid.
                if any(change.expected for change in changes):
                    raise
                continue
            return [loaded for _, loaded in prepared]
        raise TableChanged("other commits came first each time: try again")

    async def _prepare(self, change: TableChange) -> tuple[TableCommit | CreateTable, LoadedTable]:
        if self._creates(change):
            return await self._prepare_creation(change)
        table = self.table(change.name)
        before = table.location
        if change.expected and change.expected != before:
            raise TableChanged(f"another commit changed table {table.name!r}: load it again")
        if table.topic_id and not change.owner:
            table_metadata.check_harmless(change.asked)
        if change.asked.updates:
            after = await self._changed(before, change)
            self._locations.checked(after.metadata.location)
            loaded = await self._written(after.metadata, after.metadata.location, _version(before) + 1)
        else:
            after = Changed(None, (), ())
            loaded = LoadedTable(before, b"")
        commit = TableCommit(
            table.namespace,
            table.name,
            table.table_id,
            before,
            loaded.location,
            change.parts,
            after.added_snapshots if table.topic_id else (),
            after.removed_snapshots if table.topic_id else (),
        )
        return commit, loaded

    def _creates(self, change: TableChange) -> bool:
        return any(each.get("type") == "assert-create" for each in change.asked.requirements)

    async def _prepare_creation(self, change: TableChange) -> tuple[CreateTable, LoadedTable]:
        """A staged creation: the table exists once it is committed."""
        namespace, name = change.name
        if self.find(change.name) is not None:
            exists = self._exists(change.name)
            exists.requirement = not exists.view
            raise exists
        self.properties(namespace)
        after = await asyncio.to_thread(table_metadata.changed, None, None, change.asked)
        if after.metadata.location is None:
            raise InvalidInput("a new table needs a location")
        folder = self._locations.checked(after.metadata.location)
        loaded = await self._written(after.metadata, folder, 0)
        return CreateTable(namespace, name, after.metadata.table_uuid.bytes, loaded.location), loaded

    def _check_free(self, name: TableName) -> None:
        """Raises TableExists, NamespaceNotFound."""
        if self.find(name) is not None:
            raise self._exists(name)
        self.properties(name[0])

    def _exists(self, name: TableName) -> TableExists:
        present = self.find(name)
        return TableExists(*name, view=present is not None and present.kind == "view")

    # Metadata

    async def metadata_at(self, location: str) -> Any:
        """PyIceberg's metadata; do not modify it."""
        found = self._parsed.get(location)
        if found is None:
            data = await self._get(location)
            found = await asyncio.to_thread(table_metadata.parsed, data)
            self._keep(location, found)
        else:
            self._parsed.move_to_end(location)
        return found

    async def _changed(self, location: str, change: TableChange) -> Changed:
        try:
            metadata = await self.metadata_at(location)
        except NotFound:
            raise TableChanged("the table changed while it was read: load it again") from None
        return await asyncio.to_thread(
            table_metadata.changed, metadata, location, change.asked, trusted=change.owner
        )

    async def _written(self, metadata: Any, folder: str, version: int, *, store: bool = True) -> LoadedTable:
        location = self._next_location(folder, version, metadata.properties)
        data = await asyncio.to_thread(table_metadata.written, metadata)
        if store:
            objects, key = self._locations.find(location)
            await objects.put(key, data)
            self._keep(location, metadata)
        return LoadedTable(location if store else "", data)

    def _next_location(self, folder: str, version: int, properties: Mapping[str, str]) -> str:
        name = uuid.UUID(bytes=self._random.token(16))
        path = str(properties.get(_METADATA_PATH, "")).rstrip("/")
        if not path.startswith(f"{folder}/"):  # the server writes into the folder of the table only
            path = f"{folder}/metadata"
        elif not folder_of_metadata(f"{path}/").startswith(folder):  # by that name a table's folder is found
            path = f"{path}/metadata"
        return f"{self._locations.checked(path)}/{version:05}-{name}.metadata.json"

    async def _get(self, location: str) -> bytes:
        store, key = self._locations.find(location)
        return await store.get(key)

    def _keep(self, location: str, metadata: Any) -> None:
        self._parsed[location] = metadata
        while len(self._parsed) > TABLE_METADATA_KEPT:
            self._parsed.popitem(last=False)

    # Relocation

    async def relocate_tables(self) -> None:
        """Rewrite the file locations of tables whose store had another URL when they were written.

        A table that cannot be relocated stays as it is, and fails when it is used."""
        for table in list(self._log.ledger.tables):
            if not self._locations.holds(table.location):
                try:
                    await self._relocate_table(table)
                except TableChanged:
                    continue  # another broker was first
                except MainstemError as error:
                    _events.warning("table not relocated", table=table.name, error=str(error))

    async def _relocate_table(self, table: Table) -> None:
        before = table.location
        key, content = await found_in(self._store, before)
        if table.kind == "view":
            view = view_metadata.parsed(content)
            moved = view["location"].replace(before.removesuffix(key), f"{self.store_url}/", 1)
            loaded = await self._put({**view, "location": moved}, moved, _version(before) + 1)
            commit = TableCommit(table.namespace, table.name, table.table_id, before, loaded.location)
            await self._log.propose(CommitTables((commit,)))
            return
        table_metadata.check_available()
        from mainstem.tables.relocation import Relocation

        old, prefix = before.removesuffix(key), self._random.token(8).hex()
        store = BlockingStore(self._store, asyncio.get_running_loop())
        relocation = Relocation(store, old, f"{self.store_url}/", prefix)
        metadata = await asyncio.to_thread(relocation.run, content)
        loaded = await self._written(metadata, metadata.location, _version(before) + 1)
        name = (table.namespace, table.name, table.table_id)
        await self._log.propose(CommitTables((TableCommit(*name, before, loaded.location),)))
        _events.info("table relocated", table=table.name, snapshots=len(metadata.snapshots))

    # Locations

    def folder_of(self, namespace: str, name: str, table_id: bytes, suffix: str = "") -> str:
        """The folder of a table's own objects. It includes the id: a later table of the same name is another table."""
        own = f"{sanitised(name)[:200]}-{table_id.hex()[:ID_DIGITS]}{suffix}"
        return f"{self.location_of(namespace)}/{own}"

    async def sweep_topics(self, before_ms: int) -> int:
        """Delete old objects of topics' tables that no longer exist. Returns how many.

        Deleting a topic drops its tables in the ledger at once; this finds what they left in the store."""
        known = {table.table_id.hex()[:ID_DIGITS] for table in self._log.ledger.tables}
        deleted = 0
        async for found in self._store.list(f"{FOLDER}/"):
            named = _TOPIC_FOLDER.search(found.key)
            if named and named[1] not in known and found.modified_ms < before_ms:
                try:
                    await self._store.delete(found.key)
                except Exception as error:  # noqa: BLE001 - continue with the files of other tables
                    _events.warning("file not deleted", key=found.key, error=described(error))
                else:
                    deleted += 1
        return deleted

    def key_of(self, location: str) -> str:
        return self._locations.key_of(location)

    def location_of(self, namespace: str) -> str:
        """Where tables of a namespace are, unless a client or the namespace names another place."""
        return f"{self.store_url}/{FOLDER}/{sanitised(namespace)[:200]}"

    def place_of(self, namespace: str) -> str:
        """Where new tables of a namespace are. Raises NamespaceNotFound."""
        return self.properties(namespace).get("location") or self.location_of(namespace)

    def _new_folder(self, namespace: str, name: str, table_id: bytes, location: object) -> str:
        """The folder of a new table: the client's, else one below the location of the namespace."""
        if location is not None:
            return self._locations.checked(location)
        base = self.properties(namespace).get("location")
        if base is None:
            return self.folder_of(namespace, name, table_id)
        return f"{self._locations.checked(base)}/{sanitised(name)[:200]}-{table_id.hex()[:ID_DIGITS]}"


async def found_in(store: ObjectStore, location: str) -> tuple[str, bytes]:
    """The key and the content of metadata in a store whose URL may differ from the one in its location.

    Raises NotFound."""
    at = location.find(f"/{FOLDER}/")
    while at >= 0:
        try:
            return location[at + 1 :], await store.get(location[at + 1 :])
        except NotFound:
            at = location.find(f"/{FOLDER}/", at + 1)
    raise NotFound(f"the metadata {location!r} is not in this store")


def folder_of_metadata(location: str) -> str:
    """The folder of the table whose metadata is at a location."""
    return location.rpartition("/metadata/")[0]


def sanitised(name: str) -> str:
    """A name that every engine accepts: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _command(proposed: Sequence[TableCommit | CreateTable]) -> CommitTables | CreateTable:
    """One command for everything a transaction proposes."""
    commits = tuple(each for each in proposed if isinstance(each, TableCommit))
    created = tuple(each for each in proposed if isinstance(each, CreateTable))
    if len(created) == 1 and not commits:
        return created[0]
    new = tuple(NewTable(each.namespace, each.name, each.table_id, each.location) for each in created)
    return CommitTables(commits, new)


def _version(location: str) -> int:
    found = _VERSION.search(location)
    return int(found.group(1)) if found else -1


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} is missing")
    return value
