"""Slots of keys, and the consumers of a Key_Shared subscription that get the records of each."""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.hashing import HASH_SLOTS
from mainstem.errors import InvalidInput
from mainstem.ledger.digest import mix

HASH_RANGES_MAX = 1_000  # of a consumer


class KeySlots:
    """The hash slots of one subscription, by consumer."""

    def __init__(self) -> None:
        self._holders: dict[int, tuple[SubscriptionConsumer, int]] = {}  # entries in flight by slot
        self._owners: dict[int, SubscriptionConsumer] = {}  # by slot, as long as the consumers stay

    def assign_again(self) -> None:
        """A consumer came or went."""
        self._owners.clear()

    def clear(self) -> None:
        """Nothing is in flight."""
        self._holders.clear()

    def taker(self, slot: int, consumers: list[SubscriptionConsumer]) -> SubscriptionConsumer | None:
        """Who gets the next entry of a slot; None as long as another consumer holds one."""
        owner = self._owner(slot, consumers)
        holder = self._holders.get(slot)
        return None if holder is not None and holder[0] is not owner else owner

    def took(self, slot: int, consumer: SubscriptionConsumer) -> None:
        """A consumer got an entry."""
        holder = self._holders.get(slot)
        self._holders[slot] = (consumer, 1 if holder is None else holder[1] + 1)

    def settled(self, slot: int) -> None:
        """One of the entries that were taken is acknowledged or returned."""
        holder = self._holders.get(slot)
        if holder is None:
            return
        if holder[1] <= 1:
            del self._holders[slot]
        else:
            self._holders[slot] = (holder[0], holder[1] - 1)

    def _owner(self, slot: int, consumers: list[SubscriptionConsumer]) -> SubscriptionConsumer | None:
        owner = self._owners.get(slot)
        if owner is None and consumers:
            if consumers[0].ranges is not None:
                owner = next(
                    (
                        consumer
                        for consumer in consumers
                        if any(first <= slot <= last for first, last in consumer.ranges or ())
                    ),
                    None,
                )
            else:
                # The highest score: a consumer that comes or goes moves no slots between the others.
                owner = max(consumers, key=lambda consumer: mix(slot, consumer.serial, 0, 1))
            if owner is not None:
                self._owners[slot] = owner
        return owner


def check_ranges(consumer: SubscriptionConsumer, others: Iterable[SubscriptionConsumer]) -> None:
    """Raises InvalidInput."""
    ranges = consumer.ranges or ()
    if len(ranges) > HASH_RANGES_MAX:
        raise InvalidInput(f"a consumer names {len(ranges)} hash ranges: the limit is {HASH_RANGES_MAX}")
    if not all(0 <= first <= last < HASH_SLOTS for first, last in ranges):
        raise InvalidInput(f"hash ranges are from 0 to {HASH_SLOTS - 1}")
    taken = bytearray(HASH_SLOTS)
    for other in others:
        if (consumer.ranges is None) != (other.ranges is None):
            raise InvalidInput("consumers of a Key_Shared subscription are all sticky, or none is")
        for first, last in other.ranges or ():
            taken[first : last + 1] = b"\x01" * (last + 1 - first)
    for first, last in ranges:
        if taken.find(1, first, last + 1) >= 0:
            raise InvalidInput(f"another consumer takes a part of the hash range {first} to {last}")
