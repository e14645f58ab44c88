"""Dead letters: jobs that exceed their deliveries are copied to another topic, and deleted once the copy is durable.

The commit that appends the copies also records where they are. So a crash in between leaves no job without a copy and
none with two: the next attempt sees the copies, and that they are intact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from mainstem import events
from mainstem.broker.append import AppendRequest, promise, sized
from mainstem.broker.namespaces import split, within
from mainstem.broker.queues.job_errors import JobErrors
from mainstem.broker.queues.jobs import JobReader
from mainstem.broker.topics.service import TopicService
from mainstem.errors import MainstemError, Rejected
from mainstem.ledger.leases import ranges_of
from mainstem.ledger.queues import Bury, NoteCopies
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.building import build_batch
from mainstem.records.decoding import Headers, StoredRecord
from mainstem.records.header import SliceFacts

DEAD_LETTERS_MOVED_MAX = 100  # by one commit

_log = events.named("queues")

META = "meta"
_ORIGINAL_META = "_topics_original_meta"  # the field for metadata that is not an object


class DeadLetters:
    def __init__(
        self, log: Log, clock: Clock, reader: JobReader, topics: TopicService, errors: JobErrors
    ) -> None:
        self._log = log
        self._clock = clock
        self._reader = reader
        self._topics = topics
        self._errors = errors
        self._moving: dict[int, asyncio.Lock] = {}  # by stream, so that every job is copied once

    async def move(self, topic: Topic, stream: int) -> None:
        """Move every exhausted job of a queue. Jobs that cannot be moved now stay for a later claim."""
        try:
            async with self._moving.setdefault(stream, asyncio.Lock()):
                await self._move_all(topic, stream)
        except MainstemError as refusal:
            _log.warning("dead letters not moved", topic=topic.name, error=str(refusal))

    def forget(self, stream: int) -> None:
        self._moving.pop(stream, None)

    async def _move_all(self, topic: Topic, stream: int) -> None:
        target = topic.config.dead_letter and within(topic.namespace, topic.config.dead_letter)
        while target is not None:
            queues, number = self._log.streams.of(stream).queue(stream)
            leases = queues.leases(number)
            exhausted = leases.exhausted()[:DEAD_LETTERS_MOVED_MAX] if leases else []
            if leases is None or not exhausted:
                return
            copied = tuple(offset for offset, _ in exhausted if leases.copy_of(offset))
            if copied:  # before a crash, or just now
                await self._log.streams.of(stream).change_queue(Bury(stream, copied))
            else:
                try:
                    await self._copy(topic, stream, target, exhausted)
                except Rejected:
                    if all(
                        leases.is_exhausted(offset) and not leases.copy_of(offset) for offset, _ in exhausted
                    ):
                        raise  # unless another broker copied them first

    async def _copy(self, topic: Topic, stream: int, target: str, exhausted: list[tuple[int, int]]) -> None:
        offsets = [offset for offset, _ in exhausted]
        records = await self._reader.read(stream, offsets)
        missing = [offset for offset, record in zip(offsets, records, strict=True) if record is None]
        if missing:
            await self._log.streams.of(stream).delete(stream, tuple(ranges_of(missing)), 0)
        jobs = [
            (record, deliveries)
            for record, (_, deliveries) in zip(records, exhausted, strict=True)
            if record is not None
        ]
        if jobs:
            await self._append(topic, stream, target, jobs)

    async def _append(
        self, topic: Topic, stream: int, target: str, jobs: Sequence[tuple[StoredRecord, int]]
    ) -> None:
        info = await self._topics.find_or_create(target)
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [record.value for record, _ in jobs],
            keys=[record.key for record, _ in jobs],
            headers=[
                _stamped(topic.name, record, deliveries, self._errors.get(stream, record.offset))
                for record, deliveries in jobs
            ],
            timestamps_ms=now_ms,
        )
        facts = SliceFacts(len(jobs), 1, now_ms, -1, -1, -1, False, False)
        offsets = tuple(record.offset for record, _ in jobs)
        destination = info.streams[0]
        rows, size = sized(batch)
        request = AppendRequest(destination, batch, facts, size, rows if info.config.tracked else b"")
        if "ephemeral" in (info.config.durability, topic.config.durability):
            # One commit is not necessary: a crash loses an ephemeral topic anyway.
            placed = promise()
            self._log.streams.of(destination).append(request, placed)
            await placed
            await self._log.streams.of(stream).change_queue(Bury(stream, offsets, noted=False))
        else:
            noting = NoteCopies(stream, offsets, destination, once=True)
            await self._log.append_then(request, noting)
        for offset in offsets:
            self._errors.forget(stream, offset)


def _stamped(name: str, record: StoredRecord, deliveries: int, error: str | None) -> Headers:
    """The record's headers, with its origin in its meta."""
    meta: dict[str, object] = {}
    for header, content in record.headers:
        if header == META and content is not None:
            meta = meta_object(content)
            break
    meta["$dead_letter_from"] = split(name)[1]  # it is in the namespace of the dead letters
    meta["$dead_letter_deliveries"] = str(deliveries)
    meta["$dead_letter_src_seq"] = str(record.offset + 1)
    if error is not None:
        meta["$dead_letter_error"] = error
    others = tuple((header, content) for header, content in record.headers if header != META)
    return (*others, (META, msgspec.json.encode(meta)))


# What decoding JSON of clients raises: it may also be no UTF-8, or nested too deeply.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def meta_object(meta: bytes) -> dict[str, object]:
    """A record's meta as a mutable object."""
    try:
        parsed: dict[str, object] = dict(msgspec.json.decode(meta, type=dict[str, msgspec.Raw]))
        return parsed
    except UNDECODABLE:
        pass
    try:
        return {_ORIGINAL_META: msgspec.json.decode(meta, type=msgspec.Raw)}
    except UNDECODABLE:  # written through another door, where a header may hold anything
        return {_ORIGINAL_META: meta.decode("utf-8", "replace")}
