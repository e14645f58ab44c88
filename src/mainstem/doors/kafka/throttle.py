"""How long a client is held back for what it moved: it is told so, and nothing more is read from it until then."""

from __future__ import annotations

from datetime import timedelta

from kio.static.primitive import i32Timedelta

from mainstem.doors.kafka.api import Call, Reply

NO_THROTTLE = i32Timedelta.parse(timedelta(0))


def throttle(call: Call, quota: str, size: int, reply: Reply) -> int:
    """Count the bytes that a client moved. Returns the milliseconds that its answer has to name."""
    meter = call.meter(quota)
    held_ms = 0 if meter is None else meter.take(size)
    if held_ms:
        call.context.metrics.throttled[quota] += 1
        reply.mute(held_ms)
    return held_ms
