"""The ledger: applies entries in log order and holds all durable state. No I/O, no clock, no randomness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mainstem import limits
from mainstem.errors import (
    BrokerNumberTaken,
    InvalidInput,
    LedgerDiverged,
    MainstemError,
    StreamNotFound,
    invariant,
)
from mainstem.ledger import (
    checkpoint,
    cluster_commands,
    commands,
    group_commands,
    lake_commands,
    repack_commands,
    report_commands,
    router_commands,
    security_commands,
    share_commands,
    table_commands,
    tier_commands,
)
from mainstem.ledger.access_rules import AccessRules
from mainstem.ledger.aliases import Aliases
from mainstem.ledger.appends import NO_RECORDS, AppendCode, AppendOutcome, AppendRun, Rows
from mainstem.ledger.brokers import Admission, Brokers
from mainstem.ledger.client_quotas import ClientQuotas
from mainstem.ledger.consumer_groups import ConsumerGroups
from mainstem.ledger.credentials import Credentials
from mainstem.ledger.cursors import Cursors
from mainstem.ledger.digest import combine
from mainstem.ledger.entry import Buffer, Entry, Part
from mainstem.ledger.generations import Generations
from mainstem.ledger.group_generations import GroupGenerations
from mainstem.ledger.group_settings import GroupSettings
from mainstem.ledger.idempotency import IdempotencyKeys
from mainstem.ledger.intervals import DELETED, is_loss
from mainstem.ledger.members import Members
from mainstem.ledger.parts import Part as StreamPart
from mainstem.ledger.placement import AppendPlacer, refused
from mainstem.ledger.producers import Producers
from mainstem.ledger.queues import Queues
from mainstem.ledger.repacked_objects import RepackedObjects
from mainstem.ledger.reports import Reports
from mainstem.ledger.results import (
    AlreadyApplied,
    Booted,
    BrokerGone,
    CeilingsRaised,
    Halted,
    HeartbeatApplied,
    Outcome,
    ProducerAllocated,
    ProducersExpired,
    RecordsRemoved,
    TableDeclared,
    TransactionalIdsForgotten,
)
from mainstem.ledger.routers import Routers
from mainstem.ledger.shares import Shares
from mainstem.ledger.sinks import Sinks
from mainstem.ledger.streams import STATE_COLUMNS, Streams
from mainstem.ledger.tables import Tables
from mainstem.ledger.tasks import Tasks
from mainstem.ledger.tiers import Tiers
from mainstem.ledger.topics import Topics
from mainstem.ledger.transactions import Transactions

_BROKERS = 1 << 32  # broker numbers fit 32 bits
_REPEATED = AlreadyApplied()

Appliers = dict[type[Any], Callable[[Any], Outcome]]
_STARTS = (commands.Boot, cluster_commands.AdmitBroker)


class Ledger:
    """The state after `position` entries. The same entries give the same state everywhere, bit for bit."""

    def __init__(self) -> None:
        streams, producers = Streams(), Producers()
        cursors = Cursors(streams)
        transactions = Transactions(streams, producers, cursors)
        self._adopt(streams, producers, Brokers(), cursors, transactions, IdempotencyKeys())
        self.topics = Topics(self.streams)
        self.queues = Queues(self.streams, self.topics)
        self.routers = Routers(self.streams, self.topics)
        self.tables = Tables(self.topics, self._parts_of)
        self._serve_by(Generations(self.streams, self.topics, Tasks()))
        self.members = Members()
        self.credentials = Credentials()
        self.access_rules = AccessRules()
        self.client_quotas = ClientQuotas()
        self.group_settings = GroupSettings()
        self.shares = Shares(self.streams)
        self.repacked = RepackedObjects()
        self.tiers = Tiers()
        self.reports = Reports()
        self.group_generations = GroupGenerations()
        self.consumer_groups = ConsumerGroups()
        self._before: Outcome | None = None  # outcome of the part before the one being applied, in its entry
        self.position = 0  # entries applied, refused ones included
        self.time_ms = 0  # never runs back
        self.last_digest: tuple[int, int] | None = None  # (position, digest) at the last multiple
        self.trusts_log = False  # apply what the log says even if a digest in it disagrees
        self.mismatches: list[
            tuple[int, int, int]
        ] = []  # (position, recorded, replayed) that it passed over so
        self.digests_skipped = 0  # recorded digests that cannot be compared

    def _adopt(
        self,
        streams: Streams,
        producers: Producers,
        brokers: Brokers,
        cursors: Cursors,
        transactions: Transactions,
        idempotency: IdempotencyKeys,
    ) -> None:
        self.streams = streams
        self.producers = producers
        self.brokers = brokers
        self.cursors = cursors
        self.transactions = transactions
        self.idempotency = idempotency
        self.sinks = Sinks(transactions)
        self._placement = AppendPlacer(streams, producers, transactions, idempotency)
        self._appliers = {**self._log_appliers(), **self._feature_appliers()}

    def _log_appliers(self) -> Appliers:
        transactions = self.transactions
        return {
            commands.CreateTopic: lambda command: self.topics.create(command, self.time_ms),
            commands.DeleteTopic: self._delete_topic,
            commands.AlterTopic: lambda command: self.topics.alter(command),
            commands.AddPartitions: self._add_partitions,
            commands.Trim: self._trim,
            commands.DeleteRecords: self._delete_records,
            commands.RaiseCeilings: self._raise_ceilings,
            commands.MarkLost: self._mark_lost,
            commands.AllocateProducer: lambda _: ProducerAllocated(self.producers.allocate()),
            commands.ExpireProducers: lambda c: ProducersExpired(self.producers.expire(c.before_ms)),
            commands.CommitOffsets: self._commit_offsets,
            commands.DeleteOffsets: lambda command: self.cursors.delete(command),
            commands.ExpireOffsets: lambda command: self.cursors.expire(command),
            commands.Take: lambda command: self.cursors.take(command, self.time_ms),
            commands.Boot: self._boot,
            commands.Halt: self._halt,
            commands.InitProducer: lambda command: transactions.initialise(command, self.time_ms),
            commands.AddStreamsToTransaction: lambda c: transactions.add_streams(c, self.time_ms),
            commands.AddGroupToTransaction: lambda c: transactions.add_group(c, self.time_ms),
            commands.TransactionOffsets: lambda command: transactions.add_offsets(command, self.time_ms),
            commands.EndTransaction: lambda command: transactions.end(command, self.time_ms),
            commands.ExpireTransactions: lambda command: transactions.expire(command, self.time_ms),
            commands.ForgetTransactionalIds: lambda c: TransactionalIdsForgotten(
                transactions.forget(c.before_ms)
            ),
            commands.Claim: lambda command: self.queues.claim(command, self.time_ms),
            commands.Ack: lambda command: self.queues.ack(command, self.time_ms),
            commands.Nack: lambda command: self.queues.nack(command, self.time_ms),
            commands.Extend: lambda command: self.queues.extend(command, self.time_ms),
            commands.ExpireLeases: lambda command: self.queues.expire(command, self.time_ms),
            commands.Bury: lambda command: self.queues.bury(command),
            commands.NoteCopies: lambda command: self.queues.note_copies(command, self._before),
        }

    def _feature_appliers(self) -> Appliers:
        """Of what is built upon the log: routers, sinks, tables, parts, the cluster, who may do what."""
        return {
            router_commands.PutRouter: lambda command: self.routers.put(command),
            router_commands.DeleteRouter: lambda command: self.routers.delete(command),
            router_commands.Forward: lambda command: self.routers.legs.forward(command),
            router_commands.NoteForwarded: lambda command: self.routers.legs.note(command, self._before),
            router_commands.PassOver: lambda command: self.routers.legs.pass_over(command),
            commands.BeginSinkTask: lambda command: self.sinks.begin(command, self.time_ms),
            commands.CommitSinkBatch: lambda command: self.sinks.commit(command, self.time_ms),
            commands.AbortSinkBatch: lambda command: self.sinks.abort(command, self.time_ms),
            commands.ForgetSinks: lambda command: self.sinks.forget(command, self.time_ms),
            commands.ExtendSinkRun: lambda command: self.sinks.extend(command, self.time_ms),
            table_commands.CreateNamespace: lambda command: self.tables.create_namespace(command),
            table_commands.DropNamespace: lambda command: self.tables.drop_namespace(command),
            table_commands.PutNamespaceProperties: lambda command: self.tables.put_properties(command),
            table_commands.CreateTable: lambda command: self.tables.create(command),
            table_commands.CommitTables: lambda command: self.tables.commit(command, self.position),
            table_commands.DropTable: lambda command: self.tables.drop(command),
            table_commands.RenameTable: lambda command: self.tables.rename(command),
            table_commands.DeclareTable: self._declare_table,
            lake_commands.TakeTask: lambda command: self.tasks.take(command, self.time_ms),
            lake_commands.ReleaseTask: lambda command: self.tasks.release(command),
            lake_commands.ExtendTask: lambda command: self.tasks.extend(command, self.time_ms),
            lake_commands.SwapParts: lambda command: self.generations.swap(command, self.position),
            lake_commands.RetireParts: lambda command: self.generations.retire(command, self.position),
            lake_commands.ForgetObjects: lambda command: self.generations.forget_objects(command),
            repack_commands.PublishRepack: lambda command: self.repacked.publish(command),
            repack_commands.ForgetRepacked: lambda command: self.repacked.forget(command),
            tier_commands.PlanTier: lambda command: self.tiers.plan(command),
            tier_commands.SettleTier: lambda command: self.tiers.settle(command, self.time_ms),
            tier_commands.ForgetTier: lambda command: self.tiers.forget(command),
            cluster_commands.JoinBroker: self._join,
            cluster_commands.Heartbeat: lambda _: HeartbeatApplied(),
            cluster_commands.LeaveBroker: self._leave,
            cluster_commands.ExpireBroker: self._expire_broker,
            cluster_commands.AdmitBroker: self._admit_broker,
            security_commands.PutScramCredential: lambda command: self.credentials.put(command),
            security_commands.DeleteScramCredential: lambda command: self.credentials.delete(command),
            security_commands.PutAccessRules: lambda command: self.access_rules.put(command),
            security_commands.DeleteAccessRules: lambda command: self.access_rules.delete(command),
            security_commands.AlterClientQuota: lambda command: self.client_quotas.alter(command),
            share_commands.AlterGroupSettings: lambda command: self.group_settings.alter(command),
            share_commands.OpenShare: lambda command: self.shares.open(command),
            share_commands.AcquireShare: lambda command: self.shares.acquire(command, self.time_ms),
            share_commands.SettleShare: lambda command: self.shares.settle(command, self.time_ms),
            share_commands.DeleteShare: lambda command: self.shares.delete(command),
            commands.BumpGeneration: lambda command: self.group_generations.bump(command),
            group_commands.ChangeConsumerGroup: lambda command: self.consumer_groups.change(command),
            group_commands.ForgetConsumerGroup: lambda command: self.consumer_groups.forget(command),
            report_commands.KeepReport: lambda command: self.reports.keep(command, self.time_ms),
        }

    # Applying

    def apply(self, entry: Entry) -> list[Outcome]:
        """One outcome a part. Raises only LedgerDiverged, before anything changed."""
        if entry.digest is not None:
            self._compare(entry.digest)
        elif entry.old_digest:
            self.digests_skipped += 1
        parts = entry.parts
        admission = self.brokers.admit(entry.broker, entry.broker_epoch, entry.commit_id, entry.commit_id)
        if admission and len(parts) == 1 and type(parts[0]) in _STARTS:
            admission = Admission.APPLY  # a broker without an epoch asks for one
        outcomes: list[Outcome]
        if admission == Admission.REPEATED:
            outcomes = [_REPEATED] * len(parts)
        elif admission == Admission.FENCED:
            outcomes = [self._refuse(part, entry) for part in parts]
        else:
            self._advance_time(entry.time_ms)
            if len(parts) == 1:
                outcomes = [self._apply_part(parts[0])]
            else:
                outcomes = self._apply_parts(entry)
        self._step(1)
        return outcomes

    def apply_plain(
        self, rows: Rows, *, broker: int, broker_epoch: int, last_commit_id: int, time_ms: int, entries: int
    ) -> AppendOutcome:
        """Apply the rows of several consecutive PLAIN entries at once, as if one by one (see replay.py).

        Their commit ids are consecutive and end at `last_commit_id`, none carries record rows or a digest,
        and their times lie in one PRODUCER_TIME_STEP_MS, `time_ms` being the latest."""
        until_digest = limits.DIGEST_EVERY_COMMITS - self.position % limits.DIGEST_EVERY_COMMITS
        invariant(0 < entries <= until_digest, "plain entries are joined within one digest interval")
        admission = self.brokers.admit(broker, broker_epoch, last_commit_id - entries + 1, last_commit_id)
        invariant(admission != Admission.REPEATED, "plain entries that repeat a commit id are not joined")
        if admission == Admission.APPLY:
            self._advance_time(time_ms)
            outcome = self._placement.place(rows, NO_RECORDS, self.time_ms)
        else:
            outcome = refused(len(rows), AppendCode.BROKER_FENCED)
        self._step(entries)
        return outcome

    def _apply_parts(self, entry: Entry) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part, after in zip(entry.parts, [*entry.parts[1:], None], strict=True):
            # A part before it may have ended this very broker's epoch.
            if not self.brokers.live(entry.broker, entry.broker_epoch):
                outcomes.append(self._refuse(part, entry))
            elif isinstance(part, AppendRun) and after is not None and self._overtaken(after):
                outcomes.append(refused(len(part.slices), AppendCode.OVERTAKEN))
            else:
                outcomes.append(self._apply_part(part))
            self._before = outcomes[-1]
        self._before = None
        return outcomes

    def _overtaken(self, note: Part) -> bool:
        """Whether a part notes copies that are not to be made any more."""
        if type(note) is router_commands.NoteForwarded:
            return not self.routers.legs.takes(note)
        return type(note) is commands.NoteCopies and not self.queues.takes(note)

    def _apply_part(self, part: Part) -> Outcome:
        if isinstance(part, AppendRun):
            return self._placement.place(part.slices, part.records, self.time_ms)
        return self._appliers[type(part)](part)

    def _refuse(self, part: Part, entry: Entry) -> Outcome:
        if isinstance(part, AppendRun):
            return refused(len(part.slices), AppendCode.BROKER_FENCED)
        return self.brokers.refusal(entry.broker, entry.broker_epoch)

    def _advance_time(self, time_ms: int) -> None:
        if time_ms > self.time_ms:
            self.time_ms = time_ms

    def _step(self, entries: int) -> None:
        self.position += entries
        if not self.position % limits.DIGEST_EVERY_COMMITS:
            self.last_digest = (self.position, self.digest())

    def _compare(self, recorded: tuple[int, int]) -> None:
        if not self.last_digest or recorded[0] != self.last_digest[0] or recorded[1] == self.last_digest[1]:
            return
        if self.trusts_log:
            if len(self.mismatches) < limits.DIVERGENCES_SHOWN:
                self.mismatches.append((*recorded, self.last_digest[1]))
            return
        raise LedgerDiverged(
            f"after {recorded[0]} entries the log recorded the digest {recorded[1]:016x}, but this replay gives "
            f"{self.last_digest[1]:016x}: another version of Mainstem wrote the log, or its bytes were changed"
        )

    # Commands

    def _delete_topic(self, command: commands.DeleteTopic) -> Outcome:
        topic = self.topics.delete(command)
        if not isinstance(topic, MainstemError):
            self.producers.forget_streams(topic.streams)
            self.idempotency.forget_streams(topic.streams)
            self.cursors.forget_streams(topic.streams)
            self.queues.forget_streams(topic.streams)
            self.shares.forget_streams(tuple(topic.streams))
            self.routers.forget_topic(topic)
            self.tables.forget_topic(topic.topic_id)
            self.generations.forget_topic(topic, self.position)
        return topic

    def _commit_offsets(self, command: commands.CommitOffsets) -> Outcome:
        return self.consumer_groups.refusal(command) or self.cursors.commit(command, self.time_ms)

    def _declare_table(self, command: table_commands.DeclareTable) -> Outcome:
        declared = self.tables.declare(command)
        topic = self.topics.by_id(command.topic_id)
        if isinstance(declared, TableDeclared) and declared.columns_changed and topic is not None:
            for stream in topic.streams:
                self.generations.outdate(stream)
        return declared

    def _parts_of(self, stream: int) -> Sequence[StreamPart]:
        return self.generations.parts(stream)

    def _serve_by(self, generations: Generations) -> None:
        self.generations = generations
        self.tasks = generations.tasks
        self.routers.legs.frontier = generations.frontier
        self.streams.count_absent(generations.take_absent)

    def _add_partitions(self, command: commands.AddPartitions) -> Outcome:
        topic = self.topics.add_partitions(command)
        if not isinstance(topic, MainstemError):
            self.routers.grow(topic)
        return topic

    @property
    def aliases(self) -> Aliases:
        """Which records of which streams are stored as those of another stream."""
        return self.routers.legs.aliases

    def _trim(self, command: commands.Trim) -> Outcome:
        if not self.streams.exists(command.stream):
            return StreamNotFound(command.stream)
        if command.offset < 0 or command.bytes < 0:
            return InvalidInput(f"a trim to offset {command.offset} that frees {command.bytes} bytes")
        removed = self.streams.trim(
            command.stream,
            command.offset,
            command.reason,
            command.bytes,
            keeps_losses=command.keeps_losses,
        )
        start = self.streams.start(command.stream)
        if removed[0] and command.reason == "delete":
            # Only the part that the start cuts in two: those below it are retired as a whole.
            self.generations.deleted(command.stream, ((start - 1, start),))
        return RecordsRemoved(start, *removed)

    def _delete_records(self, command: commands.DeleteRecords) -> Outcome:
        if command.bytes < 0:
            return InvalidInput(f"a delete that frees {command.bytes} bytes")
        outcome = self._punch(command.stream, command.ranges, DELETED, command.bytes)
        if isinstance(outcome, RecordsRemoved) and outcome.records:
            self.generations.deleted(command.stream, command.ranges)
        return outcome

    def _mark_lost(self, command: commands.MarkLost) -> Outcome:
        if not is_loss(command.reason):
            return InvalidInput("a loss needs a reason")
        outcome = self._punch(command.stream, ((command.start, command.end),), command.reason, 0)
        if isinstance(outcome, RecordsRemoved) and outcome.records:
            self.routers.legs.lost(command.stream, command.start, command.end)
        return outcome

    def _punch(self, stream: int, ranges: tuple[tuple[int, int], ...], reason: str, size: int) -> Outcome:
        if not self.streams.exists(stream):
            return StreamNotFound(stream)
        for start, end in ranges:
            if not 0 <= start < end:
                return InvalidInput(f"[{start}, {end}) is no range of offsets")
        removed = self.streams.punch(stream, ranges, reason, size)
        return RecordsRemoved(self.streams.start(stream), *removed)

    def _raise_ceilings(self, command: commands.RaiseCeilings) -> Outcome:
        for _, ceiling in command.ceilings:
            if not 0 <= ceiling <= limits.OFFSET_MAX:
                return InvalidInput(f"{ceiling} is no ceiling")
        # A topic may be deleted between the proposal and now: that must not hold up the others.
        return CeilingsRaised(sum(self.streams.raise_ceiling(*ceiling) for ceiling in command.ceilings))

    def _boot(self, command: commands.Boot) -> Outcome:
        if not 0 <= command.broker < _BROKERS:
            return InvalidInput(f"{command.broker} is no broker number")
        epoch = self.brokers.boot(command.broker, command.boot_id, command.node)
        self.members.forget(command.broker)
        self.queues.boot(command.broker)
        self.shares.boot(command.broker)
        return Booted(epoch, tuple(self.streams.jump(command.jump)))

    def _halt(self, command: commands.Halt) -> Outcome:
        self.members.forget(command.broker)
        epoch = self.brokers.halt(command.broker)
        return epoch if isinstance(epoch, MainstemError) else Halted(epoch)

    def _admit_broker(self, command: cluster_commands.AdmitBroker) -> Outcome:
        if self.brokers.get(command.broker) is not None:
            return BrokerNumberTaken(command.broker)
        return self._boot(commands.Boot(command.broker, command.boot_id, jump=False, node=command.node))

    def _join(self, command: cluster_commands.JoinBroker) -> Outcome:
        return self.members.join(command, live=self.brokers.live(command.broker, command.epoch))

    def _leave(self, command: cluster_commands.LeaveBroker) -> Outcome:
        member = self.members.get(command.broker)
        same = member is not None and member.epoch == command.epoch
        return BrokerGone(command.broker, same and self.members.forget(command.broker))

    def _expire_broker(self, command: cluster_commands.ExpireBroker) -> Outcome:
        broker = command.broker
        silent = self.brokers.last_commit_id(broker) == command.last_commit_id
        if not silent or not self.brokers.live(broker, command.epoch):
            return BrokerGone(broker, gone=False)
        self.members.forget(broker)
        self.brokers.halt(broker)
        self.queues.boot(broker)  # what it handed out for as long as it lives
        self.shares.boot(broker)
        return BrokerGone(broker, gone=True)

    # State as a whole

    def digest(self) -> int:
        """64 bits that agree wherever the same commands were applied, however split into entries."""
        streams = self.streams
        return combine(
            [getattr(streams, name)[: streams.count] for name in STATE_COLUMNS],
            (
                # Sums are added, not listed: a log from before there were transactions keeps its digests.
                streams.holes_digest() + streams.transactions.digest(),
                self.topics.digest
                + self.tables.digest
                + self.tasks.digest
                + self.generations.digest
                + self.repacked.digest
                + self.tiers.digest,
                self.producers.next_producer,
                self.producers.digest() + self.idempotency.digest(),
                self.cursors.digest
                + self.transactions.digest()
                + self.queues.digest
                + self.shares.digest
                + self.group_settings.digest
                + self.group_generations.digest
                + self.consumer_groups.digest
                + self.sinks.digest
                + self.routers.digest(),
                self.brokers.digest()
                + self.members.digest
                + self.credentials.digest
                + self.access_rules.digest
                + self.client_quotas.digest
                + self.reports.digest,
            ),
        )

    def encode(self) -> bytes:
        """A checkpoint: the whole state, to continue from with `decode`."""
        return checkpoint.pack(self.state(), self.digest())

    def state(self) -> checkpoint.LedgerState:
        return checkpoint.LedgerState(
            self.position,
            self.time_ms,
            self.last_digest,
            list(self.topics),
            self.streams.encode(),
            self.producers.encode(),
            self.cursors.encode(),
            self.brokers.encode(),
            self.transactions.encode(),
            self.queues.encode(),
            idempotency=self.idempotency.encode(),
            sinks=self.sinks.encode(),
            tables=self.tables.encode(),
            tasks=self.tasks.encode(),
            generations=self.generations.encode(),
            routers=self.routers.encode(),
            members=self.members.encode(),
            credentials=self.credentials.encode(),
            access_rules=self.access_rules.encode(),
            client_quotas=self.client_quotas.encode(),
            group_settings=self.group_settings.encode(),
            shares=self.shares.encode(),
            repacked=self.repacked.encode(),
            tiers=self.tiers.encode(),
            reports=self.reports.encode(),
            group_generations=self.group_generations.encode(),
            consumer_groups=self.consumer_groups.encode(),
        )

    @classmethod
    def decode(cls, data: Buffer, *, trust: bool = False) -> Ledger:
        """Raises NewerVersion, LogDamaged, or LedgerDiverged if the state is not the one that was saved.

        `trust`: take the state as it was stored, whatever its digest."""
        state, digest = checkpoint.unpack(data)
        ledger = cls()
        streams, producers = Streams.decode(state.streams), Producers.decode(state.producers)
        topics = Topics(streams)
        for topic in state.topics:
            topics.put(topic)
            for stream in topic.streams:
                streams.adopt(stream, topic.config)
        cursors = Cursors.decode(state.cursors, streams)
        transactions = Transactions.decode(state.transactions, streams, producers, cursors)
        idempotency = IdempotencyKeys.decode(state.idempotency)
        ledger._adopt(streams, producers, Brokers.decode(state.brokers), cursors, transactions, idempotency)
        ledger.topics = topics
        ledger.queues = Queues.decode(state.queues, streams, topics)
        ledger.routers = Routers.decode(state.routers, streams, topics)
        ledger.sinks = Sinks.decode(state.sinks, transactions)
        ledger.tables = Tables.decode(state.tables, topics, ledger._parts_of)
        tasks = Tasks.decode(state.tasks)
        ledger._serve_by(Generations.decode(state.generations, streams, topics, tasks))
        ledger.members = Members.decode(state.members)
        ledger.credentials = Credentials.decode(state.credentials)
        ledger.access_rules = AccessRules.decode(state.access_rules)
        ledger.client_quotas = ClientQuotas.decode(state.client_quotas)
        ledger.group_settings = GroupSettings.decode(state.group_settings)
        ledger.shares = Shares.decode(state.shares, streams)
        ledger.repacked = RepackedObjects.decode(state.repacked)
        ledger.tiers = Tiers.decode(state.tiers)
        ledger.reports = Reports.decode(state.reports)
        ledger.group_generations = GroupGenerations.decode(state.group_generations)
        ledger.consumer_groups = ConsumerGroups.decode(state.consumer_groups)
        ledger.position, ledger.time_ms, ledger.last_digest = state.position, state.time_ms, state.last_digest
        if digest is None:
            ledger.last_digest = None
            ledger.digests_skipped = 1
        elif (found := ledger.digest()) != digest and not trust:
            raise LedgerDiverged(
                f"the checkpoint at position {ledger.position} has the digest {digest:016x}, "
                f"but its state gives {found:016x}"
            )
        return ledger
