"""Queues: claiming jobs and settling them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from mainstem.api.base import U64, Performance


class ClaimBody(msgspec.Struct, frozen=True):
    node: str
    max: int = 1
    lease_ms: int | None = None


class SettleBody(msgspec.Struct, frozen=True):
    """Jobs to settle, with one lease id each or none: then the node is enough."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] | None = None


class NackBody(SettleBody, frozen=True, kw_only=True):
    """`error`: why the jobs failed; it becomes part of their dead letters."""

    delay_ms: U64 = 0
    error: str | None = None


class ExtendJobsBody(SettleBody, frozen=True, kw_only=True):
    lease_ms: U64


class JobDelivery(msgspec.Struct, omit_defaults=True):
    """A job and the lease on it."""

    seq: int = field(name="$seq")
    lease_id: str
    deadline_ms: int = field(name="deadline")
    timestamp_ms: int = field(name="$ts")
    deliveries: int
    data: Raw | UnsetType = UNSET
    key: str | None = field(name="$tag", default=None)
    meta_json: Raw | UnsetType = field(name="meta", default=UNSET)
    packed: str | None = field(name="$raw", default=None)  # base64 of a value that is not JSON
    trace: str | None = field(name="$trace", default=None)  # header traceparent
    topic: str | None = None  # in a work stream only


class ClaimResponse(msgspec.Struct):
    topic: str
    claimed: Sequence[JobDelivery]
    count: int
    ready: int
    performance: Performance


class AckResult(msgspec.Struct, frozen=True):
    """`skipped`: jobs that the node holds no lease on."""

    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class NackResult(msgspec.Struct, frozen=True):
    """`skipped`: jobs that the node holds no lease on."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class ExtendResult(msgspec.Struct, frozen=True):
    """`skipped`: jobs that the node holds no lease on. `deadlines` by sequence number, in text."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    performance: Performance


class JobLease(msgspec.Struct, frozen=True):
    seq: int = field(name="$seq")
    node: str
    deadline: int
    deliveries: int
    lease_id: str


class DelayedJob(msgspec.Struct, frozen=True):
    seq: int = field(name="$seq")
    due: int
    deliveries: int


class LeaseList(msgspec.Struct, frozen=True):
    """Jobs that are leased or delayed."""

    topic: str
    ready: int
    in_flight: int
    dead_lettered: int
    now_ms: int
    leases: list[JobLease]
    delayed: list[DelayedJob]
    performance: Performance


class RequeueBody(msgspec.Struct, frozen=True):
    """Dead letters, and the queue that gets them; None returns each to the queue it came from."""

    seqs: list[U64]
    queue: str | None = None


class RequeuedJob(msgspec.Struct, frozen=True):
    seq: int = field(name="$seq")
    queue: str
    queue_seq: int


class RequeueResult(msgspec.Struct, frozen=True):
    topic: str
    requeued: list[RequeuedJob]
    skipped: list[int]
    performance: Performance
