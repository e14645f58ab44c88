"""What callers saw, and whether the later state of a broker agrees with it.

Every value in a history is written once, as `writer:number`, so a record names the append it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem.broker.broker import Broker
from mainstem.errors import RecordsLost, TopicNotFound, invariant

Scan = tuple[dict[int, bytes], list[tuple[int, int]]]  # value by offset, lost ranges


@dataclass
class TopicHistory:
    """One topic, as clients see it. `wanted` is what was requested, `done` what was acknowledged."""

    name: str
    durability: str
    stream: int = -1
    create_done: bool = False
    delete_wanted: bool = False
    delete_done: bool = False
    values: set[bytes] = field(default_factory=set)  # ever proposed
    acked: dict[int, bytes] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)  # acked or read, by anybody, ever
    seen_end: int = 0
    lost: set[int] = field(default_factory=set)  # of those, told lost after a crash that may lose them
    trim_wanted: int = 0
    trim_done: int = 0
    punch_wanted: set[int] = field(default_factory=set)
    punch_done: set[int] = field(default_factory=set)
    cursor_done: int = 0
    cursor_wanted: set[int] = field(default_factory=set)  # since the last one that was acknowledged

    def see(self, offset: int, value: bytes) -> None:
        before = self.seen.setdefault(offset, value)
        invariant(before == value, f"{self.name}[{offset}] was {before!r} and is {value!r} now")
        self.seen_end = max(self.seen_end, offset + 1)

    def ack(self, base: int, values: list[bytes]) -> None:
        for offset, value in enumerate(values, base):
            invariant(offset not in self.acked, f"{self.name}[{offset}] was acknowledged twice")
            self.see(offset, value)
            self.acked[offset] = value

    def forget_volatile(self) -> None:
        """The process ended: what an ephemeral topic held is gone, its offsets stay used."""
        if self.durability == "ephemeral":
            self.acked.clear()
            self.trim_wanted = self.trim_done = 0


@dataclass
class History:
    topics: list[TopicHistory] = field(default_factory=list)
    lives: list[int] = field(default_factory=list)  # seeds of the workloads that wrote it

    async def check(self, broker: Broker, *, all_written_survived: bool) -> None:
        """Compare with a broker that just started. Not `all_written_survived`: the machine lost its power."""
        for topic in self.topics:
            topic.forget_volatile()
            if not _exists(broker, topic):
                gone = topic.delete_wanted or not topic.create_done
                invariant(gone, f"{topic.name} was created and is not there")
                continue
            invariant(not topic.delete_done, f"{topic.name} was deleted and is there")
            found = await scan(broker, topic.name)
            _check_records(topic, found)
            _check_losses(topic, found, strict=all_written_survived or topic.durability == "fsync")
            _check_order(topic, found[0])
            _check_cursor(broker, topic)


async def scan(broker: Broker, name: str) -> Scan:
    """Everything a reader can get, from start to end."""
    state = broker.partition(name)
    at = state.start
    values: dict[int, bytes] = {}
    lost: list[tuple[int, int]] = []
    while at < state.end:
        try:
            fetched = await broker.fetch(name, at, max_bytes=2000)
        except RecordsLost as loss:
            invariant(loss.start == at < loss.end, "a loss starts where it was asked for")
            lost.append((loss.start, loss.end))
            at = loss.end
            continue
        records = await broker.read(name, at, max_bytes=2000, max_records=1 << 30) if fetched.batches else []
        for record in records:
            invariant(at <= record.offset, "records come in order, none from before the offset asked for")
            values[record.offset] = record.value or b""
        invariant(fetched.next_offset > at, "a read below the end goes on")
        at = fetched.next_offset
    return values, lost


def _exists(broker: Broker, topic: TopicHistory) -> bool:
    try:
        info = broker.topic(topic.name)
    except TopicNotFound:
        return False
    return topic.stream in (-1, info.streams[0])


def _check_records(topic: TopicHistory, found: Scan) -> None:
    values, lost = found
    for offset, value in values.items():
        invariant(value in topic.values, f"{topic.name}[{offset}] holds {value!r}, which nobody wrote")
        invariant(offset >= topic.trim_done, f"{topic.name}[{offset}] was trimmed and is back")
        invariant(offset not in topic.punch_done, f"{topic.name}[{offset}] was deleted and is back")
        topic.see(offset, value)
    for offset, value in topic.acked.items():
        removed = offset < topic.trim_wanted or offset in topic.punch_wanted
        told = any(first <= offset < last for first, last in lost)
        held = values.get(offset) == value
        invariant(held or removed or told, f"{topic.name}[{offset}] = {value!r} was acked and is not there")


def _check_losses(topic: TopicHistory, found: Scan, *, strict: bool) -> None:
    """`strict`: nothing that was acked or read may be lost. What is told lost now stays lost."""
    told = {o for o in topic.seen for first, last in found[1] if first <= o < last}
    fresh = sorted(told - topic.lost)
    topic.lost |= told
    if strict and topic.durability != "ephemeral":
        invariant(not fresh, f"{topic.name} lost {fresh}, which were acked or read")


def _check_order(topic: TopicHistory, values: dict[int, bytes]) -> None:
    last: dict[bytes, int] = {}
    for offset in sorted(values):
        writer, number = values[offset].split(b":")
        invariant(int(number) > last.get(writer, -1), f"{topic.name}[{offset}] is out of its writer's order")
        last[writer] = int(number)


def _check_cursor(broker: Broker, topic: TopicHistory) -> None:
    offset = broker.committed("group", topic.name) or 0
    allowed = {topic.cursor_done, *topic.cursor_wanted}
    invariant(offset in allowed, f"the cursor of {topic.name} is {offset}, not one of {allowed}")
    if offset != topic.cursor_done:
        topic.cursor_done = offset
    topic.cursor_wanted.clear()
