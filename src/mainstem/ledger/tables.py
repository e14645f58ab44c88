"""The catalog: namespaces and tables by name, where each table's metadata is, and which parts it publishes.

A table moves from one metadata file to the next by compare-and-swap, decided here. A topic's table also records which
parts of the topic's streams it publishes, so that a part is published once, and no file is deleted while a snapshot
names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from mainstem import limits
from mainstem.api.lake import PartChange, TableKind
from mainstem.errors import (
    InvalidInput,
    InvalidName,
    LimitReached,
    MainstemError,
    NamespaceExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableChanged,
    TableExists,
    TableNotFound,
    TopicNotFound,
)
from mainstem.ledger.digest import MASK
from mainstem.ledger.generations import Generations
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.namespaces import Namespaces
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.table import Declaration, PublishedParts, Table, TableState
from mainstem.ledger.topics import Topic, TopicDeletedEvent, Topics

NAMESPACE_CHARS_MAX = 2_048  # all levels together
TABLES_MAX = 100_000
NAMESPACE_PROPERTIES_CHARS_MAX = 64 * limits.KIB  # of one namespace, names and values
TABLE_SNAPSHOTS_HELD_MAX = 10_000  # of a topic's table; its publisher keeps far fewer


class CreateNamespace(Command, frozen=True, tag=100):
    """Levels are joined by U+001F, as Iceberg clients send them."""

    namespace: str
    properties: tuple[tuple[str, str], ...] = ()


class DropNamespace(Command, frozen=True, tag=101):
    namespace: str


class PutNamespaceProperties(Command, frozen=True, tag=102):
    namespace: str
    updates: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()


class CreateTable(Command, frozen=True, tag=103):
    namespace: str
    name: str
    table_id: bytes  # 16 random bytes, the table's UUID
    location: str  # of its first metadata
    topic_id: bytes = b""  # of its topic; empty: a user's own table
    kind: TableKind = "records"


class TableCommit(msgspec.Struct, frozen=True, array_like=True):
    """Replace one table's metadata file by the next, if it still has the expected one."""

    namespace: str
    name: str
    table_id: bytes
    expected: str  # location of the metadata it starts from
    location: str  # of the new metadata; if it is the same, only the changes are recorded
    changes: tuple[PartChange, ...] = ()
    added_snapshots: tuple[int, ...] = ()
    removed_snapshots: tuple[int, ...] = ()


class NewTable(msgspec.Struct, frozen=True, array_like=True):
    """A user's table that a transaction creates."""

    namespace: str
    name: str
    table_id: bytes
    location: str  # of its first metadata


class CommitTables(Command, frozen=True, tag=104):
    """Commit all of these, or none."""

    commits: tuple[TableCommit, ...]
    created: tuple[NewTable, ...] = ()


class DropTable(Command, frozen=True, tag=105):
    namespace: str
    name: str
    table_id: bytes


class RenameTable(Command, frozen=True, tag=106):
    """Only a user's own table: a topic's table has the topic's name."""

    namespace: str
    name: str
    table_id: bytes
    new_namespace: str
    new_name: str


class DeclareTable(Command, frozen=True, tag=107):
    """Set the columns of a topic's tables besides the raw ones, and a further destination."""

    topic_id: bytes
    expected: int  # revision of the declaration that this one replaces; 0 = there was none
    columns: str = ""  # JSON, with the permanent ids of the columns; empty: raw columns only
    copy: str = ""  # another table that also gets the records: URL of a Delta table, or `iceberg:NAME`
    keeps_parts: bool = False  # the parts need no rewrite: their records have no value in new columns


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    namespace: str


