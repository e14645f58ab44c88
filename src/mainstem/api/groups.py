"""Consumer groups and transactions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from mainstem import limits
from mainstem.api.base import U64, Name, Offset, PartitionNumber, Performance


class GroupListing(msgspec.Struct, frozen=True):
    """A consumer group in a list."""

    group: str
    state: str
    kind: str
    protocol_type: str
    members: int | None  # null: another broker coordinates the group, and knows them
    lag: int | None  # null: there are too many groups to measure all
    topics: list[str]
    recent: list[
        int
    ]  # the lag in the samples of the last two minutes, of a group that this broker coordinates


class GroupList(msgspec.Struct, frozen=True):
    groups: list[GroupListing]
    performance: Performance


class AssignedTopic(msgspec.Struct, frozen=True):
    topic: str
    partitions: list[int]


class MemberDescription(msgspec.Struct, frozen=True):
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    assignment: list[AssignedTopic]  # the partitions that it reads


SubscriptionTypeName = Literal["exclusive", "shared", "failover", "key_shared"]


class SubscriptionReport(msgspec.Struct, frozen=True):
    """A subscription of Pulsar clients in one partition."""

    type: SubscriptionTypeName | None  # null: nobody has consumed since the broker started
    consumers: int
    unacked: int  # messages that consumers hold


class GroupOffset(msgspec.Struct, frozen=True):
    """A group's position in one partition. `lag` counts the offsets it has not read."""

    topic: str
    partition: int
    offset: int | None  # none: it has committed in other partitions of the topic only
    start: int
    end: int
    lag: int
    metadata: str
    subscription: SubscriptionReport | None = None  # null: a consumer group


class GroupDescription(msgspec.Struct, frozen=True):
    group: str
    state: str
    kind: str
    protocol_type: str
    members: list[MemberDescription]
    offsets: list[GroupOffset]
    lag: int
    performance: Performance
    coordinator: str | None = None  # address of the broker that knows the members, if this one does not


ResetTo = Literal["earliest", "latest", "offset", "time", "skip", "redeliver"]


class ResetBody(msgspec.Struct, frozen=True):
    """Where to move a group or subscription. No partitions means all partitions of the topic. `skip` moves it past the
    next `count` records of each. `redeliver` moves nothing: a subscription sends again what its consumers hold."""

    topic: str
    to: ResetTo
    offset: U64 | None = None
    timestamp_ms: U64 | None = None
    partitions: list[Annotated[int, Meta(ge=0, le=limits.PARTITIONS_PER_TOPIC_MAX)]] = []
    dry_run: bool = False
    count: U64 | None = None


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
    """Offsets of a group without members, or those that one of its members has reached."""

    offsets: Annotated[list[GroupPosition], Meta(max_length=limits.HTTP_LISTED_MAX)]
    member_id: str | None = None
    epoch: int = -1


class GroupOffsetsCommitted(msgspec.Struct, frozen=True):
    group: str
    committed: int


# GroupMembership


class JoinBody(msgspec.Struct, frozen=True):
    """A consumer that joins a group. The server assigns partitions of the topics to it."""

    topics: Annotated[list[Name], Meta(max_length=limits.HTTP_LISTED_MAX)]
    client_id: str = ""
    instance_id: str | None = None  # a static member: the same after a restart
    assignor: str | None = None
    rebalance_timeout_ms: Annotated[int, Meta(ge=1, le=limits.GROUP_REBALANCE_MS_MAX)] = 300_000


class OwnedPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: PartitionNumber


class HeartbeatBody(msgspec.Struct, frozen=True):
    """A member that is alive. `owned`: the partitions it reads, which confirms what it gave up; null = unchanged."""

    member_id: str
    epoch: Annotated[int, Meta(ge=1)]
    owned: list[OwnedPartition] | None = None
    instance_id: str | None = None


class LeaveBody(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None = None


class AssignedPartition(msgspec.Struct, frozen=True):
    """A partition to read. `offset` is the one that the group committed, if any."""

    topic: str
    partition: int
    offset: int | None
    start: int
    end: int


class GroupMembership(msgspec.Struct, frozen=True):
    """A member's lease: without a heartbeat within `session_timeout_ms` its partitions go to others.

    `assignment` has the partitions to read from now on; null = unchanged."""

    group: str
    member_id: str
    epoch: int
    heartbeat_ms: int
    assignment: list[AssignedPartition] | None
    performance: Performance


class GroupLeft(msgspec.Struct, frozen=True):
    group: str
    member_id: str
    performance: Performance


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


class TransactionRecord(msgspec.Struct, frozen=True):
    """A record to write: `data` is JSON, `$raw` any bytes in base64; without both, its value is null."""

    data: Raw | UnsetType = UNSET
    packed: str | None = field(name="$raw", default=None)
    tag: str | None = None
    key: str | None = field(name="$key", default=None)  # in base64, for keys that are not text
    headers: list[tuple[str, str | None]] = []  # contents in base64
    timestamp_ms: U64 | None = None


class TransactionWrite(msgspec.Struct, frozen=True):
    topic: str
    records: list[TransactionRecord]
    partition: PartitionNumber | None = None  # by key unless given


class TransactionGroupOffsets(GroupPositionsBody, frozen=True, kw_only=True):
    group: Name


class AtomicWriteBody(msgspec.Struct, frozen=True):
    """Writes and offsets that take effect together, or not at all.

    A second request with the same `transaction` and `key` changes nothing: the first one was committed."""

    transaction: Name
    key: Annotated[str, Meta(min_length=1, max_length=256)]
    writes: Annotated[list[TransactionWrite], Meta(max_length=limits.HTTP_LISTED_MAX)] = []
    offsets: Annotated[list[TransactionGroupOffsets], Meta(max_length=limits.HTTP_LISTED_MAX)] = []


class TransactionPlace(msgspec.Struct, frozen=True):
    """Where the records of one partition went."""

    topic: str
    partition: int
    first_seq: int
    last_seq: int


class TransactionCommitted(msgspec.Struct, frozen=True):
    """`repeated`: an earlier request committed it, and `written` is empty."""

    transaction: str
    repeated: bool
    written: list[TransactionPlace]
    performance: Performance


class TransactionAborted(msgspec.Struct, frozen=True):
    transaction: str
    aborted: bool
    performance: Performance
