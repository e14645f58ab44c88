"""Commands about who may come in, what they may do, and how much."""

from __future__ import annotations

import msgspec


class AccessRule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One rule, in Kafka's numbers; also as a checkpoint holds it."""

    resource_type: int  # 2 topic, 3 group, 4 cluster, 5 transactional id
    resource_name: str
    pattern_type: int  # 3 literal, 4 prefixed
    principal: str  # "User:name", or "User:*" for everybody
    host: str  # an address, or "*"
    operation: int  # 2 all, 3 read, 4 write …
    permission: int  # 2 deny, 3 allow


class PutScramCredential(msgspec.Struct, frozen=True, array_like=True, tag=130):
    """A user may log in with a password that only its salted hashes are known of."""

    user: str
    mechanism: int  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class DeleteScramCredential(msgspec.Struct, frozen=True, array_like=True, tag=131):
    """A user may log in by this mechanism no more."""

    user: str
    mechanism: int


class PutAccessRules(msgspec.Struct, frozen=True, array_like=True, tag=132):
    """Rules are added, all of them or none. Those that are there already stay."""

    rules: tuple[AccessRule, ...]


class DeleteAccessRules(msgspec.Struct, frozen=True, array_like=True, tag=133):
    """Rules go. It names each: what a filter of the client's meant is settled before."""

    rules: tuple[AccessRule, ...]


class QuotaEntity(msgspec.Struct, frozen=True, array_like=True):
    """Whom a quota is for: a user, a client id, or a user's client. An empty name is the default of all that have no
    quota of their own; None: the quota does not ask."""

    user: str | None
    client: str | None


class AlterClientQuota(msgspec.Struct, frozen=True, array_like=True, tag=134):
    """Some of an entity's limits are set, and some removed; those it had besides stay."""

    entity: QuotaEntity
    put: tuple[tuple[str, float], ...]  # (key, value)
    removed: tuple[str, ...] = ()
