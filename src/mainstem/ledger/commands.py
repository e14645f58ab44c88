"""Commands: every state change but appends, which travel as arrays (see appends.py).

Encoded with msgpack as arrays tagged by a number. Fields are only ever added at the end, with a default, and
a tag is never given a new meaning: old logs must replay. Time and random ids arrive inside the command.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.ledger.cluster_commands import (
    AdmitBroker,
    ExpireBroker,
    Heartbeat,
    JoinBroker,
    LeaveBroker,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.group_commands import ChangeConsumerGroup, ForgetConsumerGroup
from mainstem.ledger.lake_commands import (
    ExtendTask,
    ForgetObjects,
    ReleaseTask,
    RetireParts,
    SwapParts,
    TakeTask,
)
from mainstem.ledger.repack_commands import ForgetRepacked, PublishRepack
from mainstem.ledger.report_commands import KeepReport
from mainstem.ledger.router_commands import DeleteRouter, Forward, NoteForwarded, PassOver, PutRouter
from mainstem.ledger.security_commands import (
    AlterClientQuota,
    DeleteAccessRules,
    DeleteScramCredential,
    PutAccessRules,
    PutScramCredential,
)
from mainstem.ledger.share_commands import (
    AcquireShare,
    AlterGroupSettings,
    DeleteShare,
    OpenShare,
    SettleShare,
)
from mainstem.ledger.table_commands import (
    CommitTables,
    CreateNamespace,
    CreateTable,
    DeclareTable,
    DropNamespace,
    DropTable,
    PutNamespaceProperties,
    RenameTable,
)
from mainstem.ledger.tier_commands import ForgetTier, PlanTier, SettleTier


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=1):
    name: str
    topic_id: bytes  # 16 random bytes, so a recreated topic is another topic
    partitions: int
    config: TopicConfig
    namespace: str = "default"


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=2):
    topic_id: bytes


class AlterTopic(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Replace the whole config. A tighter cap evicts at once."""

    topic_id: bytes
    config: TopicConfig


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag=4):
    topic_id: bytes
    total: int


TrimReason = Literal["delete", "cap", "ttl"]


