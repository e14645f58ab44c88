"""Client quotas: how much clients may send, receive and ask for, as administrators said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.security_commands import AlterClientQuota, QuotaEntity

PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes a second
CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes a second
REQUEST_PERCENTAGE = "request_percentage"  # of one core's time; may be over 100
QUOTA_KEYS = (CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)


class ClientQuota(msgspec.Struct, frozen=True, array_like=True):
    """What holds for one entity; also as a checkpoint holds it."""

    entity: QuotaEntity
    limits: tuple[tuple[str, float], ...]  # by key, in the keys' order

    @property
    def digest(self) -> int:
        return hash_fields("client quota", self.entity, self.limits)


class ClientQuotas:
    """By entity. An entity without a limit is not held."""

    def __init__(self) -> None:
        self._held: dict[QuotaEntity, dict[str, float]] = {}
        self.digest = 0  # also tells whether any quota came, changed or went

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[ClientQuota]:
        """In one order wherever the same quotas are held."""
        return (_quota(entity, self._held[entity]) for entity in sorted(self._held, key=_rank))

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._held.get(entity, {})

    def refusal(self, command: AlterClientQuota) -> InvalidInput | LimitReached | None:
        """Why a change would not be made."""
        wrong = _fault(command)
        if wrong is not None:
            return InvalidInput(wrong)
        if command.put and command.entity not in self._held and len(self._held) >= limits.CLIENT_QUOTAS_MAX:
            return LimitReached(
                f"quotas of {limits.CLIENT_QUOTAS_MAX} entities are kept, the most there may be"
            )
        return None

    def alter(self, command: AlterClientQuota) -> ClientQuota | InvalidInput | LimitReached:
        """What holds for the entity from now on, which may be nothing."""
        refusal = self.refusal(command)
        if refusal is not None:
            return refusal
        entity = command.entity
        held = dict(self._held.get(entity, {}))
        held.update((key, float(value)) for key, value in command.put)  # a whole number hashes otherwise
        for key in command.removed:
            held.pop(key, None)
        self._replace(entity, held)
        return _quota(entity, held)

    def _replace(self, entity: QuotaEntity, held: dict[str, float]) -> None:
        before = self._held.pop(entity, None)
        if before:
            self.digest = (self.digest - _quota(entity, before).digest) & MASK
        if held:
            self._held[entity] = held
            self.digest = (self.digest + _quota(entity, held).digest) & MASK

    def encode(self) -> list[ClientQuota]:
        return list(self)

    @classmethod
    def decode(cls, states: list[ClientQuota]) -> ClientQuotas:
        quotas = cls()
        for state in states:
            quotas._replace(state.entity, dict(state.limits))
        return quotas


def _rank(entity: QuotaEntity) -> tuple[bool, str, bool, str]:
    return entity.user is None, entity.user or "", entity.client is None, entity.client or ""


def _quota(entity: QuotaEntity, held: Mapping[str, float]) -> ClientQuota:
    return ClientQuota(entity, tuple(sorted(held.items())))


def _fault(command: AlterClientQuota) -> str | None:
    entity = command.entity
    if entity.user is None and entity.client is None:
        return "a quota is for a user, a client id, or both"
    for name in (entity.user, entity.client):
        if name is not None and len(name) > limits.NAME_CHARS_MAX:
            return f"a user or client id of a quota has at most {limits.NAME_CHARS_MAX} characters"
    keys = [*(key for key, _ in command.put), *command.removed]
    for key in keys:
        if key not in QUOTA_KEYS:
            return f"{key[:64]!r} is no quota here: there are {', '.join(QUOTA_KEYS)}"
    if len(keys) != len(set(keys)):
        return "a quota is changed twice at once"
    for key, value in command.put:
        if not 0 < value <= limits.QUOTA_RATE_MAX:  # which no NaN is
            return f"{key} is above 0 and at most {limits.QUOTA_RATE_MAX:.0f}, not {value}"
    return None
