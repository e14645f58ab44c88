"""The difference between this machine's clock and the object store's, which all brokers of a shared log use."""

from __future__ import annotations

from mainstem.ports.clock import Clock, Random
from mainstem.ports.objectstore.port import ObjectStore

_FOLDER = "clock"
_TOKEN_BYTES = 16
_SECOND_MS = 1_000


async def clock_off_ms(store: ObjectStore, clock: Clock, random: Random) -> int:
    """The milliseconds by which the clock is ahead of the store's, at least; below 0: behind. 0: it may be exact.

    Puts an object and reads its modification time, which is between the moments before and after. Many stores round to
    whole seconds: the uncertainty counts in the clock's favour."""
    key = f"{_FOLDER}/{random.token(_TOKEN_BYTES).hex()}"
    before = clock.now_ms()
    await store.put(key, b"")
    after = clock.now_ms()
    try:
        put_ms = max([one.modified_ms async for one in store.list(key)], default=None)
    finally:
        await store.delete(key)
    if put_ms is None:
        return 0
    latest = put_ms + (_SECOND_MS - 1 if put_ms % _SECOND_MS == 0 else 0)
    if before > latest:
        return before - latest
    return min(0, after - put_ms)
