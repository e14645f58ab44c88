"""Rates: how much users, client ids, groups, namespaces and topics may produce and consume a second."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.api.base import Performance

RateKey = Literal[
    "producer_byte_rate",
    "consumer_byte_rate",
    "producer_record_rate",
    "consumer_record_rate",
    "request_percentage",
    "burst_s",
]


class RateBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to limit: a user, a client id, both, a group, a namespace, or a topic; "" is the default of those without a
    rate of their own, except of topics. `limits` sets limits; null removes one; the others stay."""

    limits: dict[RateKey, float | None]
    user: str | None = None
    client: str | None = None
    group: str | None = None
    namespace: str | None = None
    topic: str | None = None


class RateDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of one entity, and what they throttled on this broker since it started."""

    limits: dict[RateKey, float]
    throttled_total: int
    throttled_ms: int
    user: str | None = None
    client: str | None = None
    group: str | None = None
    namespace: str | None = None
    topic: str | None = None


class RateList(msgspec.Struct, frozen=True):
    rates: list[RateDescription]
    performance: Performance


class RateChanged(msgspec.Struct, frozen=True):
    """The limits of the entity after the change; none: it has no rate."""

    rate: RateDescription
    performance: Performance
