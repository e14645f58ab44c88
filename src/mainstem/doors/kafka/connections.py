"""The connections the door holds, what they share, and the work they have under way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem import events, limits
from mainstem.doors.kafka.metrics import KafkaMetrics
from mainstem.doors.kafka.receive_buffer import ReceiveBuffer
from mainstem.doors.open_connections import OpenConnections

if TYPE_CHECKING:
    from mainstem.doors.kafka.connection import KafkaConnection

_log = events.named("kafka")
_SWEEPS_PER_IDLE_TIME = 4


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """Bounds on what clients may make the door hold."""

    connections: int = limits.KAFKA_CONNECTIONS_MAX
    request_bytes: int = limits.KAFKA_REQUEST_BYTES_MAX
    in_flight_requests: int = limits.KAFKA_REQUESTS_IN_FLIGHT_MAX  # of one connection
    in_flight_bytes: int = limits.KAFKA_BYTES_IN_FLIGHT_MAX  # of one connection
    in_flight_bytes_total: int = limits.KAFKA_BYTES_IN_FLIGHT_TOTAL_MAX
    idle_s: float = limits.KAFKA_IDLE_S


class KafkaConnections(OpenConnections["KafkaConnection"]):
    def __init__(self, bounds: KafkaLimits, metrics: KafkaMetrics) -> None:
        super().__init__()
        self._limit = bounds.connections
        self._idle_s = bounds.idle_s
        self.request_bytes_max = bounds.request_bytes
        self.in_flight_requests_max = bounds.in_flight_requests
        self.in_flight_bytes_max = bounds.in_flight_bytes
        self._in_flight_total_max = bounds.in_flight_bytes_total
        self._in_flight_total = 0
        self._crowded_out: set[KafkaConnection] = set()
        self.metrics = metrics
        self.scratch = memoryview(bytearray(limits.KAFKA_RECEIVE_BUFFER_BYTES))
        self.landing = ReceiveBuffer()
        self._loop = asyncio.get_running_loop()
        self._sweep = self._loop.call_later(self._idle_s / _SWEEPS_PER_IDLE_TIME, self._drop_idle)

    def admit(self, connection: KafkaConnection) -> bool:
        """False: too many are held already."""
        if len(self._held) >= self._limit:
            self.metrics.connections_refused += 1
            if self.metrics.connections_refused.bit_count() == 1:  # the 1st, 2nd, 4th, 8th …
                _log.warning(
                    "too many connections", limit=self._limit, refused=self.metrics.connections_refused
                )
            return False
        self.metrics.connections_accepted += 1
        self._held.add(connection)
        return True

    def hold(self, size: int) -> None:
        """A request was received."""
        self._in_flight_total += size

    def release(self, size: int) -> None:
        """It is answered, or nobody waits for it any more."""
        self._in_flight_total -= size
        if self._crowded_out and self._in_flight_total < self._in_flight_total_max:
            waiting, self._crowded_out = self._crowded_out, set()
            for connection in waiting:
                connection.update_reading()

    def over_memory_limit(self, connection: KafkaConnection) -> bool:
        """Whether all connections together hold too much. If so, this one is told when they do not."""
        if self._in_flight_total < self._in_flight_total_max:
            return False
        self._crowded_out.add(connection)
        return True

    def forget(self, connection: KafkaConnection) -> None:
        self._crowded_out.discard(connection)
        super().forget(connection)

    def _drop_idle(self) -> None:
        self._sweep = self._loop.call_later(self._idle_s / _SWEEPS_PER_IDLE_TIME, self._drop_idle)
        self.landing.let_go()
        since = self._loop.time() - self._idle_s
        for connection in list(self._held):
            if connection.idle(since):
                _log.debug("idle connection closed", client=connection.host)
                connection.abort()

    async def drain(self, within_s: float) -> int:
        """Finish every connection; abort those left after `within_s`. Returns how many those were."""
        self._sweep.cancel()
        return await super().drain(within_s)
