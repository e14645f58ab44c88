"""The difference between this machine's clock and the store's, as far as it can be measured."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstem.broker.cluster.store_clock import clock_off_ms
from mainstem.ports.objectstore.port import StoredObject
from tests.support.clock import ManualClock
from tests.support.machine import CountingRandom
from tests.support.memory_store import MemoryObjectStore

_NOW_MS = 1_700_000_000_400


class StoreWithClock(MemoryObjectStore):
    """A store that reports the same modification time for every object."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._told_ms = now_ms

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        async for one in super().list(prefix):
            yield StoredObject(one.key, one.size_bytes, self._told_ms)


@pytest.mark.parametrize(
    ("store_ms", "off_ms"),
    [
        (_NOW_MS, 0),
        (_NOW_MS - 2_000, 2_000),  # ahead of the store
        (_NOW_MS + 3_000, -3_000),  # behind it
        (1_700_000_000_000, 0),  # a store that counts in seconds may mean any moment of one
        (1_699_999_997_000, 2_401),
        (1_700_000_002_000, -1_600),
    ],
)
async def test_the_certain_part_of_the_skew_is_reported(store_ms: int, off_ms: int) -> None:
    store = StoreWithClock(store_ms)
    assert await clock_off_ms(store, ManualClock(_NOW_MS), CountingRandom()) == off_ms
    assert [one async for one in store.list()] == []
