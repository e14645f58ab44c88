"""The ledger's rules once more, as simply as they can be said: a list of cells a stream, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem.ledger.config import TopicConfig

LIVE = "live"
DELETED = "deleted"

OK, DUPLICATE, NO_STREAM, FULL, OUT_OF_ORDER, PRODUCER_FENCED, UNKNOWN = 0, 1, 2, 3, 4, 5, 7


@dataclass
class Cell:
    size: int
    state: str = LIVE  # live, deleted, or why it is lost


@dataclass
class ModelStream:
    config: TopicConfig
    cells: list[Cell] = field(default_factory=list)
    delete_floor: int = 0
    evict_floor: int = 0
    expiry_floor: int = 0
    ceiling: int = 0
    max_timestamp: int = -1
    passed: dict[int, str] = field(default_factory=dict)  # lost ones that deletes passed over, and why

    @property
    def start(self) -> int:
        return max(self.delete_floor, self.evict_floor, self.expiry_floor)

    def live(self) -> list[int]:
        return [at for at in range(self.start, len(self.cells)) if self.cells[at].state == LIVE]

    @property
    def records(self) -> int:
        return len(self.live())

    @property
    def bytes(self) -> int:
        return sum(self.cells[at].size for at in self.live())

    def ranges(self, *, lost: bool) -> list[tuple[int, int, str]]:
        """Lost or deleted offsets at or above the start, as maximal ranges."""
        found: list[tuple[int, int, str]] = []
        for at in range(self.start, len(self.cells)):
            state = self.cells[at].state
            if state == LIVE or (state != DELETED) != lost:
                continue
            if found and found[-1][1] == at and found[-1][2] == state:
                found[-1] = (found[-1][0], at + 1, state)
            else:
                found.append((at, at + 1, state))
        return found

    def settle(self) -> None:
        while self.start < len(self.cells) and self.cells[self.start].state == DELETED:
            self.delete_floor = self.start + 1

    def evict(self) -> None:
        if self.config.discard == "reject":
            return
        while (self.config.cap_records and self.records > self.config.cap_records) or (
            self.config.cap_bytes and self.bytes > self.config.cap_bytes
        ):
            self.evict_floor = self.live()[0] + 1
            self.settle()

    def append(self, sizes: list[int], time: int) -> int | None:
        caps = (self.config.cap_records, self.config.cap_bytes)
        if self.config.discard == "reject" and (
            (caps[0] and self.records + len(sizes) > caps[0])
            or (caps[1] and self.bytes + sum(sizes) > caps[1])
        ):
            return None
        base = len(self.cells)
        self.cells += [Cell(size) for size in sizes]
        self.max_timestamp = max(self.max_timestamp, time)
        self.evict()
        return base

    def has_unsaved_changes(self) -> dict[int, str]:
        """Lost offsets below the start that no retention floor covers."""
        told = max(self.evict_floor, self.expiry_floor)
        return {at: state for at, state in self.passed.items() if at >= told}

    def trim(self, offset: int, reason: str, keeps_losses: bool) -> None:
        if keeps_losses:
            for at in range(self.start, min(offset, len(self.cells))):
                if self.cells[at].state not in (LIVE, DELETED):
                    self.passed[at] = self.cells[at].state
        name = {"delete": "delete_floor", "cap": "evict_floor", "ttl": "expiry_floor"}[reason]
        setattr(self, name, max(getattr(self, name), min(offset, len(self.cells))))
        self.settle()

    def punch(self, start: int, end: int, state: str) -> None:
        for at in range(max(start, self.start), min(end, len(self.cells))):
            if self.cells[at].state == LIVE:
                self.cells[at].state = state
        self.settle()

    def jump(self, unclean: bool) -> None:
        if self.config.durability == "ephemeral":
            reason = "ephemeral"
        elif unclean and self.config.durability != "fsync":
            reason = "unclean shutdown"
        else:
            return
        self.cells += [Cell(0, reason) for _ in range(self.ceiling - len(self.cells))]

    def take(self, position: int, limit: int) -> list[int]:
        return [at for at in self.live() if at >= position][:limit]


@dataclass
class ModelProducer:
    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first, last, base
    heard: int = 0


class Model:
    def __init__(self) -> None:
        self.streams: dict[int, ModelStream] = {}
        self.producers: dict[tuple[int, int], ModelProducer] = {}
        self.cursors: dict[tuple[str, int], int] = {}
        self.time_ms = 0

    def append(
        self, stream: int, sizes: list[int], time: int, producer: int = -1, epoch: int = -1, first: int = -1
    ) -> tuple[int, int]:
        target = self.streams.get(stream)
        if target is None or target.config.durability == "ephemeral":
            return -1, NO_STREAM
        last = (first + len(sizes) - 1) % (1 << 31)
        if producer >= 0:
            base, code = self.judge(self.producers.get((producer, stream)), epoch, first, last)
            if code != OK:
                return base, code
        appended = target.append(sizes, time)
        if appended is None:
            return -1, FULL
        if producer >= 0:
            self.remember((producer, stream), epoch, (first, last, appended))
        return appended, OK

    def judge(self, known: ModelProducer | None, epoch: int, first: int, last: int) -> tuple[int, int]:
        if known is None:
            return -1, OK if first == 0 else UNKNOWN
        if epoch < known.epoch:
            return -1, PRODUCER_FENCED
        if epoch > known.epoch:
            return -1, OK if first == 0 else OUT_OF_ORDER
        for batch in known.batches:
            if batch[:2] == (first, last):
                return batch[2], DUPLICATE
        return -1, OK if first == (known.batches[-1][1] + 1) % (1 << 31) else OUT_OF_ORDER

    def remember(self, key: tuple[int, int], epoch: int, batch: tuple[int, int, int]) -> None:
        known = self.producers.get(key)
        if known is None or known.epoch != epoch:
            known = self.producers[key] = ModelProducer(epoch)
        known.batches = [*known.batches, batch][-5:]
        known.heard = self.time_ms

    def delete_topic(self, streams: tuple[int, ...]) -> None:
        for stream in streams:
            del self.streams[stream]
        self.producers = {key: value for key, value in self.producers.items() if key[1] not in streams}
        self.cursors = {key: value for key, value in self.cursors.items() if key[1] not in streams}

    def expire(self, before_ms: int, step: int) -> None:
        self.producers = {
            key: value
            for key, value in self.producers.items()
            if (value.heard // step + 1) * step > before_ms
        }
