"""Consumer groups and transactions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.api.base import U64, Offset, Performance


class GroupListing(msgspec.Struct, frozen=True):
    """A consumer group in a list."""

    group: str
    state: str
    kind: str
    protocol_type: str


class GroupList(msgspec.Struct, frozen=True):
    groups: list[GroupListing]
    performance: Performance


class MemberDescription(msgspec.Struct, frozen=True):
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None


class GroupOffset(msgspec.Struct, frozen=True):
    """A group's position in one partition. `lag` counts the offsets it has not read."""

    topic: str
    partition: int
    offset: int | None  # none: it has committed in other partitions of the topic only
    start: int
    end: int
    lag: int
    metadata: str


class GroupDescription(GroupListing, frozen=True):
    members: list[MemberDescription]
    offsets: list[GroupOffset]
    lag: int
    performance: Performance
    coordinator: str | None = None  # address of the broker that knows the members, if this one does not


ResetTo = Literal["earliest", "latest", "offset", "time"]


class ResetBody(msgspec.Struct, frozen=True):
    """Where to move a group. No partitions means all partitions of the topic."""

    topic: str
    to: ResetTo
    offset: U64 | None = None
    timestamp_ms: U64 | None = None
    partitions: list[Annotated[int, Meta(ge=0, le=limits.PARTITIONS_PER_TOPIC_MAX)]] = []
    dry_run: bool = False


class OffsetReset(msgspec.Struct, frozen=True):
    """One partition of a reset. `before` is None if the group had no offset there."""

    topic: str
    partition: int
    before: int | None
    after: int


class ResetResult(msgspec.Struct, frozen=True):
    group: str
    moved: list[OffsetReset]
    dry_run: bool
    performance: Performance


class GroupDeletion(msgspec.Struct, frozen=True):
    group: str
    deleted: bool
    performance: Performance


class GroupPosition(msgspec.Struct, frozen=True):
    """`offset` is the next offset to read."""

    topic: str
    offset: Offset
    partition: Annotated[int, Meta(ge=0)] = 0


class GroupPositionsBody(msgspec.Struct, frozen=True):
    offsets: list[GroupPosition]


class GroupOffsetsCommitted(msgspec.Struct, frozen=True):
    group: str
    committed: int


# Transactions


class TransactionPartitions(msgspec.Struct, frozen=True):
    topic: str
    partitions: list[int]


class TransactionDescription(msgspec.Struct, frozen=True):
    transaction: str
    phase: str
    producer: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    open_ms: int
    hanging: bool  # open for more than half of its timeout
    partitions: list[TransactionPartitions]


class TransactionList(msgspec.Struct, frozen=True):
    transactions: list[TransactionDescription]
    performance: Performance


class TransactionAborted(msgspec.Struct, frozen=True):
    transaction: str
    aborted: bool
    performance: Performance
