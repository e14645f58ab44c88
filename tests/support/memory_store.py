"""Objects in memory, with faults on demand, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from mainstem.errors import NotFound
from mainstem.ports.clock import Clock, SystemClock
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.port import StoredObject, check_key

Hook = Callable[[str, str], Awaitable[None]]


class MemoryObjectStore:
    """An object store that ends with the process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.objects: dict[str, tuple[bytes, int]] = {}  # content, and time of the last change
        self._put_failures: list[tuple[Exception, bool]] = []
        self.before: Hook | None = (
            None  # awaited with ("put", key) etc. before every call, for delays and races
        )

    def fail_next_put(self, error: Exception) -> None:
        """The next put stores nothing and raises."""
        self._put_failures.append((error, False))

    def lose_next_response(self, error: Exception) -> None:
        """The next put is stored, but its caller gets the error."""
        self._put_failures.append((error, True))

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Store an object atomically. With `if_absent`: False if the key was taken."""
        await self._called("put", key)
        content = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        error, stored = self._put_failures.pop(0) if self._put_failures else (None, True)
        taken = if_absent and key in self.objects
        if stored and not taken:
            self.objects[key] = (content, self.clock.now_ms())
        if error is not None:
            raise error
        return not taken

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        data = b"".join([chunk async for chunk in chunks])
        await self.put(key, data)
        return len(data)

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        await self._called("get", key)
        return self._found(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises NotFound."""
        await self._called("get_ranges", key)
        content = self._found(key)
        return [content[start : start + length] for start, length in ranges]

    async def head(self, key: str) -> StoredObject:
        """Raises NotFound."""
        await self._called("head", key)
        return StoredObject(key, len(self._found(key)), self.objects[key][1])

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose key starts with `prefix`, by key bytes."""
        if self.before is not None:
            await self.before("list", prefix)
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and key in self.objects:
                content, modified_ms = self.objects[key]
                yield StoredObject(key, len(content), modified_ms)

    async def delete(self, key: str) -> None:
        """Idempotent."""
        await self._called("delete", key)
        self.objects.pop(key, None)

    async def _called(self, call: str, key: str) -> None:
        check_key(key)
        if self.before is not None:
            await self.before(call, key)

    def _found(self, key: str) -> bytes:
        if key not in self.objects:
            raise NotFound(f"no object {key!r}")
        return self.objects[key][0]
