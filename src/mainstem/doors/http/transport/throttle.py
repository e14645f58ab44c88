"""Rates on the HTTP door.

A request over the rate of its principal, namespace or topic is delayed, up to `HTTP_THROTTLE_WAIT_MS_MAX`; the
response shows the delay as `throttle_wait_ms`. A request that would wait longer gets 429 with the time in Retry-After,
and has no effect. Event streams and sockets get their next records when the rate allows.
"""

from __future__ import annotations

import asyncio

from mainstem.broker.rates import RateLimiter
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.requests import HttpRequest

HTTP_THROTTLE_WAIT_MS_MAX = (
    5_000  # a request over its rate waits this long; what would wait longer is rejected
)


async def write_allowed(request: HttpRequest, topic: str, size: int, records: int) -> None:
    """Count a write, and delay it if it is over the rate. Raises Refusal 429."""
    rates = request.broker.rates
    if not rates.stored.active:
        return
    limiter = rates.producing(request.principal, topic)
    if limiter is None:
        return
    wait_ms = 0 if request.waited_to_publish else _checked(limiter, "producer_rate")
    limiter.take(size, records)  # before the delay: requests that arrive meanwhile wait behind this one
    await _wait(request, wait_ms)


async def publish_allowed(request: HttpRequest, topic: str) -> None:
    """Wait until the rate allows an earlier write: a socket's writes keep their order. Raises Refusal 429."""
    limiter = request.broker.rates.producing(request.principal, topic)
    if limiter is not None:
        request.waited_to_publish = True
        await asyncio.sleep(0)  # the write before begins, and is counted
        await _wait(request, _checked(limiter, "producer_rate"))


async def read_allowed(request: HttpRequest, topic: str) -> RateLimiter | None:
    """Delay a read that is over the rate. Returns the limiter that counts it; None: no limit. Raises Refusal 429."""
    limiter = reading(request, topic)
    if limiter is not None:
        await _wait(request, _checked(limiter, "consumer_rate"))
    return limiter


def reading(request: HttpRequest, topic: str) -> RateLimiter | None:
    """The limiter of a client's reads from a topic; None: no limit."""
    return request.broker.rates.consuming(request.principal, topic, None)


def _checked(limiter: RateLimiter, limit: str) -> int:
    wait_ms = limiter.debt_ms()
    if wait_ms > HTTP_THROTTLE_WAIT_MS_MAX:
        rate = int(limiter.slowest_rate())
        raise Refusal(
            429,
            "throttled",
            f"you are over your rate of {rate} a second: retry in {wait_ms} ms",
            {"limit": limit, "max": rate, "retry_after_ms": wait_ms},
            ((b"retry-after", b"%d" % -(-wait_ms // 1000)),),
        )
    return wait_ms


async def _wait(request: HttpRequest, wait_ms: int) -> None:
    if wait_ms:
        request.throttle_wait_ms += wait_ms
        await asyncio.sleep(wait_ms / 1000)
