"""Consumers: entries as MESSAGE commands, and acknowledgements as offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mainstem.broker.access.rules import Operation
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import MessageEntry, MessageRun
from mainstem.broker.subscriptions.subscription import Subscription
from mainstem.broker.topics.service import Topic
from mainstem.broker.transactions.service import ProducerStamp, TransactionService
from mainstem.doors.pulsar.caller import PulsarCaller
from mainstem.doors.pulsar.client_details import ClientDetails
from mainstem.doors.pulsar.records import encoded, message_frames
from mainstem.doors.pulsar.throughput import Throughput
from mainstem.doors.pulsar.topic_names import ledger_of, position_of
from mainstem.doors.pulsar.wire import payload_head, simple_frame, varint
from mainstem.errors import Forbidden, InvalidInput

INDIVIDUAL, CUMULATIVE = 0, 1

_WORD_BITS = 64
_ACK_SET_WORDS_MAX = 1 << 14

Range = tuple[int, int]


class ConsumerClient(Protocol):
    """The connection of a consumer."""

    caller: PulsarCaller
    knows_end: bool  # it takes REACHED_END_OF_TOPIC
    takes_index: bool  # it takes the offset of messages as their index

    @property
    def writable(self) -> bool: ...

    def write(self, data: bytes | memoryview) -> None: ...

    def delivered(self, entries: int, size: int) -> None:
        """MESSAGE commands were written."""
        ...

    def close_consumer(self, consumer: PulsarConsumer) -> None:
        """Tell the client to subscribe again."""
        ...

    def tell_active(self, consumer: PulsarConsumer, active: bool) -> None: ...


class PulsarConsumer:
    """One consumer of a client. It is the sink of a consumer of the broker."""

    def __init__(
        self,
        client: ConsumerClient,
        id: int,
        topic: Topic,
        partition: int,
        subscription: Subscription,
        name: str,
        *,
        priority: int,
        ranges: tuple[Range, ...] | None,
        epoch: int | None,
        details: ClientDetails,
    ) -> None:
        self.details = details
        self.client = client
        self.id = id
        self.topic = topic
        self.partition = partition  # -1: the topic has one without a number
        self.subscription = subscription
        self.ledger = ledger_of(topic)
        self.epoch = epoch  # counts the client's calls for redelivery
        self.member = SubscriptionConsumer(self, name, priority=priority, ranges=ranges)
        self._id_field = b"\x08" + varint(id)  # consumer_id
        self._ledger_field = b"\x08" + varint(self.ledger) + b"\x10"  # ledgerId, and the tag of entryId
        self._partition_field = b"" if partition < 0 else b"\x18" + varint(partition)
        self.throughput = Throughput()
        self._access_state = -1
        self._throttled = False

    # What the subscription calls

    @property
    def writable(self) -> bool:
        return self.client.writable and not self._throttled

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[Range] | None) -> None:
        if not self.may_read():
            return
        message_id = self._ledger_field + varint(entry.base) + self._partition_field
        fields = self._id_field + b"\x12" + varint(len(message_id)) + message_id
        if redeliveries:
            fields += b"\x18" + varint(redeliveries)
        if unacked is not None and entry.batched:
            for word in _ack_set(entry, unacked):
                fields += b"\x20" + varint(word)
        if self.epoch is not None:
            fields += b"\x28" + varint(self.epoch)
        command = b"\x08\x09\x4a" + varint(len(fields)) + fields  # type MESSAGE, field 9
        metadata, payload = encoded(entry)
        self.client.write(
            payload_head(command, metadata, payload, entry.end - 1 if self.client.takes_index else None)
        )
        self.client.write(payload)
        self.client.delivered(1, len(payload))
        self._count(len(payload), entry.present)

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        if not self.may_read():
            return
        tail = b"\x18" + varint(redeliveries) if redeliveries else b""
        if self.epoch is not None:
            tail += b"\x28" + varint(self.epoch)
        frames = message_frames(
            run,
            self._id_field,
            self._ledger_field,
            self._partition_field,
            tail,
            indexed=self.client.takes_index,
        )
        self.client.write(frames)
        self.client.delivered(run.count, run.size)
        self._count(run.size, run.count)

    def _count(self, size: int, messages: int) -> None:
        """Pause the consumer if its rates say so."""
        self.throughput.messages += messages
        self.throughput.bytes += size
        held_ms = self.client.caller.consumed(self.topic.name, self.subscription.name, size, messages)
        if held_ms:
            self._throttled = True
            asyncio.get_running_loop().call_later(held_ms / 1000, self._go_on)

    def _go_on(self) -> None:
        self._throttled = False
        self.subscription.changed()

    def may_read(self) -> bool:
        """Whether the client still has its rights. If not, the consumer is closed."""
        caller, topic = self.client.caller, self.topic.name
        if self._access_state == caller.access_state:
            return True
        allowed = caller.may(Operation.READ, topic)
        if self.subscription.durable:
            allowed = allowed and caller.may_use_subscription(topic, self.subscription.name)
        if not allowed:
            self.client.close_consumer(self)  # when it subscribes again, it learns why
            return False
        self._access_state = caller.access_state
        return True

    def check_rights(self) -> None:
        """Raises Forbidden, and closes the consumer, if its client had the rights that it needs only before."""
        if not self.may_read():
            raise Forbidden(f"{self.client.caller.principal.name} may not READ topic {self.topic.name!r}")

    def active_changed(self, active: bool) -> None:
        self.client.tell_active(self, active)

    def reached_end(self) -> None:
        if self.client.knows_end:
            self.client.write(simple_frame("reached_end_of_topic", consumer_id=self.id))

    def disconnect(self) -> None:
        self.client.close_consumer(self)

    # What the client says

    async def ack(self, command: Any) -> None:
        """Returns once the acknowledgement is durable. Raises InvalidInput, LimitReached, NotFound."""
        await self._start_ack(command, await self._counts(command))

    async def ack_in_transaction(
        self, command: Any, transactions: TransactionService, stamp: ProducerStamp
    ) -> None:
        """Acknowledge when a transaction commits.

        Raises InvalidInput, TransactionConflict, SubscriptionMoved, LimitReached, NotFound."""
        subscription = self.subscription
        if not subscription.durable:
            raise InvalidInput("transactions acknowledge messages of durable subscriptions only")
        mark, entries = self._acked(command, await self._counts(command))
        ranges = [one for _, rows in entries for one in rows]
        await transactions.acknowledge(
            stamp, subscription.stream, subscription.name, mark, ranges, subscription.term
        )
        subscription.hold(stamp.producer, mark, entries)

    def ack_singles(self, ledger: int, entries: npt.NDArray[np.int64]) -> asyncio.Future[None] | None:
        """Acknowledge many messages that are entries of their own; None: only `ack` can find out what they are."""
        if ledger != self.ledger or not len(entries):
            return None
        offsets = np.unique(entries)
        breaks = np.flatnonzero(np.diff(offsets) != 1)
        firsts = [int(offsets[0]), *offsets[breaks + 1].tolist()]
        ends = [*(offsets[breaks] + 1).tolist(), int(offsets[-1]) + 1]
        return self.subscription.ack_singles(list(zip(firsts, ends, strict=True)))

    def ack_at_once(self, command: Any) -> asyncio.Future[None] | None:
        """The same, if everything it needs is known; None: `ack` has to read."""
        counts: dict[int, int] = {}
        for message_id in command.message_id:
            count = self.subscription.count_at(message_id.entryId)
            if count is None:
                return None
            counts[message_id.entryId] = count
        return self._start_ack(command, counts)

    async def _counts(self, command: Any) -> dict[int, int]:
        """The number of records of each entry."""
        counts: dict[int, int] = {}
        for message_id in command.message_id:
            base = message_id.entryId
            if message_id.ledgerId != self.ledger or base >= 1 << 62:
                continue
            count = self.subscription.count_at(base)
            if count is None:
                if base >= self.subscription.reader.end:
                    # The log would refuse it, together with what others acknowledge in the same command.
                    raise InvalidInput("only messages that exist can be acknowledged")
                entry = await self.subscription.reader.at(base)
                count = 1 if entry is None else max(1, entry.end - base)
            counts[base] = count
        return counts

    def _start_ack(self, command: Any, counts: dict[int, int]) -> asyncio.Future[None]:
        mark, entries = self._acked(command, counts)
        if command.ack_type != CUMULATIVE:
            return self.subscription.ack(entries)
        base, ranges = entries[0] if entries else (-1, [])
        return self.subscription.ack_below(mark, base, ranges)

    def _acked(self, command: Any, counts: dict[int, int]) -> tuple[int, list[tuple[int, list[Range]]]]:
        """What a command acknowledges: everything below an offset, and ranges of entries."""
        entries: list[tuple[int, list[Range]]] = []
        for message_id in command.message_id:
            position = position_of(message_id, self.ledger)
            if position.earliest or position.latest:
                continue  # of another incarnation of the topic
            base = position.entry
            entries.append((base, _acked_ranges(base, counts.get(base, 1), message_id.ack_set)))
        if command.ack_type == CUMULATIVE and entries:
            base, ranges = max(entries)
            if ranges == [(base, base + counts.get(base, 1))]:
                return ranges[0][1], []
            return base, [(base, ranges)]
        return 0, entries


def _acked_ranges(base: int, count: int, words: Sequence[int]) -> list[Range]:
    """The acknowledged offsets of an entry: those whose bits are not set. Words of zeros at the end are left out.

    Raises InvalidInput."""
    if not words:
        return [(base, base + count)]
    if len(words) > _ACK_SET_WORDS_MAX:
        raise InvalidInput(f"an acknowledgement of {len(words)} words: the limit is {_ACK_SET_WORDS_MAX}")
    ranges: list[Range] = []
    for index in range(count):
        at = index // _WORD_BITS
        if at < len(words) and words[at] >> (index % _WORD_BITS) & 1:
            continue
        if ranges and ranges[-1][1] == base + index:
            ranges[-1] = (ranges[-1][0], base + index + 1)
        else:
            ranges.append((base + index, base + index + 1))
    return ranges


def _ack_set(entry: MessageEntry, unacked: list[Range]) -> list[int]:
    """The bits of what is left of an entry, as unsigned words."""
    left = 0
    present = {record.offset for record in entry.records} if entry.packed is None else None
    for first, end in unacked:
        for offset in range(first, end):
            if present is None or offset in present:
                left |= 1 << (offset - entry.base)
    words = max(1, -(-entry.count // _WORD_BITS))
    return [left >> (_WORD_BITS * at) & 0xFFFFFFFFFFFFFFFF for at in range(words)]
