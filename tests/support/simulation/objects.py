"""An object store that several nodes share, over a network that loses things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from mainstem.errors import NotFound, Unavailable
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.port import StoredObject, check_key
from tests.support.simulation.network import CallLost, Network
from tests.support.simulation.nodes import Life

T = TypeVar("T")

_TIMEOUT_S = 2.0
_TRIES = 8


class SharedObjects:
    """The stored objects of all nodes."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.away = False  # no call is answered

    def put(self, key: str, content: bytes, if_absent: bool) -> bool:
        if if_absent and key in self.objects:
            return False
        self.objects[key] = (content, self._now_ms())
        return True

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise NotFound(f"no object {key!r}")
        return self.objects[key][0]

    def listed(self, prefix: str) -> list[StoredObject]:
        return [
            StoredObject(key, len(content), modified_ms)
            for key, (content, modified_ms) in sorted(self.objects.items(), key=lambda pair: pair[0].encode())
            if key.startswith(prefix)
        ]


class SimulatedObjectStore:
    """The store as one life of a node reaches it. Retries what may be repeated; a conditional put may not."""

    def __init__(self, shared: SharedObjects, network: Network, life: Life) -> None:
        self._shared = shared
        self._network = network
        self._life = life

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Raises Unavailable; then it may have been stored, or yet be."""
        check_key(key)
        content = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        tries = 1 if if_absent else _TRIES
        return await self._call(f"put {key}", lambda: self._shared.put(key, content, if_absent), tries)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        content = b"".join([chunk async for chunk in chunks])
        await self.put(key, content)
        return len(content)

    async def get(self, key: str) -> bytes:
        """Raises NotFound or Unavailable."""
        check_key(key)
        return await self._call(f"get {key}", lambda: self._shared.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Raises NotFound or Unavailable."""
        content = await self.get(key)
        return [content[start : start + length] for start, length in ranges]

    async def head(self, key: str) -> StoredObject:
        """Raises NotFound or Unavailable."""
        async for found in self.list(key):
            if found.key == key:
                return found
        raise NotFound(f"no object {key!r}")

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Raises Unavailable."""
        for stored in await self._call(f"list {prefix}", lambda: self._shared.listed(prefix)):
            yield stored

    async def delete(self, key: str) -> None:
        """Idempotent. Raises Unavailable."""
        check_key(key)
        await self._call(f"delete {key}", lambda: self._shared.objects.pop(key, None))

    async def _call(self, what: str, act: Callable[[], T], tries: int = _TRIES) -> T:
        for left in reversed(range(tries)):
            if self._shared.away:
                await asyncio.sleep(_TIMEOUT_S)
                continue
            try:
                return await self._network.call(self._life, what, act, _TIMEOUT_S)
            except CallLost as error:
                if not left:
                    raise Unavailable(f"the object store does not answer: {error}") from error
        raise Unavailable("the object store does not answer")
