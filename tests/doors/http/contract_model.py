"""The contract of the HTTP door as a few dicts: what every response must be after a sequence of calls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

# Why a sequence number has no record any more.
DELETED, CAP, TTL, TRIM, UNSEEN = "deleted", "cap", "ttl", "source_trim", "marker or aborted"
SILENT = (DELETED, UNSEEN)


class Unknowable(Exception):
    """The contract does not define what happens next."""


@dataclass(frozen=True)
class Settings:
    """The part of a topic's config that the model knows."""

    type: str = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    dedupe_node: bool = True
    idempotency_window_ms: int = 120_000
    lease_ms: int = 30_000
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @property
    def tracked(self) -> bool:
        return bool(self.ttl_ms or self.cap_records or self.cap_bytes or self.type == "queue")


@dataclass(frozen=True)
class Stored:
    data: Any
    ts: int
    tag: str | None = None
    node: str | None = None
    meta: Any = None
    raw: str | None = None  # base64, of a value that is not JSON

    @property
    def size(self) -> int:
        """As caps count it."""
        meta = 0 if self.meta is None else len(msgspec.json.encode(self.meta))
        return len(msgspec.json.encode(self.data)) + meta

    @property
    def stamped(self) -> bool:
        """Whether a router stamped it: with ids that the model does not know, so the size is unknown too."""
        return isinstance(self.meta, dict) and "_topics_router" in self.meta

    def shown(self, seq: int, *, tags: bool) -> dict[str, Any]:
        record: dict[str, Any] = {"$seq": seq, "$ts": self.ts, "data": self.data}
        for name, value in (("$node", self.node), ("meta", self.meta), ("$raw", self.raw)):
            if value is not None:
                record[name] = value
        if tags and self.tag is not None:
            record["$tag"] = self.tag
        return record


@dataclass(frozen=True)
class Lease:
    node: str
    lease_id: str
    deadline: int


@dataclass
class Jobs:
    """Who has leased which job of a queue. A live job in none of these is available, for the first time or again."""

    leased: dict[int, Lease] = field(default_factory=dict)
    delayed: dict[int, int] = field(default_factory=dict)  # seq → due time
    deliveries: dict[int, int] = field(default_factory=dict)
    buried: int = 0

    def settle(self, now: int) -> None:
        self.leased = {seq: lease for seq, lease in self.leased.items() if now <= lease.deadline}
        self.delayed = {seq: due for seq, due in self.delayed.items() if now < due}

    def forget(self, seq: int) -> None:
        for place in (self.leased, self.delayed, self.deliveries):
            place.pop(seq, None)


