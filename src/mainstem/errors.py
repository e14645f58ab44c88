"""Every error Mainstem raises, as one tree.

    MainstemError
    ├── InvalidInput                the caller sent something wrong; nothing changed
    │   ├── InvalidName             a topic, group or namespace name outside the allowed alphabet
    │   │   └── InvalidGroupName    a group name that is empty or too long
    │   ├── InvalidConfig           an unknown setting, or a value it cannot take
    │   ├── InvalidBatch            bytes that are not a well-formed record batch
    │   │   ├── InvalidRecords      some records of a batch cannot be appended; names them
    │   │   │   ├── InvalidTimestamp  they are older or newer than their topic allows
    │   │   │   └── InvalidRecordTime  a delay or time to live that their topic cannot give them
    │   │   └── CorruptBatch, UnsupportedFormat: a wrong checksum, or a format before RecordBatch v2
    │   ├── MalformedRequest        bytes that are not a valid request of the protocol
    │   ├── InvalidTransactionTimeout  a transaction timeout outside the allowed range
    │   └── TooLarge                a record, batch or request over a named limit
    │       └── OffsetMetadataTooLarge
    ├── AccessDenied                the caller may not do this
    │   ├── Unauthorized            the key is missing or unknown
    │   └── Forbidden               the scopes or prefixes of the key do not cover this
    ├── NotFound                    the named object does not exist
    │   ├── TopicNotFound, PartitionNotFound, StreamNotFound, RouterNotFound, TransactionNotFound
    │   ├── GroupNotFound           no group with that name has committed offsets
    │   ├── ShareNotFound           the share group does not read that partition
    │   ├── NamespaceNotFound, TableNotFound, ViewNotFound, SubscriptionNotFound
    │   ├── BucketNotFound, ObjectNotFound, UploadNotFound
    │   └── CredentialNotFound      the user has no credentials of that kind
    ├── Rejected                    the ledger rejected the command; the result is the same on every broker
    │   ├── TopicExists, NamespaceExists, TableExists
    │   ├── BucketExists, BucketNotEmpty, PreconditionFailed: of buckets and the objects in them
    │   ├── TopicFull               the topic is at its cap and rejects new records
    │   │   ├── TopicTerminated     it takes no more records, for good
    │   │   └── BacklogFull         its subscriptions have too much left to read
    │   │       └── BacklogHeld     as above, and producers wait instead of failing
    │   ├── TopicNotEmpty, NamespaceNotEmpty: what a caller deletes has contents
    │   ├── TopicIncompatible, TableIncompatible: it exists and cannot change as requested
    │   ├── RouterCycle             copies would return to their source
    │   ├── NotAQueue               the topic is a log, and only queues have jobs
    │   ├── LeaseLost               the lease of a job expired, or the job is already settled
    │   ├── RecordNotHeld           the member of a share group has no lock on the record
    │   ├── TaskHeld                another driver holds the lease of this lake task
    │   ├── StalePlan               the result of a lake task does not match the current parts
    │   ├── LimitReached            a named limit of the ledger (limits.py) is reached
    │   ├── OutOfOrderSequence      an idempotent producer skipped a sequence number
    │   ├── ProducerFenced          a newer producer with the same id has taken over
    │   ├── ProducerUnknown         the producer id does not belong to the transactional id
    │   ├── TableChanged            another commit to the table came first
    │   ├── InvalidTransaction      no transaction is open, or it does not include this
    │   ├── TransactionConflict     another transaction acknowledges the same records
    │   ├── SubscriptionMoved       another broker serves the consumers of the subscription
    │   └── BrokerNumberTaken, BrokerFenced: another process has the number, or a newer epoch
    ├── SubscriptionBusy            consumers of another type, or an exclusive one, are connected
    ├── GroupRefused                the coordinator of a group rejected a call
    │   ├── NotCoordinator          another broker coordinates the group
    │   │   └── GroupOvertaken      another broker changed the group first
    │   ├── UnknownMember, IllegalGeneration, RebalanceInProgress, FencedMemberEpoch: join again
    │   │   └── ProtocolChanged     the group's partitions are assigned by the broker from now on, or by its members
    │   ├── GroupLoading            the group waits for members from before a restart
    │   ├── MembershipLost          a consumer was silent for too long, and must join again
    │   ├── MemberIdRequired        assigns an id to a new member, which joins again with it
    │   ├── WrongGroupKind, InconsistentProtocol, UnsupportedAssignor, InvalidRegex, InvalidSessionTimeout
    │   ├── InvalidTopology         no topics could serve the topology of a streams group
    │   ├── FencedInstance, UnreleasedInstance: another member has the instance id
    │   ├── StaleMemberEpoch        an offset commit or fetch used an old member epoch
    │   ├── ShareSessionNotFound, InvalidShareSession, ShareSessionsFull
    │   ├── GroupFull               the limit of members or of groups is reached
    │   ├── GroupNotEmpty, GroupSubscribed: the operation needs a group without members
    │   └── UnstableOffsets         an open transaction includes these offsets
    ├── OffsetOutOfRange            the offset is below the start or past the end of the stream
    ├── RecordsLost                 damage or a crash lost these records; names the exact range
    ├── DataLost                    records were gone before a Spark query read them
    ├── Unavailable                 temporary: the same call may succeed later
    │   ├── Throttled               a named limit of this server is reached
    │   │   └── CapacityReached     a limit on what the server or a namespace holds: it does not pass by itself
    │   ├── Unreachable, StoreUnreachable: the server or the object store does not respond in time
    │   ├── PackageMissing          a package that an optional feature needs is not installed
    │   │   └── SparkMissing        PySpark or Java, which the lake needs, is missing
    │   ├── NoSpace                 the disk is full; writes resume when there is space
    │   ├── OutcomeUnknown          no response: the write may have happened, or may still happen
    │   ├── Stale                   too far behind the tail of the log to write: catch up first
    │   ├── CannotListen            the address of a door is in use, not local, or not allowed
    │   ├── ReadOnly                an fsync failed, so this process writes nothing more
    │   └── Closed                  the log is closed or closing
    ├── SchemaRefused               the schema registry rejected a call; the kinds stand at the end of this module
    ├── ServerFault                 the server failed, or is not a Mainstem server
    └── StorageError                the data directory or store is unusable
        ├── DirectoryLocked, DirectoryUnusable: in use by another process, or not accessible
        ├── StoreRefused            the object store rejects access: check credentials, bucket and address
        ├── NewerVersion            written by a newer Mainstem
        ├── BehindCheckpoint        the requested commits were truncated behind a checkpoint
        ├── BackupDamaged           bytes of the backup are missing or damaged
        ├── LogDamaged              damage that copies and checksums cannot repair
        │   ├── OlderVersion        written by an older Mainstem, in a form that this one does not read
        │   └── SliceDamaged        stored records do not match their checksum; names the offsets
        ├── ObjectMissing           the object store has lost an object of the log
        └── LedgerDiverged          the replayed state differs from the recorded digest

Each error says what happened and what to do. Each door maps errors to wire codes in one table.
"""

