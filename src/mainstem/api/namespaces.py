"""Namespaces of topics, and their policies."""

from __future__ import annotations

import msgspec

from mainstem.api.base import Performance
from mainstem.api.topics import BacklogPolicy, Durability, InactiveMode


class NamespaceDescriptionBody(msgspec.Struct, frozen=True):
    """Policies to set; what is left out stays, or is not limited in a new namespace. Null removes a default."""

    retention_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    retention_bytes: int | msgspec.UnsetType | None = msgspec.UNSET
    ttl_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    durability: Durability | msgspec.UnsetType | None = msgspec.UNSET
    partitions: int | msgspec.UnsetType | None = msgspec.UNSET
    principals: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    topics_max: int | msgspec.UnsetType = msgspec.UNSET
    partitions_max: int | msgspec.UnsetType = msgspec.UNSET
    bytes_max: int | msgspec.UnsetType = msgspec.UNSET
    keep_backlog: bool | msgspec.UnsetType | None = msgspec.UNSET
    subscription_ttl_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    backlog_bytes: int | msgspec.UnsetType | None = msgspec.UNSET
    backlog_bytes_policy: BacklogPolicy | msgspec.UnsetType | None = msgspec.UNSET
    backlog_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    backlog_ms_policy: BacklogPolicy | msgspec.UnsetType | None = msgspec.UNSET
    deduplication: bool | msgspec.UnsetType | None = msgspec.UNSET
    producers_max: int | msgspec.UnsetType | None = msgspec.UNSET
    consumers_max: int | msgspec.UnsetType | None = msgspec.UNSET
    subscriptions_max: int | msgspec.UnsetType | None = msgspec.UNSET
    subscription_consumers_max: int | msgspec.UnsetType | None = msgspec.UNSET
    consumer_unacked_max: int | msgspec.UnsetType | None = msgspec.UNSET
    subscription_unacked_max: int | msgspec.UnsetType | None = msgspec.UNSET
    subscription_expiry_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    inactive_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    inactive_mode: InactiveMode | msgspec.UnsetType | None = msgspec.UNSET


class NamespaceReport(msgspec.Struct, frozen=True):
    """A namespace, its policies and how much it holds."""

    namespace: str
    retention_ms: int | None
    retention_bytes: int | None
    ttl_ms: int | None
    durability: Durability | None
    partitions: int | None
    principals: tuple[str, ...]
    topics_max: int
    partitions_max: int
    bytes_max: int
    keep_backlog: bool | None
    subscription_ttl_ms: int | None
    backlog_bytes: int | None
    backlog_bytes_policy: BacklogPolicy | None
    backlog_ms: int | None
    backlog_ms_policy: BacklogPolicy | None
    deduplication: bool | None
    producers_max: int | None
    consumers_max: int | None
    subscriptions_max: int | None
    subscription_consumers_max: int | None
    consumer_unacked_max: int | None
    subscription_unacked_max: int | None
    subscription_expiry_ms: int | None
    inactive_ms: int | None
    inactive_mode: InactiveMode | None
    topics_total: int
    partitions_total: int
    bytes_total: int
    created_ms: int


class NamespaceReports(msgspec.Struct, frozen=True):
    namespaces: list[NamespaceReport]
    performance: Performance


class NamespaceConfigured(msgspec.Struct, frozen=True):
    created: bool
    namespace: NamespaceReport
    performance: Performance


class NamespaceDeletion(msgspec.Struct, frozen=True):
    namespace: str
    topics_deleted: int
    performance: Performance
