"""Keyed elements: the bounded maps that most sections are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from mainstem.errors import LimitReached
from mainstem.ledger.digest import MASK, hash_fields

K = TypeVar("K")
V = TypeVar("V")


def fields_hash(tag: str) -> Callable[[Any], int]:
    """The hash of a struct by all of its fields. `tag` keeps the kinds of elements distinct."""
    return lambda value: hash_fields(tag, value)


class Keyed(Generic[K, V]):
    """A map with a digest: the sum of one hash per element, modulo 2^64. Iterates over the values by key.

    An element is hashed when the digest is read, not when it changes. Call `put` again after changing a value in
    place."""

    __slots__ = ("_changed", "_hash_of", "_hashes", "_rows", "_sum")

    def __init__(self, hash_of: Callable[[V], int]) -> None:
        self._hash_of = hash_of
        self._rows: dict[K, V] = {}
        self._hashes: dict[K, int] = {}
        self._changed: dict[K, None] = {}  # keys that changed since they were hashed
        self._sum = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __iter__(self) -> Iterator[V]:
        """By key."""
        return iter([self._rows[key] for key in self.keys()])

    @property
    def rows(self) -> Mapping[K, V]:
        """The elements by key, as they change: for callers that look up often."""
        return self._rows

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def keys(self) -> list[K]:
        return sorted(self._rows)  # type: ignore[type-var]

    def unordered(self) -> Iterator[V]:
        """The values in no particular order, without the cost of sorting."""
        return iter(self._rows.values())

    def refusal(self, key: K, limit: int, what: str) -> LimitReached | None:
        """Why the key cannot be added, or None: there are `limit` elements already. `what` names them."""
        if len(self._rows) < limit or key in self._rows:
            return None
        return LimitReached(f"there are {limit} {what}, the maximum: delete some")

    def put(self, key: K, value: V) -> None:
        self._rows[key] = value
        self._changed[key] = None

    def pop(self, key: K) -> V | None:
        """Remove an element. Returns it, or None."""
        found = self._rows.pop(key, None)
        self._changed.pop(key, None)
        self._sum -= self._hashes.pop(key, 0)
        return found

    def clear(self) -> None:
        self._rows.clear()
        self._hashes.clear()
        self._changed.clear()
        self._sum = 0

    @property
    def digest(self) -> int:
        for key in self._changed:
            fresh = self._hash_of(self._rows[key])
            self._sum += fresh - self._hashes.get(key, 0)
            self._hashes[key] = fresh
        self._changed.clear()
        self._sum &= MASK
        return self._sum


class LatestByKey(Keyed[K, V]):
    """A map that iterates over the values in the order of their last `put`, oldest first.

    The order decides what `evict` removes, so checkpoints keep it."""

    __slots__ = ()

    _rows: OrderedDict[K, V]

    def __init__(self, hash_of: Callable[[V], int]) -> None:
        super().__init__(hash_of)
        self._rows = OrderedDict()

    def __iter__(self) -> Iterator[V]:
        return iter(self._rows.values())

    def put(self, key: K, value: V) -> None:
        super().put(key, value)
        self._rows.move_to_end(key)

    def evict(self, limit: int) -> None:
        """Remove the oldest elements until there are `limit`."""
        while len(self._rows) > limit:
            self.pop(next(iter(self._rows)))