from __future__ import annotations

from collections.abc import Sequence


class MainstemError(Exception):
    """Root of all errors that Mainstem raises."""


class InvalidInput(MainstemError):
    """The caller sent something wrong; nothing changed."""


class InvalidName(InvalidInput):
    """A name outside the allowed alphabet."""


class InvalidGroupName(InvalidName):
    """A group name that is empty or too long."""


class InvalidConfig(InvalidInput):
    """An unknown setting, or a value it cannot take."""


class InvalidBatch(InvalidInput):
    """Bytes that are not a well-formed record batch."""


class InvalidRecords(InvalidBatch):
    """Some records of a batch cannot be appended, so none of them is."""

    def __init__(self, message: str, records: Sequence[int]) -> None:
        super().__init__(message)
        self.records = tuple(records)  # their numbers in the append, or the first of them


class InvalidTimestamp(InvalidRecords):
    """Records are older or newer than their topic allows."""


class InvalidRecordTime(InvalidRecords):
    """Records have a delay or a time to live that their topic cannot give them."""


class CorruptBatch(InvalidBatch):
    """A record batch whose checksum does not match its bytes, or whose format is unknown."""


class UnsupportedFormat(InvalidBatch):
    """Records in a format older than RecordBatch v2."""


class MalformedRequest(InvalidInput):
    """Bytes that are not a valid request of the protocol. The door closes the connection."""


