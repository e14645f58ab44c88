"""Applies rates: which limits a client, a group, a namespace and a topic have, and how long they throttle the client.

A token bucket per limit: it fills at the rate up to the burst, and may be overdrawn. A call that moves more than is
left is served; what comes next waits until the bucket is full enough again. Each broker counts what goes through
itself, as Kafka's brokers do: the limits are durable, what was moved is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mainstem import limits
from mainstem.broker.access.principal import Principal
from mainstem.ledger.namespaces import canonical, split
from mainstem.ledger.rates import (
    BURST_S,
    CONSUMER_BYTE_RATE,
    CONSUMER_RECORD_RATE,
    LIMIT_KEYS,
    PRODUCER_BYTE_RATE,
    PRODUCER_RECORD_RATE,
    QUOTA_KEYS,
    RATE_KEYS,
    REQUEST_PERCENTAGE,
    AlterRate,
    RateEntity,
    RateLimits,
    Rates,
)
from mainstem.log.log import Log
from mainstem.metrics import Metric
from mainstem.ports.clock import Clock

THROTTLE_MS_MAX = 20_000  # of one throttle; less than the request timeout of clients
RATE_BUCKETS_KEPT = 100_000  # of clients, groups and namespaces seen recently
RATES_PUBLISHED_MAX = 1_000  # entities that metrics name

__all__ = [
    "BURST_S",
    "CONSUMER_BYTE_RATE",
    "CONSUMER_RECORD_RATE",
    "LIMIT_KEYS",
    "PRODUCER_BYTE_RATE",
    "PRODUCER_RECORD_RATE",
    "QUOTA_KEYS",
    "REQUEST_PERCENTAGE",
    "AlterRate",
    "RateEntity",
    "RateLimiter",
    "RateLimits",
    "RateService",
    "Rates",
    "TokenBucket",
    "entity_name",
]

_DEFAULT = ""
_USER = "User:"
_BucketKey = tuple[str, RateEntity]  # the limit's key, and the names that share the bucket
_Asked = tuple[
    bool, str, str | None, str | None, str
]  # whether it appends; principal, client id, group, scope


class ThrottleCount:
    """How often and for how long one limit throttled clients."""

    __slots__ = ("times", "total_ms")

    def __init__(self) -> None:
        self.times = 0
        self.total_ms = 0


class TokenBucket:
    """The traffic that counts against one limit: an allowance that grows at the rate and may be overdrawn.

    A request is served first and charged afterwards, so that one larger than the allowance still passes."""

    __slots__ = ("_allowance", "_at", "_clock", "burst_s", "count", "rate")

    def __init__(self, rate: float, clock: Clock, burst_s: float = limits.RATE_BURST_S) -> None:
        self.rate = rate  # bytes or records a second, or percent
        self.burst_s = burst_s
        self.count = ThrottleCount()
        self._clock = clock
        self._allowance = rate * burst_s
        self._at = clock.monotonic()

    @property
    def burst(self) -> int:
        """The most that can pass at once without throttling."""
        return max(int(self.rate * self.burst_s), 1)

    def take(self, size: float) -> int:
        """Charge bytes, records or hundredths of seconds. Returns the milliseconds to wait before the next charge."""
        now = self._clock.monotonic()
        earned = (now - self._at) * self.rate
        self._at = now
        self._allowance = min(self._allowance + earned, self.rate * self.burst_s) - size
        if self._allowance >= 0:
            return 0
        return int(min(-self._allowance / self.rate * 1000 + 1, THROTTLE_MS_MAX))

    def debt_ms(self) -> int:
        """The milliseconds to wait now."""
        return self.take(0)


class RateLimiter:
    """The buckets that the traffic of one client, group and topic counts against, in one direction."""

    __slots__ = ("_of_bytes", "_of_records")

    def __init__(self, of_bytes: Iterable[TokenBucket], of_records: Iterable[TokenBucket]) -> None:
        self._of_bytes = tuple(of_bytes)
        self._of_records = tuple(of_records)

    def __bool__(self) -> bool:
        return bool(self._of_bytes or self._of_records)

    @property
    def counts_records(self) -> bool:
        """Whether `take` needs the number of records, which may require reading the batches."""
        return bool(self._of_records)

    @property
    def burst_bytes(self) -> int:
        """The most that one response should contain."""
        return min((bucket.burst for bucket in self._of_bytes), default=limits.READ_BYTES_MAX)

    def debt_ms(self) -> int:
        """The milliseconds that the client should wait before its next request."""
        return max((bucket.debt_ms() for bucket in (*self._of_bytes, *self._of_records)), default=0)

    def slowest_rate(self) -> float:
        """The rate that throttles for the longest time now."""
        buckets = (*self._of_bytes, *self._of_records)
        return max(buckets, key=lambda bucket: bucket.debt_ms()).rate

    def take(self, size: int, records: int) -> int:
        """Charge traffic. Returns the milliseconds to throttle the client for."""
        held_ms = 0
        for bucket in self._of_bytes:
            held_ms = max(held_ms, _taken(bucket, size))
        for bucket in self._of_records:
            held_ms = max(held_ms, _taken(bucket, records))
        return held_ms


def _taken(bucket: TokenBucket, amount: int) -> int:
    held_ms = bucket.take(amount)
    if held_ms and amount:
        bucket.count.times += 1
        bucket.count.total_ms += held_ms
    return held_ms


class RateService:
    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self.stored = log.ledger.rates  # `stored.active` is false: no rate is set
        self._clock = clock
        self._buckets: dict[_BucketKey, TokenBucket] = {}
        self._counts: dict[tuple[RateEntity, str], ThrottleCount] = {}  # by stored entity and limit
        self._limiters: dict[_Asked, RateLimiter | None] = {}  # by client, as long as no rate changes
        self._metered: dict[tuple[str, str | None], TokenBucket | None] = {}
        self._state = 0

    def all(self) -> list[RateLimits]:
        return list(self.stored)

    async def alter(self, command: AlterRate, *, dry_run: bool = False) -> None:
        """Raises InvalidInput, LimitReached. `dry_run` does nothing more."""
        if not dry_run:
            await self._log.propose(command)
            return
        refusal = self.stored.refusal(command)
        if refusal is not None:
            raise refusal

    # What doors ask

    def produce(
        self, principal: Principal, topic: str, size: int, records: int, client_id: str | None = None
    ) -> int:
        """Charge a client for an append. Returns the milliseconds to throttle it for."""
        limiter = self.producing(principal, topic, client_id)
        return 0 if limiter is None else limiter.take(size, records)

    def consume(
        self,
        principal: Principal,
        topic: str,
        group: str | None,
        size: int,
        records: int,
        client_id: str | None = None,
    ) -> int:
        """Charge a client for a read. Returns the milliseconds to throttle it for."""
        limiter = self.consuming(principal, topic, group, client_id)
        return 0 if limiter is None else limiter.take(size, records)

    def producing(self, principal: Principal, topic: str, client_id: str | None = None) -> RateLimiter | None:
        """The limiter of a client that appends to a topic; None if it has no limit."""
        if not self.stored.active:
            return None
        return self._limiter((True, principal.name, client_id, None, self.scope(topic)))

    def consuming(
        self, principal: Principal, topic: str, group: str | None, client_id: str | None = None
    ) -> RateLimiter | None:
        """The limiter of a client that reads a topic, maybe for a group; None if it has no limit."""
        if not self.stored.active:
            return None
        return self._limiter((False, principal.name, client_id, group, self.scope(topic)))

    def scope(self, topic: str) -> str:
        """What topics with the same limits have in common: a topic that has a rate of its own, or a namespace, with the
        slash after it. It can stand for the topic here."""
        topic = canonical(topic)
        if len(topic) > limits.KEPT_NAME_CHARS_MAX:  # there is no such topic
            return ""
        return topic if topic in self.stored.topics else topic[: topic.rfind("/") + 1]

    def requests(self, principal: Principal, client_id: str | None) -> TokenBucket | None:
        """The limiter of a client's time on the event loop; None if it has no limit."""
        if not self.stored.active:
            return None
        self._renew()
        asked = principal.name, client_id
        if asked not in self._metered:
            self._metered[asked] = self.of_client(
                REQUEST_PERCENTAGE, principal.name.removeprefix(_USER), client_id
            )
        return self._metered[asked]

    def of_client(self, key: str, user: str, client: str | None) -> TokenBucket | None:
        """The bucket of the most specific limit of a user and client id; None if it has no limit."""
        client = client or _DEFAULT
        for entity in _precedence(user, client):
            if key in self.stored.get(entity):
                shared = RateEntity(
                    None if entity.user is None else user, None if entity.client is None else client
                )
                return self._bucket(key, entity, shared)
        return None

    def _limiter(self, asked: _Asked) -> RateLimiter | None:
        self._renew()
        if asked not in self._limiters:
            produces = asked[0]
            of_bytes, of_records = (
                (PRODUCER_BYTE_RATE, PRODUCER_RECORD_RATE)
                if produces
                else (CONSUMER_BYTE_RATE, CONSUMER_RECORD_RATE)
            )
            found = RateLimiter(self._applying(of_bytes, asked), self._applying(of_records, asked))
            self._limiters[asked] = found or None
        return self._limiters[asked]

    def _renew(self) -> None:
        kept = len(self._limiters) + len(self._metered)
        if self.stored.digest != self._state or kept >= RATE_BUCKETS_KEPT:
            self._limiters.clear()
            self._metered.clear()
            self._state = self.stored.digest
            stored = {rate.entity for rate in self.stored}
            self._counts = {known: count for known, count in self._counts.items() if known[0] in stored}

    def _applying(self, key: str, asked: _Asked) -> Iterator[TokenBucket]:
        _, principal, client, group, scope = asked
        bucket = self.of_client(key, principal.removeprefix(_USER), client)
        if bucket is not None:
            yield bucket
        if group is not None:
            name = group.replace("\x1f", "/")  # a group of a bound namespace, as rates name it
            yield from self._first(key, RateEntity(group=name), RateEntity(group=_DEFAULT))
        for part in _enclosing(split(scope)[0]):
            yield from self._first(key, RateEntity(namespace=part), RateEntity(namespace=_DEFAULT))
        own = RateEntity(topic=scope)
        yield from self._first(key, own, own)

    def _first(self, key: str, own: RateEntity, default: RateEntity) -> Iterator[TokenBucket]:
        for entity in (own, default):
            if key in self.stored.get(entity):
                yield self._bucket(key, entity, own)
                return

    def _bucket(self, key: str, entity: RateEntity, shared: RateEntity) -> TokenBucket:
        """The bucket of a limit. `shared` names the clients that share it: a default gives each name its own bucket."""
        stored = self.stored.get(entity)
        rate, burst_s = stored[key], stored.get(BURST_S, limits.RATE_BURST_S)
        place = key, shared
        bucket = self._buckets.pop(place, None) or TokenBucket(rate, self._clock, burst_s)
        bucket.rate, bucket.burst_s = rate, burst_s
        bucket.count = self._counts.setdefault((entity, key), ThrottleCount())
        self._buckets[place] = bucket  # the most recently used are at the end
        if len(self._buckets) > RATE_BUCKETS_KEPT:
            del self._buckets[next(iter(self._buckets))]
        return bucket

    # Metrics

    def throttled(self, entity: RateEntity) -> tuple[int, int]:
        """How often, and for how many milliseconds, the limits of an entity throttled clients of this broker."""
        counts = [self._counts[entity, key] for key in RATE_KEYS if (entity, key) in self._counts]
        return sum(count.times for count in counts), sum(count.total_ms for count in counts)

    def published(self) -> Iterator[Metric]:
        """The limits, and what each throttled, of as many entities as metrics name."""
        rates = [
            (rate.entity, key, value)
            for _, rate in zip(range(RATES_PUBLISHED_MAX), self.stored, strict=False)
            for key, value in rate.limits
            if key != BURST_S
        ]
        labelled = [
            ((("entity", entity_name(entity)), ("limit", key)), value, self._counts.get((entity, key)))
            for entity, key, value in rates
        ]
        yield Metric(
            "mainstem_rate_limit",
            "gauge",
            "Rates that are set, a second: bytes, records, or percent of a core.",
            tuple((labels, value) for labels, value, _ in labelled),
        )
        yield Metric(
            "mainstem_rate_throttled_total",
            "counter",
            "Calls after which a rate throttled the client.",
            tuple((labels, float(count.times if count else 0)) for labels, _, count in labelled),
        )
        yield Metric(
            "mainstem_rate_throttled_seconds_total",
            "counter",
            "Time for which a rate throttled clients.",
            tuple((labels, (count.total_ms if count else 0) / 1000) for labels, _, count in labelled),
        )


def entity_name(entity: RateEntity) -> str:
    """As metrics show an entity: `user=ann,client=app`, `group=g`, `namespace=<default>`."""
    parts = (
        ("user", entity.user),
        ("client", entity.client),
        ("group", entity.group),
        ("namespace", entity.namespace),
        ("topic", entity.topic),
    )
    return ",".join(f"{kind}={name or '<default>'}" for kind, name in parts if name is not None)


def _enclosing(namespace: str) -> Iterator[str]:
    """A namespace, and its parent."""
    yield namespace
    outer, slash, _ = namespace.rpartition("/")
    if slash:
        yield outer


def _precedence(user: str, client: str) -> Iterator[RateEntity]:
    """Whose limit applies to a client, the most specific first."""
    for named in (user, _DEFAULT):
        yield RateEntity(named, client)
        yield RateEntity(named, _DEFAULT)
        yield RateEntity(named, None)
    yield RateEntity(None, client)
    yield RateEntity(None, _DEFAULT)
