"""One table: its name, the metadata it stands at, and what it shows of its topic."""

from __future__ import annotations

import msgspec

from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.published_parts import PublishedParts, PublishedPartsState
from mainstem.ledger.table_commands import CreateTable, TableKind


class TableState(msgspec.Struct, frozen=True, array_like=True):
    """One table, as a checkpoint holds it."""

    namespace: str
    name: str
    table_id: bytes
    location: str
    topic_id: bytes
    kind: TableKind
    published: list[PublishedPartsState]
    snapshots: list[tuple[int, int]]  # (id, ledger position it reflects)
    reflected: int


class Declaration(msgspec.Struct, frozen=True, array_like=True):
    """What a topic's tables hold beside the raw columns."""

    revision: int
    columns: str
    delta: str


class Table:
    """One table: a name, and the metadata it stands at."""

    __slots__ = (
        "kind",
        "location",
        "name",
        "namespace",
        "published",
        "reflected",
        "snapshots",
        "table_id",
        "topic_id",
    )

    def __init__(self, command: CreateTable) -> None:
        self.namespace = command.namespace
        self.name = command.name
        self.table_id = command.table_id
        self.topic_id = command.topic_id
        self.kind: TableKind = command.kind
        self.location = command.location
        self.published: dict[int, PublishedParts] = {}
        self.snapshots: dict[int, int] = {}  # id → position of the ledger that it reflects
        self.reflected = -1  # no part that was replaced or retired before this position is shown

    def stream(self, stream: int) -> PublishedParts:
        """What is shown of a stream, to be read only."""
        return self.published.get(stream) or PublishedParts(stream)

    @property
    def digest(self) -> int:
        own = hash_fields(
            "table",
            self.namespace,
            self.name,
            self.table_id,
            self.topic_id,
            self.kind,
            self.location,
            sorted(self.snapshots),
        )
        # Multiplied by the table's own hash, so that two tables cannot trade what they show.
        shown = sum(published.digest for published in self.published.values())
        return (own + shown * (own | 1)) & MASK

    def encode(self) -> TableState:
        return TableState(
            self.namespace,
            self.name,
            self.table_id,
            self.location,
            self.topic_id,
            self.kind,
            [self.published[stream].encode() for stream in sorted(self.published)],
            sorted(self.snapshots.items()),
            self.reflected,
        )

    @classmethod
    def decode(cls, state: TableState) -> Table:
        table = cls(
            CreateTable(
                state.namespace, state.name, state.table_id, state.location, state.topic_id, state.kind
            )
        )
        table.published = {each.stream: PublishedParts.decode(each) for each in state.published}
        table.snapshots = dict(state.snapshots)
        table.reflected = state.reflected
        return table