class InvalidTransactionTimeout(InvalidInput):
    """A transaction timeout outside the allowed range."""


class TooLarge(InvalidInput):
    """A record, batch or request over a named limit."""


class OffsetMetadataTooLarge(TooLarge):
    """The metadata of a committed offset is over its limit."""


class AccessDenied(MainstemError):
    """The caller may not do this."""


class Unauthorized(AccessDenied):
    """The key is missing or unknown."""


class Forbidden(AccessDenied):
    """The scopes or prefixes of the key do not cover this."""


class NotFound(MainstemError):
    """The named object does not exist."""


class TopicNotFound(NotFound):
    def __init__(self, topic: str) -> None:
        super().__init__(f"no topic named {topic!r}: create it first, or check the spelling")
        self.topic = topic


class PartitionNotFound(NotFound):
    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"topic {topic!r} has partitions 0 to {partitions - 1}, not {partition}")
        self.topic = topic
        self.partition = partition


class StreamNotFound(NotFound):
    def __init__(self, stream: int) -> None:
        super().__init__(f"no stream {stream}: its topic was deleted, or it never existed")
        self.stream = stream


class RouterNotFound(NotFound):
    def __init__(self, router: str) -> None:
        super().__init__(f"no router named {router!r}: create it first, or check the spelling")
        self.router = router


class GroupNotFound(NotFound):
    def __init__(self, group: str) -> None:
        super().__init__(f"no group named {group!r} has committed an offset")
        self.group = group


class ShareNotFound(NotFound):
    def __init__(self, group: str) -> None:
        super().__init__(f"share group {group!r} does not read this partition")
        self.group = group


class SubscriptionNotFound(NotFound):
    def __init__(self, name: str) -> None:
        super().__init__(f"no subscription named {name[:64]!r}")
        self.name = name


class NamespaceNotFound(NotFound):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"no namespace named {namespace[:64]!r}")
        self.namespace = namespace


class TableNotFound(NotFound):
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"no table named {name[:64]!r} in namespace {namespace[:64]!r}")
        self.namespace = namespace
        self.name = name


class ViewNotFound(NotFound):
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"no view named {name[:64]!r} in namespace {namespace[:64]!r}")
        self.namespace = namespace
        self.name = name


class TransactionNotFound(NotFound):
    def __init__(self, id: str) -> None:
        super().__init__(f"no transactional id {id[:64]!r}: no producer has used it recently")
        self.id = id


class CredentialNotFound(NotFound):
    def __init__(self, user: str) -> None:
        super().__init__(f"user {user[:64]!r} has no SCRAM credentials of that kind")
        self.user = user


class ApiKeyNotFound(NotFound):
    def __init__(self, id: str) -> None:
        super().__init__(f"API key {id[:64]!r} does not exist")
        self.id = id


class TransactionForbidden(Forbidden):
    """The client may not write with the transactional id."""


class ProducerForbidden(Forbidden):
    """The producer id belongs to another client."""


class Rejected(MainstemError):
    """The ledger rejected the command; the result is the same on every broker."""


class TopicExists(Rejected):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} already exists")
        self.topic = topic


class TopicFull(Rejected):
    """The topic is at its cap and rejects new records."""


class TopicTerminated(TopicFull):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} is terminated: it takes no more records")
        self.topic = topic


