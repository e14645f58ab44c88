"""Every error Mainstem raises, as one tree.

    MainstemError
    ├── InvalidInput                the caller sent something wrong; nothing changed
    │   ├── InvalidName             a topic, group or namespace name outside the allowed alphabet
    │   │   └── InvalidGroupName    a group name that is empty or too long
    │   ├── InvalidConfig           an unknown setting, or a value it cannot take
    │   ├── InvalidBatch            bytes that are not a well-formed record batch
    │   │   ├── CorruptBatch        a record batch whose checksum does not match its bytes
    │   │   └── UnsupportedFormat   records in a format older than RecordBatch v2
    │   ├── MalformedRequest        bytes that are no request of their protocol
    │   ├── InvalidTransactionTimeout  a transaction timeout outside the allowed range
    │   └── TooLarge                a record, batch or request over a named limit
    │       └── OffsetMetadataTooLarge
    ├── AccessDenied                the server knows who asks, or not, and says no
    │   ├── Unauthorized            no key was sent, or one the server does not know
    │   └── Forbidden               the key's scopes or prefixes do not cover this
    ├── NotFound                    the thing named does not exist
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── StreamNotFound
    │   ├── GroupNotFound
    │   ├── ShareNotFound           a share group does not read that partition
    │   ├── RouterNotFound
    │   ├── NamespaceNotFound
    │   ├── TableNotFound
    │   ├── TransactionNotFound
    │   └── CredentialNotFound      a user has no password of that kind
    ├── Rejected                    the ledger refused the command; the same on every broker
    │   ├── TopicExists
    │   ├── TopicFull               the topic's cap is reached and it discards nothing
    │   ├── TopicNotEmpty           a topic to be deleted only if empty holds records
    │   ├── TopicIncompatible       the topic exists and cannot become what is asked for
    │   ├── RouterCycle             copies would come back to where they were copied from
    │   ├── NotAQueue               jobs are claimed from queues, and the topic is a log
    │   ├── LeaseLost               a job's lease ran out, or the job is settled already
    │   ├── RecordNotHeld           a share group's member speaks of a record that it does not have now
    │   ├── TaskHeld                somebody else does this piece of the lake's work
    │   ├── StalePlan               what a task made does not fit what is there by now
    │   ├── LimitReached            a named bound of the ledger (limits.py) is reached
    │   ├── OutOfOrderSequence      an idempotent producer skipped a sequence number
    │   ├── ProducerFenced          a newer producer with the same id has taken over
    │   ├── ProducerUnknown         a transactional id and a producer id that do not belong together
    │   ├── NamespaceExists
    │   ├── NamespaceNotEmpty       a namespace to be dropped holds tables
    │   ├── TableExists
    │   ├── TableIncompatible       a table cannot become what is declared
    │   ├── TableChanged            another commit to the table came first
    │   ├── InvalidTransaction      no transaction is open, or not one that this is a part of
    │   ├── BrokerNumberTaken       a broker without a number tried one that another has
    │   └── BrokerFenced            this broker's membership was replaced by a newer one
    ├── GroupRefused                a group's coordinator refused a member's or an administrator's call
    │   ├── NotCoordinator          another broker looks after the group: find it
    │   │   └── GroupOvertaken      another broker decided something in the group first
    │   ├── UnknownMember           nobody of that id is in the group: join again
    │   ├── IllegalGeneration       the member speaks of another generation than the current one
    │   ├── RebalanceInProgress     the group is being rebalanced: join again
    │   ├── MemberIdRequired        a new member is given its id here, and joins again with it
    │   ├── WrongGroupKind          the group follows the other of the two group protocols
    │   ├── InconsistentProtocol    the group has another protocol, or none that all its members know
    │   ├── FencedInstance          another member took over the instance id
    │   ├── UnreleasedInstance      the instance id is still held by a member that has not left
    │   ├── FencedMemberEpoch       the member's epoch is not the one the coordinator knows: join again
    │   ├── StaleMemberEpoch        an offset is committed or read with an older epoch than the member's
    │   ├── UnsupportedAssignor     no server-side assignor has that name
    │   ├── InvalidRegex            a subscription's pattern is no regular expression
    │   ├── InvalidSessionTimeout   a session timeout outside the named bounds
    │   ├── ShareSessionNotFound    the share session is not known, or not any more: open another
    │   ├── InvalidShareSession     the share session is at another epoch: open another
    │   ├── ShareSessionsFull       no more share sessions are kept: close some
    │   ├── GroupFull               the group, or the number of groups, is at its limit
    │   ├── GroupNotEmpty           what is asked for needs a group without members
    │   ├── GroupSubscribed         the group still reads the topic whose offsets shall go
    │   └── UnstableOffsets         a transaction that moves these offsets is still open
    ├── OffsetOutOfRange            the offset is below the start or beyond the end of the stream
    ├── RecordsLost                 damage or a crash took these records; names the exact range
    ├── DataLost                    records were gone before a query of Spark had read them
    ├── Unavailable                 not now: the same call may succeed later
    │   ├── Throttled               a named bound of this server is reached
    │   ├── Unreachable             no server answers at the URL, or not in time
    │   ├── SparkMissing            the lake's jobs need PySpark and a Java that are not there
    │   ├── NoSpace                 the disk is full; writes resume when space returns
    │   ├── StoreUnreachable        the object store does not answer, or not in time
    │   ├── OutcomeUnknown          written or not, or yet to be: no answer came
    │   ├── Stale                   too long behind the log's tail to write: catch up first
    │   ├── CannotListen            a door's address is taken, not ours, or not allowed
    │   ├── ReadOnly                an fsync failed, so nothing more is written by this process
    │   └── Closed                  the log is closed or closing
    ├── ServerFault                 the server failed at the request, or is no Mainstem server
    └── StorageError                the data directory cannot be used as it is
        ├── DirectoryLocked         another live process owns it
        ├── DirectoryUnusable       missing permission, or not a directory
        ├── StoreRefused            the object store refuses: credentials, bucket or address are wrong
        ├── NewerVersion            written by a newer Mainstem
        ├── BehindCheckpoint        commits that are asked for were truncated behind a checkpoint
        ├── BackupDamaged           a backup lacks bytes, or they are not the ones that were put there
        ├── LogDamaged              bytes are damaged beyond what copies and checksums can repair
        │   └── SliceDamaged        stored records do not match their checksum; the offsets say which
        ├── ObjectMissing           an object store has lost an object of the log
        └── LedgerDiverged          replay gave a state other than the one recorded

Each error says what happened and what to do. Doors map them to wire codes in one table each.
"""

