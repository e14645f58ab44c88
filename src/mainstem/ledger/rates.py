"""Rates: how much users, client ids, groups, namespaces and topics may produce, consume and request a second.

Kafka's client quotas are the rates of users and client ids. Administrators set rates; each broker enforces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.topics import TopicDeletedEvent

RATES_MAX = 100_000  # users, client ids, groups and namespaces with a rate
RATE_MAX = float(1 << 63)  # what clients send for "unlimited"
RATE_BURST_S_MAX = 86_400.0

PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes a second
CONSUMER_BYTE_RATE = "consumer_byte_rate"
PRODUCER_RECORD_RATE = "producer_record_rate"  # records a second
CONSUMER_RECORD_RATE = "consumer_record_rate"
REQUEST_PERCENTAGE = "request_percentage"  # of one core's time; may be over 100
BURST_S = "burst_s"  # how many seconds of each rate may be used at once; absent: limits.RATE_BURST_S
QUOTA_KEYS = (CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)  # the rates that Kafka knows
RATE_KEYS = (*QUOTA_KEYS, CONSUMER_RECORD_RATE, PRODUCER_RECORD_RATE)
LIMIT_KEYS = (*RATE_KEYS, BURST_S)

_Rank = tuple[bool | str, ...]


class RateEntity(msgspec.Struct, frozen=True, array_like=True):
    """What a rate limits: a user, a client id, a user's client id, a consumer group, a namespace, or a topic. An empty
    name is the default for each that has no rate of its own, except of topics; None means that the rate does not look
    at that name."""

    user: str | None = None
    client: str | None = None
    group: str | None = None
    namespace: str | None = None
    topic: str | None = None  # with its namespace


class AlterRate(Command, frozen=True, tag=134):
    """Set some limits of an entity and remove others; the rest stay."""

    entity: RateEntity
    put: tuple[tuple[str, float], ...]  # (key, value)
    removed: tuple[str, ...] = ()


class RateLimits(msgspec.Struct, frozen=True, array_like=True):
    """The limits of one entity; also the form in a checkpoint."""

    entity: RateEntity
    limits: tuple[tuple[str, float], ...]  # sorted by key


class Rates(Section[list[RateLimits]]):
    """Limits by entity, only of entities that have some. The digest changes with every limit."""

    def __init__(self) -> None:
        self._rates: Keyed[_Rank, RateLimits] = Keyed(fields_hash("rate"))
        self.active = False  # some entity has a limit: all that an unlimited broker tests
        self.topics: set[str] = set()  # that have a rate of their own

    def __len__(self) -> int:
        return len(self._rates)

    def __iter__(self) -> Iterator[RateLimits]:
        """Sorted by entity."""
        return iter(self._rates)

    def get(self, entity: RateEntity) -> Mapping[str, float]:
        found = self._rates.get(_rank(entity))
        return {} if found is None else dict(found.limits)

    def refusal(self, command: AlterRate) -> InvalidInput | LimitReached | None:
        """Why a change would be refused, if so."""
        wrong = _fault(command)
        if wrong is not None:
            return InvalidInput(wrong)
        return (
            self._rates.refusal(_rank(command.entity), RATES_MAX, "entities with rates")
            if command.put
            else None
        )

    @applies(AlterRate)
    def alter(self, command: AlterRate, now: Moment) -> RateLimits | InvalidInput | LimitReached:
        """The limits of the entity after the change, possibly none."""
        refusal = self.refusal(command)
        if refusal is not None:
            return refusal
        changed = dict(self.get(command.entity))
        changed.update((key, float(value)) for key, value in command.put)  # 1 and 1.0 hash differently
        for key in command.removed:
            changed.pop(key, None)
        rate = RateLimits(command.entity, tuple(sorted(changed.items())))
        if changed:
            self._put(rate)
        else:
            self._pop(command.entity)
        return rate

    def _put(self, rate: RateLimits) -> None:
        self._rates.put(_rank(rate.entity), rate)
        self.active = True
        if rate.entity.topic is not None:
            self.topics.add(rate.entity.topic)

    def _pop(self, entity: RateEntity) -> None:
        self._rates.pop(_rank(entity))
        self.active = len(self._rates) > 0
        if entity.topic is not None:
            self.topics.discard(entity.topic)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        self._pop(RateEntity(topic=event.topic.name))

    @property
    def digest(self) -> int:
        return self._rates.digest

    def encode(self) -> list[RateLimits]:
        return list(self._rates)

    def load(self, state: list[RateLimits]) -> None:
        for rate in state:
            self._put(rate)


def _rank(entity: RateEntity) -> _Rank:
    names = _names(entity)
    return tuple(part for name in names for part in (name is None, name or ""))


def _names(entity: RateEntity) -> tuple[str | None, ...]:
    return entity.user, entity.client, entity.group, entity.namespace, entity.topic


def _fault(command: AlterRate) -> str | None:
    entity = command.entity
    clients = entity.user is not None or entity.client is not None
    others = (entity.group, entity.namespace, entity.topic)
    if clients + sum(name is not None for name in others) != 1:
        return "a rate is for a user, a client id, or both; or for a group, a namespace or a topic"
    if entity.topic == "":
        return "the rate of a topic names it: a namespace limits all of its topics"
    for name in _names(entity):
        if name is not None and len(name) > limits.NAME_CHARS_MAX:
            return (
                f"the user, client id, group, namespace or topic of a rate has at most "
                f"{limits.NAME_CHARS_MAX} characters"
            )
    keys = [*(key for key, _ in command.put), *command.removed]
    for key in keys:
        if key not in LIMIT_KEYS:
            return f"unknown rate {key[:64]!r}: the rates are {', '.join(LIMIT_KEYS)}"
        if key == REQUEST_PERCENTAGE and not clients:
            return f"{key} is for users and client ids"
    if len(keys) != len(set(keys)):
        return "a request changes a rate twice"
    for key, value in command.put:
        if not 0 < value <= RATE_MAX:  # false for NaN
            return f"{key} is above 0 and at most {RATE_MAX:.0f}, not {value}"
        if key == BURST_S and value > RATE_BURST_S_MAX:
            return f"{key} is at most {RATE_BURST_S_MAX:.0f} seconds, not {value}"
    return None