class BacklogFull(TopicFull):
    """The backlog of a subscription is over its quota, which refuses producers."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"a subscription of topic {topic!r} is over its backlog quota: consume, or raise the quota"
        )
        self.topic = topic


class BacklogHeld(BacklogFull):
    """As BacklogFull, but producers wait instead of failing."""


class TopicNotEmpty(Rejected):
    def __init__(self, topic: str, count: int) -> None:
        super().__init__(f"topic {topic!r} has {count} records and can be deleted only if it is empty")
        self.topic = topic
        self.count = count


class TopicIncompatible(Rejected):
    """The topic exists and cannot change as requested; `detail` says what differs."""

    def __init__(self, message: str, **detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class RouterCycle(Rejected):
    """A router would copy records back to their source; `cycle` names the topics."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"the router would create the cycle {' > '.join(cycle)}: set allow_cycle")
        self.cycle = cycle


class NotAQueue(Rejected):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} is a log: only topics of type queue have jobs")
        self.topic = topic


class LeaseLost(Rejected):
    def __init__(self, topic: str, seqs: list[int]) -> None:
        named = ", ".join(map(str, seqs[:10])) + (" …" if len(seqs) > 10 else "")
        super().__init__(f"jobs {named} of queue {topic!r} are leased to another worker, or already settled")
        self.topic = topic
        self.seqs = seqs


class RecordNotHeld(Rejected):
    def __init__(self, group: str, offset: int) -> None:
        super().__init__(f"the member has no lock on the record at offset {offset} of group {group!r}")
        self.offset = offset


class TaskHeld(Rejected):
    def __init__(self, task: str, holder: str, deadline_ms: int) -> None:
        super().__init__(f"{holder!r} holds the lease of task {task!r} until {deadline_ms} ms")
        self.task = task
        self.holder = holder
        self.deadline_ms = deadline_ms


class StalePlan(Rejected):
    """The result of a task does not match the current parts. Its files are dropped, and the work is planned again."""


class NamespaceExists(Rejected):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace[:64]!r} already exists")
        self.namespace = namespace


class NamespaceNotEmpty(Rejected):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace[:64]!r} contains tables: drop them first")
        self.namespace = namespace


class NamespaceInUse(Rejected):
    def __init__(self, namespace: str, topics: int) -> None:
        super().__init__(
            f"namespace {namespace[:64]!r} has {topics} topics: delete them first, or force their deletion"
        )
        self.namespace = namespace


class TableExists(Rejected):
    """A table or a view has that name."""

    def __init__(self, namespace: str, name: str, *, view: bool = False) -> None:
        kind = "view" if view else "table"
        super().__init__(f"{kind} {name[:64]!r} already exists in namespace {namespace[:64]!r}")
        self.namespace = namespace
        self.name = name
        self.view = view
        self.requirement = False  # a commit required that it does not exist


class TableIncompatible(Rejected):
    """The declared columns contradict the existing ones; the message says where."""


class TableChanged(Rejected):
    """Another commit to the table came first: reload the table and check what is left to do."""


class LimitReached(Rejected):
    """A named limit of the ledger is reached; the message says which one and what to do."""


class OutOfOrderSequence(Rejected):
    """An idempotent producer skipped a sequence number."""


class ProducerFenced(Rejected):
    """A newer producer with the same id has taken over."""


class ProducerUnknown(Rejected):
    """The producer id does not belong to the transactional id."""


class InvalidTransaction(Rejected):
    """No transaction is open, or it does not include this."""


class TransactionConflict(Rejected):
    """The records are acknowledged, or another open transaction acknowledges them."""


class SubscriptionMoved(Rejected):
    """Another broker serves the consumers of the subscription: they have to connect to that one."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"another broker serves subscription {subscription!r}: look the topic up again")
        self.subscription = subscription


class BrokerNumberTaken(Rejected):
    def __init__(self, broker: int) -> None:
        super().__init__(f"broker id {broker} is in use: choose another")


class BrokerFenced(Rejected):
    """A newer membership replaced this broker's."""