from __future__ import annotations


class MainstemError(Exception):
    """Root of everything Mainstem raises on purpose."""


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


class CorruptBatch(InvalidBatch):
    """A record batch whose checksum does not match its bytes."""


class UnsupportedFormat(InvalidBatch):
    """Records in a format older than RecordBatch v2."""


class MalformedRequest(InvalidInput):
    """Bytes that are no request of their protocol: the connection that sent them is closed."""


class InvalidTransactionTimeout(InvalidInput):
    """A transaction timeout outside the allowed range."""


class TooLarge(InvalidInput):
    """A record, batch or request over a named limit."""


class OffsetMetadataTooLarge(TooLarge):
    """The text a reader keeps with its offset is over its limit."""


class AccessDenied(MainstemError):
    """The server does not let this key do this."""


class Unauthorized(AccessDenied):
    """No key was sent, or one the server does not know."""


class Forbidden(AccessDenied):
    """The key's scopes or prefixes do not cover this."""


class NotFound(MainstemError):
    """The thing named does not exist."""


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


class NamespaceNotFound(NotFound):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"no namespace named {namespace[:64]!r}")
        self.namespace = namespace


class TableNotFound(NotFound):
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"no table named {name[:64]!r} in namespace {namespace[:64]!r}")
        self.namespace = namespace
        self.name = name


class TransactionNotFound(NotFound):
    def __init__(self, id: str) -> None:
        super().__init__(f"no transactional id {id[:64]!r}: no producer has used it lately")
        self.id = id


class CredentialNotFound(NotFound):
    def __init__(self, user: str) -> None:
        super().__init__(f"user {user[:64]!r} has no SCRAM credentials of that kind")
        self.user = user


class Rejected(MainstemError):
    """The ledger refused the command; the answer is the same on every broker."""


class TopicExists(Rejected):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already")
        self.topic = topic


class TopicFull(Rejected):
    """The topic's cap is reached and its policy is to reject."""


class TopicNotEmpty(Rejected):
    def __init__(self, topic: str, count: int) -> None:
        super().__init__(f"topic {topic!r} holds {count} records, and was to be deleted only if empty")
        self.topic = topic
        self.count = count


