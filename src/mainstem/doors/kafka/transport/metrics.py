"""Counters of the door, which the metrics endpoint reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from kio.schema.index import api_key_map

from mainstem import events
from mainstem.broker.rates import QUOTA_KEYS
from mainstem.doors.kafka.transport.api import LATENCY_BUCKETS_S, ApiCounters
from mainstem.errors import RecordsLost
from mainstem.metrics import Labels, Metric, one

_log = events.named("kafka")
_LOSSES_NAMED_MAX = 10_000  # each is logged once, up to this many
_BOUNDS = (*map(str, LATENCY_BUCKETS_S), "+Inf")


class KafkaMetrics:
    __slots__ = (
        "_losses",
        "apis",
        "connections_accepted",
        "connections_dropped",
        "connections_refused",
        "losses_passed",
        "records_lost",
        "throttled",
        "throttled_ms",
    )

    def __init__(self) -> None:
        self._losses: set[tuple[int, int]] = set()
        self.apis: dict[int, ApiCounters] = {}
        self.connections_accepted = 0
        self.connections_refused = 0  # over the limit
        self.connections_dropped = 0  # because of what they sent, or because they did not read
        self.throttled: dict[str, int] = dict.fromkeys(QUOTA_KEYS, 0)  # responses by quota
        self.throttled_ms = 0
        self.losses_passed = 0  # fetches that continued after a range of lost records
        self.records_lost = 0  # in those ranges, each counted once

    def published(self) -> Iterator[Metric]:
        """What the metrics endpoint shows of this door."""
        names: list[tuple[Labels, ApiCounters]] = [
            ((("api", api_key_map[key]),), counters) for key, counters in sorted(self.apis.items())
        ]
        yield Metric(
            "mainstem_kafka_request_errors_total",
            "counter",
            "Requests that got an error or no response.",
            tuple((labels, float(counters.errors)) for labels, counters in names),
        )
        buckets = [
            ((*labels, ("le", bound)), total)
            for labels, counters in names
            for bound, total in zip(_BOUNDS, accumulate(map(float, counters.latencies)), strict=True)
        ]
        yield _latency(buckets, "_bucket")
        yield _latency([(labels, counters.seconds) for labels, counters in names], "_sum")
        yield _latency([(labels, float(counters.count)) for labels, counters in names], "_count")
        for name, help, value in (
            ("accepted", "Connections accepted.", self.connections_accepted),
            ("refused", "Connections rejected at the limit.", self.connections_refused),
            (
                "dropped",
                "Connections closed for invalid requests, or because the client did not read.",
                self.connections_dropped,
            ),
        ):
            yield one(f"mainstem_kafka_connections_{name}_total", "counter", help, value)
        yield Metric(
            "mainstem_kafka_throttled_total",
            "counter",
            "Responses after which a quota throttled the client.",
            tuple(((("quota", quota),), float(count)) for quota, count in self.throttled.items()),
        )
        yield one(
            "mainstem_kafka_throttled_seconds_total",
            "counter",
            "Time that quotas throttled clients.",
            self.throttled_ms / 1000,
        )
        yield one(
            "mainstem_kafka_records_lost_total",
            "counter",
            "Lost records that fetches skipped.",
            self.records_lost,
        )

    def of(self, key: int) -> ApiCounters:
        counters = self.apis.get(key)
        if counters is None:
            counters = self.apis[key] = ApiCounters()
        return counters

    def lost(self, stream: int, loss: RecordsLost) -> None:
        """A reader continues after lost records."""
        self.losses_passed += 1
        if (stream, loss.end) in self._losses or len(self._losses) >= _LOSSES_NAMED_MAX:
            return
        self._losses.add((stream, loss.end))
        self.records_lost += loss.end - loss.start
        _log.error("lost records skipped", stream=stream, start=loss.start, end=loss.end, reason=loss.reason)


def _latency(samples: list[tuple[Labels, float]], part: str) -> Metric:
    help = "Time from request to response."
    return Metric("mainstem_kafka_request_seconds", "histogram", help, tuple(samples), part)
