"""Request quotas: count the time that each request of a client takes on the event loop.

If earlier requests exceeded the quota, the next response has a throttle time, and the door stops reading from the
client for as long. Time on threads, on the disk and for sending responses is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from types import coroutine
from typing import TYPE_CHECKING, Any

from kio.static.primitive import i32Timedelta

from mainstem.broker.rates import TokenBucket
from mainstem.doors.kafka.transport.api import FastApi, Part, Reply
from mainstem.doors.kafka.transport.wire import INT32

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection
    from mainstem.doors.kafka.transport.dispatch import ApiRoute

_PERCENT = 100
_MS = timedelta(milliseconds=1)


def spend(meter: TokenBucket, seconds: float) -> None:
    """Count time on the loop: a quota of 1 allows a hundredth of it."""
    meter.take(seconds * _PERCENT)


class MeteredReply(Reply):
    """A request of a client with a request quota."""

    __slots__ = ("_meter", "_now", "_throttle_at", "held_ms")

    def __init__(
        self,
        connection: KafkaConnection,
        route: ApiRoute,
        correlation: int,
        tagged: bool,
        size: int,
        *,
        version: int,
        meter: TokenBucket,
        now: Callable[[], float],
    ) -> None:
        """`now` is a clock in seconds that also advances within a turn of the loop."""
        super().__init__(connection, route, correlation, tagged, size)
        self._meter = meter
        self._now = now
        self._throttle_at = route.api.throttle_at(version) if isinstance(route.api, FastApi) else None
        self.held_ms = meter.take(0)

    def send(self, parts: Sequence[Part], *, failed: bool = False) -> None:
        if self.held_ms and self._throttle_at is not None:
            parts = _naming(parts, self._throttle_at, self.held_ms)
        super().send(parts, failed=failed)

    def step(self, work: Callable[[], None]) -> None:
        began = self._now()
        try:
            work()
        finally:
            spend(self._meter, self._now() - began)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        super().run(counted(work, self._meter, self._now))


@coroutine
def counted(
    work: Coroutine[Any, Any, None], meter: TokenBucket, now: Callable[[], float]
) -> Generator[Any, Any, None]:
    """The same coroutine; the time of each step between two waits is counted."""
    go_on: Callable[[Any], Any] = work.send
    given: Any = None
    while True:
        began = now()
        try:
            awaited = go_on(given)
        except StopIteration:
            return
        finally:
            spend(meter, now() - began)
        try:
            given, go_on = (yield awaited), work.send
        except BaseException as error:  # noqa: BLE001  # it is the work's to take
            given, go_on = error, work.throw


def _naming(parts: Sequence[Part], at: int, held_ms: int) -> list[Part]:
    """The response with at least this throttle time. `at`: position in its first part, or from the end of its last."""
    named = list(parts)
    place = 0 if at >= 0 else -1
    part = bytearray(named[place])
    INT32.pack_into(part, at, max(held_ms, INT32.unpack_from(part, at)[0]))
    named[place] = part
    return named


def named_in(answer: Any, held_ms: int) -> Any:
    """A response that the library writes, with the throttle time if it has a field for it."""
    if not any(field.name == "throttle_time" for field in fields(answer)):
        return answer
    return replace(answer, throttle_time=i32Timedelta.parse(held_ms * _MS))
