"""What the random requests of the differential test have in common: topics, groups, and chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Any

from kio.static.primitive import i32Timedelta

from tools.outside.kafka_side import Step, TopicId

Calls = list[Callable[[], Step]]
COMMON_NAMES = ("t0", "t1", "t2")
_STRANGE_NAMES = ("nope", "", "..", "a b", "x" * 250, "t0_1")


def ms(value: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=value))


class KafkaRequests:
    def __init__(self, random: Random, prefix: str, newest: Mapping[int, tuple[int, int]]) -> None:
        self._random = random
        self._prefix = prefix
        self._newest = newest
        self.topics = [f"{prefix}{name}" for name in COMMON_NAMES]
        self._sequences: dict[tuple[str, str, int], int] = {}
        self._session_epoch = 0
        self._session_version = random.randint(7, newest[1][1])  # one for all fetches of a session

    def _step(
        self,
        kind: str,
        key: int,
        lowest: int,
        values: dict[str, Any],
        keep: dict[str, str] | None = None,
        only: str = "",
    ) -> Step:
        first, last = self._newest[key]
        version = self._random.randint(max(first, lowest), last)
        return Step(kind, key, version, values, keep or {}, only)

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _rarely(self, value: Any, other: Any, chance: float = 0.1) -> Any:
        return value if self._random.random() < chance else other

    def _topic(self) -> str:
        name = self._rarely(self._one(*_STRANGE_NAMES), self._one(*COMMON_NAMES), 0.07)
        return f"{self._prefix}{name}" if name not in ("", "..") else name

    def _own_topic(self) -> str:
        return f"{self._prefix}{self._one(*COMMON_NAMES, self._rarely('nope', 't0'))}"

    def _partition(self) -> int:
        return int(self._rarely(self._one(-1, 5, 99), self._one(0, 0, 0, 1)))

    def _topic_fields(self) -> dict[str, Any]:
        topic = self._topic()
        return {"name": topic, "topic": topic, "topic_name": topic, "topic_id": TopicId(topic)}

    def _group(self) -> str:
        return str(self._rarely("", self._prefix + self._one("g0", "g1"), 0.03))
