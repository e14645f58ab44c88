"""Tiers: which objects of a local log an object store holds, from before its upload until all its copies are deleted.

A tier is planned, then stored, then leaving, then forgotten. It may leave before it was stored. An object has at most
one tier that is not leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from mainstem.errors import InvalidInput, LimitReached, StalePlan
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.section import Command, Moment, Section, applies

TIERS_MAX = 1_000_000  # objects of a local log in an object store

TOKEN_BYTES = 16
_OBJECTS = 1 << 40  # numbers of the log's own objects stay below
_BYTES = 1 << 62


class PlanTier(Command, frozen=True, tag=143):
    """Begin an upload under this token. Every upload is planned first, so that the store holds nothing unknown."""

    object: int
    token: bytes  # 16 random bytes, a part of its keys
    size_bytes: int  # of the whole file


class SettleTier(Command, frozen=True, tag=144):
    """The object under this token is complete and durable in the store; `leaving`: delete it."""

    object: int
    token: bytes
    leaving: bool = False


class ForgetTier(Command, frozen=True, tag=145):
    """The store holds nothing under this token any more."""

    object: int
    token: bytes


@dataclass(frozen=True, slots=True)
class TierChanged:
    object: int


class TierStage(IntEnum):
    PLANNED = 0  # being uploaded
    STORED = 1  # complete and durable
    LEAVING = 2  # unused: deleted after a delay


class Tier(msgspec.Struct, frozen=True, array_like=True):
    """One upload of one object; also the form in a checkpoint."""

    object: int
    token: bytes
    size_bytes: int
    stage: TierStage = TierStage.PLANNED
    since_ms: int = 0  # ledger time at which it began to leave; like all times, not part of the digest


class Tiers(Section[list[Tier]]):
    """By object and token."""

    def __init__(self) -> None:
        self._tiers: Keyed[tuple[int, bytes], Tier] = Keyed(_hash)
        self._current: dict[int, Tier] = {}  # by object: the one that is not leaving

    def __iter__(self) -> Iterator[Tier]:
        """By object."""
        return iter(self._tiers)

    def __len__(self) -> int:
        return len(self._tiers)

    def of(self, object: int) -> Tier | None:
        """The tier that holds an object, or will."""
        return self._current.get(object)

    def stored(self, object: int) -> Tier | None:
        """The tier from which an object can be read."""
        found = self._current.get(object)
        return found if found is not None and found.stage is TierStage.STORED else None

    def leaving(self) -> list[Tier]:
        return [tier for tier in self if tier.stage is TierStage.LEAVING]

    # Commands

    @applies(PlanTier)
    def plan(self, command: PlanTier, now: Moment) -> TierChanged | InvalidInput | StalePlan | LimitReached:
        if not 0 < command.object < _OBJECTS or not 0 <= command.size_bytes < _BYTES:
            return InvalidInput(f"invalid object number {command.object} or size {command.size_bytes}")
        if len(command.token) != TOKEN_BYTES:
            return InvalidInput(f"a token has {TOKEN_BYTES} bytes")
        before = self._current.get(command.object)
        if before is not None:
            if before.token != command.token:
                return StalePlan(f"object {command.object} is already being uploaded")
            return TierChanged(command.object)
        key = command.object, command.token
        if key in self._tiers:
            return StalePlan(f"object {command.object} is leaving the store under this token")
        full = self._tiers.refusal(key, TIERS_MAX, "objects in the store")
        if full is not None:
            return full
        self._put(Tier(command.object, command.token, command.size_bytes))
        return TierChanged(command.object)

    @applies(SettleTier)
    def settle(self, command: SettleTier, now: Moment) -> TierChanged | StalePlan:
        found = self._tiers.get((command.object, command.token))
        if found is None:
            return StalePlan(f"the store does not hold object {command.object} under this token")
        if command.leaving:
            if found.stage is not TierStage.LEAVING:
                self._put(msgspec.structs.replace(found, stage=TierStage.LEAVING, since_ms=now.time_ms))
        elif found.stage is TierStage.LEAVING:
            return StalePlan(f"object {command.object} is leaving the store")
        else:
            self._put(msgspec.structs.replace(found, stage=TierStage.STORED))
        return TierChanged(command.object)

    @applies(ForgetTier)
    def forget(self, command: ForgetTier, now: Moment) -> TierChanged | StalePlan:
        """Forget a tier that is leaving. A tier that may be needed is never forgotten."""
        key = command.object, command.token
        found = self._tiers.get(key)
        if found is not None and found.stage is not TierStage.LEAVING:
            return StalePlan(f"object {command.object} is not leaving the store")
        self._tiers.pop(key)
        return TierChanged(command.object)

    def clear(self) -> None:
        """Forget every tier: the whole log was copied to another one."""
        self._tiers.clear()
        self._current.clear()

    def _put(self, tier: Tier) -> None:
        self._tiers.put((tier.object, tier.token), tier)
        if tier.stage is not TierStage.LEAVING:
            self._current[tier.object] = tier
        elif tier.object in self._current and self._current[tier.object].token == tier.token:
            del self._current[tier.object]

    # State as a whole

    @property
    def digest(self) -> int:
        return self._tiers.digest

    def encode(self) -> list[Tier]:
        return list(self._tiers)

    def load(self, state: list[Tier]) -> None:
        for tier in state:
            self._put(tier)


def _hash(tier: Tier) -> int:
    return hash_fields("tier", tier.object, tier.token, tier.size_bytes, int(tier.stage))
