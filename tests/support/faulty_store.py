"""An object store that fails at random by a seed, for tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from mainstem.errors import StoreUnreachable
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.port import ObjectStore, StoredObject


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How likely each fault is, from 0 to 1."""

    refused: float = 0.0  # a put that stores nothing
    lost: float = 0.0  # a put that is stored although its caller gets an error
    late: float = 0.0  # a put whose caller gets an error, and that is stored later
    landing: float = 0.3  # that a read stores one of those; otherwise only `deliver_late` does
    unread: float = 0.0  # a read that fails
    turns_max: int = 4  # how many iterations of the event loop a call may take


class FaultyObjectStore:
    """Passes calls on to another store, delayed and sometimes failing. The same seed gives the same faults."""

    def __init__(self, inner: ObjectStore, seed: int, rates: FaultRates | None = None) -> None:
        self._inner = inner
        self.rates = rates or FaultRates()
        self._chance = random.Random(seed)
        self._late: list[tuple[str, bytes, bool]] = []
        self.faults = 0

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        await self._turns()
        content = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        if self._happens(self.rates.refused):
            raise StoreUnreachable(f"{key}: refused on purpose")
        if self._happens(self.rates.late):
            self._late.append((key, content, if_absent))
            raise StoreUnreachable(f"{key}: late on purpose")
        stored = await self._inner.put(key, content, if_absent=if_absent)
        if self._happens(self.rates.lost):
            raise StoreUnreachable(f"{key}: the answer was lost on purpose")
        await self._turns()
        return stored

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        data = b"".join([chunk async for chunk in chunks])
        await self.put(key, data)
        return len(data)

    async def get(self, key: str) -> bytes:
        await self._before_read(key)
        return await self._inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        await self._before_read(key)
        return await self._inner.get_ranges(key, ranges)

    async def head(self, key: str) -> StoredObject:
        await self._before_read(key)
        return await self._inner.head(key)

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        await self._before_read(prefix)
        async for found in self._inner.list(prefix):
            yield found

    async def delete(self, key: str) -> None:
        await self._turns()
        await self._inner.delete(key)

    async def deliver_late(self) -> None:
        """Store every late put."""
        while self._late:
            await self._deliver_one()

    async def _before_read(self, key: str) -> None:
        await self._turns()
        if self._late and self._chance.random() < self.rates.landing:
            await self._deliver_one()
        if self._happens(self.rates.unread):
            raise StoreUnreachable(f"{key}: not read on purpose")

    async def _deliver_one(self) -> None:
        key, content, if_absent = self._late.pop(self._chance.randrange(len(self._late)))
        await self._inner.put(key, content, if_absent=if_absent)

    async def _turns(self) -> None:
        for _ in range(self._chance.randint(0, self.rates.turns_max)):
            await asyncio.sleep(0)

    def _happens(self, rate: float) -> bool:
        happens = self._chance.random() < rate
        self.faults += happens
        return happens
