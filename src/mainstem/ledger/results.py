"""What became of a command: one small typed value each. Refusals are errors, returned and not raised."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import MainstemError
from mainstem.ledger.appends import AppendOutcome
from mainstem.ledger.client_quotas import ClientQuota
from mainstem.ledger.credentials import Credential
from mainstem.ledger.group_generations import GroupGeneration
from mainstem.ledger.group_settings import GroupSettingsState
from mainstem.ledger.members import BrokerMember
from mainstem.ledger.reports import StoredReport
from mainstem.ledger.security_commands import AccessRule
from mainstem.ledger.topics import Topic


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The entry is a retry of one that was applied; nothing changed now."""


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """Of Trim, DeleteRecords and MarkLost: what was live before and is not now."""

    start: int  # the stream's start afterwards
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CeilingsRaised:
    streams: int  # how many moved; a stream that is gone or higher already does not


@dataclass(frozen=True, slots=True)
class ProducerAllocated:
    producer: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    forgotten: int


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    streams: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupKept:
    revision: int  # that the next change is made to; 0 = nothing is held of the group


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    streams: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Offsets the taker owns now, as half-open ranges; empty at the end of the stream."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Booted:
    broker_epoch: int
    jumped: tuple[tuple[int, int, int], ...]  # (stream, first lost offset, new end)


@dataclass(frozen=True, slots=True)
class Halted:
    broker_epoch: int


Marked = tuple[int, int, int]  # stream, the transaction's first offset in it (-1 = none), its marker's offset


@dataclass(frozen=True, slots=True)
class ProducerInitialised:
    producer: int
    epoch: int
    marked: tuple[Marked, ...]  # of the transaction that an earlier epoch left open


@dataclass(frozen=True, slots=True)
class TransactionJoined:
    streams: int  # of the transaction, all told


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    committed: bool
    marked: tuple[Marked, ...]  # empty if it had ended so before
    producer: int = -1  # that the id goes on with, and its epoch; -1 = as before
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class TransactionsExpired:
    ids: tuple[str, ...]  # that were still open
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class TransactionalIdsForgotten:
    ids: int


@dataclass(frozen=True, slots=True)
class JobsGranted:
    """What one claimer got."""

    token: int
    deadline_ms: int
    offsets: list[int]
    deliveries: list[int]  # how often each was handed out, this time included


@dataclass(frozen=True, slots=True)
class JobsClaimed:
    grants: tuple[JobsGranted, ...]  # one a claimer
    exhausted: tuple[tuple[int, int], ...]  # (offset, deliveries) of all jobs that are to be moved away
    ready: int
    in_flight: int
    relaxed: bool  # may be answered before it is synced
    reach: int  # one past the highest offset given out, which must be visible before it is answered


@dataclass(frozen=True, slots=True)
class JobsChanged:
    """Of Ack, Nack and Extend: the offsets that the node held, and those that it did not."""

    offsets: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    relaxed: bool
    deadline_ms: int = 0  # of those extended


@dataclass(frozen=True, slots=True)
class LeasesExpired:
    ready: int
    in_flight: int
    relaxed: bool


@dataclass(frozen=True, slots=True)
class CopiesNoted:
    jobs: int


@dataclass(frozen=True, slots=True)
class JobsBuried:
    jobs: int  # that were still there
    ready: int


@dataclass(frozen=True, slots=True)
class SinkTaskBegun:
    id: str  # the transactional id to write with
    producer: int
    epoch: int
    committed: bool  # the batch was committed before: there is nothing to write
    marked: tuple[Marked, ...]  # of transactions that runs before left open


@dataclass(frozen=True, slots=True)
class SinkBatchCommitted:
    repeated: bool  # it was committed before; nothing was added now
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class SinkBatchAborted:
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class SinkRunExtended:
    attempts: int  # that are still open


@dataclass(frozen=True, slots=True)
class SinksForgotten:
    sinks: int
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    namespace: str


