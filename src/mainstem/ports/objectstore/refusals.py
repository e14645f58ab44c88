"""Treat a store's refusals as outages while a server runs.

Credentials expire and are renewed, a policy changes and changes back, a credential service is down for a minute. At
start-up a refusal is a configuration error; for a running server it is an outage that will end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from mainstem.errors import StoreRefused, StoreUnreachable
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

T = TypeVar("T")


class RefusalsAsOutages:
    """Passes calls on. Raises StoreUnreachable, with the same text, where the store raises StoreRefused."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @property
    def inner(self) -> ObjectStore:
        return self._inner

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        return await _answer(self._inner.put(key, data, if_absent=if_absent))

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        return await _answer(self._inner.put_stream(key, chunks))

    async def head(self, key: str) -> StoredObject:
        return await _answer(self._inner.head(key))

    async def get(self, key: str) -> bytes:
        return await _answer(self._inner.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await _answer(self._inner.get_ranges(key, ranges))

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        try:
            async for found in self._inner.list(prefix):
                yield found
        except StoreRefused as error:
            raise StoreUnreachable(str(error)) from error

    async def delete(self, key: str) -> None:
        await _answer(self._inner.delete(key))


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except StoreRefused as error:
        raise StoreUnreachable(str(error)) from error
