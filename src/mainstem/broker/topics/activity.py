"""How recently topics were read, and the resulting priority. In memory only."""

from __future__ import annotations

from mainstem.ledger.config import TopicConfig
from mainstem.ports.clock import Clock

PRIORITY_MAX = 1_000  # the maximum of a configured priority, positive or negative

_FRESH = 500  # priority of a topic read just now
_HALF_LIFE_MS = 30_000
_FORGOTTEN_MS = 300_000  # after this time a read no longer raises the priority


class Activity:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_ms: dict[bytes, int] = {}  # by topic id

    def read(self, topic_id: bytes) -> None:
        """A client consumed the topic."""
        self._read_ms[topic_id] = self._clock.now_ms()

    def forget(self, topic_id: bytes) -> None:
        self._read_ms.pop(topic_id, None)

    def last_read_ms(self, topic_id: bytes) -> int | None:
        return self._read_ms.get(topic_id)

    def priority(self, topic_id: bytes, config: TopicConfig) -> int:
        """The configured priority, or one by how recently the topic was read."""
        if config.priority is not None:
            return max(-PRIORITY_MAX, min(PRIORITY_MAX, config.priority))
        read_ms = self.last_read_ms(topic_id)
        if not config.auto_priority or read_ms is None:
            return 0
        idle_ms = max(0, self._clock.now_ms() - read_ms)
        if idle_ms >= _FORGOTTEN_MS:
            return 0
        left: float = 2.0 ** (-idle_ms / _HALF_LIFE_MS)
        return round(_FRESH * left)