@dataclass(frozen=True, slots=True)
class TableSettled:
    """Of CreateTable, DropTable and RenameTable: the name that was given, or is free again."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TablesCommitted:
    tables: int


@dataclass(frozen=True, slots=True)
class TableDeclared:
    revision: int
    columns_changed: bool


@dataclass(frozen=True, slots=True)
class TaskLeased:
    task: str
    token: int
    deadline_ms: int  # ledger time


@dataclass(frozen=True, slots=True)
class TaskReleased:
    task: str
    held: bool  # False: it was somebody else's, or nobody's


@dataclass(frozen=True, slots=True)
class PartsSwapped:
    stream: int
    frontier: int
    repeated: bool  # the same parts were published before


@dataclass(frozen=True, slots=True)
class PartsRetired:
    parts: int


@dataclass(frozen=True, slots=True)
class ObjectsForgotten:
    objects: int


@dataclass(frozen=True, slots=True)
class Repacked:
    frontier: int  # the log's own objects serve from this number on
    repeated: bool  # the same files were published before


@dataclass(frozen=True, slots=True)
class TierChanged:
    object: int


@dataclass(frozen=True, slots=True)
class RouterPut:
    name: str
    created: bool


@dataclass(frozen=True, slots=True)
class RouterDeleted:
    existed: bool


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Of Forward, NoteForwarded and PassOver."""

    copies: int
    ends: dict[int, int]  # by stream, of those that grew


@dataclass(frozen=True, slots=True)
class HeartbeatApplied:
    """Of Heartbeat."""


@dataclass(frozen=True, slots=True)
class BrokerGone:
    """Of LeaveBroker and ExpireBroker."""

    broker: int
    gone: bool  # False: it was gone before, or was heard of since


@dataclass(frozen=True, slots=True)
class AccessRulesChanged:
    """Of PutAccessRules and DeleteAccessRules."""

    rules: tuple[AccessRule, ...]  # those that came, or went


@dataclass(frozen=True, slots=True)
class SharesChanged:
    """Of OpenShare and DeleteShare."""

    shares: int  # that came, or went


@dataclass(frozen=True, slots=True)
class ShareAcquired:
    """Of AcquireShare."""

    runs: tuple[tuple[int, int, int], ...]  # (first, end, how often handed out by now) of what the member has
    deadline_ms: int
    archived: int  # that turned out to have been handed out as often as they may be


@dataclass(frozen=True, slots=True)
class ShareSettled:
    """Of SettleShare."""

    counts: tuple[int, ...]  # of records, by the number of the verdict
    archived: int  # given back as often as they may be handed out
    relaxed: bool  # nothing of it has to outlive a crash of the machine


Result = (
    Topic
    | RecordsRemoved
    | CeilingsRaised
    | ProducerAllocated
    | ProducersExpired
    | OffsetsCommitted
    | OffsetsDeleted
    | ConsumerGroupKept
    | Taken
    | Booted
    | Halted
    | ProducerInitialised
    | TransactionJoined
    | TransactionEnded
    | TransactionsExpired
    | TransactionalIdsForgotten
    | JobsClaimed
    | JobsChanged
    | LeasesExpired
    | CopiesNoted
    | JobsBuried
    | RouterPut
    | RouterDeleted
    | Forwarded
    | SinkTaskBegun
    | SinkBatchCommitted
    | SinkBatchAborted
    | SinksForgotten
    | SinkRunExtended
    | NamespaceChanged
    | TableSettled
    | TablesCommitted
    | TableDeclared
    | TaskLeased
    | TaskReleased
    | PartsSwapped
    | PartsRetired
    | ObjectsForgotten
    | TierChanged
    | Repacked
    | BrokerMember
    | HeartbeatApplied
    | BrokerGone
    | Credential
    | AccessRulesChanged
    | ClientQuota
    | GroupSettingsState
    | SharesChanged
    | ShareAcquired
    | ShareSettled
    | StoredReport
    | GroupGeneration
)
Outcome = AppendOutcome | Result | AlreadyApplied | MainstemError
