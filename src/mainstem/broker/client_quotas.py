"""Client quotas at work: which one holds for a client, and how long it is held back for what it moved.

Each broker measures what goes through it, as Kafka's do: the limits are durable, what was moved is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from mainstem import limits
from mainstem.ledger.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    AlterClientQuota,
    ClientQuota,
    QuotaEntity,
)
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

__all__ = [
    "CONSUMER_BYTE_RATE",
    "PRODUCER_BYTE_RATE",
    "QUOTA_KEYS",
    "REQUEST_PERCENTAGE",
    "AlterClientQuota",
    "ClientQuota",
    "ClientQuotaService",
    "Meter",
    "QuotaEntity",
]

_DEFAULT = ""
_Key = tuple[str, str | None, str | None]  # of the limit, and the user and client id that share it


class Meter:
    """What those who share one limit moved: an allowance that grows by the rate, and may be overdrawn.

    What was asked for is served and paid for afterwards, so that a request larger than the allowance still passes."""

    __slots__ = ("_allowance", "_at", "_clock", "rate")

    def __init__(self, rate: float, clock: Clock) -> None:
        self.rate = rate  # bytes a second, or percent
        self._clock = clock
        self._allowance = rate * limits.QUOTA_WINDOW_S
        self._at = clock.monotonic()

    @property
    def burst(self) -> int:
        """The most that may be moved at once without being held back."""
        return max(int(self.rate * limits.QUOTA_WINDOW_S), 1)

    def take(self, size: float) -> int:
        """Count bytes that were moved, or hundredths of seconds that were spent. Returns for how many milliseconds
        nothing more should be."""
        now = self._clock.monotonic()
        earned = (now - self._at) * self.rate
        self._at = now
        self._allowance = min(self._allowance + earned, self.rate * limits.QUOTA_WINDOW_S) - size
        if self._allowance >= 0:
            return 0
        return int(min(-self._allowance / self.rate * 1000 + 1, limits.QUOTA_THROTTLE_MS_MAX))


class ClientQuotaService:
    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._quotas = log.ledger.client_quotas
        self.held = self._quotas.rows  # empty: nobody is held back
        self._clock = clock
        self._meters: dict[_Key, Meter] = {}
        self._found: dict[_Key, Meter | None] = {}  # by client, as long as no quota changes
        self._state = 0

    def all(self) -> list[ClientQuota]:
        return list(self._quotas)

    async def alter(self, command: AlterClientQuota, *, dry_run: bool = False) -> None:
        """Raises InvalidInput, LimitReached. `dry_run` does nothing more."""
        if not dry_run:
            await self._log.propose(command)
            return
        refusal = self._quotas.refusal(command)
        if refusal is not None:
            raise refusal

    def meter(self, key: str, user: str, client: str | None) -> Meter | None:
        """What counts against the limit that holds for a client. None: it has none."""
        if self._quotas.digest != self._state or len(self._found) >= limits.QUOTA_METERS_KEPT:
            self._found.clear()
            self._state = self._quotas.digest
        asked = (key, user, client)
        if asked not in self._found:
            self._found[asked] = self._meter(key, user, client or _DEFAULT)
        return self._found[asked]

    def _meter(self, key: str, user: str, client: str) -> Meter | None:
        for entity in _precedence(user, client):
            rate = self._quotas.get(entity).get(key)
            if rate is None:
                continue
            shared = (
                key,
                None if entity.user is None else user,
                None if entity.client is None else client,
            )
            meter = self._meters.pop(shared, None) or Meter(rate, self._clock)
            meter.rate = rate
            self._meters[shared] = meter  # the last used stand at the end
            if len(self._meters) > limits.QUOTA_METERS_KEPT:
                del self._meters[next(iter(self._meters))]
            return meter
        return None


def _precedence(user: str, client: str) -> Iterator[QuotaEntity]:
    """Whose quota holds for a client, the most particular one first."""
    for named in (user, _DEFAULT):
        yield QuotaEntity(named, client)
        yield QuotaEntity(named, _DEFAULT)
        yield QuotaEntity(named, None)
    yield QuotaEntity(None, client)
    yield QuotaEntity(None, _DEFAULT)
