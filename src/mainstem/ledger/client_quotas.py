"""Client quotas: how much clients may send, receive and request. Administrators set them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes a second
CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes a second
REQUEST_PERCENTAGE = "request_percentage"  # of one core's time; may be over 100
QUOTA_KEYS = (CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)

_Rank = tuple[bool, str, bool, str]


class QuotaEntity(msgspec.Struct, frozen=True, array_like=True):
    """Whom a quota limits: a user, a client id, or a user's client. An empty name is the default for all that have no
    quota of their own; None means that the quota does not look at that name."""

    user: str | None
    client: str | None


class AlterClientQuota(Command, frozen=True, tag=134):
    """Set some limits of an entity and remove others; the rest stay."""

    entity: QuotaEntity
    put: tuple[tuple[str, float], ...]  # (key, value)
    removed: tuple[str, ...] = ()


class ClientQuota(msgspec.Struct, frozen=True, array_like=True):
    """The limits of one entity; also the form in a checkpoint."""

    entity: QuotaEntity
    limits: tuple[tuple[str, float], ...]  # sorted by key


class ClientQuotas(Section[list[ClientQuota]]):
    """Quotas by entity, only of entities with a limit. The digest changes with every quota."""

    def __init__(self) -> None:
        self._quotas: Keyed[_Rank, ClientQuota] = Keyed(fields_hash("client quota"))
        self.rows = self._quotas.rows

    def __len__(self) -> int:
        return len(self._quotas)

    def __iter__(self) -> Iterator[ClientQuota]:
        """Sorted by entity."""
        return iter(self._quotas)

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        found = self._quotas.get(_rank(entity))
        return {} if found is None else dict(found.limits)

    def refusal(self, command: AlterClientQuota) -> InvalidInput | LimitReached | None:
        """Why a change would be refused, if so."""
        wrong = _fault(command)
        if wrong is not None:
            return InvalidInput(wrong)
        return (
            self._quotas.refusal(_rank(command.entity), limits.CLIENT_QUOTAS_MAX, "entities with quotas")
            if command.put
            else None
        )

    @applies(AlterClientQuota)
    def alter(self, command: AlterClientQuota, now: Moment) -> ClientQuota | InvalidInput | LimitReached:
        """The limits of the entity after the change, possibly none."""
        refusal = self.refusal(command)
        if refusal is not None:
            return refusal
        changed = dict(self.get(command.entity))
        changed.update((key, float(value)) for key, value in command.put)  # 1 and 1.0 hash differently
        for key in command.removed:
            changed.pop(key, None)
        quota = ClientQuota(command.entity, tuple(sorted(changed.items())))
        if changed:
            self._quotas.put(_rank(command.entity), quota)
        else:
            self._quotas.pop(_rank(command.entity))
        return quota

    @property
    def digest(self) -> int:
        return self._quotas.digest

    def encode(self) -> list[ClientQuota]:
        return list(self._quotas)

    def load(self, state: list[ClientQuota]) -> None:
        for quota in state:
            self._quotas.put(_rank(quota.entity), quota)


def _rank(entity: QuotaEntity) -> _Rank:
    return entity.user is None, entity.user or "", entity.client is None, entity.client or ""


def _fault(command: AlterClientQuota) -> str | None:
    entity = command.entity
    if entity.user is None and entity.client is None:
        return "a quota names a user, a client id, or both"
    for name in (entity.user, entity.client):
        if name is not None and len(name) > limits.NAME_CHARS_MAX:
            return f"the user or client id of a quota has at most {limits.NAME_CHARS_MAX} characters"
    keys = [*(key for key, _ in command.put), *command.removed]
    for key in keys:
        if key not in QUOTA_KEYS:
            return f"unknown quota {key[:64]!r}: the quotas are {', '.join(QUOTA_KEYS)}"
    if len(keys) != len(set(keys)):
        return "a request changes a quota twice"
    for key, value in command.put:
        if not 0 < value <= limits.QUOTA_RATE_MAX:  # false for NaN
            return f"{key} is above 0 and at most {limits.QUOTA_RATE_MAX:.0f}, not {value}"
    return None
