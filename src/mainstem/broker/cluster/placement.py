"""Placement: which live broker does a piece of work. Pure functions, so that all brokers agree without messages.

Rendezvous hashing: every pair of work and broker has a score, and the broker with the highest score does the work. When
a broker leaves, only its own work moves; when one joins, it takes an equal share from each of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Protocol


class PlacedBroker(Protocol):
    @property
    def broker(self) -> int: ...

    @property
    def zone(self) -> str: ...


def score(thing: str, broker: int) -> int:
    return int.from_bytes(blake2b(f"{broker} {thing}".encode(), digest_size=8).digest(), "little")


def chosen(thing: str, brokers: Iterable[int]) -> int | None:
    """The broker that does the work; None without brokers."""
    return max(brokers, key=lambda broker: (score(thing, broker), broker), default=None)


def preferred(thing: str, live: Sequence[PlacedBroker], zone: str = "") -> int | None:
    """Like `chosen`, among the brokers of a zone if it has any."""
    near = [one.broker for one in live if one.zone == zone] if zone else []
    return chosen(thing, near or [one.broker for one in live])
