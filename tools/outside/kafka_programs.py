"""Random programs of Kafka requests, valid and invalid, for the differential test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tools.outside.kafka_side import Step
from tools.outside.kafka_streams_requests import KafkaStreamsRequests

STEPS = 60
# What is described twice gets one answer here, and entries of the others get one each: Kafka answers otherwise.
_NOT_TWICE = ("describe", "list offsets", "delete records", "alter client quotas")
_ODD = 0.05  # share of requests that name something twice, or nothing
_ODD_VALUES: tuple[str, ...] = (
    "topics",
    "partitions",
    "resources",
    "configs",
    "groups",
    "group_ids",
    "entries",
)


class Program(KafkaStreamsRequests):
    def __iter__(self) -> Iterator[Step]:
        yield self.create_topics(usual=True)
        yield self.init_producer("p0")
        yield self.init_producer("p1")
        yield self.init_transactional("x0")
        yield self.init_transactional("x1")
        area = self._random.choice(
            (
                *(self._data, self._classic, self._consumer, self._transactional),
                *(self._admin, self._share, self._streams),
            )
        )
        for _ in range(STEPS):
            calls = area() if self._random.random() < 0.75 else self._data() + self._admin()
            step = self._random.choice(calls)()
            if self._random.random() < _ODD and not step.kind.startswith(_NOT_TWICE):
                step = replace(step, values=self._odd(step.values))
            yield step

    def _odd(self, values: Any) -> Any:
        """The same request, with one of its lists empty or with its first entry twice."""
        if not isinstance(values, dict):
            return values
        places = [name for name in _ODD_VALUES if values.get(name) and isinstance(values[name], list)]
        if not places:
            return values
        name = self._random.choice(places)
        found = values[name]
        changed = self._random.choice(
            ([], [found[0], *found], [found[0], *found], [self._odd(found[0]), *found[1:]])
        )
        return {**values, name: changed}
