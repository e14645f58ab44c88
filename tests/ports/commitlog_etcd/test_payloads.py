"""What the log keeps in the store, without an etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.keys import StoreKeys
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from tests.support.memory_store import MemoryObjectStore

COMMITS = 5


class MeetingStore(MemoryObjectStore):
    """Holds reads back until this many are in flight."""

    def __init__(self, readers: int) -> None:
        super().__init__()
        self._all_here = asyncio.Barrier(readers)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        await self._all_here.wait()
        return await super().get_ranges(key, ranges)


async def test_the_payloads_of_small_commits_are_read_side_by_side_and_come_in_order() -> None:
    payloads = Payloads(MeetingStore(COMMITS), StoreKeys("log"))
    directory = Directory()
    for number in range(COMMITS):
        id, content = bytes([number]) * 16, b"%d" % number * 10
        await payloads.put(id, [content])
        directory.add(10 * number, len(content), id)
    async with asyncio.timeout(60):
        found = await payloads.read(directory.pieces(5, 10 * COMMITS - 10))
    assert found == b"0000011111111112222222222333333333344444"
