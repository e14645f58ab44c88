"""Commands of the catalog: namespaces, tables, and what of a topic its tables show."""

from __future__ import annotations

import msgspec

from mainstem.api.lake import PartChange, TableKind


class CreateNamespace(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """Levels are joined by U+001F, as Iceberg clients send them."""

    namespace: str
    properties: tuple[tuple[str, str], ...] = ()


class DropNamespace(msgspec.Struct, frozen=True, array_like=True, tag=101):
    namespace: str


class PutNamespaceProperties(msgspec.Struct, frozen=True, array_like=True, tag=102):
    namespace: str
    updates: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()


class CreateTable(msgspec.Struct, frozen=True, array_like=True, tag=103):
    namespace: str
    name: str
    table_id: bytes  # 16 random bytes, the table's UUID
    location: str  # of its first metadata
    topic_id: bytes = b""  # whose records it shows; none: a user's own table
    kind: TableKind = "records"


class TableCommit(msgspec.Struct, frozen=True, array_like=True):
    """One table's step from one metadata to the next, if it still has the first."""

    namespace: str
    name: str
    table_id: bytes
    expected: str  # location of the metadata it starts from
    location: str  # of the metadata it leads to; the same: only the changes are noted
    changes: tuple[PartChange, ...] = ()
    added_snapshots: tuple[int, ...] = ()
    removed_snapshots: tuple[int, ...] = ()


class CommitTables(msgspec.Struct, frozen=True, array_like=True, tag=104):
    """All of these, or none."""

    commits: tuple[TableCommit, ...]


class DropTable(msgspec.Struct, frozen=True, array_like=True, tag=105):
    namespace: str
    name: str
    table_id: bytes


class RenameTable(msgspec.Struct, frozen=True, array_like=True, tag=106):
    """Only a user's own table: a topic's table is called what its topic is."""

    namespace: str
    name: str
    table_id: bytes
    new_namespace: str
    new_name: str


class DeclareTable(msgspec.Struct, frozen=True, array_like=True, tag=107):
    """What columns the tables of a topic have beside the raw ones, and where else they are delivered."""

    topic_id: bytes
    expected: int  # revision of the declaration this one is made from; 0 = there was none
    columns: str = ""  # JSON, with the numbers the columns have for good; none: raw columns only
    delta: str = ""  # URL of a Delta table that gets the records as well
