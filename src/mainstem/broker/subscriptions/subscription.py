"""A subscription at work: one task reads entries and hands them to consumers, by the subscription's type.

| type       | who gets an entry                                                      | on redelivery          |
|------------|------------------------------------------------------------------------|------------------------|
| Exclusive  | the one consumer, in order                                             | all from the mark on   |
| Failover   | the active consumer, in order                                          | all from the mark on   |
| Shared     | each consumer with room in turn, lower priority numbers first          | these entries, anyone  |
| Key_Shared | the consumer of the key's slot, once nobody else has one of that slot  | these entries, by slot |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from mainstem import events, limits
from mainstem.broker.subscriptions.acks import Acks
from mainstem.broker.subscriptions.consumer import UNACKED_PER_CONSUMER_MAX, SubscriptionConsumer
from mainstem.broker.subscriptions.entries import (
    READ_BYTES,
    Delivery,
    MessageEntry,
    MessageEntryReader,
    MessageRun,
)
from mainstem.broker.subscriptions.hashing import slot_of
from mainstem.broker.subscriptions.pending import PendingEntries, PendingEntry, PendingRun
from mainstem.broker.subscriptions.slots import KeySlots, check_ranges
from mainstem.broker.subscriptions.transaction_holds import TransactionHolds
from mainstem.broker.subscriptions.waiting import WaitingEntries
from mainstem.errors import MainstemError, NotFound, SubscriptionBusy
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.subscriptions import AckedRecords, Range, StoredSubscription

# Delivered before other work of the loop gets its turn, a run counting as one entry.
ENTRIES_PER_TURN = 256
BYTES_PER_TURN = 1 * limits.MIB
RUN_ENTRIES_MAX = 1_024  # delivered at once to a consumer
UNACKED_ENTRIES_MAX = 200_000  # of a shared subscription

_NEAR = 1_000  # offsets: entries this close to each other are read at once

_log = events.named("subscriptions")


class SubscriptionType(IntEnum):
    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


_IN_ORDER = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class Subscription:
    def __init__(
        self,
        name: str,
        stream: int,
        partition: int,
        acked: AckedRecords,
        acks: Acks,
        reader: MessageEntryReader,
        now_ms: Callable[[], int],
        stored: StoredSubscription | None,
        *,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stored`: None if it is not durable."""
        self.name = name
        self.stream = stream
        self.durable = stored is not None
        self.stored = stored
        self.type = SubscriptionType.EXCLUSIVE
        self.acked = acked
        self.reader = reader
        self.term = -1  # under which this broker serves its consumers; -1: it does not
        self.changing = asyncio.Lock()  # its term or its mark is, and consumers wait to join
        self.sought = False  # a subscription that is not durable stays for its consumer to return
        self.consumers: list[SubscriptionConsumer] = []
        self.active: SubscriptionConsumer | None = None
        self.unacked_max = 0  # messages that all consumers of a shared one may hold; 0 = any number
        self._partition = partition
        self._acks = acks
        self._now_ms = now_ms
        self._ended = ended  # the topic takes no more records
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._rewinds = True  # read from the mark on
        self._read_at = 0
        self._read: deque[Delivery] = deque()  # read, and in line for delivery
        self._pending = PendingEntries()
        self._redeliveries: dict[int, int] = {}  # by base
        self._waiting = WaitingEntries()
        self._holds = TransactionHolds(acked, stored)
        self._slots = KeySlots()
        self._turn = 0

    # Consumers

    @property
    def superseded(self) -> bool:
        """Another broker serves the consumers, or another one moved or deleted the subscription."""
        return self.stored is not None and self.stored.term != self.term

    def is_of(self, stored: StoredSubscription | None) -> bool:
        """Whether it is this one, which was not deleted and created again."""
        return stored is not None and self.stored is stored

    def serve(self, term: int) -> None:
        """This broker serves the consumers from now on. Whatever it knew before may be outdated."""
        self.term = self._acks.term = term
        self.rewind()

    def changed(self) -> None:
        """There may be something to deliver."""
        self._wake.set()

    def check_join(self, consumer: SubscriptionConsumer, type: SubscriptionType) -> None:
        """Raises SubscriptionBusy, InvalidInput if the consumer cannot join."""
        if self.consumers:
            if type is not self.type:
                raise SubscriptionBusy(
                    f"subscription {self.name!r} has consumers of type {self.type.name}, not {type.name}"
                )
            if type is SubscriptionType.EXCLUSIVE:
                raise SubscriptionBusy(f"exclusive subscription {self.name!r} has a consumer already")
            if type is SubscriptionType.KEY_SHARED:
                check_ranges(consumer, self.consumers)
        elif type is SubscriptionType.KEY_SHARED:
            check_ranges(consumer, ())

    def join(self, consumer: SubscriptionConsumer, type: SubscriptionType) -> None:
        """Raises SubscriptionBusy, InvalidInput."""
        self.check_join(consumer, type)
        if not self.consumers:
            if self.type is not type:
                self._forget_progress()
            self.type = type
        self.consumers.append(consumer)
        self._slots.assign_again()
        self.sought = False
        if self.type in _IN_ORDER:
            self._choose_active()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        self._wake.set()

    def leave(self, consumer: SubscriptionConsumer) -> None:
        """What it did not acknowledge goes to others. Idempotent."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._slots.assign_again()
        if self.type in _IN_ORDER:
            if consumer is self.active:
                self._forget_progress()
                self.active = None
                self._choose_active()
        else:
            self._return_all(consumer)
        if not self.consumers:
            self._redeliveries.clear()  # as Pulsar does: those who come next see the messages for the first time
            self._forget_progress()  # or what was read stays in memory, although nobody may come
        self._wake.set()

    def disconnect_all(self) -> None:
        for consumer in list(self.consumers):
            self.leave(consumer)
            consumer.sink.disconnect()

    def _choose_active(self) -> None:
        """By priority; among equals by name and partition, or the first to connect where there is one partition."""
        chosen: SubscriptionConsumer | None = None
        if self.consumers:
            best = min(consumer.priority for consumer in self.consumers)
            equals = [consumer for consumer in self.consumers if consumer.priority == best]
            if self._partition >= 0:
                equals.sort(key=lambda consumer: consumer.name)
                chosen = equals[self._partition % len(equals)]
            else:
                chosen = self.active if self.active in equals else equals[0]
        before = self.active
        if chosen is not before:
            self.active = chosen
            if before is not None:
                self._forget_progress()
        if self.type is SubscriptionType.FAILOVER and chosen is not before:
            for consumer in self.consumers:
                if consumer.knows_active:
                    consumer.sink.active_changed(consumer is chosen)

    def _forget_progress(self) -> None:
        """Deliver again whatever is not acknowledged, in order."""
        self._pending.clear()
        self._read.clear()
        self._waiting.clear()
        self._slots.clear()
        self._holds.clear()
        self._rewinds = True

    # What clients say

    def flow(self, consumer: SubscriptionConsumer, permits: int) -> None:
        consumer.permits = min(consumer.permits + permits, 1 << 31)
        if not consumer.knows_active and self.type is SubscriptionType.FAILOVER:
            # Not with the answer to its subscribing: Go's client drops what comes before it has seen that.
            consumer.knows_active = True
            consumer.sink.active_changed(consumer is self.active)
        self._wake.set()

    def count_at(self, offset: int) -> int | None:
        """How many records there are from an offset to the end of its entry; None if the entry is not delivered."""
        pending = self._pending.get(offset)
        if pending is not None:
            return pending.count
        if self._pending.run_at(offset) is not None:
            return 1
        if self.type in _IN_ORDER:
            # Clients name the offset before an entry to acknowledge everything before it. Entries are in order, and
            # those that are acknowledged together come first.
            end = self._pending.containing(offset)
            return None if end is None else end - offset
        return None

    def ack(self, entries: list[tuple[int, list[Range]]]) -> asyncio.Future[None]:
        """Acknowledge records: (base of the entry, ranges in it). The future is done once that is durable."""
        for base, ranges in entries:
            self._settle_at(base, ranges)
        self._wake.set()
        return self._acks.add(0, [one for _, ranges in entries for one in ranges])

    def ack_singles(self, ranges: list[Range]) -> asyncio.Future[None] | None:
        """The same for records that are entries of their own; None if some of them may not be."""
        if not all(self._pending.holds_run(first, end) for first, end in ranges):
            return None
        for first, end in ranges:
            self._settle_run(first, end)
        self._wake.set()
        return self._acks.add(0, ranges)

    def ack_below(self, mark: int, base: int = -1, ranges: list[Range] | None = None) -> asyncio.Future[None]:
        """Acknowledge everything below an offset, and ranges of the entry at `base`."""
        self._settle_below(mark)
        if ranges:
            self._settle_at(base, ranges)
        self._wake.set()
        return self._acks.add(mark, ranges or [])

    def pass_over(self, ranges: list[Range]) -> None:
        """Nobody gets these records: the reader leaves them out."""
        unacked = [left for first, end in ranges for left in self.acked.unacked(first, end)]
        if unacked:
            self._acks.add(0, unacked)

    def hold(self, producer: int, mark: int, entries: list[tuple[int, list[Range]]]) -> None:
        """An open transaction acknowledges what is below `mark`, and ranges of entries; the ledger has it."""
        held = [(one.base, [(one.base, mark)]) for one in self._pending.entries() if one.base < mark]
        held += [
            (offset, [(offset, offset + 1)])
            for run in self._pending.runs()
            for offset in run.offsets()
            if offset < mark
        ]
        for base, ranges in held + entries:
            pending = self._pending.get(base)
            if ranges and base in self._pending:
                slot = -1 if pending is None else pending.slot
                self._holds.add(producer, base, slot, ranges)
                self._settle_at(base, ranges)
        self._wake.set()

    def _release_ended(self) -> None:
        """Deliver again what aborted transactions held."""
        released = self._holds.release()
        if released and self.type in _IN_ORDER:
            self._forget_progress()
            return
        for base, slot in released:
            pending = self._pending.get(base)
            if pending is not None:
                self._return(pending, [base])
            else:
                self._redeliveries[base] = self._redeliveries.get(base, 0) + 1
                self._waiting.add(base, slot)

    def skip_to(self, mark: int) -> asyncio.Future[None]:
        """Acknowledge everything below an offset, also what consumers hold."""
        self._settle_below(mark)
        self._wake.set()
        return self._acks.add(mark, [])

    def _settle_below(self, mark: int) -> None:
        for pending in self._pending.entries():
            if pending.base < mark:
                self._settle(pending, [(pending.base, mark)])
            elif self.type in _IN_ORDER:
                break
        self._settle_run(0, mark)

    def _settle_at(self, base: int, ranges: list[Range]) -> None:
        pending = self._pending.get(base)
        if pending is not None:
            self._settle(pending, ranges)
        else:
            for first, end in ranges:
                self._settle_run(first, end)

    def _settle_run(self, first: int, end: int) -> None:
        self._pending.settle_runs(first, end)
        for base in self._redelivered(first, end):
            if base not in self._pending and base not in self._waiting:
                del self._redeliveries[base]

    def _redelivered(self, first: int, end: int) -> list[int]:
        """The entries of [first, end) that were delivered before."""
        counts = self._redeliveries
        if end - first < len(counts):
            return [base for base in range(first, end) if base in counts]
        return sorted(base for base in counts if first <= base < end)

    def _settle(self, pending: PendingEntry, ranges: list[Range]) -> None:
        if any(first <= pending.base and end >= pending.base + pending.count for first, end in ranges):
            self._drop(pending)
            self._redeliveries.pop(pending.base, None)
            return
        pending.consumer.unacked -= pending.settle(ranges)
        if pending.unacked <= 0:
            self._drop(pending)
            self._redeliveries.pop(pending.base, None)

    def redeliver(self, consumer: SubscriptionConsumer, bases: Iterable[int] | None) -> None:
        """The client wants these entries again, or all that it has."""
        if self.type in _IN_ORDER:
            if consumer is self.active:
                self._forget_progress()
        else:
            if bases is None:
                self._return_all(consumer)
            for base in bases or ():
                pending = self._pending.get(base) or self._pending.run_at(base)
                if pending is not None and pending.consumer is consumer:
                    self._return(pending, [base])
        self._wake.set()

    def _drop(self, pending: PendingEntry) -> None:
        self._pending.drop(pending)
        if pending.slot >= 0:
            self._slots.settled(pending.slot)

    def _return_all(self, consumer: SubscriptionConsumer) -> None:
        """Deliver again what a consumer has."""
        for pending in self._pending.entries():
            if pending.consumer is consumer:
                self._return(pending, [pending.base])
        for run in self._pending.runs():
            if run.consumer is consumer:
                self._return(run, list(run.offsets()))

    def _return(self, pending: PendingEntry | PendingRun, bases: list[int]) -> None:
        """Deliver a pending entry again, or some of a run."""
        slot = -1
        if isinstance(pending, PendingEntry):
            slot = pending.slot
            self._drop(pending)
        else:
            self._pending.settle_runs(bases[0], bases[-1] + 1)
        pending.consumer.redelivered += len(bases)
        for base in bases:
            self._redeliveries[base] = self._redeliveries.get(base, 0) + 1
            self._waiting.add(base, slot)

    # Position

    @property
    def unacked(self) -> int:
        """Entries that consumers hold."""
        return len(self._pending)

    @property
    def delayed(self) -> int:
        """Entries that were read and are not due yet."""
        return self._waiting.delayed

    def _unacked_messages(self) -> int:
        return sum(consumer.unacked for consumer in self.consumers)

    def limit(self, config: TopicConfig, joined: SubscriptionConsumer | None = None) -> None:
        """The limits of the topic for a consumer that joined, or for all of them if they changed."""
        most = min(config.consumer_unacked_max or UNACKED_PER_CONSUMER_MAX, UNACKED_PER_CONSUMER_MAX)
        if joined is not None:
            joined.unacked_max = most
        elif self.unacked_max != config.subscription_unacked_max or any(
            consumer.unacked_max != most for consumer in self.consumers
        ):
            for consumer in self.consumers:
                consumer.unacked_max = most
            self._wake.set()
        self.unacked_max = config.subscription_unacked_max

    def backlog(self, end: int) -> int:
        """Offsets below `end` that are not acknowledged."""
        return max(0, end - self.acked.mark - self.acked.covered(end))

    async def settled(self) -> None:
        """Wait until every acknowledgement so far is applied."""
        await self._acks.settled()

    def rewind(self) -> None:
        """The mark was moved: read from there on."""
        self._forget_progress()
        self._redeliveries.clear()
        self._wake.set()

    async def close(self) -> None:
        """Deliver nothing more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._acks.settled()

    # Delivery

    async def _run(self) -> None:
        try:
            while self.consumers:
                self._wake.clear()
                if self.superseded:
                    self.disconnect_all()
                    return
                if self._rewinds:
                    await self._acks.settled()
                    self._rewinds = False
                    self._read_at = self.acked.mark
                if self._holds:
                    self._release_ended()
                    if self._rewinds:
                        continue
                in_order = self.type in _IN_ORDER
                busy = await (self._deliver_in_order() if in_order else self._deliver_shared())
                if busy:
                    await asyncio.sleep(0)
                else:
                    await self._wait()
        except NotFound:
            self.disconnect_all()  # the topic was deleted
        except MainstemError as error:
            _log.warning("subscription stopped", subscription=self.name, error=str(error))
            self.disconnect_all()
        except Exception:  # noqa: BLE001  # a bug in one subscription must neither hide nor stop others
            _log.exception("subscription failed", subscription=self.name)
            self.disconnect_all()
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _wait(self) -> None:
        due_ms = self._waiting.due_ms
        due_s = None if due_ms is None else max(0.0, (due_ms - self._now_ms()) / 1000) + 0.001
        try:
            async with asyncio.timeout(due_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _next(self) -> Delivery | None:
        """The next entry that has something to deliver, or a run that consists of that; None at the end."""
        while True:
            while self._read:
                entry = self._read.popleft()
                left = self._holds.left(entry.base, entry.end)
                if isinstance(entry, MessageRun):
                    self._note_held(entry)
                    parts = self._parts(entry, left)
                    self._read.extendleft(reversed(parts[1:]))
                    if parts:
                        return parts[0]
                elif left:
                    return entry
                else:
                    self._note_held(entry)
            at = self._read_at
            entries: Sequence[Delivery]
            if self.type is SubscriptionType.KEY_SHARED:
                entries, reached = await self.reader.read(at)
            else:
                entries, reached = await self.reader.read_runs(at)
            if self._rewinds or self.superseded:
                return None  # moved in the meantime
            self._read_at = reached
            if not entries:
                if self._ended():
                    self._tell_end()
                return None
            self._read.extend(entries)

    def _note_held(self, entry: Delivery) -> None:
        self._holds.note(entry, self._slot(entry) if isinstance(entry, MessageEntry) else -1)

    def _parts(self, run: MessageRun, left: list[Range]) -> list[MessageRun]:
        """What may be delivered of a run. What was delivered before is a part of its own."""
        parts: list[MessageRun] = []
        for first, end in left:
            at = first
            for base in self._redelivered(first, end):
                parts += [run.cut(*part) for part in ((at, base), (base, base + 1)) if part[0] < part[1]]
                at = base + 1
            if at < end:
                parts.append(run.cut(at, end))
        return parts

    def _tell_end(self) -> None:
        for consumer in self.consumers:
            if not consumer.at_end:
                consumer.at_end = True
                consumer.sink.reached_end()

    async def _deliver_in_order(self) -> bool:
        """Returns whether there is more to do now."""
        turn_bytes = 0
        for _ in range(ENTRIES_PER_TURN):
            consumer = self.active
            if turn_bytes >= BYTES_PER_TURN:
                return True
            if consumer is None or not consumer.has_permits:
                return False
            entry = await self._next()
            if entry is None or self._rewinds:
                return self._rewinds
            consumer = self.active
            if consumer is None:
                return True
            turn_bytes += entry.size
            if isinstance(entry, MessageRun):
                rest = self._deliver_run(consumer, entry, min(entry.count, consumer.permits))
                if rest is not None and not self._rewinds:  # the consumer may leave when it is served
                    self._read.appendleft(rest)
            else:
                self._deliver(consumer, entry, -1)
        return True

    async def _deliver_shared(self) -> bool:
        """Returns whether there is more to do now."""
        self._waiting.release_due(self._now_ms())
        if not any(consumer.takes_more for consumer in self.consumers):
            return False
        blocked: set[int] = set()  # slots whose earlier entries wait
        if len(self._waiting):
            await self._acks.settled()  # or records would come again that are acknowledged
            if self._rewinds or self.superseded or await self._deliver_again(blocked):
                return True
        turn_bytes = 0
        for _ in range(ENTRIES_PER_TURN):
            if turn_bytes >= BYTES_PER_TURN:
                return True
            if (
                self._waiting.full
                or len(self._pending) >= UNACKED_ENTRIES_MAX
                or not any(consumer.takes_more for consumer in self.consumers)
                or (self.unacked_max and self._unacked_messages() >= self.unacked_max)
            ):
                return False
            added = self._waiting.added
            entry = await self._next()
            if entry is None or self._rewinds:
                return self._rewinds
            if self._waiting.added != added:  # meanwhile, entries were returned: they come first
                self._read.appendleft(entry)
                return True
            turn_bytes += entry.size
            if isinstance(entry, MessageRun):
                if not self._share(entry):
                    return False
                continue
            if entry.base in self._pending or entry.base in self._waiting:
                continue
            slot = self._slot(entry)
            if entry.deliver_at_ms > self._now_ms():
                self._waiting.delay(entry, slot)
                continue
            consumer = None if slot in blocked else self._choose(slot)
            if consumer is None and self.type is SubscriptionType.SHARED:
                self._read.appendleft(entry)
                return False
            if consumer is None:
                blocked.add(slot)
                self._waiting.add(entry.base, slot, entry)
            else:
                self._deliver(consumer, entry, slot)
                if self._rewinds or self._waiting.added != added:  # the consumer left when it was served
                    return True
        return True

    def _share(self, run: MessageRun) -> bool:
        """Deliver a run, a part to each consumer in turn. Returns whether they took all of it."""
        rest: MessageRun | None = run
        while rest is not None:
            ready = self._ready()
            room = UNACKED_ENTRIES_MAX - len(self._pending)
            if self.unacked_max:
                room = min(room, self.unacked_max - self._unacked_messages())
            if not ready or room <= 0:
                if not self._rewinds:
                    self._read.appendleft(rest)
                return False
            self._turn += 1
            consumer = ready[self._turn % len(ready)]
            share = -(-rest.count // len(ready))
            rest = self._deliver_run(
                consumer,
                rest,
                min(share, room, consumer.permits, consumer.unacked_max - consumer.unacked),
            )
        return True

    async def _deliver_again(self, blocked: set[int]) -> bool:
        """Deliver what has to come again, in order. Returns whether to start over: something changed meanwhile."""
        waiting = self._waiting.in_order()
        added = self._waiting.added
        for base, following in zip(waiting, [*waiting[1:], limits.OFFSET_MAX], strict=True):
            slot = self._waiting.slot(base)
            if slot is None or slot in blocked:
                continue
            if self._choose(slot) is None:
                blocked.add(slot)
                if self.type is SubscriptionType.SHARED:
                    return False
                continue
            entry = self._waiting.entry(base)
            if entry is None:
                found, _ = await self.reader.read(base, READ_BYTES if following - base < _NEAR else 1)
                if self._rewinds or self.superseded or base not in self._waiting:
                    return True
                entry = next((one for one in found if one.base == base), None)
                for one in found[1:]:
                    if one.base in self._waiting:
                        self._waiting.keep(one)
                if self._waiting.added != added:  # meanwhile, earlier ones were returned
                    if entry is not None:
                        self._waiting.keep(entry)
                    return True
            consumer = self._choose(slot)
            if consumer is None and entry is not None:
                blocked.add(slot)
                continue
            self._waiting.remove(base)
            if entry is None or not self._holds.left(entry.base, entry.end):
                self._redeliveries.pop(base, None)
                if entry is not None:
                    self._note_held(entry)
            elif consumer is not None:
                self._deliver(consumer, entry, slot)
                if self._waiting.added != added:  # the consumer left when it was served
                    return True
        return False

    def _slot(self, entry: MessageEntry) -> int:
        if self.type is not SubscriptionType.KEY_SHARED:
            return -1
        return slot_of(entry.sticky_key or b"%d" % entry.base)  # without a key, any consumer will do

    def _choose(self, slot: int) -> SubscriptionConsumer | None:
        """Who gets an entry of a slot now."""
        if slot >= 0:
            owner = self._slots.taker(slot, self.consumers)
            return owner if owner is not None and owner.takes_more else None
        ready = self._ready()
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def _ready(self) -> list[SubscriptionConsumer]:
        """The consumers that take more, as far as none with a lower priority number does."""
        ready = [consumer for consumer in self.consumers if consumer.takes_more]
        best = min((consumer.priority for consumer in ready), default=0)
        return [consumer for consumer in ready if consumer.priority == best]

    def _deliver(self, consumer: SubscriptionConsumer, entry: MessageEntry, slot: int) -> None:
        base = entry.base
        left = self._holds.left(base, entry.end)
        self._note_held(entry)
        partial = entry.present < entry.count or left != [(base, entry.end)]
        unacked = self._pending.add(entry, consumer, slot, left)
        self._bound_pending()
        if slot >= 0:
            self._slots.took(slot, consumer)
        consumer.permits -= entry.count
        consumer.delivered += unacked
        consumer.sink.deliver(entry, self._redeliveries.get(base, 0), left if partial else None)

    def _deliver_run(self, consumer: SubscriptionConsumer, run: MessageRun, count: int) -> MessageRun | None:
        """Deliver the first `count` entries of a run. Returns the rest."""
        end = run.base + min(count, RUN_ENTRIES_MAX)
        part = run.cut(run.base, end)
        self._pending.add_run(part, consumer)
        self._bound_pending()
        consumer.permits -= part.count
        consumer.delivered += part.count
        # What was delivered before is a run of one entry.
        consumer.sink.deliver_run(part, self._redeliveries.get(part.base, 0) if self._redeliveries else 0)
        return None if end == run.end else run.cut(end, run.end)

    def _bound_pending(self) -> None:
        """Forget the oldest entries of a consumer that never acknowledges."""
        while len(self._pending) > UNACKED_ENTRIES_MAX:
            entry = self._pending.drop_first()
            if entry is not None:
                self._drop(entry)