@dataclass
class TopicModel:
    name: str
    settings: Settings
    head: int = 0
    records: dict[int, Stored] = field(default_factory=dict)  # records that still exist, by seq
    gone: dict[int, str] = field(default_factory=dict)  # why the others do not
    ever: dict[int, Stored] = field(default_factory=dict)
    evicted: int = 0  # floors: the last seq that was removed for this reason
    expired: int = 0
    cleared: int = 0  # everything up to it was deleted by number
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # → first seq, last seq, time
    jobs: Jobs = field(default_factory=Jobs)
    sized: bool = True  # whether the size of every record is known
    capped: bool = False  # now or earlier

    def __post_init__(self) -> None:
        self.take(self.settings)

    # Changes

    def take(self, settings: Settings) -> None:
        self.settings = settings
        self.sized = self.sized and settings.tracked
        self.capped = self.capped or bool(settings.cap_records or settings.cap_bytes)

    def append(self, records: list[Stored]) -> tuple[int, int]:
        first = self.head + 1
        for record in records:
            self.head += 1
            self.records[self.head] = self.ever[self.head] = record
            self.sized = self.sized and not record.stamped
        self.evict()
        return first, self.head

    def lose(self, count: int) -> None:
        """Records of a router's source were removed before they were copied."""
        for _ in range(count):
            self.head += 1
            self.gone[self.head] = TRIM

    def take_unseen(self, count: int) -> None:
        """Sequence numbers of markers and of aborted records."""
        for _ in range(count):
            self.head += 1
            self.gone[self.head] = UNSEEN

    def full(self, count: int) -> bool:
        cap = self.settings.cap_records
        return bool(self.settings.discard == "reject" and cap and len(self.records) + count > cap)

    def evict(self) -> None:
        cap, cap_bytes = self.settings.cap_records, self.settings.cap_bytes
        if self.settings.discard == "reject":
            return
        while self.records and ((cap and len(self.records) > cap) or (cap_bytes and self.bytes > cap_bytes)):
            self.evicted = min(self.records)
            self._remove(self.evicted, CAP)

    def expire(self, now: int) -> None:
        if self.settings.ttl_ms:
            for seq in [s for s, record in self.records.items() if now - record.ts > self.settings.ttl_ms]:
                self._remove(seq, TTL)
                self.expired = max(self.expired, seq)

    def delete(self, seqs: list[int]) -> None:
        for seq in seqs:
            self._remove(seq, DELETED)

    def clear(self, before: int) -> None:
        """Delete everything before a seq. What was never copied there stays missing."""
        if before - 1 > self.start:
            self.cleared = before - 1

    def _remove(self, seq: int, reason: str) -> None:
        del self.records[seq]
        self.gone[seq] = reason
        self.jobs.forget(seq)

    # State

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.records.values())

    @property
    def start(self) -> int:
        """The seq before the first readable one."""
        return max(self._floor, self.trimmed)

    @property
    def _floor(self) -> int:
        at = max(self.evicted, self.expired, self.cleared)
        while self.gone.get(at + 1) in SILENT:
            at += 1
        return at

    @property
    def trimmed(self) -> int:
        """The last seq of uncopied records at the start or below; 0 if there are none."""
        at = self._floor
        while self.gone.get(at + 1) == TRIM:
            at += 1
        return max((seq for seq, reason in self.gone.items() if reason == TRIM and seq <= at), default=0)

    def may_start_at(self, earliest: int) -> bool:
        """Whether a response's earliest_seq is valid: deleted records behind other losses may be skipped or not."""
        lowest = min(self.records, default=self.head + 1)
        floor = max(self.evicted, self.expired, self.trimmed, self.cleared)
        return floor < earliest <= lowest and all(
            self.gone.get(seq) in (*SILENT, TRIM) for seq in range(earliest, lowest)
        )

    def ready(self) -> int:
        return len(self.records.keys() - self.jobs.leased.keys() - self.jobs.delayed.keys())

    # Responses

    def tombstone(self, from_seq: int) -> dict[str, Any] | None:
        """The tombstone at the start of a diff from here."""
        if from_seq > self.head:
            return {"reason": "recreated", "gap_from": 1, "gap_to": self.head}
        floor = max(self.evicted, self.expired, self.trimmed)
        if from_seq >= floor:
            return None
        capped, aged = self.evicted > from_seq, self.expired > from_seq
        reason = "mixed" if capped and aged else TTL if aged else CAP if capped else TRIM
        return {"reason": reason, "gap_from": from_seq + 1, "gap_to": floor}

    def diff(
        self, from_seq: int, limit: int, nodes: tuple[str, ...], max_bytes: int
    ) -> tuple[dict[str, Any] | None, list[int], int]:
        """Tombstone, seqs and next_from_seq of a page."""
        tombstone = self.tombstone(from_seq)
        at = self.start if from_seq > self.head else max(from_seq, self.start)
        begun, chosen, size = at, [], 0
        while len(chosen) < limit and at < self.head:
            seq = at + 1
            if self.gone.get(seq) == TRIM:
                if tombstone is not None or at > begun:
                    break
                while self.gone.get(at + 1) == TRIM:
                    at += 1
                tombstone = {"reason": TRIM, "gap_from": seq, "gap_to": at}
                begun = at
                continue
            record = self.records.get(seq)
            if record is not None and not (self.settings.dedupe_node and record.node in nodes):
                if chosen and size + record.size > max_bytes:
                    break
                chosen.append(seq)
                size += record.size
            at = seq
        return tombstone, chosen, at


