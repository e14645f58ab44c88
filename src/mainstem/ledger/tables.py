"""The catalog: namespaces and tables by name, where each table's metadata is, and what it shows of its topic.

A table moves from one metadata to the next by compare-and-swap, decided here. A topic's table also notes which
parts of the topic's streams it shows, so that a part is published once, and no file is deleted while a
snapshot names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from mainstem import limits
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
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.published_parts import PartsOf, PublishedParts
from mainstem.ledger.results import NamespaceChanged, TableDeclared, TablesCommitted, TableSettled
from mainstem.ledger.table import Declaration, Table, TableState
from mainstem.ledger.table_commands import (
    CommitTables,
    CreateNamespace,
    CreateTable,
    DeclareTable,
    DropNamespace,
    DropTable,
    PutNamespaceProperties,
    RenameTable,
    TableCommit,
    TableKind,
)
from mainstem.ledger.topics import Topic

DEFAULT_NAMESPACE = "default"  # where topics are, and so their tables: it is always there

Properties = tuple[tuple[str, str], ...]
TableName = tuple[str, str]  # namespace and name


class TopicsById(Protocol):
    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic, if it still exists."""
        ...


class TablesState(msgspec.Struct, frozen=True, array_like=True):
    namespaces: list[tuple[str, Properties]] = []
    tables: list[TableState] = []
    declarations: list[tuple[bytes, Declaration]] = []


