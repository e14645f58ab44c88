"""Delivery: pass the outcomes of a commit to the index, the tail cache, readers and callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mainstem.errors import (
    BrokerFenced,
    InvalidTransaction,
    MainstemError,
    NotFound,
    OutOfOrderSequence,
    ProducerFenced,
    Rejected,
    TopicFull,
)
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.entry import SLICE_PACK, AppendRun, Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.queues import JobsChanged, JobsClaimed, LeasesExpired
from mainstem.ledger.repacked_objects import PublishRepack
from mainstem.ledger.router import Forwarded
from mainstem.ledger.shares import ShareAcquired, ShareSettled
from mainstem.ledger.sinks import SinkBatchAborted, SinkBatchCommitted, SinksForgotten, SinkTaskBegun
from mainstem.ledger.streams import RaiseCeilings, Trim
from mainstem.ledger.subscriptions import MoveSubscription, RemoveSubscription, ServeSubscription
from mainstem.ledger.topics import AddPartitions, AlterTopic, CreateTopic, DeleteTopic
from mainstem.ledger.transactions import ProducerInitialised, TransactionEnded, TransactionsExpired
from mainstem.log.read.extents import extents_of
from mainstem.log.read.index import ExtentIndex
from mainstem.log.read.tail import TailCache
from mainstem.log.read.visibility import Visibility
from mainstem.log.write.append import Placed, Waiter
from mainstem.log.write.group import CommitGroup, PendingAppends, PendingCommand
from mainstem.log.write.syncs import (
    AnswerCaller,
    PublishAppends,
    PublishRaisedCeilings,
    PublishTransactionEnds,
    Syncs,
)
from mainstem.ports.commitlog.port import Placement
from mainstem.records.header import Slice, stamp, stamp_lone

# A new leader epoch signals Kafka clients that a log was truncated. This log never is, so one epoch is enough.
LEADER_EPOCH = 0

_REFUSALS: dict[int, Callable[[], MainstemError]] = {
    AppendCode.NO_STREAM: lambda: NotFound("the topic was deleted meanwhile"),
    AppendCode.FULL: lambda: TopicFull("the topic's cap is reached and it rejects what exceeds it"),
    AppendCode.OUT_OF_ORDER: lambda: OutOfOrderSequence(
        "the batch does not continue its producer's sequence"
    ),
    AppendCode.PRODUCER_FENCED: lambda: ProducerFenced("a newer epoch of this producer has taken over"),
    AppendCode.INVALID_TRANSACTION: lambda: InvalidTransaction(
        "a transactional batch needs an open transaction of its producer, and a plain one must not have one"
    ),
    AppendCode.BROKER_FENCED: lambda: BrokerFenced(
        "this broker was replaced: it must rejoin before it writes"
    ),
    AppendCode.PRODUCER_UNKNOWN: lambda: OutOfOrderSequence(
        "nothing is known of this producer here, so its first batch must have sequence 0"
    ),
    AppendCode.OVERTAKEN: lambda: Rejected("another broker made these copies first"),
}


def refusal_of(code: int) -> MainstemError:
    """The error of a refused append."""
    return _REFUSALS[code]()


_FEW_SLICES = 32  # of another broker's run

# Results of commands that end transactions.
_ENDING = (
    ProducerInitialised,
    TransactionEnded,
    TransactionsExpired,
    SinkTaskBegun,
    SinkBatchCommitted,
    SinkBatchAborted,
    SinksForgotten,
)

# Commands after which a broker may no longer serve the consumers of a subscription as before.
_MOVING = (ServeSubscription, MoveSubscription, RemoveSubscription)

_LEASING = (JobsClaimed, JobsChanged, LeasesExpired, ShareAcquired, ShareSettled)
_Leasing = JobsClaimed | JobsChanged | LeasesExpired | ShareAcquired | ShareSettled


class Delivery:
    """Runs on the loop, right after a commit was applied."""

    def __init__(
        self,
        ledger: Ledger,
        index: ExtentIndex,
        tail: TailCache,
        visibility: Visibility,
        syncs: Syncs,
        raise_ceilings: Callable[[RaiseCeilings], None],
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._tail = tail
        self._visibility = visibility
        self._syncs = syncs
        self._raise_ceilings = raise_ceilings

    def deliver(self, group: CommitGroup, placement: Placement, outcomes: list[Any]) -> None:
        """Deliver the outcomes of a commit, part by part, in order."""
        start = placement.start
        if group.payload_bytes:
            self._tail.put(placement.object, start, group.slices(), group.payload_bytes)
        for part, outcome in zip(group.parts, outcomes, strict=True):
            if type(part) is PendingAppends:
                start = self._deliver_run(part, outcome, placement, start)
            else:
                self._deliver_command(part, outcome, placement.position)  # type: ignore[arg-type]

    def deliver_lone(
        self,
        fields: tuple[int, ...],
        batches: Slice,
        waiter: Waiter | None,
        placement: Placement,
        base: int,
        code: int,
    ) -> bool:
        """As `deliver` of a commit whose only part is one slice. `fields`: its row, unpacked. `waiter`: None if the
        caller knows the outcome.

        Returns whether the outcome is final: not if it waits for a sync."""
        stream, count, length = fields[0], fields[1], fields[2]
        position, number, start = placement
        self._tail.put(number, start, (batches,), length)
        if code:
            if code == AppendCode.DUPLICATE:
                # The original may itself be waiting for its sync, so the retry waits for one as well.
                self._after_sync(position, {}, waiter, (base, True))
                return False
            if waiter is not None and not waiter.done():
                waiter.set_exception(refusal_of(code))
            return True
        self._index.open_object(number).add(stream, count, base, start, length, fields[3], fields[4])
        _stamp(batches, base, fields[10])
        end = base + count
        visibility = self._visibility
        if visibility.relaxed[stream]:
            shown = visibility.publish_below(stream, end) or not self._publish_relaxed({stream: end})
        else:
            shown = self._syncs.covers(position)
            if shown:
                visibility.publish(stream, end)
        if not shown:
            self._after_sync(position, {stream: end}, waiter, (base, False))
        elif waiter is not None and not waiter.done():
            waiter.set_result((base, False))
        return shown

    def _after_sync(self, position: int, ends: dict[int, int], waiter: Waiter | None, placed: Placed) -> None:
        answers = [] if waiter is None else [(waiter, placed)]
        self._syncs.after(position, PublishAppends(self._visibility, ends, answers))

    def observe(self, entry: Entry, placement: Placement, outcomes: list[Any]) -> None:
        """Deliver a commit of another broker: it has no callers here."""
        start = placement.start
        for part, outcome in zip(entry.parts, outcomes, strict=True):
            if isinstance(part, AppendRun):
                if not isinstance(outcome, AppendOutcome):  # it repeats a commit whose slices are known
                    start += int(part.slices["length"].sum(dtype=np.int64))
                elif len(part.slices) <= _FEW_SLICES:
                    start = self._observe_few(part, outcome, placement, start)
                else:
                    start = self._observe_run(part, outcome, placement, start)
            elif not isinstance(outcome, MainstemError):
                self._take_note(part, outcome, placement.position)
                if isinstance(outcome, Forwarded):
                    self._syncs.after(placement.position, PublishAppends(self._visibility, outcome.ends, []))
                elif isinstance(outcome, (JobsChanged, LeasesExpired, ShareSettled)):
                    self._visibility.wake(part.stream)  # type: ignore[attr-defined]  # there may be jobs to claim

    def _observe_run(self, run: AppendRun, outcome: AppendOutcome, placement: Placement, start: int) -> int:
        """Index the slices of a run that begins at `start`. Returns where it ends."""
        lengths = run.slices["length"].astype(np.int64)
        slice_ends = start + np.cumsum(lengths)
        extents = extents_of(run.slices, outcome, slice_ends - lengths)
        self._index.open_object(placement.object).extend(extents)
        ends = dict(
            zip(extents["stream"].tolist(), (extents["base"] + extents["count"]).tolist(), strict=True)
        )
        self._syncs.after(placement.position, PublishAppends(self._visibility, ends, []))
        return int(slice_ends[-1])

    def _observe_few(self, run: AppendRun, outcome: AppendOutcome, placement: Placement, start: int) -> int:
        """As `_observe_run`, row by row: for few slices that costs less than arrays."""
        add_extent = self._index.open_object(placement.object).add
        ends: dict[int, int] = {}
        rows = SLICE_PACK.iter_unpack(run.slices.tobytes())
        for row, base, code in zip(rows, outcome.base.tolist(), outcome.code.tolist(), strict=True):
            stream, count, length = row[0], row[1], row[2]
            if not code:
                add_extent(stream, count, base, start, length, row[3], row[4])
                ends[stream] = base + count
            start += length
        self._syncs.after(placement.position, PublishAppends(self._visibility, ends, []))
        return start

    def _deliver_run(
        self, run: PendingAppends, outcome: AppendOutcome, placement: Placement, start: int
    ) -> int:
        """Index and stamp the slices, publish what needs no sync, leave the rest to the next sync."""
        if outcome.code.any():
            return self._deliver_refused(run, outcome, placement, start)
        rows, bases = list(SLICE_PACK.iter_unpack(run.rows)), outcome.base.tolist()
        start = self._index.open_object(placement.object).add_run(rows, bases, start)
        ends: dict[int, int] = {}
        for row, base, slice in zip(rows, bases, run.slices, strict=True):
            _stamp(slice, base, row[10])
            ends[row[0]] = base + row[1]
        late = self._publish_relaxed(ends)
        if not late:
            for waiter, base in zip(run.waiters, bases, strict=True):
                if not waiter.done():
                    waiter.set_result((base, False))
        elif len(late) == len(ends):
            answers = [(waiter, (base, False)) for waiter, base in zip(run.waiters, bases, strict=True)]
            self._syncs.after(placement.position, PublishAppends(self._visibility, late, answers))
        else:
            self._answer_each(run, outcome, placement.position, late)
        return start

    def _deliver_refused(
        self, run: PendingAppends, outcome: AppendOutcome, placement: Placement, start: int
    ) -> int:
        """As `_deliver_run`, if some slices were refused, or repeat earlier ones."""
        add_extent = self._index.open_object(placement.object).add
        ends: dict[int, int] = {}
        for row, base, code, slice in zip(
            SLICE_PACK.iter_unpack(run.rows),
            outcome.base.tolist(),
            outcome.code.tolist(),
            run.slices,
            strict=True,
        ):
            stream, count, length = row[0], row[1], row[2]
            if not code:
                add_extent(stream, count, base, start, length, row[3], row[4])
                _stamp(slice, base, row[10])
                ends[stream] = base + count
            start += length
        self._answer_each(run, outcome, placement.position, self._publish_relaxed(ends))
        return start

    def _publish_relaxed(self, ends: dict[int, int]) -> dict[int, int]:
        """Publish what needs no sync. Returns the ends of the other streams."""
        visibility = self._visibility
        late: dict[int, int] = {}
        ceilings: list[tuple[int, int]] = []
        for stream, end in ends.items():
            if not visibility.relaxed[stream]:
                late[stream] = end
                continue
            ceiling = visibility.next_ceiling(stream, end)
            if ceiling is not None:
                ceilings.append((stream, ceiling))
            if visibility.below_ceiling(stream, end):
                visibility.publish(stream, end)
            else:
                late[stream] = end
        if ceilings:
            self._raise_ceilings(RaiseCeilings(tuple(ceilings)))
        return late

    def _answer_each(
        self, run: PendingAppends, outcome: AppendOutcome, position: int, late: dict[int, int]
    ) -> None:
        answers: list[tuple[Waiter, Placed]] = []
        for row, base, code, waiter in zip(
            SLICE_PACK.iter_unpack(run.rows),
            outcome.base.tolist(),
            outcome.code.tolist(),
            run.waiters,
            strict=True,
        ):
            if code == AppendCode.DUPLICATE:
                # The original may itself be waiting for its sync, so the retry waits for one as well.
                answers.append((waiter, (base, True)))
            elif not code and row[0] in late:
                answers.append((waiter, (base, False)))
            elif waiter.done():
                continue
            elif code:
                waiter.set_exception(_REFUSALS[code]())
            else:
                waiter.set_result((base, False))
        if answers:
            self._syncs.after(position, PublishAppends(self._visibility, late, answers))

    def _deliver_command(self, single: PendingCommand, outcome: Any, position: int) -> None:
        command = single.command
        if isinstance(outcome, MainstemError):
            self._syncs.after(position, AnswerCaller(single.waiter, outcome))
            return
        self._take_note(command, outcome, position)
        answer = AnswerCaller(single.waiter, outcome)
        if isinstance(outcome, Forwarded):
            late = self._publish_relaxed(outcome.ends)
            if not late:
                answer()
                return
            self._syncs.after(position, PublishAppends(self._visibility, late, []))
        if isinstance(outcome, _LEASING) and self._needs_no_sync(command, outcome):
            answer()
        else:
            self._syncs.after(position, answer)

    def _take_note(self, command: Any, outcome: Any, position: int) -> None:
        """Apply a command's effects on readers."""
        if isinstance(command, (CreateTopic, AddPartitions)):
            self._visibility.grow(self._ledger)
        elif isinstance(command, AlterTopic):
            self._visibility.reclassify(self._ledger, outcome.streams)
        elif isinstance(command, DeleteTopic):
            for stream in outcome.streams:
                self._visibility.wake(stream)
        elif isinstance(command, (Trim, *_MOVING)):
            self._visibility.wake(command.stream)
        elif isinstance(command, RaiseCeilings):
            self._syncs.after(position, PublishRaisedCeilings(self._visibility, command))
        elif isinstance(command, PublishRepack):
            self._index.follow_repack()
        elif isinstance(outcome, _ENDING):
            self._syncs.after(position, PublishTransactionEnds(self._visibility, outcome.marked))

    def _needs_no_sync(self, command: Any, outcome: _Leasing) -> bool:
        """Leases without durability complete once written, if readers can see the jobs."""
        if isinstance(outcome, ShareAcquired):
            return True  # its records were read before, and its locks do not outlive this broker
        if not isinstance(outcome, JobsClaimed):
            return outcome.relaxed
        stream = command.stream
        visible = self._visibility.before_ending(stream, self._visibility.ends[stream])
        return outcome.relaxed and outcome.reach <= visible


def _stamp(slice: Slice, base: int, batches: int) -> None:
    if batches == 1:
        stamp_lone(slice, base, LEADER_EPOCH)
    else:
        stamp(slice, base, LEADER_EPOCH)
