"""Samples of the last hour, for charts: rates of the server and of topics, and the lag of groups.

They are in memory only, and end with the process."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from mainstem.api.history import LagSample, ServerSample, TopicSample
from mainstem.broker.overview import Overview

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

HISTORY_EVERY_S = 5.0
HISTORY_SAMPLES_MAX = 720  # an hour
HISTORY_TOPICS_MAX = 500  # topics with samples: those written to last
HISTORY_GROUPS_MAX = 200
HISTORY_STREAMS_MAX = 2_000  # partitions that one sample looks at: those that grew most
RECENT_SAMPLES = 24  # of a topic or group in a list: two minutes

Int64s = npt.NDArray[np.int64]
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RequestCounters:
    """What the doors have counted since they opened."""

    http_requests: float = 0.0
    http_writes: float = 0.0
    http_write_s: float = 0.0
    kafka_requests: float = 0.0
    kafka_writes: float = 0.0
    kafka_write_s: float = 0.0
    kafka_write_buckets: tuple[tuple[float, float], ...] = ()  # upper bound in seconds, writes up to it


@dataclass(frozen=True, slots=True)
class _Counted:
    at_ms: int
    appended: int
    ends: Int64s  # by stream
    sizes: Int64s
    requests: RequestCounters


class History:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._before: _Counted | None = None
        self._server: deque[ServerSample] = deque(maxlen=HISTORY_SAMPLES_MAX)
        self._topics: OrderedDict[bytes, deque[TopicSample]] = (
            OrderedDict()
        )  # samples without writes are left out
        self._groups: OrderedDict[str, deque[LagSample]] = OrderedDict()

    def take(self, lags: Iterable[tuple[str, int]], requests: RequestCounters) -> None:
        """Add a sample. `lags`: of the groups that this broker coordinates."""
        now = self._counted(requests)
        before, self._before = self._before, now
        for group, lag in lags:
            _samples(self._groups, group, HISTORY_GROUPS_MAX).append(LagSample(now.at_ms, lag))
        if before is not None and now.at_ms > before.at_ms:
            self._server.append(_difference(before, now))
            self._take_topics(before, now)

    # Reading

    def server(self, after_ms: int = 0) -> list[ServerSample]:
        return [sample for sample in self._server if sample.at_ms > after_ms]

    def group(self, name: str) -> list[LagSample]:
        return list(self._groups.get(name, ()))

    def recent_lag(self, name: str) -> list[int]:
        """The last samples of a group's lag."""
        newest = islice(reversed(self._groups.get(name, deque())), RECENT_SAMPLES)
        return [sample.lag for sample in newest][::-1]

    def groups(self) -> list[str]:
        return list(self._groups)

    def topic(self, topic_id: bytes) -> list[TopicSample]:
        """One for each sample of the server."""
        found = {sample.at_ms: sample for sample in self._topics.get(topic_id, ())}
        return [found.get(at.at_ms) or TopicSample(at.at_ms, 0.0, 0.0) for at in self._server]

    def recent(self, topic_id: bytes) -> list[float]:
        """Records per second in the last samples; none without writes."""
        samples = self._topics.get(topic_id)
        times = [sample.at_ms for sample in list(self._server)[-RECENT_SAMPLES:]]
        if not samples or not times or samples[-1].at_ms < times[0]:
            return []
        found = {sample.at_ms: sample.records for sample in samples if sample.at_ms >= times[0]}
        return [round(found.get(at, 0.0), 2) for at in times]

    # Sampling

    def _counted(self, requests: RequestCounters) -> _Counted:
        streams = self._broker.log.ledger.streams
        ends, sizes = streams.end[: streams.count].copy(), streams.bytes[: streams.count].copy()
        return _Counted(self._broker.clock.now_ms(), Overview(self._broker).appended(), ends, sizes, requests)

    def _take_topics(self, before: _Counted, now: _Counted) -> None:
        grown, bigger = _grown(before.ends, now.ends), _grown(before.sizes, now.sizes)
        (changed,) = np.nonzero(grown)
        if len(changed) > HISTORY_STREAMS_MAX:
            changed = changed[np.argsort(grown[changed])[-HISTORY_STREAMS_MAX:]]
        seconds = (now.at_ms - before.at_ms) / 1000
        rates: dict[bytes, tuple[float, float]] = {}
        for stream in changed.tolist():
            topic = self._broker.streams.of_stream(stream)
            if topic is not None:
                records, size = rates.get(topic.topic_id, (0.0, 0.0))
                rates[topic.topic_id] = (
                    records + float(grown[stream]) / seconds,
                    size + float(bigger[stream]) / seconds,
                )
        for topic_id, (records, size) in rates.items():
            samples = _samples(self._topics, topic_id, HISTORY_TOPICS_MAX)
            samples.append(TopicSample(now.at_ms, records, size))


def _samples(kept: OrderedDict[K, deque[V]], key: K, most: int) -> deque[V]:
    """The samples of a key. The key that was sampled longest ago goes if there are too many."""
    found = kept.get(key)
    if found is None:
        found = kept[key] = deque(maxlen=HISTORY_SAMPLES_MAX)
        if len(kept) > most:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return found


def _grown(before: Int64s, now: Int64s) -> Int64s:
    grown = now.copy()
    grown[: len(before)] -= before
    return np.maximum(grown, 0)


def _difference(before: _Counted, now: _Counted) -> ServerSample:
    seconds = (now.at_ms - before.at_ms) / 1000
    old, new = before.requests, now.requests
    return ServerSample(
        at_ms=now.at_ms,
        appended=max(0, now.appended - before.appended) / seconds,
        http_requests=max(0.0, new.http_requests - old.http_requests) / seconds,
        kafka_requests=max(0.0, new.kafka_requests - old.kafka_requests) / seconds,
        http_write_ms=_mean_ms(new.http_write_s - old.http_write_s, new.http_writes - old.http_writes),
        kafka_write_ms=_mean_ms(new.kafka_write_s - old.kafka_write_s, new.kafka_writes - old.kafka_writes),
        kafka_write_p99_ms=percentile_ms(old.kafka_write_buckets, new.kafka_write_buckets, 0.99),
    )


def _mean_ms(seconds: float, number: float) -> float | None:
    return seconds / number * 1000 if number > 0 else None


def percentile_ms(
    old: tuple[tuple[float, float], ...], new: tuple[tuple[float, float], ...], share: float
) -> float | None:
    """The bound of the first bucket that covers the share; None without writes, or past the last bound."""
    known = dict(old)
    grown = [(bound, number - known.get(bound, 0.0)) for bound, number in new]
    total = grown[-1][1] if grown else 0.0
    if total <= 0:
        return None
    bound = next(bound for bound, number in grown if number >= total * share)
    return None if bound == float("inf") else bound * 1000
