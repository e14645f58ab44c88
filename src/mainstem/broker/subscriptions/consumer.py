"""A consumer of a subscription: how much it may get, and what it has not acknowledged yet."""

from __future__ import annotations

from itertools import count
from typing import Protocol

from mainstem.broker.subscriptions.entries import MessageEntry, MessageRun

UNACKED_PER_CONSUMER_MAX = (
    50_000  # messages; a consumer of a shared subscription gets no more until it acknowledges
)

_serials = count(1)


class ConsumerSink(Protocol):
    """The client's side of a consumer."""

    @property
    def writable(self) -> bool:
        """Whether the client reads what it is sent."""
        ...

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[tuple[int, int]] | None) -> None:
        """Send an entry. `unacked`: what is left of it, if a part was acknowledged or is gone."""
        ...

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        """Send entries of one record each."""
        ...

    def active_changed(self, active: bool) -> None:
        """The consumer became the one that gets records, or another one did."""
        ...

    def reached_end(self) -> None:
        """The topic is terminated, and everything was read."""
        ...

    def disconnect(self) -> None:
        """The subscription was moved or deleted, or its topic was. The client may subscribe again."""
        ...


class SubscriptionConsumer:
    def __init__(
        self,
        sink: ConsumerSink,
        name: str,
        *,
        priority: int = 0,
        ranges: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        self.sink = sink
        self.serial = next(_serials)
        self.name = name
        self.priority = priority  # lower numbers get records first
        self.ranges = ranges  # slots that a sticky consumer of a Key_Shared subscription takes, ends included
        self.unacked_max = UNACKED_PER_CONSUMER_MAX
        self.permits = 0  # messages that the client has room for
        self.unacked = 0  # messages that were delivered and not acknowledged
        self.delivered = 0
        self.redelivered = 0
        self.knows_active = False  # it has been notified whether it is the active consumer
        self.at_end = False  # it knows that the topic has no more records

    @property
    def has_permits(self) -> bool:
        return self.permits > 0 and self.sink.writable

    @property
    def takes_more(self) -> bool:
        """Whether a shared subscription may send it one more entry."""
        return self.has_permits and self.unacked < self.unacked_max