@dataclass(frozen=True, slots=True)
class TableSettled:
    """The result of CreateTable, DropTable and RenameTable: the name that was assigned or freed."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TablesCommitted:
    tables: int


@dataclass(frozen=True, slots=True)
class TableDeclared:
    revision: int
    columns_changed: bool


DEFAULT_NAMESPACE = "default"  # of the tables of topics in the default namespace: it is always there
LEVELS = "\x1f"  # joins the levels of a namespace, as in the paths of the catalog


def table_namespace(topic_namespace: str) -> str:
    """The namespace of the tables of a namespace of topics: each word is a level."""
    return topic_namespace.replace("/", LEVELS)


Properties = tuple[tuple[str, str], ...]
TableName = tuple[str, str]  # namespace and name


class Namespace(msgspec.Struct, frozen=True, array_like=True):
    """One namespace; also the form in a checkpoint."""

    name: str
    properties: Properties


class TablesState(msgspec.Struct, frozen=True, array_like=True):
    namespaces: list[Namespace]
    tables: list[TableState]
    declarations: list[Declaration]


class Tables(Section[TablesState]):
    """Every namespace, table and declaration of a topic's tables."""

    requires = (Topics, Generations, Namespaces)

    def __init__(self, topics: Topics, generations: Generations, of_topics: Namespaces) -> None:
        self._topics = topics
        self._topic_namespaces = of_topics
        self._generations = generations
        self._namespaces: Keyed[str, Namespace] = Keyed(fields_hash("namespace"))
        self._tables: Keyed[TableName, Table] = Keyed(attrgetter("digest"))
        self._of_topics: dict[bytes, dict[TableKind, Table]] = {}
        self._declarations: Keyed[bytes, Declaration] = Keyed(fields_hash("declaration"))

    # Reads

    def namespaces(self) -> list[str]:
        of_topics = (table_namespace(namespace.name) for namespace in self._topic_namespaces)
        return sorted({*of_topics, *self._namespaces.keys()})

    def of_topics(self, namespace: str) -> bool:
        """Whether a namespace of topics has its tables there, or below."""
        if "/" in namespace:
            return False
        name = namespace.replace(LEVELS, "/")
        return name in self._topic_namespaces or any(
            one.name.startswith(f"{name}/") for one in self._topic_namespaces
        )

    def rule_name(self, namespace: str, table: str) -> str:
        """A table that shows no topic, as access rules write it: `table` in namespace default, else `space.table`;
        in a namespace of topics `acme/shop/table`, and below that `acme/shop/space.table`."""
        if namespace == DEFAULT_NAMESPACE:
            return table
        levels = namespace.split(LEVELS)
        words = next((count for count in (2, 1) if "/".join(levels[:count]) in self._topic_namespaces), 0)
        if levels[0] == DEFAULT_NAMESPACE:
            words = 0
        owner = "".join(f"{word}/" for word in levels[:words])
        return owner + ".".join((*levels[words:], table))

    def properties(self, namespace: str) -> Properties | None:
        """The properties of a namespace; None if it does not exist."""
        found = self._namespaces.get(namespace)
        if found is not None:
            return found.properties
        return () if self.of_topics(namespace) else None

    def get(self, namespace: str, name: str) -> Table | None:
        return self._tables.get((namespace, name))

    def of_topic(self, topic_id: bytes, kind: TableKind = "records") -> Table | None:
        return self._of_topics.get(topic_id, {}).get(kind)

    def shown_to(self, topic_id: bytes, stream: int) -> set[int]:
        """The offsets up to which the topic's tables publish this stream."""
        return {table.stream(stream).to for table in self._of_topics.get(topic_id, {}).values()}

    def declaration(self, topic_id: bytes) -> Declaration:
        return self._declarations.get(topic_id) or Declaration(topic_id, 0, "", "")

    def __iter__(self) -> Iterator[Table]:
        """By namespace and name."""
        return iter(self._tables)

    def protects(self, topic_id: bytes, retired_position: int) -> bool:
        """Whether a retained snapshot may name files that were retired at that position of the ledger."""
        table = self.of_topic(topic_id)
        return table is not None and any(at <= retired_position for at in table.snapshots.values())

    # Namespaces

    @applies(CreateNamespace)
    def create_namespace(self, command: CreateNamespace, now: Moment) -> NamespaceChanged | MainstemError:
        refusal = _bad_namespace(command.namespace) or _bad_properties(dict(command.properties))
        if refusal:
            return refusal
        if self.properties(command.namespace) is not None:
            return NamespaceExists(command.namespace)
        full = self._namespaces.refusal(command.namespace, limits.NAMESPACES_MAX, "namespaces")
        if full is not None:
            return full
        self._put_namespace(command.namespace, dict(command.properties))
        return NamespaceChanged(command.namespace)

    @applies(DropNamespace)
    def drop_namespace(self, command: DropNamespace, now: Moment) -> NamespaceChanged | MainstemError:
        if self.properties(command.namespace) is None:
            return NamespaceNotFound(command.namespace)
        if self.of_topics(command.namespace):
            return InvalidInput(
                f"namespace {command.namespace.replace(LEVELS, '.')!r} holds topics: the catalog cannot drop it"
            )
        if any(table.namespace == command.namespace for table in self._tables.unordered()):
            return NamespaceNotEmpty(command.namespace)
        self._namespaces.pop(command.namespace)
        return NamespaceChanged(command.namespace)

    @applies(PutNamespaceProperties)
    def put_properties(
        self, command: PutNamespaceProperties, now: Moment
    ) -> NamespaceChanged | MainstemError:
        present = self.properties(command.namespace)
        if present is None:
            return NamespaceNotFound(command.namespace)
        changed = dict(present) | dict(command.updates)
        for name in command.removals:
            changed.pop(name, None)
        refusal = _bad_properties(changed)
        if refusal:
            return refusal
        if changed or not self.of_topics(command.namespace):
            self._put_namespace(command.namespace, changed)
        else:
            self._namespaces.pop(command.namespace)
        return NamespaceChanged(command.namespace)

    def _put_namespace(self, name: str, properties: dict[str, str]) -> None:
        self._namespaces.put(name, Namespace(name, tuple(sorted(properties.items()))))

    # Tables

    @applies(CreateTable)
    def create(self, command: CreateTable, now: Moment) -> TableSettled | MainstemError:
        refusal = self._bad_creation(command)
        if refusal:
            return refusal
        self._put(
            Table(
                command.namespace,
                command.name,
                command.table_id,
                command.location,
                command.topic_id,
                command.kind,
            )
        )
        return TableSettled(command.namespace, command.name)

    @applies(DropTable)
    def drop(self, command: DropTable, now: Moment) -> TableSettled | MainstemError:
        table = self._found(command.namespace, command.name, command.table_id)
        if isinstance(table, MainstemError):
            return table
        self._remove(table)
        return TableSettled(command.namespace, command.name)

    @applies(RenameTable)
    def rename(self, command: RenameTable, now: Moment) -> TableSettled | MainstemError:
        table = self._found(command.namespace, command.name, command.table_id)
        if isinstance(table, MainstemError):
            return table
        if table.topic_id:
            return InvalidInput(f"table {command.name!r} belongs to a topic and cannot be renamed")
        refusal = self._bad_new_name(command.new_namespace, command.new_name)
        if refusal:
            return refusal
        self._remove(table)
        table.namespace, table.name = command.new_namespace, command.new_name
        self._put(table)
        return TableSettled(table.namespace, table.name)

    @applies(DeclareTable)
    def declare(self, command: DeclareTable, now: Moment) -> TableDeclared | MainstemError:
        topic = self._topics.by_id(command.topic_id)
        if topic is None:
            return TopicNotFound(command.topic_id.hex())
        present = self.declaration(command.topic_id)
        if command.expected != present.revision:
            return TableChanged("the declaration of the table has changed: read it again")
        declared = Declaration(command.topic_id, present.revision + 1, command.columns, command.copy)
        self._declarations.put(command.topic_id, declared)
        columns_changed = declared.columns != present.columns
        if columns_changed and not command.keeps_parts:
            for stream in topic.streams:
                self._generations.outdate(stream)
        return TableDeclared(declared.revision, columns_changed)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        """The tables of a deleted topic are deleted."""
        topic_id = event.topic.topic_id
        for table in list(self._of_topics.get(topic_id, {}).values()):
            self._remove(table)
        self._declarations.pop(topic_id)

    # Commits

    @applies(CommitTables)
    def commit(self, command: CommitTables, now: Moment) -> TablesCommitted | MainstemError:
        if len(command.commits) + len(command.created) > limits.TABLES_PER_COMMIT_MAX:
            return InvalidInput(f"a transaction changes at most {limits.TABLES_PER_COMMIT_MAX} tables")
        found = []
        for each in command.commits:
            table = self._found(each.namespace, each.name, each.table_id)
            refusal = table if isinstance(table, MainstemError) else self._bad_commit(table, each)
            if refusal:
                return refusal
            found.append(table)
        if len({id(table) for table in found}) != len(found):
            return InvalidInput("a transaction names a table twice")
        creations = [
            CreateTable(new.namespace, new.name, new.table_id, new.location) for new in command.created
        ]
        for creation in creations:
            refusal = self._bad_creation(creation)
            if refusal:
                return refusal
        if len({(new.namespace, new.name) for new in creations}) != len(creations) or len(
            {new.table_id for new in creations}
        ) != len(creations):
            return InvalidInput("a transaction names a table twice")
        for table, each in zip(found, command.commits, strict=True):
            if isinstance(table, Table):
                self._step(table, each, now.position)
        for creation in creations:
            self.create(creation, now)
        return TablesCommitted(len(found) + len(creations))

    def _bad_commit(self, table: Table, commit: TableCommit) -> MainstemError | None:
        if table.location != commit.expected:
            return TableChanged(f"table {commit.name!r} was changed by another commit: load it again")
        refusal = _bad_location(commit.location)
        if refusal:
            return refusal
        topic = self._topics.by_id(table.topic_id)
        if commit.changes and topic is None:
            return InvalidInput(f"table {commit.name!r} does not belong to a topic")
        if len(table.snapshots) + len(commit.added_snapshots) > TABLE_SNAPSHOTS_HELD_MAX:
            return LimitReached(f"table {commit.name!r} holds {len(table.snapshots)} snapshots: expire some")
        return self._bad_changes(table, commit, topic)

    def _bad_changes(self, table: Table, commit: TableCommit, topic: Topic | None) -> MainstemError | None:
        scratch: dict[int, PublishedParts] = {}  # a commit may change a stream more than once
        for change in commit.changes:
            if topic is None or change.stream not in topic.streams:
                return InvalidInput(
                    f"stream {change.stream} does not belong to the topic of table {commit.name!r}"
                )
            shown = scratch.get(change.stream) or table.stream(change.stream).copy()
            scratch[change.stream] = shown
            why = shown.refusal(change, self._generations.parts(change.stream))
            if why:
                return TableChanged(f"table {commit.name!r}: {why}")
            shown.change(change)
        return None

    def _step(self, table: Table, commit: TableCommit, position: int) -> None:
        table.location = commit.location
        if table.topic_id:
            self._show(table, commit, position)
        self._tables.put((table.namespace, table.name), table)

    def _show(self, table: Table, commit: TableCommit, position: int) -> None:
        for change in commit.changes:
            table.published.setdefault(change.stream, PublishedParts(change.stream)).change(change)
        if all(shown.current(self._generations.parts(shown.stream)) for shown in table.published.values()):
            table.reflected = position
        for snapshot in commit.added_snapshots:
            table.snapshots[snapshot] = table.reflected
        for snapshot in commit.removed_snapshots:
            table.snapshots.pop(snapshot, None)

    # Helpers

    def _found(self, namespace: str, name: str, table_id: bytes) -> Table | TableNotFound:
        table = self._tables.get((namespace, name))
        if table is None or table.table_id != table_id:
            return TableNotFound(namespace, name)
        return table

    def _bad_new_name(self, namespace: str, name: str) -> MainstemError | None:
        refusal = _bad_level(name)
        if refusal:
            return refusal
        if self.properties(namespace) is None:
            return NamespaceNotFound(namespace)
        present = self._tables.get((namespace, name))
        return None if present is None else TableExists(namespace, name, view=present.kind == "view")

    def _bad_creation(self, command: CreateTable) -> MainstemError | None:
        refusal = (
            self._bad_new_name(command.namespace, command.name)
            or self._bad_owner(command)
            or _bad_location(command.location)
        )
        if refusal:
            return refusal
        if len(command.table_id) != 16 or any(
            each.table_id == command.table_id for each in self._tables.unordered()
        ):
            return InvalidInput("a table id has 16 bytes and is unique")
        return self._tables.refusal((command.namespace, command.name), TABLES_MAX, "tables")

    def _bad_owner(self, command: CreateTable) -> MainstemError | None:
        if not command.topic_id:
            return None
        if self._topics.by_id(command.topic_id) is None:
            return TopicNotFound(command.topic_id.hex())
        taken = self.of_topic(command.topic_id, command.kind)
        return None if taken is None else TableExists(taken.namespace, taken.name)

    def _put(self, table: Table) -> None:
        self._tables.put((table.namespace, table.name), table)
        if table.topic_id:
            self._of_topics.setdefault(table.topic_id, {})[table.kind] = table

    def _remove(self, table: Table) -> None:
        self._tables.pop((table.namespace, table.name))
        if table.topic_id:
            kinds = self._of_topics[table.topic_id]
            del kinds[table.kind]
            if not kinds:
                del self._of_topics[table.topic_id]

    # State as a whole

    @property
    def digest(self) -> int:
        return (self._tables.digest + self._namespaces.digest + self._declarations.digest) & MASK

    @property
    def declarations_digest(self) -> int:
        """A digest that changes with every declaration."""
        return self._declarations.digest

    def encode(self) -> TablesState:
        return TablesState(
            list(self._namespaces),
            [table.encode() for table in self],
            list(self._declarations),
        )

    def load(self, state: TablesState) -> None:
        for namespace in state.namespaces:
            self._namespaces.put(namespace.name, namespace)
        for declaration in state.declarations:
            self._declarations.put(declaration.topic_id, declaration)
        for table in state.tables:
            self._put(Table.decode(table))


