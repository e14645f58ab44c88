"""The audit log: who did which administrative operation, and which operations were denied.

Records are JSON values of the topic `__audit`, one object each, keyed by the principal; `AuditRecord` lists the fields.
Each broker writes its own. Writing happens in the background and never delays or fails an operation: what does not
fit the queue, or cannot be written, is dropped, counted, and reported in the next record.

A client that is denied the same thing again and again fills no log: the first denial is written at once, and those of
the next `AUDIT_WINDOW_S` become one record with their count.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from mainstem import events, limits
from mainstem.api.access import AUDIT_TOPIC
from mainstem.broker.access.principal import Principal
from mainstem.errors import MainstemError, TopicNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.metrics import Metric, one

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

AUDIT_QUEUE_MAX = 10_000  # records that wait to be written; more are dropped, and counted
AUDIT_RECORDS_PER_BATCH_MAX = 500
AUDIT_WINDOW_S = 5.0  # within which denials of the same operation become one record
AUDIT_DENIALS_COUNTED_MAX = 10_000  # different ones, within a window
AUDIT_NAME_CHARS_MAX = 512  # of the resource, in a record
AUDIT_RETENTION_MS = 30 * 24 * 3_600_000
AUDIT_RETENTION_BYTES = 256 * limits.MIB
AUDIT_RETRY_S = 1.0  # after records could not be written
AUDIT_CLOSE_S = 2.0  # to write what is left

Door = Literal["kafka", "http", "text", "s3", "pulsar"]
Outcome = Literal["done", "denied", "failed"]

_log = events.named("audit")
_encode = msgspec.json.Encoder().encode
_CONFIG = TopicConfig(
    durability="disk",
    retention_ms=AUDIT_RETENTION_MS,
    retention_bytes=AUDIT_RETENTION_BYTES,
    named=("retention.bytes", "retention.ms"),
)


class AuditRecord(msgspec.Struct, omit_defaults=True):
    """One operation, or several denials of the same one."""

    time_ms: int  # of the first
    principal: str
    host: str
    door: Door
    operation: str  # of the access rules, or the API of the door: "DELETE", "CreateTopics", "PUT /v0/rates"
    resource: str  # its type, as access rules name it
    name: str
    outcome: Outcome
    broker: int
    count: int = 1
    last_ms: int | None = None  # time of the last, of several
    dropped: int = 0  # records that were dropped before this one


_Denial = tuple[str, str, Door, str, str, str]


class Audit:
    """`mode`: on, off, or auto, which is on while clients must authenticate."""

    def __init__(self, broker: Broker, mode: str) -> None:
        self._broker = broker
        self._mode = mode
        self._queue: deque[AuditRecord] = deque()
        self._denials: dict[_Denial, AuditRecord] = {}  # of the current window, further ones
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0  # and not reported yet
        self.dropped_total = 0
        self.written_total = 0

    @property
    def on(self) -> bool:
        return self._mode == "on" or (self._mode == "auto" and self._broker.access.restricted)

    def record(
        self,
        principal: Principal,
        host: str,
        door: Door,
        operation: str,
        resource: str,
        name: str,
        outcome: Outcome,
    ) -> None:
        """Note what a client did, or was denied. Never waits, never fails."""
        if not self.on:
            return
        now_ms = self._broker.clock.now_ms()
        name = name[:AUDIT_NAME_CHARS_MAX]
        made = AuditRecord(
            now_ms, principal.name, host, door, operation, resource, name, outcome, self._broker.log.broker
        )
        if outcome == "denied" and not self._is_first(made):
            return
        self._put(made)

    def _is_first(self, denial: AuditRecord) -> bool:
        """Whether a denial is written by itself; else it is counted."""
        key = (denial.principal, denial.host, denial.door, denial.operation, denial.resource, denial.name)
        counted = self._denials.get(key)
        if counted is not None:
            if not counted.count:
                counted.time_ms = denial.time_ms
            counted.count += 1
            counted.last_ms = denial.time_ms
            return False
        if len(self._denials) >= AUDIT_DENIALS_COUNTED_MAX:
            self._drop(1)
            return False
        self._denials[key] = msgspec.structs.replace(denial, count=0)
        return True

    def _put(self, made: AuditRecord) -> None:
        if len(self._queue) >= AUDIT_QUEUE_MAX:
            self._drop(made.count)
            return
        self._queue.append(made)
        self._work.set()

    def _drop(self, count: int) -> None:
        self._dropped += count
        self.dropped_total += count

    # In the background

    def start(self) -> None:
        if self._mode != "off":
            self._task = asyncio.get_running_loop().create_task(self._run(), name="mainstem-audit")

    async def close(self) -> None:
        """Write what is left, within bounds."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._end_window()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AUDIT_CLOSE_S):
                while self._queue:
                    await self._write()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + AUDIT_WINDOW_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ends):
                    await self._work.wait()
            self._work.clear()
            if loop.time() >= ends:
                self._end_window()
                ends = loop.time() + AUDIT_WINDOW_S
            while self._queue:
                await self._write()

    def _end_window(self) -> None:
        denials, self._denials = self._denials, {}
        for denial in denials.values():
            if denial.count:
                self._put(denial)

    async def _write(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), AUDIT_RECORDS_PER_BATCH_MAX))]
        reported, batch[0].dropped = self._dropped, self._dropped
        try:
            await self._append(batch)
        except asyncio.CancelledError:
            self._queue.extendleft(reversed(batch))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the audit log
            if not isinstance(error, MainstemError):
                _log.failure("audit records not written", error)
            self._drop(sum(made.count for made in batch))
            await asyncio.sleep(AUDIT_RETRY_S)
        else:
            self._dropped -= reported
            self.written_total += len(batch)

    async def _append(self, batch: list[AuditRecord]) -> None:
        values = [_encode(made) for made in batch]
        keys = [made.principal.encode() for made in batch]
        try:
            await self._broker.append_values(AUDIT_TOPIC, values, keys=keys)
        except TopicNotFound:
            await self._broker.create_topic(AUDIT_TOPIC, config=_CONFIG, exist_ok=True)
            await self._broker.append_values(AUDIT_TOPIC, values, keys=keys)

    def published(self) -> Iterator[Metric]:
        """As metrics."""
        for name, help, value in (
            ("records", "Audit records written.", self.written_total),
            (
                "dropped",
                "Operations that the audit log does not show: its queue was full.",
                self.dropped_total,
            ),
        ):
            yield one(f"mainstem_audit_{name}_total", "counter", help, value)
