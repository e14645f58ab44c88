"""History: samples of the last hour, which the server holds in memory."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.api.base import Performance


class ServerSample(msgspec.Struct, frozen=True):
    """Rates per second since the sample before, and the time of writes; null without any write."""

    at_ms: int
    appended: float  # records, without the copies of routers
    http_requests: float
    kafka_requests: float
    http_write_ms: float | None  # mean
    kafka_write_ms: float | None  # mean
    kafka_write_p99_ms: float | None  # upper bound


class ServerHistory(msgspec.Struct, frozen=True):
    every_ms: int
    samples: list[ServerSample]
    performance: Performance


class TopicSample(msgspec.Struct, frozen=True):
    at_ms: int
    records: float  # per second
    bytes: float  # per second


class TopicHistory(msgspec.Struct, frozen=True):
    topic: str
    every_ms: int
    samples: list[TopicSample]
    performance: Performance


class LagSample(msgspec.Struct, frozen=True):
    at_ms: int
    lag: int


class GroupHistory(msgspec.Struct, frozen=True):
    """Samples of the broker that coordinates the group; others have none."""

    group: str
    every_ms: int
    samples: list[LagSample]
    performance: Performance


AlertKind = Literal[
    "dead_letters", "growing_lag", "hanging_transaction", "table_behind", "disk", "clock", "missing_records"
]


class Alert(msgspec.Struct, frozen=True):
    """Something that an operator should look at, and what it concerns, if that has a name."""

    kind: AlertKind
    critical: bool
    text: str
    topic: str | None = None
    group: str | None = None
    transaction: str | None = None