class SubscriptionBusy(MainstemError):
    """Consumers of another type, or an exclusive one, are connected to the subscription."""


class GroupRefused(MainstemError):
    """The coordinator of a group rejected a call of a member or an administrator."""


class NotCoordinator(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"another broker coordinates group {group!r}: look up the coordinator again")
        self.group = group


class GroupOvertaken(NotCoordinator):
    """Another broker changed the group first, and its change is valid."""


class UnknownMember(GroupRefused):
    def __init__(self, group: str, member: str) -> None:
        super().__init__(f"group {group!r} has no member {member!r}: join it again")


class MembershipLost(GroupRefused):
    """The group removed this consumer, which was silent for too long. Its partitions went to others."""


class IllegalGeneration(GroupRefused):
    def __init__(self, group: str, given: int, current: int) -> None:
        super().__init__(f"group {group!r} is at generation {current}, not {given}: join it again")


class RebalanceInProgress(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {group!r} is rebalancing: join it again")


class ProtocolChanged(RebalanceInProgress):
    """The group's partitions are assigned by the broker from now on, or by its members. The broker joins a waiting
    member again."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(group)
        self.member = member


class GroupLoading(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {group!r} waits for members from before a restart: try again")


class MemberIdRequired(GroupRefused):
    """Assigns an id to a new member, which joins again with it."""

    def __init__(self, member: str) -> None:
        super().__init__(f"join again as member {member!r}")
        self.member = member


class WrongGroupKind(GroupRefused):
    """The group uses the other group protocol."""


class InconsistentProtocol(GroupRefused):
    """The group uses another protocol type, or no protocol that all members support."""


class FencedInstance(GroupRefused):
    def __init__(self, group: str, instance: str) -> None:
        super().__init__(f"another member of group {group!r} has taken over the instance id {instance!r}")


class UnreleasedInstance(GroupRefused):
    def __init__(self, group: str, instance: str) -> None:
        super().__init__(f"another member of group {group!r} still has the instance id {instance!r}")


class FencedMemberEpoch(GroupRefused):
    """The epoch of the member is not current: join again with epoch 0."""


class StaleMemberEpoch(GroupRefused):
    """An offset commit or fetch used an old member epoch."""


class UnsupportedAssignor(GroupRefused):
    """No server-side assignor has that name."""


class InvalidRegex(GroupRefused):
    """The pattern of a subscription is not a valid regular expression (RE2 syntax)."""


class InvalidTopology(GroupRefused):
    """No topics could serve the topology of a streams group."""


class InvalidSessionTimeout(GroupRefused):
    """A session timeout outside the allowed range."""


class ShareSessionNotFound(GroupRefused):
    """The share session is unknown or expired: open another."""


class InvalidShareSession(GroupRefused):
    """The share session has another epoch than the request: open another."""


class ShareSessionsFull(GroupRefused):
    """The limit of share sessions is reached: close some."""


class GroupFull(GroupRefused):
    """The limit of members or of groups is reached."""


class GroupNotEmpty(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {group!r} has members: stop them first")
        self.group = group


class GroupSubscribed(GroupRefused):
    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"group {group!r} still reads topic {topic!r}: stop its members first")


class UnstableOffsets(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"an open transaction includes offsets of group {group!r}: retry")


class OffsetOutOfRange(MainstemError):
    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside [{start}, {end}]")
        self.offset = offset
        self.start = start
        self.end = end


class RecordsLost(MainstemError):
    """The records at offsets [start, end) are lost; reading can continue at `end`."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(f"records at offsets [{start}, {end}) are lost ({reason}); continue at {end}")
        self.start = start
        self.end = end
        self.reason = reason


class DataLost(MainstemError):
    """Records of a partition are gone, and the Spark query that needs them fails."""

    def __init__(self, topic: str, partition: int, start: int, end: int | None, reason: str) -> None:
        offsets = f"offsets [{start}, {end})" if end is not None else f"offsets from {start} on"
        super().__init__(
            f"{offsets} of topic {topic!r}, partition {partition}, are gone ({reason}). Set the option "
            "failOnDataLoss to false to continue without them"
        )


class BucketNotFound(NotFound):
    def __init__(self, bucket: str) -> None:
        super().__init__(f"no bucket named {bucket[:64]!r}: create it first, or check the spelling")
        self.bucket = bucket


class ObjectNotFound(NotFound):
    def __init__(self, key: str) -> None:
        super().__init__(f"the bucket has no object {key[:200]!r}")
        self.key = key


class UploadNotFound(NotFound):
    def __init__(self, upload: str) -> None:
        super().__init__(f"no multipart upload {upload[:64]!r}: it was completed or aborted")
        self.upload = upload


class BucketExists(Rejected):
    def __init__(self, bucket: str) -> None:
        super().__init__(f"bucket {bucket[:64]!r} already exists")
        self.bucket = bucket


class BucketNotEmpty(Rejected):
    def __init__(self, bucket: str) -> None:
        super().__init__(f"bucket {bucket[:64]!r} has objects or uploads: delete them first")
        self.bucket = bucket


class PreconditionFailed(Rejected):
    """The object is not in the state that a conditional request requires."""


class Unavailable(MainstemError):
    """Temporary: the same call may succeed later."""


class Throttled(Unavailable):
    """A named limit of this server is reached."""

    def __init__(self, limit: str, bound: int, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.bound = bound


class CapacityReached(Throttled):
    """A limit on what the server or a namespace stores is reached. Waiting does not help."""


class Unreachable(Unavailable):
    """The server at the URL does not respond in time. The request may have been executed."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no response from {url}: {reason}")
        self.url = url
        self.reason = reason


class PackageMissing(Unavailable):
    """An optional feature needs a package that is not installed; the message says what to run."""


class SparkMissing(PackageMissing):
    """The lake needs PySpark and Java 17 or newer; the message says which one is missing and what to do."""


class NoSpace(Unavailable):
    """The disk is full; writes resume when there is space."""


class NoDescriptors(NoSpace):
    """The process or the machine has no free file descriptor; writes resume when one is free."""


class StoreUnreachable(Unavailable):
    """The object store does not respond in time. The request may have been executed."""


class OutcomeUnknown(Unavailable):
    """The store did not respond: the write may have happened, or may still happen. A retry may write twice."""


class Stale(Unavailable):
    """Too far behind the tail of the log to write: catch up and take a new epoch first."""


class CannotListen(Unavailable):
    """The address of a door is in use, not local, or not allowed."""


class ReadOnly(Unavailable):
    """An fsync failed, so this process writes nothing more. Check the disk, then restart."""


class Closed(Unavailable):
    """The log is closed or closing."""


class ServerFault(MainstemError):
    """The server failed, or the URL does not lead to a Mainstem server."""


class StorageError(MainstemError):
    """The data directory or store is unusable."""


class DirectoryLocked(StorageError):
    """Another process has the directory open."""


class DirectoryUnusable(StorageError):
    """Missing permission, or not a directory."""


class StoreRefused(StorageError):
    """The object store rejects access: check credentials, bucket and address."""


class NewerVersion(StorageError):
    """Written by a newer Mainstem: upgrade this one."""


class BehindCheckpoint(StorageError):
    """The requested commits were truncated: load the newest checkpoint and continue from there."""


class BackupDamaged(StorageError):
    """Bytes of the backup are missing or damaged: use another backup."""


class LogDamaged(StorageError):
    """Damage that copies and checksums cannot repair."""


class OlderVersion(LogDamaged):
    """Written by an older Mainstem, in a form that this one does not read."""


class SliceDamaged(LogDamaged):
    """The stored bytes of the records at [start, end) do not match their checksum."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class ObjectMissing(StorageError):
    """The object store has lost an object: restore it from the store's versions or another copy."""


class LedgerDiverged(StorageError):
    """The replayed state differs from the digest in the log."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. Run `mainstem check --explain-divergence`, then `mainstem repair`")


# The schema registry


class SchemaRefused(MainstemError):
    """The schema registry rejected a call."""


class MalformedSchema(SchemaRefused, InvalidInput):
    """A text that is not a schema of its kind, or a reference that names nothing."""


class UndecodablePayload(SchemaRefused, InvalidInput):
    """A payload that does not fit its schema; the message names the field."""


class InvalidSubject(SchemaRefused, InvalidName):
    def __init__(self, subject: str) -> None:
        super().__init__(f"The specified subject '{subject[:200]}' is not a valid subject.")


class InvalidSchemaVersion(SchemaRefused, InvalidInput):
    def __init__(self, version: str) -> None:
        super().__init__(
            f"The specified version '{version[:64]}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"'
        )


class InvalidCompatibility(SchemaRefused, InvalidInput):
    """A compatibility level that does not exist."""


class InvalidRegistryMode(SchemaRefused, InvalidInput):
    """A mode that does not exist."""


class RegistryOperationRefused(SchemaRefused, InvalidInput):
    """The mode of the subject does not allow this."""


class SchemaTooLarge(SchemaRefused, TooLarge):
    """A schema over the limit."""


class SchemaReferenced(SchemaRefused):
    def __init__(self, subject: str, version: int) -> None:
        super().__init__(f"One or more references exist to the schema {subject!r} version {version}.")


class IncompatibleSchema(SchemaRefused):
    """A schema that the compatibility level of its subject does not allow; the message names the fields."""


class SubjectNotFound(SchemaRefused, NotFound):
    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject[:200]}' not found.")


class SchemaVersionNotFound(SchemaRefused, NotFound):
    def __init__(self, version: int) -> None:
        super().__init__(f"Version {version} not found.")


class SchemaNotFound(SchemaRefused, NotFound):
    def __init__(self, which: object = "") -> None:
        super().__init__(f"Schema {which} not found" if which != "" else "Schema not found")


class SubjectSoftDeleted(SchemaRefused, NotFound):
    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject '{subject[:200]}' was soft deleted. Set permanent=true to delete permanently"
        )


class SubjectNotSoftDeleted(SchemaRefused, NotFound):
    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject[:200]}' was not deleted first before being permanently deleted")


class SchemaVersionSoftDeleted(SchemaRefused, NotFound):
    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject[:200]}' Version {version} was soft deleted. Set permanent=true to delete permanently"
        )


class SchemaVersionNotSoftDeleted(SchemaRefused, NotFound):
    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject[:200]}' Version {version} was not deleted first before being permanently deleted"
        )


class CompatibilityNotConfigured(SchemaRefused, NotFound):
    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject[:200]}' does not have subject-level compatibility configured")


class RegistryModeNotConfigured(SchemaRefused, NotFound):
    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject[:200]}' does not have subject-level mode configured")


class SchemaIdConflict(SchemaRefused, Rejected):
    """An imported schema names an id or a version that another schema has."""


class SchemaRegistryChanged(SchemaRefused, Rejected):
    """Another change of the registry came first: the caller checks again."""

    def __init__(self) -> None:
        super().__init__("the registry changed meanwhile: retry")


class InvariantBroken(AssertionError):
    """A bug in Mainstem, not a condition to handle: an invariant does not hold."""


def invariant(condition: object, why: str) -> None:
    """Check an invariant. Unlike `assert`, this also runs under `python -O`."""
    if not condition:
        raise InvariantBroken(why)


def described(error: Exception) -> str:
    """Return the message, prefixed with the type unless it is a Mainstem or operating system error."""
    text = str(error) if isinstance(error, MainstemError | OSError) else f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace").decode()  # neither JSON nor Arrow takes lone surrogates


def drop_frames(error: BaseException | None) -> None:
    """Free what an error holds once it is answered: its frames hold the request, and often the error itself, so that
    all of it would stay until the garbage collector runs."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
