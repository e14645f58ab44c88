"""API keys, users and access rules."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.api.base import U64, Performance


class KeyBody(msgspec.Struct, frozen=True):
    name: str = ""  # of the principal; none: the key's id
    scopes: str = ""  # joined with +: read, write, delete, admin; none: all
    prefixes: list[str] = []
    namespace: str = ""
    ttl_ms: U64 = 0  # 0: the key does not expire


class KeyDescription(msgspec.Struct, frozen=True):
    """A key without its secret, which only the response to its creation or rotation has."""

    id: str
    principal: str
    scopes: str
    prefixes: list[str]
    namespace: str
    created_ms: int
    expires_ms: int | None
    rotated_ms: int | None


class KeyCreated(KeyDescription, frozen=True, kw_only=True):
    secret: str
    performance: Performance


class S3CredentialsBody(msgspec.Struct, frozen=True):
    ttl_ms: U64 = 0  # 0: those that follow from the caller's API key, which do not expire before it


class S3CredentialsIssued(msgspec.Struct, frozen=True):
    """Credentials of the S3 door for the caller."""

    access_key_id: str
    secret_access_key: str
    session_token: str  # empty: lasting credentials
    expires_ms: int | None
    endpoint: str | None  # of the S3 door; none: it does not listen
    region: str
    performance: Performance


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyDescription]
    performance: Performance


class KeyRevoked(msgspec.Struct, frozen=True):
    id: str
    revoked: bool
    performance: Performance


class UserBody(msgspec.Struct, frozen=True):
    password: str | None = None  # none: a random one, which the response has


class UserChanged(msgspec.Struct, frozen=True):
    user: str
    performance: Performance
    password: str | None = None  # that the server generated


class UserDescription(msgspec.Struct, frozen=True):
    user: str
    mechanisms: list[str]


class UserList(msgspec.Struct, frozen=True):
    users: list[UserDescription]
    performance: Performance


class UserDeleted(msgspec.Struct, frozen=True):
    user: str
    deleted: bool
    performance: Performance


class RuleBody(msgspec.Struct, frozen=True):
    """One access rule in words."""

    principal: str  # User:name, or User:* for everybody
    operation: str  # all, read, write, create, delete, alter, describe, …
    resource: str  # topic, group, cluster, transactional_id, queue, router, table, namespace, subject, bucket
    name: str = "*"
    pattern: str = "literal"  # or prefixed
    permission: str = "allow"  # or deny
    host: str = "*"


class RulesBody(msgspec.Struct, frozen=True):
    rules: Annotated[list[RuleBody], Meta(max_length=limits.ACCESS_RULES_PER_REQUEST_MAX)]


class RuleList(msgspec.Struct, frozen=True):
    rules: list[RuleBody]
    performance: Performance
