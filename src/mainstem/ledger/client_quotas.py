"""Client quotas: how much users and clients may use, as administrators said."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.security_commands import AlterClientQuota

QUOTAS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage"})
_ENTITY_TYPES = frozenset({"user", "client-id"})

Entity = tuple[tuple[str, str | None], ...]


class ClientQuota(msgspec.Struct, frozen=True, array_like=True):
    """The bounds of one entity, by name; also as a checkpoint holds it."""

    entity: Entity
    values: tuple[tuple[str, float], ...]

    @property
    def digest(self) -> int:
        return hash_fields("client quota", self.entity, self.values)


class ClientQuotas:
    """By entity, whose parts are in order of their kind."""

    def __init__(self) -> None:
        self._held: dict[Entity, ClientQuota] = {}
        self.digest = 0  # also tells whether anything changed

    def __iter__(self) -> Iterator[ClientQuota]:
        return iter(sorted(self._held.values(), key=lambda quota: _sortable(quota.entity)))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, entity: Entity) -> ClientQuota | None:
        return self._held.get(entity)

    def alter(self, command: AlterClientQuota) -> ClientQuota | InvalidInput | LimitReached:
        wrong = fault(command)
        if wrong is not None:
            return InvalidInput(wrong)
        entity = tuple(sorted(command.entity))
        before = self._held.get(entity)
        values = dict(before.values) if before is not None else {}
        for name, value in command.values:
            if value is None:
                values.pop(name, None)
            else:
                values[name] = float(value)
        if before is None and values and len(self._held) >= limits.CLIENT_QUOTAS_MAX:
            return LimitReached(f"at most {limits.CLIENT_QUOTAS_MAX} entities have quotas")
        after = ClientQuota(entity, tuple(sorted(values.items())))
        if before is not None:
            del self._held[entity]
            self.digest = (self.digest - before.digest) & MASK
        if values:
            self._put(after)
        return after

    def _put(self, quota: ClientQuota) -> None:
        self._held[quota.entity] = quota
        self.digest = (self.digest + quota.digest) & MASK

    def encode(self) -> list[ClientQuota]:
        return list(self)

    @classmethod
    def decode(cls, states: list[ClientQuota]) -> ClientQuotas:
        quotas = cls()
        for state in states:
            quotas._put(state)
        return quotas


def _sortable(entity: Entity) -> tuple[tuple[str, bool, str], ...]:
    return tuple((kind, name is not None, name or "") for kind, name in entity)


def fault(command: AlterClientQuota) -> str | None:
    """What is wrong with a change."""
    kinds = [kind for kind, _ in command.entity]
    if not kinds or len(set(kinds)) != len(kinds) or not _ENTITY_TYPES.issuperset(kinds):
        return "a quota is for a user, a client-id, or both"
    if any(name is not None and not 0 < len(name) <= limits.NAME_CHARS_MAX for _, name in command.entity):
        return f"the name of a user or client has 1 to {limits.NAME_CHARS_MAX} characters"
    for name, value in command.values:
        if name not in QUOTAS:
            return f"{name[:64]!r} is no quota: there are {', '.join(sorted(QUOTAS))}"
        if value is not None and not (math.isfinite(value) and value > 0):
            return f"{name} is a number above 0"
    return None
