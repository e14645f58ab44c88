"""What a broker and the publisher of tables say to each other."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.ledger.parts import Part
from mainstem.ledger.table_commands import PartChange, PartName, TableKind


class PendingChange(msgspec.Struct, frozen=True):
    """Of one partition: parts that the table shows give way to others. See `PartChange`."""

    stream: int
    partition: int
    old: tuple[PartName, ...]
    new: tuple[Part, ...]


class TableWork(msgspec.Struct, frozen=True):
    """A topic's table, and what is left to do until it shows what serves the topic."""

    namespace: str
    name: str
    kind: TableKind
    topic: str
    table_id: bytes
    location: str  # of its metadata
    store: str  # URL that the keys of files are under, as the locations in the metadata are written
    store_url: str  # the same, as the store is opened, without what is secret in it
    columns: str  # JSON of the declared columns
    offsets: dict[int, int]  # partition → one past the last offset it shows
    changes: tuple[PendingChange, ...] = ()  # in the order they are to be made; maybe not all
    expire: bool = False  # it is time to see whether snapshots are too old
    more: bool = False  # there are more changes than these
    delta: str = ""  # URL of a Delta table that gets the records as well


class TableWorkPage(msgspec.Struct, frozen=True):
    tables: tuple[TableWork, ...]
    problems: dict[str, str] = {}  # topic → why it has no table though it should


class TableCommitRequest(msgspec.Struct, frozen=True):
    """A publisher's commit: refused unless the metadata is still the one it was made for."""

    namespace: str
    name: str
    expected: str
    changes: tuple[PartChange, ...] = ()
    requirements: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []


class TableCommitted(msgspec.Struct, frozen=True):
    location: str
