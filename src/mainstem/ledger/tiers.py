"""Tiers: which objects of the log an object store has, from before the first byte is put until the last is deleted.

A tier is planned, then stored, then leaving, then forgotten; it may leave before it was stored. An object has one tier
at a time that is not leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from enum import IntEnum

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, StalePlan
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.results import TierChanged
from mainstem.ledger.tier_commands import ForgetTier, PlanTier, SettleTier

TOKEN_BYTES = 16
_OBJECTS = 1 << 40  # numbers of the log's own objects stay below
_BYTES = 1 << 62


class TierStage(IntEnum):
    PLANNED = 0  # on its way
    STORED = 1  # whole and durable there
    LEAVING = 2  # nobody needs it: to be deleted after a while


@dataclass(frozen=True, slots=True)
class Tier:
    object: int
    token: bytes
    size_bytes: int
    stage: TierStage = TierStage.PLANNED
    since_ms: int = 0  # ledger time at which it began to leave; not part of the digest, as no time is

    @property
    def digest(self) -> int:
        return hash_fields("tier", self.object, self.token, self.size_bytes, int(self.stage))


class TierState(msgspec.Struct, frozen=True, array_like=True):
    """One tier, as a checkpoint holds it."""

    object: int
    token: bytes
    size_bytes: int
    stage: int
    since_ms: int


class Tiers:
    """The tiers there are, by object and token."""

    def __init__(self) -> None:
        self.digest = 0
        self._tiers: dict[tuple[int, bytes], Tier] = {}
        self._current: dict[int, Tier] = {}  # by object: the one that is not leaving

    def __iter__(self) -> Iterator[Tier]:
        """By object."""
        return iter(tier for _, tier in sorted(self._tiers.items()))

    def __len__(self) -> int:
        return len(self._tiers)

    def of(self, object: int) -> Tier | None:
        """The tier that an object is in or goes to."""
        return self._current.get(object)

    def stored(self, object: int) -> Tier | None:
        """The tier that an object can be read from."""
        found = self._current.get(object)
        return found if found is not None and found.stage is TierStage.STORED else None

    def leaving(self) -> list[Tier]:
        return [tier for tier in self if tier.stage is TierStage.LEAVING]

    # Commands

    def plan(self, command: PlanTier) -> TierChanged | InvalidInput | StalePlan | LimitReached:
        if not 0 < command.object < _OBJECTS or not 0 <= command.size_bytes < _BYTES:
            return InvalidInput(
                f"object {command.object} of {command.size_bytes} bytes is no object of the log"
            )
        if len(command.token) != TOKEN_BYTES:
            return InvalidInput(f"a token has {TOKEN_BYTES} bytes")
        before = self._current.get(command.object)
        if before is not None:
            if before.token != command.token:
                return StalePlan(f"object {command.object} is on its way to the store already")
            return TierChanged(command.object)
        if (command.object, command.token) in self._tiers:
            return StalePlan(f"object {command.object} leaves the store under this token")
        if len(self._tiers) >= limits.TIERS_MAX:
            return LimitReached(f"{limits.TIERS_MAX} objects are in the store, the most there may be")
        self._put(Tier(command.object, command.token, command.size_bytes))
        return TierChanged(command.object)

    def settle(self, command: SettleTier, time_ms: int) -> TierChanged | StalePlan:
        found = self._tiers.get((command.object, command.token))
        if found is None:
            return StalePlan(f"object {command.object} is not in the store under this token")
        if command.leaving:
            if found.stage is not TierStage.LEAVING:
                self._put(replace(found, stage=TierStage.LEAVING, since_ms=time_ms))
        elif found.stage is TierStage.LEAVING:
            return StalePlan(f"object {command.object} is leaving the store")
        else:
            self._put(replace(found, stage=TierStage.STORED))
        return TierChanged(command.object)

    def forget(self, command: ForgetTier) -> TierChanged | StalePlan:
        """Only of what was leaving: what may be needed is never forgotten."""
        found = self._tiers.get((command.object, command.token))
        if found is not None:
            if found.stage is not TierStage.LEAVING:
                return StalePlan(f"object {command.object} is not leaving the store")
            self._remove(found)
        return TierChanged(command.object)

    def _put(self, tier: Tier) -> None:
        before = self._tiers.get((tier.object, tier.token))
        if before is not None:
            self._remove(before)
        self._tiers[tier.object, tier.token] = tier
        if tier.stage is not TierStage.LEAVING:
            self._current[tier.object] = tier
        self.digest = (self.digest + tier.digest) & MASK

    def _remove(self, tier: Tier) -> None:
        del self._tiers[tier.object, tier.token]
        if self._current.get(tier.object) == tier:
            del self._current[tier.object]
        self.digest = (self.digest - tier.digest) & MASK

    # State as a whole

    def encode(self) -> list[TierState]:
        return [TierState(*astuple(tier)) for tier in self]

    @classmethod
    def decode(cls, state: list[TierState]) -> Tiers:
        tiers = cls()
        for one in state:
            tiers._put(Tier(one.object, one.token, one.size_bytes, TierStage(one.stage), one.since_ms))
        return tiers
