"""The object store port: immutable objects by key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainstem.ports.commitlog.port import Buffer


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Store an object durably and whole, or not at all. With `if_absent`: False if the key was taken."""
        ...

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        ...

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises NotFound."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose key starts with `prefix`, by key bytes."""
        ...

    async def delete(self, key: str) -> None:
        """Idempotent."""
        ...
