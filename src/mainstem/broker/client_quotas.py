"""Client quotas: which quota applies to a client, and how long to throttle it.

Each broker measures its own traffic, as in Kafka: the limits are durable, the measurements are not.
"""

from __future__ import annotations

from collections.abc import Iterator

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

QUOTA_WINDOW_S = 10.0  # how far a client may exceed its rate before it is throttled
QUOTA_THROTTLE_MS_MAX = 20_000  # of one throttle; less than the request timeout of clients
QUOTA_METERS_KEPT = 100_000  # of clients seen recently

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
    """A token bucket for the clients that share one limit. It may be overdrawn.

    A request is served and charged afterwards, so that one larger than the bucket still passes."""

    __slots__ = ("_allowance", "_at", "_clock", "rate")

    def __init__(self, rate: float, clock: Clock) -> None:
        self.rate = rate  # bytes a second, or percent
        self._clock = clock
        self._allowance = rate * QUOTA_WINDOW_S
        self._at = clock.monotonic()

    @property
    def burst(self) -> int:
        """The most that may be sent at once without throttling."""
        return max(int(self.rate * QUOTA_WINDOW_S), 1)

    def take(self, size: float) -> int:
        """Charge transferred bytes, or hundredths of seconds of time. Returns how many milliseconds to throttle the
        client."""
        now = self._clock.monotonic()
        earned = (now - self._at) * self.rate
        self._at = now
        self._allowance = min(self._allowance + earned, self.rate * QUOTA_WINDOW_S) - size
        if self._allowance >= 0:
            return 0
        return int(min(-self._allowance / self.rate * 1000 + 1, QUOTA_THROTTLE_MS_MAX))


class ClientQuotaService:
    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._quotas = log.ledger.client_quotas
        self.held = self._quotas.rows  # empty: no client is throttled
        self._clock = clock
        self._meters: dict[_Key, Meter] = {}
        self._found: dict[_Key, Meter | None] = {}  # by client, valid until a quota changes
        self._state = 0

    def all(self) -> list[ClientQuota]:
        return list(self._quotas)

    async def alter(self, command: AlterClientQuota, *, dry_run: bool = False) -> None:
        """Raises InvalidInput, LimitReached. `dry_run` only checks."""
        if not dry_run:
            await self._log.propose(command)
            return
        refusal = self._quotas.refusal(command)
        if refusal is not None:
            raise refusal

    def meter(self, key: str, user: str, client: str | None) -> Meter | None:
        """The meter of the limit that applies to a client. None: it has no limit."""
        if self._quotas.digest != self._state or len(self._found) >= QUOTA_METERS_KEPT:
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
            self._meters[shared] = meter  # the most recently used are at the end
            if len(self._meters) > QUOTA_METERS_KEPT:
                del self._meters[next(iter(self._meters))]
            return meter
        return None


def _precedence(user: str, client: str) -> Iterator[QuotaEntity]:
    """The entities whose quota may apply to a client, the most specific one first."""
    for named in (user, _DEFAULT):
        yield QuotaEntity(named, client)
        yield QuotaEntity(named, _DEFAULT)
        yield QuotaEntity(named, None)
    yield QuotaEntity(None, client)
    yield QuotaEntity(None, _DEFAULT)
