"""Placement: which of the live brokers does what, agreed on without a word. Pure.

Rendezvous hashing: every pair of a thing and a broker has a score, and the broker with the highest does it. When one
leaves, only its own things move; when one joins, it takes an equal share from each of the others.
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
    """The broker that does it; None if there is none."""
    return max(brokers, key=lambda broker: (score(thing, broker), broker), default=None)


def preferred(thing: str, live: Sequence[PlacedBroker], zone: str = "") -> int | None:
    """The same, among the brokers of a zone if it has any."""
    near = [one.broker for one in live if one.zone == zone] if zone else []
    return chosen(thing, near or [one.broker for one in live])
