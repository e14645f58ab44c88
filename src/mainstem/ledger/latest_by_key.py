"""The latest of many: one value a key, in the order in which they changed, and the digest of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from mainstem.ledger.digest import MASK


class DigestedValue(Protocol):
    @property
    def digest(self) -> int: ...


V = TypeVar("V", bound=DigestedValue)


class LatestByKey(Generic[V]):
    """The order decides who is forgotten when there are too many, so a checkpoint has to keep it."""

    def __init__(self) -> None:
        self._kept: dict[str, V] = {}  # the last one that changed at the end
        self.digest = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[V]:
        """The one that changed longest ago first."""
        return iter(self._kept.values())

    def get(self, key: str) -> V | None:
        return self._kept.get(key)

    def put(self, key: str, value: V) -> None:
        self.forget(key)
        self._kept[key] = value
        self.digest = (self.digest + value.digest) & MASK

    def forget(self, key: str) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self.digest = (self.digest - before.digest) & MASK

    def keep(self, most: int) -> None:
        """Forget those that changed longest ago, until there are so many at most."""
        while len(self._kept) > most:
            self.forget(next(iter(self._kept)))
