"""A broker as a few dicts: what a partition must hold after commands that ran one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem.broker.broker import Broker
from mainstem.errors import invariant
from mainstem.ledger.config import TopicConfig
from tests.support.history import scan


@dataclass
class ModelTopic:
    name: str
    config: TopicConfig
    start: int = 0
    end: int = 0
    live: dict[int, bytes] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    punched: set[int] = field(default_factory=set)
    cursors: dict[str, int] = field(default_factory=dict)
    ever: dict[int, bytes] = field(default_factory=dict)

    @property
    def ephemeral(self) -> bool:
        return self.config.durability == "ephemeral"

    def append(self, base: int, values: list[bytes]) -> None:
        invariant(base == self.end, f"{self.name}: the next offset is {self.end}, not {base}")
        for offset, value in enumerate(values, base):
            invariant(offset not in self.ever, f"{self.name}[{offset}] is assigned again")
            self.live[offset] = self.ever[offset] = value
        self.end = base + len(values)
        self._evict()

    def full(self, count: int) -> bool:
        """Whether a topic that rejects has no room for this many more."""
        capped = self.config.discard == "reject" and self.config.cap_records
        return bool(capped and len(self.live) + count > self.config.cap_records)

    def alter(self, config: TopicConfig) -> None:
        self.config = config
        self._evict()

    def trim(self, offset: int) -> None:
        self._cut(min(offset, self.end))

    def punch(self, start: int, end: int) -> None:
        gone = [offset for offset in range(start, end) if offset in self.live]
        self.punched.update(gone)
        for offset in gone:
            del self.live[offset]
        self._cut(self.start)

    def take(self, group: str, limit: int) -> list[int]:
        at = max(self.start, self.cursors.get(group, 0))
        taken = [offset for offset in sorted(self.live) if offset >= at][:limit]
        if taken:
            self.cursors[group] = taken[-1] + 1
        return taken

    def _evict(self) -> None:
        excess = len(self.live) - self.config.cap_records
        if self.config.cap_records and excess > 0 and self.config.discard == "old":
            self._cut(sorted(self.live)[excess - 1] + 1)

    def _cut(self, floor: int) -> None:
        self.start = max(self.start, floor)
        while self.start in self.punched:
            self.start += 1
        for offset in [offset for offset in self.live if offset < self.start]:
            del self.live[offset]
        self.lost = {offset for offset in self.lost if offset >= self.start}

    # Against the broker

    async def check(self, broker: Broker) -> None:
        state = broker.partition(self.name)
        bounds = (state.start, state.end)
        expected = (self.start, self.end)
        invariant(bounds == expected, f"{self.name} spans {bounds}, not {expected}")
        invariant(state.records == len(self.live), f"{self.name} counts {state.records} records")
        values, lost = await scan(broker, self.name)
        invariant(values == self.live, f"{self.name} holds {sorted(values)}, not {sorted(self.live)}")
        told = {offset for first, last in lost for offset in range(first, last)}
        invariant(told == self.lost, f"{self.name} tells a loss of {lost}")
        for group, offset in self.cursors.items():
            held = broker.committed(group, self.name)
            invariant(held == offset, f"{group} is at {held} in {self.name}, not at {offset}")

    async def adopt(self, broker: Broker, *, torn: bool) -> None:
        """After a power cut that may take a topic's newest records: check what must hold, go on from there.

        `torn`: the disk wrote in any order, so records may be lost that stand before others that are not."""
        state = broker.partition(self.name)
        invariant(state.end >= self.end, f"{self.name} ends at {state.end} and did at {self.end}")
        values, lost = await scan(broker, self.name)
        told = {offset for first, last in lost for offset in range(first, last)}
        for offset, value in values.items():
            invariant(self.ever.get(offset) == value, f"{self.name}[{offset}] is {value!r} now")
        missing = self.live.keys() - values.keys()
        invariant(missing <= told, f"{self.name} lost {sorted(missing - told)} silently")
        kept = self.live.keys() & values.keys()
        in_order = torn or not missing or not kept or max(kept) < min(missing)
        invariant(in_order, f"{self.name} lost {sorted(missing)} and kept later ones")
        # An eviction is part of the append that caused it, and is undone with it.
        invariant(state.start <= self.start, f"{self.name} starts at {state.start}, past {self.start}")
        self.start, self.end, self.live, self.lost = state.start, state.end, values, told

    def forget(self, broker: Broker) -> None:
        """After any restart, of an ephemeral topic."""
        state = broker.partition(self.name)
        invariant(state.start == state.end >= self.end, f"{self.name} spans {state.start} to {state.end}")
        self.start = self.end = state.end
        self.live.clear()
