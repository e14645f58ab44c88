"""What the door counts: plain numbers, read by whoever publishes them."""

from __future__ import annotations

from bisect import bisect_left

from mainstem import events
from mainstem.errors import RecordsLost

_log = events.named("kafka")
_LOSSES_NAMED_MAX = 10_000  # each is logged once, up to this many
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class ApiCounters:
    """Requests of one API."""

    __slots__ = ("count", "errors", "latencies", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0  # answered with an error code, or not at all
        self.seconds = 0.0
        self.latencies = [0] * (len(LATENCY_BUCKETS_S) + 1)  # by bucket; the last has no upper bound

    def finished(self, seconds: float, failed: bool) -> None:
        self.count += 1
        self.errors += failed
        self.seconds += seconds
        self.latencies[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1


class KafkaMetrics:
    __slots__ = (
        "_losses",
        "apis",
        "connections_accepted",
        "connections_dropped",
        "connections_refused",
        "losses_passed",
        "records_lost",
    )

    def __init__(self) -> None:
        self._losses: set[tuple[int, int]] = set()
        self.apis: dict[int, ApiCounters] = {}
        self.connections_accepted = 0
        self.connections_refused = 0  # over the limit
        self.connections_dropped = 0  # for what they sent, or for not reading
        self.losses_passed = 0  # fetches that went on after a range of lost records
        self.records_lost = 0  # in those ranges, each counted once

    def of(self, key: int) -> ApiCounters:
        counters = self.apis.get(key)
        if counters is None:
            counters = self.apis[key] = ApiCounters()
        return counters

    def lost(self, stream: int, loss: RecordsLost) -> None:
        """A reader goes on after records that are gone."""
        self.losses_passed += 1
        if (stream, loss.end) in self._losses or len(self._losses) >= _LOSSES_NAMED_MAX:
            return
        self._losses.add((stream, loss.end))
        self.records_lost += loss.end - loss.start
        _log.error(
            "lost records passed over", stream=stream, start=loss.start, end=loss.end, reason=loss.reason
        )