def _bad_namespace(namespace: str) -> MainstemError | None:
    if len(namespace) > NAMESPACE_CHARS_MAX:
        return InvalidName(f"a namespace has at most {NAMESPACE_CHARS_MAX} characters")
    for level in namespace.split("\x1f"):
        refusal = _bad_level(level)
        if refusal:
            return refusal
    return None


def _bad_level(name: str) -> InvalidName | None:
    if 1 <= len(name) <= limits.NAME_CHARS_MAX and name.isprintable() and "/" not in name:
        return None
    return InvalidName(
        f"invalid table or namespace name {name[:64]!r}: use 1 to {limits.NAME_CHARS_MAX} printable "
        "characters, and no slash"
    )


def _bad_location(location: str) -> InvalidInput | None:
    if 1 <= len(location) <= limits.TABLE_LOCATION_CHARS_MAX:
        return None
    return InvalidInput(
        f"the location of a table's metadata has 1 to {limits.TABLE_LOCATION_CHARS_MAX} characters, not {len(location)}"
    )


def _bad_properties(properties: dict[str, str]) -> MainstemError | None:
    size = sum(len(name) + len(value) for name, value in properties.items())
    if size <= NAMESPACE_PROPERTIES_CHARS_MAX:
        return None
    return InvalidInput(
        f"the properties of a namespace have at most {NAMESPACE_PROPERTIES_CHARS_MAX} characters, not {size}"
    )
