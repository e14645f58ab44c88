"""What the Pulsar door counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mainstem.metrics import Metric, one


class PulsarMetrics:
    def __init__(self) -> None:
        self.connections_accepted = 0
        self.connections_refused = 0  # over the limit
        self.connections_dropped = 0  # for what they sent, or for not answering
        self.commands: Counter[str] = Counter()  # received, by type
        self.errors: Counter[str] = Counter()  # answers with an error, by type
        self.messages_in = 0
        self.bytes_in = 0
        self.entries_out = 0
        self.bytes_out = 0
        self.producers = 0
        self.consumers = 0

    def published(self) -> Iterator[Metric]:
        """What the metrics endpoint shows of this door."""
        for name, help, counter in (
            ("commands", "Commands received, by type.", self.commands),
            ("errors", "Commands that got an error, by type.", self.errors),
        ):
            yield Metric(
                f"mainstem_pulsar_{name}_total",
                "counter",
                help,
                tuple(((("command", command),), float(count)) for command, count in sorted(counter.items())),
            )
        for name, help, value in (
            ("connections_accepted", "Connections accepted.", self.connections_accepted),
            ("connections_refused", "Connections rejected at the limit.", self.connections_refused),
            (
                "connections_dropped",
                "Connections closed for invalid commands, or because the client did not answer.",
                self.connections_dropped,
            ),
            ("sends", "SEND commands that were stored: one message or one batch each.", self.messages_in),
            ("received_bytes", "Bytes of SEND commands that were stored.", self.bytes_in),
            ("deliveries", "MESSAGE commands sent: one message or one batch each.", self.entries_out),
            ("delivered_bytes", "Bytes of MESSAGE commands sent.", self.bytes_out),
        ):
            yield one(f"mainstem_pulsar_{name}_total", "counter", help, value)
        yield one("mainstem_pulsar_producers", "gauge", "Open producers.", self.producers)
        yield one("mainstem_pulsar_consumers", "gauge", "Open consumers.", self.consumers)
