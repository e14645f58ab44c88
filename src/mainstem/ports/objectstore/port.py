"""The object store port: immutable objects by key.

A key is parts joined by "/", each usable as a file name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainstem import limits
from mainstem.errors import InvalidName
from mainstem.ports.commitlog.port import Buffer

PART_BYTES_MAX = limits.NAME_CHARS_MAX  # what file systems take


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Store an object durably and atomically. With `if_absent`: False if the key was taken."""
        ...

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """Store an object durably and atomically from chunks, without holding all of it in memory. Returns its size.

        An exception from `chunks` stores nothing."""
        ...

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        ...

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises NotFound."""
        ...

    async def head(self, key: str) -> StoredObject:
        """The size and time of an object. Raises NotFound."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose key starts with `prefix`, by key bytes."""
        ...

    async def delete(self, key: str) -> None:
        """Idempotent."""
        ...


def check_key(key: str) -> tuple[str, ...]:
    """The parts of a key. Raises InvalidName."""
    parts = tuple(key.split("/"))
    for part in parts:
        if not part:
            raise InvalidName(
                f"object key {key!r} has an empty part: remove the leading, trailing or double '/'"
            )
        if part.startswith("."):
            raise InvalidName(f"object key {key!r} has a part that starts with a dot, which is reserved")
        if "\0" in part or len(part.encode("utf-8", "surrogatepass")) > PART_BYTES_MAX:
            raise InvalidName(f"object key {key!r} has a part that cannot be a file name")
    return parts


async def store_now_ms(store: ObjectStore, key: str) -> int:
    """The store's time, which all its users share: that of an object put now under an unused key.

    Many stores count whole seconds."""
    await store.put(key, b"")
    try:
        return max([one.modified_ms async for one in store.list(key)], default=0)
    finally:
        await store.delete(key)