@dataclass
class RouterModel:
    name: str
    source: str
    dest: str
    cursor: int
    match: str | None = None  # a tag, or a tag prefix with a star
    preserve_node: bool = True
    preserve_tag: bool = True
    exactly_once: bool = False
    total: int = 0
    passed: int = 0  # records after the cursor that it may have skipped already, since they do not match

    def covers(self, record: Stored) -> bool:
        if self.match is None:
            return True
        if record.tag is None:
            return False
        return (
            record.tag.startswith(self.match[:-1]) if self.match.endswith("*") else record.tag == self.match
        )

    def copy(self, record: Stored, seq: int, now: int) -> Stored:
        copied = replace(
            record,
            ts=now,
            node=record.node if self.preserve_node else None,
            tag=record.tag if self.preserve_tag else None,
        )
        if not self.exactly_once:
            return copied
        given = record.meta
        meta = given if isinstance(given, dict) else {} if given is None else {"_topics_original_meta": given}
        stamp = {"router": self.name, "source_topic": self.source, "source_seq": seq}
        return replace(copied, meta={**meta, "_topics_router": stamp})


@dataclass
class World:
    """Every topic and router, and the time."""

    topics: dict[str, TopicModel] = field(default_factory=dict)
    routers: dict[str, RouterModel] = field(default_factory=dict)

    def make(self, name: str, settings: Settings | None = None) -> TopicModel:
        topic = self.topics[name] = TopicModel(name, settings or Settings())
        return topic

    def drop(self, name: str) -> list[str]:
        """Returns the routers that are deleted with the topic."""
        del self.topics[name]
        ended = sorted(r.name for r in self.routers.values() if name in (r.source, r.dest))
        for router in ended:
            del self.routers[router]
        return ended

    def drain(self, name: str, now: int) -> None:
        """Copy everything that routers have for a topic, upstream first."""
        for source in {router.source for router in self.routers.values() if router.dest == name}:
            self.drain(source, now)
            self.forward(source, now)

    def forward(self, source: str, now: int) -> None:
        routers = [router for router in self.routers.values() if router.source == source]
        topic = self.topics[source]
        if any(router.cursor < topic.head for router in routers):
            topic.expire(now)
            for router in routers:
                self._advance(router, topic, now)

    def _advance(self, router: RouterModel, topic: TopicModel, now: int) -> None:
        dest = self.topics[router.dest]
        dest.expire(now)
        floor = max(topic.evicted, topic.expired)
        if router.cursor < floor:
            if router.passed:
                raise Unknowable(
                    f"{router.name} stands at {router.cursor} or up to {router.passed} further on"
                )
            dest.lose(floor - router.cursor)
            router.cursor = floor
        dest.sized = dest.sized and not router.exactly_once  # the stamp has ids that the model does not know
        copies: list[Stored] = []
        settled, router.passed = router.cursor, 0
        while router.cursor < topic.head:
            seq = router.cursor + 1
            record = topic.records.get(seq)
            if record is not None and router.covers(record):
                if dest.full(len(copies) + 1):
                    # The cursor passes records that do not match with the next copy, or earlier, depending on bytes.
                    router.passed = 0 if copies else router.cursor - settled
                    router.cursor -= router.passed
                    break
                copies.append(router.copy(record, seq, now))
            elif topic.gone.get(seq) == TRIM:
                dest.append(copies)
                router.total += len(copies)
                copies, settled = [], seq
                dest.lose(1)
            router.cursor = seq
        dest.append(copies)
        router.total += len(copies)

    def bury(self, queue: TopicModel, seqs: list[int], now: int) -> None:
        """Jobs that were leased too often go to the dead letter topic of their queue."""
        name = queue.settings.dead_letter
        assert name is not None
        target = self.topics.get(name) or self.make(name)
        letters = []
        for seq in seqs:
            record = queue.records[seq]
            given = record.meta
            meta = (
                given
                if isinstance(given, dict)
                else {}
                if given is None
                else {"_topics_original_meta": given}
            )
            origin = {
                "$dead_letter_from": queue.name,
                "$dead_letter_deliveries": str(queue.jobs.deliveries[seq]),
                "$dead_letter_src_seq": str(seq),
            }
            letters.append(replace(record, ts=now, meta={**meta, **origin}))
        target.append(letters)
        queue.jobs.buried += len(seqs)
        queue.delete(seqs)