class TopicIncompatible(Rejected):
    """The topic exists and cannot become what is asked for; `detail` says what differs."""

    def __init__(self, message: str, **detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class RouterCycle(Rejected):
    """A router that would have records come back to where they were copied from; `cycle` names the topics."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"routers would lead {' > '.join(cycle)}: allow_cycle lets them")
        self.cycle = cycle


class NotAQueue(Rejected):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} is a log: jobs are claimed from topics of type queue")
        self.topic = topic


class LeaseLost(Rejected):
    def __init__(self, topic: str, seqs: list[int]) -> None:
        named = ", ".join(map(str, seqs[:10])) + (" …" if len(seqs) > 10 else "")
        super().__init__(f"jobs {named} of queue {topic!r} are leased to someone else, or settled already")
        self.topic = topic
        self.seqs = seqs


class RecordNotHeld(Rejected):
    def __init__(self, group: str, offset: int) -> None:
        super().__init__(
            f"the member has no lock on the record at {offset} for group {group!r}, or not any more"
        )
        self.offset = offset


class TaskHeld(Rejected):
    def __init__(self, task: str, holder: str, deadline_ms: int) -> None:
        super().__init__(f"{holder!r} holds the task {task!r}, for now until {deadline_ms}")
        self.task = task
        self.holder = holder
        self.deadline_ms = deadline_ms


class StalePlan(Rejected):
    """What a task made does not fit what is there by now: its files are dropped, and the work is planned anew."""


class NamespaceExists(Rejected):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace[:64]!r} exists already")
        self.namespace = namespace


class NamespaceNotEmpty(Rejected):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace[:64]!r} holds tables: drop them first")
        self.namespace = namespace


class TableExists(Rejected):
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"namespace {namespace[:64]!r} has a table {name[:64]!r} already")
        self.namespace = namespace
        self.name = name


class TableIncompatible(Rejected):
    """A declaration of columns that contradicts the one there is; the message says where."""


class TableChanged(Rejected):
    """Another commit to the table came first: load it again, and see what is left to do."""


class LimitReached(Rejected):
    """A named bound of the ledger is reached; the message says which and what helps."""


class OutOfOrderSequence(Rejected):
    """An idempotent producer skipped a sequence number."""


class ProducerFenced(Rejected):
    """A newer producer with the same id has taken over."""


class ProducerUnknown(Rejected):
    """A transactional id and a producer id that do not belong together."""


class InvalidTransaction(Rejected):
    """No transaction is open, or not one that this is a part of."""


class BrokerNumberTaken(Rejected):
    def __init__(self, broker: int) -> None:
        super().__init__(f"broker number {broker} is taken: try another")


class BrokerFenced(Rejected):
    """This broker's membership was replaced by a newer one."""


class GroupRefused(MainstemError):
    """A group's coordinator refused a member's or an administrator's call."""


class NotCoordinator(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"another broker looks after group {group!r}: find the coordinator again")
        self.group = group


class GroupOvertaken(NotCoordinator):
    """Another broker decided something in the group first. What it decided counts."""


class UnknownMember(GroupRefused):
    def __init__(self, group: str, member: str) -> None:
        super().__init__(f"group {group!r} has no member {member!r}: join it again")


class IllegalGeneration(GroupRefused):
    def __init__(self, group: str, given: int, current: int) -> None:
        super().__init__(f"group {group!r} is at generation {current}, not {given}: join it again")


class RebalanceInProgress(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {group!r} is being rebalanced: join it again")


class MemberIdRequired(GroupRefused):
    """A new member is given its id here, and joins again with it."""

    def __init__(self, member: str) -> None:
        super().__init__(f"join again as member {member!r}")
        self.member = member


class WrongGroupKind(GroupRefused):
    """The group follows the other of the two group protocols."""


class InconsistentProtocol(GroupRefused):
    """The group has another protocol, or none that all its members know."""


class FencedInstance(GroupRefused):
    def __init__(self, group: str, instance: str) -> None:
        super().__init__(f"another member of group {group!r} has taken over the instance id {instance!r}")


class UnreleasedInstance(GroupRefused):
    def __init__(self, group: str, instance: str) -> None:
        super().__init__(f"a member of group {group!r} still holds the instance id {instance!r}")


class FencedMemberEpoch(GroupRefused):
    """The member's epoch is not the one the coordinator knows: join again with epoch 0."""


class StaleMemberEpoch(GroupRefused):
    """An offset is committed or read with an older epoch than the member's."""


class UnsupportedAssignor(GroupRefused):
    """No server-side assignor has that name."""


class InvalidRegex(GroupRefused):
    """A subscription's pattern is no regular expression (RE2 syntax)."""


class InvalidSessionTimeout(GroupRefused):
    """A session timeout outside the named bounds."""


class ShareSessionNotFound(GroupRefused):
    """The share session is not known, or not any more: open another."""


class InvalidShareSession(GroupRefused):
    """The share session is at another epoch than the request: open another."""


class ShareSessionsFull(GroupRefused):
    """As many share sessions are kept as there may be: close some."""


class GroupFull(GroupRefused):
    """The group, or the number of groups, is at its limit."""


class GroupNotEmpty(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {group!r} has members: stop them first")
        self.group = group


class GroupSubscribed(GroupRefused):
    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"group {group!r} reads topic {topic!r}: its offsets stay while it does")


class UnstableOffsets(GroupRefused):
    def __init__(self, group: str) -> None:
        super().__init__(f"a transaction that moves offsets of group {group!r} is open: ask again")


class OffsetOutOfRange(MainstemError):
    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside [{start}, {end}]")
        self.offset = offset
        self.start = start
        self.end = end


class RecordsLost(MainstemError):
    """Records at offsets [start, end) are gone; reading may go on at `end`."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(f"records at offsets [{start}, {end}) are lost ({reason}); continue at {end}")
        self.start = start
        self.end = end
        self.reason = reason


class DataLost(MainstemError):
    """Records of a partition are gone, and the query that was to read them is to fail for it."""

    def __init__(self, topic: str, partition: int, start: int, end: int | None, reason: str) -> None:
        offsets = f"offsets [{start}, {end})" if end is not None else f"offsets from {start} on"
        super().__init__(
            f"{offsets} of topic {topic!r}, partition {partition}, are gone ({reason}). Set the option "
            "failOnDataLoss to false to go on without them"
        )


class Unavailable(MainstemError):
    """Not now: the same call may succeed later."""


class Throttled(Unavailable):
    """A named bound of this server is reached."""

    def __init__(self, limit: str, bound: int, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.bound = bound


class Unreachable(Unavailable):
    """No server answers at the URL, or not in time. What was asked may have been done all the same."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no answer from {url}: {reason}")
        self.url = url
        self.reason = reason


class SparkMissing(Unavailable):
    """The lake's jobs need PySpark and Java 17 or newer; the message says which is missing and what helps."""


class NoSpace(Unavailable):
    """The disk is full; writes resume when space returns."""


class StoreUnreachable(Unavailable):
    """The object store does not answer, or not in time. What was asked for may have happened all the same."""


class OutcomeUnknown(Unavailable):
    """The store was asked and no answer came: it may have been done, or be done yet. To repeat it may do it twice."""


class Stale(Unavailable):
    """Too long behind the log's tail to write: catch up, and take a new epoch, first."""


class CannotListen(Unavailable):
    """A door's address is taken, not this machine's, or not allowed."""


class ReadOnly(Unavailable):
    """An fsync failed, so this process writes nothing more; restart it once the disk is sound."""


class Closed(Unavailable):
    """The log is closed or closing."""


class ServerFault(MainstemError):
    """The server failed at the request, or what answers at the URL is no Mainstem server."""


class StorageError(MainstemError):
    """The data directory cannot be used as it is."""


class DirectoryLocked(StorageError):
    """Another live process owns the directory."""


class DirectoryUnusable(StorageError):
    """Missing permission, or not a directory."""


class StoreRefused(StorageError):
    """The object store refuses: credentials, bucket or address are wrong."""


class NewerVersion(StorageError):
    """Written by a newer Mainstem: upgrade this one."""


class BehindCheckpoint(StorageError):
    """The commits asked for were truncated: load the newest checkpoint and go on from there."""


class BackupDamaged(StorageError):
    """A backup lacks bytes, or they are not the ones that were put there: use another one."""


class LogDamaged(StorageError):
    """Damage beyond what copies and checksums can repair."""


class SliceDamaged(LogDamaged):
    """The stored bytes of the records at [start, end) do not match their checksum."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class ObjectMissing(StorageError):
    """An object store no longer has what was put there: restore it from the store's versions, or another copy."""


class LedgerDiverged(StorageError):
    """Replay gave a state other than the one the log recorded."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message}. Run `mainstem check --explain-divergence` to see what differs and `mainstem repair` to "
            "write the checkpoint again from the log"
        )


class InvariantBroken(AssertionError):
    """A bug in Mainstem, not a condition to handle: something that must hold does not."""


def invariant(condition: object, why: str) -> None:
    """State what must hold. Unlike `assert`, it stays under `python -O`."""
    if not condition:
        raise InvariantBroken(why)


def described(error: Exception) -> str:
    """The message, after the exception's type unless the message is ours or the operating system's."""
    text = str(error) if isinstance(error, MainstemError | OSError) else f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace").decode()  # neither JSON nor Arrow takes lone surrogates