class Trim(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Records below `offset` are gone: on request ("delete", silent) or by retention ("cap", "ttl": loss)."""

    stream: int
    offset: int
    reason: TrimReason
    bytes: int = 0  # logical bytes removed, where the ledger does not track records itself
    # What was lost before is told of still, though a delete passes over it. Logs from before this was so have none.
    keeps_losses: bool = False


class DeleteRecords(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Remove single records on request: half-open offset ranges, already resolved by the proposer."""

    stream: int
    ranges: tuple[tuple[int, int], ...]
    bytes: int = 0


class RaiseCeilings(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Relaxed streams may publish offsets below these once this command is synced."""

    ceilings: tuple[tuple[int, int], ...]  # (stream, ceiling)


class MarkLost(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Stored bytes of these offsets are damaged; the offsets stay taken."""

    stream: int
    start: int
    end: int
    reason: str = "damaged"


class AllocateProducer(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """A new idempotent producer id; the ledger counts them."""


class ExpireProducers(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Forget producers that were idle past `before_ms` (a ledger time)."""

    before_ms: int


class CommitOffsets(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """A group's positions: (stream, next offset to read, metadata)."""

    group: str
    offsets: tuple[tuple[int, int, str], ...]
    leader_epochs: tuple[
        int, ...
    ] = ()  # one an offset, of the record before it; -1 = unknown; none = all unknown
    member: str = ""  # who commits, in a group whose partitions the broker assigns
    member_epoch: int = -1  # his; -1 = nobody's, or of another group


class BumpGeneration(msgspec.Struct, frozen=True, array_like=True, tag=151):
    """A group is rebalanced: these are its members from now on. None: the group is forgotten."""

    group: str
    generation: int
    members: tuple[str, ...]


class DeleteOffsets(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Forget positions of a group; no streams = all of them, and the group with it."""

    group: str
    streams: tuple[int, ...] = ()


class Take(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Move a group's cursor over the next records and own them: no two takers get the same offset."""

    group: str
    stream: int
    limit: int


class ExpireOffsets(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """Forget these positions of a group, as far as they were not changed at `before_ms` (a ledger time) or later."""

    group: str
    streams: tuple[int, ...]
    before_ms: int


class Boot(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """A broker starts: it gets a new epoch, and its older ones are fenced.

    `jump`: the machine went down uncleanly, so relaxed streams continue at their ceiling."""

    broker: int
    boot_id: str
    jump: bool
    node: str = ""


class Halt(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """A broker stops cleanly: all it wrote is synced."""

    broker: int


class InitProducer(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """Give a transactional id its next epoch: older ones are fenced, and what they left open is aborted."""

    id: str
    timeout_ms: int
    producer: int = -1  # that the caller believes it has; -1 = it starts anew
    epoch: int = -1


class AddStreamsToTransaction(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Begin a transaction, or widen it, by streams about to be written to."""

    id: str
    producer: int
    epoch: int
    streams: tuple[int, ...]


class AddGroupToTransaction(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """Begin a transaction, or widen it, by a group whose positions are about to be given."""

    id: str
    producer: int
    epoch: int
    group: str


class TransactionOffsets(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """A group's positions that count once the transaction commits; as in CommitOffsets."""

    id: str
    producer: int
    epoch: int
    group: str
    offsets: tuple[tuple[int, int, str], ...]
    leader_epochs: tuple[int, ...] = ()
    joins: bool = False  # the group need not have been added: this adds it


class EndTransaction(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Commit or abort all of a transaction at once. A marker takes one offset in each of its streams.

    `bump`: the producer goes on with another epoch, so that nothing it sent before can come late into what
    follows. Then an abort needs nothing open: what it is to abort may still be on its way."""

    id: str
    producer: int
    epoch: int
    commit: bool
    bump: bool = False


class ExpireTransactions(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """Abort transactions that took too long, and fence their producers: (id, producer, epoch)."""

    transactions: tuple[tuple[str, int, int], ...]
    resumable: bool = False  # a bumping abort lets the producer go on with the next epoch


class ForgetTransactionalIds(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """Forget transactional ids that were not used since `before_ms` (a ledger time) and have nothing open."""

    before_ms: int


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Lease the next jobs of a queue: (node, most jobs, lease ms, token), served one job each in turn."""

    stream: int
    claimers: tuple[tuple[str, int, int, int], ...]  # a token is 64 random bits
    broker: int = 0  # that gives them out: its restart ends leases that are not durable


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """A node has done these jobs: they are deleted. Those it does not hold are left alone."""

    stream: int
    node: str
    offsets: tuple[int, ...]
    tokens: tuple[int, ...] = ()  # one an offset, or none: then the node is enough


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=72):
    """A node gives these jobs back, to be had again after a delay."""

    stream: int
    node: str
    offsets: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    delay_ms: int = 0


class Extend(msgspec.Struct, frozen=True, array_like=True, tag=73):
    """A node keeps these jobs for `lease_ms` from now on."""

    stream: int
    node: str
    offsets: tuple[int, ...]
    lease_ms: int
    tokens: tuple[int, ...] = ()


class ExpireLeases(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """Take note of the leases of a queue that are over by now, and of the delays."""

    stream: int


class Bury(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """Delete jobs that were handed out too often.

    `noted`: only those whose copies were noted, and are not lost since. The others are to be copied again."""

    stream: int
    offsets: tuple[int, ...]
    noted: bool = True


class NoteCopies(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """The slice right before this command holds copies of these jobs, in this order, in another stream.

    Apart from `Bury`: a crash may leave this entry whole and damage its slice, so the jobs go when both are synced."""

    stream: int
    offsets: tuple[int, ...]
    destination: int
    # The append run before it, all of it, is refused if one of the jobs has a copy or is gone: another broker may have
    # been quicker. Logs from before this was so have none.
    once: bool = False


class BeginSinkTask(msgspec.Struct, frozen=True, array_like=True, tag=110):
    """Give an attempt at a task of a batch its transaction. What other runs of the query left open is aborted."""

    query: str
    run: str
    batch: int
    attempt: str
    timeout_ms: int
    lasting: bool = True  # False: the query writes this one batch


class CommitSinkBatch(msgspec.Struct, frozen=True, array_like=True, tag=111):
    """Commit what these attempts wrote, abort what others of the run wrote, and remember the batch."""

    query: str
    run: str
    batch: int
    attempts: tuple[tuple[str, int, int], ...]  # (attempt, producer, epoch)
    lasting: bool = True


class AbortSinkBatch(msgspec.Struct, frozen=True, array_like=True, tag=112):
    """Abort all that a run has open."""

    query: str
    run: str
    # Whatever task of the run begins afterwards is refused: Spark gives a run up while tasks of it still start, and a
    # transaction that nobody ends holds readers up until its time is over. Logs from before this was so have none.
    final: bool = False


class ForgetSinks(msgspec.Struct, frozen=True, array_like=True, tag=113):
    """Forget queries that were last used at these ledger times, and not since: (query, time)."""

    sinks: tuple[tuple[str, int], ...]


class ExtendSinkRun(msgspec.Struct, frozen=True, array_like=True, tag=114):
    """A run is still at work: the time its transactions may take begins anew."""

    query: str
    run: str


Command = (
    CreateTopic
    | DeleteTopic
    | AlterTopic
    | AddPartitions
    | Trim
    | DeleteRecords
    | RaiseCeilings
    | MarkLost
    | AllocateProducer
    | ExpireProducers
    | CommitOffsets
    | DeleteOffsets
    | Take
    | ExpireOffsets
    | Boot
    | Halt
    | InitProducer
    | AddStreamsToTransaction
    | AddGroupToTransaction
    | TransactionOffsets
    | EndTransaction
    | ExpireTransactions
    | ForgetTransactionalIds
    | Claim
    | Ack
    | Nack
    | Extend
    | ExpireLeases
    | Bury
    | NoteCopies
    | PutRouter
    | DeleteRouter
    | Forward
    | NoteForwarded
    | PassOver
    | BeginSinkTask
    | CommitSinkBatch
    | AbortSinkBatch
    | ForgetSinks
    | ExtendSinkRun
    | CreateNamespace
    | DropNamespace
    | PutNamespaceProperties
    | CreateTable
    | CommitTables
    | DropTable
    | RenameTable
    | DeclareTable
    | TakeTask
    | ReleaseTask
    | ExtendTask
    | SwapParts
    | RetireParts
    | ForgetObjects
    | JoinBroker
    | Heartbeat
    | LeaveBroker
    | ExpireBroker
    | AdmitBroker
    | PutScramCredential
    | DeleteScramCredential
    | PutAccessRules
    | DeleteAccessRules
    | AlterClientQuota
    | AlterGroupSettings
    | OpenShare
    | AcquireShare
    | SettleShare
    | DeleteShare
    | PublishRepack
    | ForgetRepacked
    | PlanTier
    | SettleTier
    | ForgetTier
    | KeepReport
    | BumpGeneration
    | ChangeConsumerGroup
    | ForgetConsumerGroup
)
