"""Erasures: accept them, and carry them out phase by phase (ledger/erasures.py).

| phase             | done before it is recorded                                                                       |
|-------------------|--------------------------------------------------------------------------------------------------|
| `accepted`        | what to erase is stored, outside the log                                                         |
| `deleted`         | the records are deleted: no reader sees them                                                     |
| `log_rewritten`   | no file of the log holds them (log/objects/erasure.py)                                           |
| `parts_rewritten` | no part that serves reads holds them                                                             |
| `done`            | no snapshot of a table reaches them, replaced files are gone, and what to erase is forgotten     |

Every step looks at what there is and may be repeated, so a process that is killed resumes with its next one.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from mainstem import events
from mainstem.broker.erasures.coverage import NAMED, covered_topics, deletes_in
from mainstem.broker.erasures.matching import ErasureRequest
from mainstem.broker.erasures.reports import ReportKey
from mainstem.broker.erasures.table_files import TableErasure
from mainstem.broker.routers.service import RouterService
from mainstem.broker.storage.backups import LINKS
from mainstem.broker.topics.deletes import DeleteService
from mainstem.errors import InvalidInput, MainstemError, NotFound, described
from mainstem.ledger.erasures import (
    ENDED,
    AcceptErasure,
    AdvanceErasure,
    CountErased,
    ErasedTopic,
    Erasure,
)
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.objects.erasure import LogErasure
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.local.layout import QUARANTINE
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.version import VERSION

__all__ = ["ERASURE_STEP_EVERY_S", "Erasure", "ErasureService"]

ERASURE_STEP_EVERY_S = 1.0
REQUESTS = "erasures/"  # keys of stored requests
_ID_BYTES = 16
_PASSES_MAX = 3  # over all topics: a later pass finds copies that were being made during the one before

_log = events.named("erasures")
_decode_request = msgspec.json.Decoder(ErasureRequest).decode


class ErasureService:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        random: Random,
        deletes: DeleteService,
        routers: RouterService,
        objects: ObjectStore,
        tables: TableErasure,
        directory: Path,
    ) -> None:
        self._log = log
        self._clock = clock
        self._random = random
        self._deletes = deletes
        self._routers = routers
        self._objects = objects
        self._tables = tables
        self._directory = directory
        self._key = ReportKey(directory)
        self._stepping = asyncio.Lock()
        self._in_log: dict[str, LogErasure] = {}  # by id
        self._ends: dict[str, dict[int, int]] = {}  # by id: end of each stream when this process began
        self._waits_for: dict[str, str] = {}  # by id
        self._opaque: dict[str, int] = {}  # by id: slices that could not be decoded

    # Reads

    def covered(self, topic: Topic, request: ErasureRequest) -> tuple[ErasedTopic, ...]:
        """The topics that an erasure covers, the named one first. Raises TopicIncompatible, InvalidInput."""
        if self._log.shared:
            raise InvalidInput(
                "brokers share this log, and an erasure works on the log of a single server only"
            )
        return covered_topics(self._log.ledger, topic, request.by)

    def get(self, id: str) -> Erasure:
        """Raises NotFound."""
        found = self._log.ledger.erasures.get(id)
        if found is None:
            raise NotFound(f"no erasure with the id {id!r}")
        return found

    def all(self) -> list[Erasure]:
        """The newest first."""
        return sorted(self._log.ledger.erasures, key=lambda one: (-one.accepted_ms, one.id))

    def waits_for(self, one: Erasure) -> str:
        """What an erasure waits for now; nothing once it has ended."""
        return "" if one.phase in ENDED else self._waits_for.get(one.id, "")

    async def public_key(self) -> str:
        """The public half of the key that signs reports, in hexadecimal."""
        return await asyncio.to_thread(self._key.public)

    # Accept

    async def accept(self, topic: Topic, request: ErasureRequest) -> Erasure:
        """Accept an erasure. It runs in the background, also after a restart.

        Raises TopicIncompatible, InvalidInput, LimitReached."""
        topics = self.covered(topic, request)
        id = self._random.token(_ID_BYTES).hex()
        # Stored before it is accepted, so that an accepted erasure has what it needs; never in the log.
        await self._objects.put(REQUESTS + id, msgspec.json.encode(request))
        try:
            accepted: Erasure = await self._log.propose(AcceptErasure(id, request.by, topics))
        except MainstemError:
            await self._objects.delete(REQUESTS + id)
            raise
        _log.info("erasure accepted", id=id, topic=topic.name, topics=len(topics))
        return accepted

    # Carry out

    async def round(self) -> None:
        """Take every running erasure as far as it gets now."""
        async with self._stepping:
            for one in self._log.ledger.erasures.running():
                try:
                    self._waits_for[one.id] = await self._advance(one)
                except (MainstemError, OSError) as error:
                    if self._waits_for.get(one.id) != described(error):
                        _log.warning("erasure interrupted", id=one.id, error=described(error))
                    self._waits_for[one.id] = described(error)

    async def tidy(self) -> None:
        """Delete stored requests that a killed process left behind: once after the start, before any is accepted."""
        if self._log.shared:
            return
        erasures = self._log.ledger.erasures
        async for stored in self._objects.list(REQUESTS):
            found = erasures.get(stored.key.removeprefix(REQUESTS))
            if found is None or found.phase != "accepted":
                await self._objects.delete(stored.key)

    async def _advance(self, one: Erasure) -> str:
        """Go through as many phases as possible. Returns what the erasure waits for."""
        work = {
            "accepted": self._delete,
            "deleted": self._rewrite_log,
            "log_rewritten": self._rewrite_parts,
            "parts_rewritten": self._finish,
        }
        while one.phase in work:
            waits_for = await work[one.phase](one)
            if waits_for:
                return waits_for
            one = self.get(one.id)
        return ""

    async def _delete(self, one: Erasure) -> str:
        """Delete the records, so that no reader sees them."""
        request = await self._request(one)
        if request is None:
            return ""
        waits_for = self._open_transaction(one)
        if waits_for:
            return waits_for
        for _ in range(_PASSES_MAX):
            passes = [
                await self._delete_in(one.id, topic, request) for topic in one.topics if deletes_in(topic)
            ]
            if not any(passes):
                break
        await self._log.sync()
        await self._move(one, AdvanceErasure(one.id, "deleted", self._log.newest_object))
        await self._objects.delete(REQUESTS + one.id)
        self._ends.pop(one.id, None)
        return ""

    async def _request(self, one: Erasure) -> ErasureRequest | None:
        try:
            return _decode_request(await self._objects.get(REQUESTS + one.id))
        except NotFound:
            problem = f"what to erase was stored as {REQUESTS}{one.id}, which is gone: send the request again"
            await self._move(one, AdvanceErasure(one.id, "failed", problem=problem))
            return None

    def _open_transaction(self, one: Erasure) -> str:
        """Records of an open transaction are not visible yet: wait until those of before the request are."""
        streams = list(self._streams(topic for topic in one.topics if deletes_in(topic)))
        stores = self._log.streams
        ends = self._ends.setdefault(
            one.id, {stream: stores.of(stream).bounds(stream)[1] for stream in streams}
        )
        for stream in streams:
            if stores.of(stream).stable_end(stream) < ends.get(stream, 0):
                topic = self._log.ledger.topics.of_stream(stream)
                return f"a transaction is open in topic {topic.name if topic else stream!r}"
        return ""

    async def _delete_in(self, id: str, covered: ErasedTopic, request: ErasureRequest) -> bool:
        topic = self._log.ledger.topics.by_id(covered.topic_id)
        if topic is None:
            return False
        await self._routers.drain(topic.name)
        # Later records of the named topic are not meant. Those of copies have no bound of their own.
        ends = self._ends[id] if covered.role == NAMED else {}
        deleted = 0
        for stream in topic.streams:
            try:
                deleted += await self._deletes.delete_matching(stream, request.match, ends.get(stream))
            except NotFound:
                break  # deleted meanwhile
        if deleted:
            await self._log.propose(CountErased(id, covered.topic_id, deleted))
        return deleted > 0

    async def _rewrite_log(self, one: Erasure) -> str:
        running = self._in_log.get(one.id)
        if running is None:
            running = self._in_log[one.id] = self._log.erasure(list(self._streams(one.topics)), one.through)
        waits_for = await running.step()
        if waits_for:
            return waits_for
        self._opaque[one.id] = running.opaque_slices
        del self._in_log[one.id]
        await self._move(one, AdvanceErasure(one.id, "log_rewritten"))
        return ""

    async def _rewrite_parts(self, one: Erasure) -> str:
        waits_for = self._tables.stale_parts(one)
        if not waits_for:
            await self._move(one, AdvanceErasure(one.id, "parts_rewritten"))
        return waits_for

    async def _finish(self, one: Erasure) -> str:
        if self._log.store_copies:
            return "a backup is being made"
        await self._objects.delete(REQUESTS + one.id)
        shutil.rmtree(self._directory / LINKS, ignore_errors=True)  # of a backup that was interrupted
        waits_for = await self._tables.left(one)
        if not waits_for:
            signed = await asyncio.to_thread(self._key.sign, self._report(one))
            await self._move(one, AdvanceErasure(one.id, "done", report=signed))
        return waits_for

    def _streams(self, topics: Iterable[ErasedTopic]) -> Iterable[int]:
        for covered in topics:
            topic = self._log.ledger.topics.by_id(covered.topic_id)
            yield from topic.streams if topic is not None else ()

    async def _move(self, one: Erasure, command: AdvanceErasure) -> None:
        await self._log.propose(command)
        _log.info("erasure advanced", id=one.id, phase=command.phase)

    # Report

    def _report(self, one: Erasure) -> dict[str, object]:
        """What was removed where, and what was not. It does not say what was erased: it would have to be erased too."""
        erasures = self._log.ledger.erasures
        return {
            "erasure": one.id,
            "log": self._log.identity.hex(),
            "version": VERSION,
            "by": one.by,
            "accepted_ms": one.accepted_ms,
            "finished_ms": self._clock.now_ms(),
            "topics": [
                {
                    "topic": topic.name,
                    "why": topic.role,
                    "records_deleted": topic.records if deletes_in(topic) else None,
                }
                for topic in one.topics
            ],
            "log_files_removed_up_to": one.through,
            "backups_that_may_hold_it": [
                {"url": noted.url, "began_ms": noted.time_ms} for noted in erasures.backups()
            ],
            "not_reached": self._not_reached(one),
        }

    def _not_reached(self, one: Erasure) -> list[str]:
        found = [
            "what clients read before, and what pipelines, sinks and other programs made of it",
            "earlier versions of files, if the bucket or the file system keeps them",
            "backups that other programs made, and those before the oldest one listed",
            "copies that a router made before it was deleted",
        ]
        if opaque := self._opaque.pop(one.id, 0):
            found.append(f"{opaque} slices of the log that cannot be decoded")
        found += [
            f"the folder {name} of the data directory"
            for name in (QUARANTINE, ".objects-moved", ".restoring")
            if (self._directory / name).is_dir()
        ]
        return found
