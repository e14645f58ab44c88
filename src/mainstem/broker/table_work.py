"""Messages between a broker and the publisher of tables."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.ledger.parts import Part
from mainstem.ledger.table_commands import PartChange, PartName, TableKind


class PendingChange(msgspec.Struct, frozen=True):
    """Of one partition: parts that replace others in the table. See `PartChange`."""

    stream: int
    partition: int
    old: tuple[PartName, ...]
    new: tuple[Part, ...]


class TableWork(msgspec.Struct, frozen=True):
    """A topic's table, and what is left to publish."""

    namespace: str
    name: str
    kind: TableKind
    topic: str
    table_id: bytes
    location: str  # of its metadata
    store: str  # URL above the keys of files, as in the locations of the metadata
    store_url: str  # the same as the store is opened, without secrets
    columns: str  # JSON of the declared columns
    offsets: dict[int, int]  # partition → the offset after the last published one
    changes: tuple[PendingChange, ...] = ()  # in the order to publish; may be incomplete
    expire: bool = False  # check now whether snapshots are too old
    more: bool = False  # whether there are more changes
    delta: str = ""  # URL of a Delta table that gets the records too


class TableWorkPage(msgspec.Struct, frozen=True):
    tables: tuple[TableWork, ...]
    problems: dict[str, str] = {}  # topic → why it has no table although it should


class TableCommitRequest(msgspec.Struct, frozen=True):
    """A publisher's commit; rejected if the metadata has changed since."""

    namespace: str
    name: str
    expected: str
    changes: tuple[PartChange, ...] = ()
    requirements: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []


class TableCommitted(msgspec.Struct, frozen=True):
    location: str