class Tables:
    """Every namespace and table. `parts_of` gives the parts that serve a stream now."""

    def __init__(self, topics: TopicsById, parts_of: PartsOf) -> None:
        self._topics = topics
        self._parts_of = parts_of
        self._namespaces: dict[str, Properties] = {}
        self._tables: dict[TableName, Table] = {}
        self._of_topics: dict[bytes, dict[TableKind, Table]] = {}
        self._declarations: dict[bytes, Declaration] = {}
        self._sum = 0  # of the tables' digests

    # Reads

    def namespaces(self) -> list[str]:
        return sorted({DEFAULT_NAMESPACE, *self._namespaces})

    def properties(self, namespace: str) -> Properties | None:
        """Of a namespace; None if it does not exist."""
        return self._namespaces.get(namespace, () if namespace == DEFAULT_NAMESPACE else None)

    def get(self, namespace: str, name: str) -> Table | None:
        return self._tables.get((namespace, name))

    def of_topic(self, topic_id: bytes, kind: TableKind = "records") -> Table | None:
        return self._of_topics.get(topic_id, {}).get(kind)

    def shown_to(self, topic_id: bytes, stream: int) -> set[int]:
        """Where each of the topic's tables ends, of this stream."""
        return {table.stream(stream).to for table in self._of_topics.get(topic_id, {}).values()}

    def declaration(self, topic_id: bytes) -> Declaration:
        return self._declarations.get(topic_id, Declaration(0, "", ""))

    def __iter__(self) -> Iterator[Table]:
        """By namespace and name."""
        return iter(table for _, table in sorted(self._tables.items()))

    def protects(self, topic_id: bytes, retired_position: int) -> bool:
        """A snapshot that is kept may name files which left the topic at that position of the ledger."""
        table = self.of_topic(topic_id)
        return table is not None and any(at <= retired_position for at in table.snapshots.values())

    # Namespaces

    def create_namespace(self, command: CreateNamespace) -> NamespaceChanged | MainstemError:
        refusal = _bad_namespace(command.namespace) or _bad_properties(dict(command.properties))
        if refusal:
            return refusal
        if self.properties(command.namespace) is not None:
            return NamespaceExists(command.namespace)
        if len(self._namespaces) >= limits.NAMESPACES_MAX:
            return LimitReached(
                f"there are {limits.NAMESPACES_MAX} namespaces, the most there may be: drop some"
            )
        self._namespaces[command.namespace] = tuple(sorted(dict(command.properties).items()))
        return NamespaceChanged(command.namespace)

    def drop_namespace(self, command: DropNamespace) -> NamespaceChanged | MainstemError:
        if self.properties(command.namespace) is None:
            return NamespaceNotFound(command.namespace)
        if command.namespace == DEFAULT_NAMESPACE:
            return InvalidInput("the default namespace is that of the topics, and stays")
        if any(table.namespace == command.namespace for table in self._tables.values()):
            return NamespaceNotEmpty(command.namespace)
        del self._namespaces[command.namespace]
        return NamespaceChanged(command.namespace)

    def put_properties(self, command: PutNamespaceProperties) -> NamespaceChanged | MainstemError:
        present = self.properties(command.namespace)
        if present is None:
            return NamespaceNotFound(command.namespace)
        changed = dict(present) | dict(command.updates)
        for name in command.removals:
            changed.pop(name, None)
        refusal = _bad_properties(changed)
        if refusal:
            return refusal
        if changed or command.namespace != DEFAULT_NAMESPACE:
            self._namespaces[command.namespace] = tuple(sorted(changed.items()))
        else:
            self._namespaces.pop(command.namespace, None)
        return NamespaceChanged(command.namespace)

    # Tables

    def create(self, command: CreateTable) -> TableSettled | MainstemError:
        refusal = (
            self._bad_new_name(command.namespace, command.name)
            or self._bad_owner(command)
            or _bad_location(command.location)
        )
        if refusal:
            return refusal
        if len(command.table_id) != 16 or any(
            each.table_id == command.table_id for each in self._tables.values()
        ):
            return InvalidInput("a table needs 16 bytes of its own as its id")
        if len(self._tables) >= limits.TABLES_MAX:
            return LimitReached(f"there are {limits.TABLES_MAX} tables, the most there may be: drop some")
        self._put(Table(command))
        return TableSettled(command.namespace, command.name)

    def drop(self, command: DropTable) -> TableSettled | MainstemError:
        table = self._found(command.namespace, command.name, command.table_id)
        if isinstance(table, MainstemError):
            return table
        self._remove(table)
        return TableSettled(command.namespace, command.name)

    def rename(self, command: RenameTable) -> TableSettled | MainstemError:
        table = self._found(command.namespace, command.name, command.table_id)
        if isinstance(table, MainstemError):
            return table
        if table.topic_id:
            return InvalidInput(f"table {command.name!r} is a topic's, and is called what its topic is")
        refusal = self._bad_new_name(command.new_namespace, command.new_name)
        if refusal:
            return refusal
        self._remove(table)
        table.namespace, table.name = command.new_namespace, command.new_name
        self._put(table)
        return TableSettled(table.namespace, table.name)

    def declare(self, command: DeclareTable) -> TableDeclared | MainstemError:
        if self._topics.by_id(command.topic_id) is None:
            return TopicNotFound(command.topic_id.hex())
        present = self.declaration(command.topic_id)
        if command.expected != present.revision:
            return TableChanged("the declaration of the table was changed by someone else: read it again")
        declared = Declaration(present.revision + 1, command.columns, command.delta)
        self._declarations[command.topic_id] = declared
        return TableDeclared(declared.revision, declared.columns != present.columns)

    def forget_topic(self, topic_id: bytes) -> None:
        """The topic is deleted: its tables go with its records."""
        for table in list(self._of_topics.get(topic_id, {}).values()):
            self._remove(table)
        self._declarations.pop(topic_id, None)

    # Commits

    def commit(self, command: CommitTables, position: int) -> TablesCommitted | MainstemError:
        """`position` is the ledger's, by which parts that are replaced are dated as well."""
        if len(command.commits) > limits.TABLES_PER_COMMIT_MAX:
            return InvalidInput(f"a transaction changes up to {limits.TABLES_PER_COMMIT_MAX} tables")
        found = []
        for each in command.commits:
            table = self._found(each.namespace, each.name, each.table_id)
            refusal = table if isinstance(table, MainstemError) else self._bad_commit(table, each)
            if refusal:
                return refusal
            found.append(table)
        if len({id(table) for table in found}) != len(found):
            return InvalidInput("a transaction names a table twice")
        for table, each in zip(found, command.commits, strict=True):
            if isinstance(table, Table):
                self._step(table, each, position)
        return TablesCommitted(len(found))

    def _bad_commit(self, table: Table, commit: TableCommit) -> MainstemError | None:
        if table.location != commit.expected:
            return TableChanged(f"table {commit.name!r} was changed by another commit: load it again")
        refusal = _bad_location(commit.location)
        if refusal:
            return refusal
        topic = self._topics.by_id(table.topic_id)
        if commit.changes and topic is None:
            return InvalidInput(f"table {commit.name!r} is nobody's topic")
        if len(table.snapshots) + len(commit.added_snapshots) > limits.TABLE_SNAPSHOTS_HELD_MAX:
            return LimitReached(f"table {commit.name!r} holds {len(table.snapshots)} snapshots: expire some")
        return self._bad_changes(table, commit, topic)

    def _bad_changes(self, table: Table, commit: TableCommit, topic: Topic | None) -> MainstemError | None:
        scratch: dict[int, PublishedParts] = {}  # a commit may change a stream more than once
        for change in commit.changes:
            if topic is None or change.stream not in topic.streams:
                return InvalidInput(
                    f"stream {change.stream} is not one of the topic of table {commit.name!r}"
                )
            shown = scratch.get(change.stream) or table.stream(change.stream).copy()
            scratch[change.stream] = shown
            why = shown.refusal(change, self._parts_of(change.stream))
            if why:
                return TableChanged(f"table {commit.name!r}: {why}")
            shown.change(change)
        return None

    def _step(self, table: Table, commit: TableCommit, position: int) -> None:
        self._sum -= table.digest
        table.location = commit.location
        if table.topic_id:
            self._show(table, commit, position)
        self._sum += table.digest

    def _show(self, table: Table, commit: TableCommit, position: int) -> None:
        for change in commit.changes:
            table.published.setdefault(change.stream, PublishedParts(change.stream)).change(change)
        if all(shown.current(self._parts_of(shown.stream)) for shown in table.published.values()):
            table.reflected = position
        for snapshot in commit.added_snapshots:
            table.snapshots[snapshot] = table.reflected
        for snapshot in commit.removed_snapshots:
            table.snapshots.pop(snapshot, None)

    # Inside

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
        return TableExists(namespace, name) if (namespace, name) in self._tables else None

    def _bad_owner(self, command: CreateTable) -> MainstemError | None:
        if not command.topic_id:
            return None
        if self._topics.by_id(command.topic_id) is None:
            return TopicNotFound(command.topic_id.hex())
        taken = self.of_topic(command.topic_id, command.kind)
        return None if taken is None else TableExists(taken.namespace, taken.name)

    def _put(self, table: Table) -> None:
        self._tables[table.namespace, table.name] = table
        self._sum += table.digest
        if table.topic_id:
            self._of_topics.setdefault(table.topic_id, {})[table.kind] = table

    def _remove(self, table: Table) -> None:
        del self._tables[table.namespace, table.name]
        self._sum -= table.digest
        if table.topic_id:
            kinds = self._of_topics[table.topic_id]
            del kinds[table.kind]
            if not kinds:
                del self._of_topics[table.topic_id]

    # State as a whole

    @property
    def digest(self) -> int:
        namespaces = sum(hash_fields("namespace", *row) for row in self._namespaces.items())
        return (self._sum + namespaces + self.declarations_digest) & MASK

    @property
    def declarations_digest(self) -> int:
        """Equal as long as no table is declared anew."""
        return sum(
            hash_fields("declaration", topic_id, declared.revision, declared.columns, declared.delta)
            for topic_id, declared in self._declarations.items()
        )

    def encode(self) -> TablesState:
        return TablesState(
            sorted(self._namespaces.items()),
            [table.encode() for table in self],
            sorted(self._declarations.items()),
        )

    @classmethod
    def decode(cls, state: TablesState, topics: TopicsById, parts_of: PartsOf) -> Tables:
        tables = cls(topics, parts_of)
        tables._namespaces = dict(state.namespaces)
        tables._declarations = dict(state.declarations)
        for table in state.tables:
            tables._put(Table.decode(table))
        return tables


def _bad_namespace(namespace: str) -> MainstemError | None:
    if len(namespace) > limits.NAMESPACE_CHARS_MAX:
        return InvalidName(f"a namespace has up to {limits.NAMESPACE_CHARS_MAX} characters in all")
    for level in namespace.split("\x1f"):
        refusal = _bad_level(level)
        if refusal:
            return refusal
    return None


def _bad_level(name: str) -> InvalidName | None:
    if 1 <= len(name) <= limits.NAME_CHARS_MAX and name.isprintable() and "/" not in name:
        return None
    return InvalidName(
        f"{name[:64]!r} is no name of a table or a namespace: use 1 to {limits.NAME_CHARS_MAX} printable "
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
    if size <= limits.NAMESPACE_PROPERTIES_CHARS_MAX:
        return None
    return InvalidInput(
        f"the properties of a namespace may have {limits.NAMESPACE_PROPERTIES_CHARS_MAX} characters in all, not {size}"
    )
