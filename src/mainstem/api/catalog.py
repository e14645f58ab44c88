"""The Iceberg REST catalog, as far as this server implements it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from mainstem import limits


class CatalogErrorBody(msgspec.Struct, frozen=True):
    message: str
    type: str  # the name of an exception in Iceberg's Java library
    code: Annotated[int, Meta(ge=400, le=599)]


class CatalogError(msgspec.Struct, frozen=True):
    """The body of every response outside 2xx below /iceberg."""

    error: CatalogErrorBody


class TokenIssued(msgspec.Struct, frozen=True):
    """As OAuth2 (RFC 6749) says it."""

    access_token: str
    token_type: str
    expires_in: int
    issued_token_type: str = "urn:ietf:params:oauth:token-type:access_token"


class TokenRefused(msgspec.Struct, frozen=True):
    """As OAuth2 (RFC 6749) says it."""

    error: str
    error_description: str


class CatalogConfig(msgspec.Struct, frozen=True):
    defaults: dict[str, str]
    overrides: dict[str, str]
    endpoints: tuple[str, ...]


class NamespaceList(msgspec.Struct, frozen=True):
    namespaces: list[tuple[str, ...]]


class NamespaceBody(msgspec.Struct, frozen=True):
    namespace: list[str]
    properties: dict[str, str] = {}


class NamespaceDescription(msgspec.Struct, frozen=True):
    namespace: list[str]
    properties: dict[str, str]


class PropertiesBody(msgspec.Struct, frozen=True):
    updates: dict[str, str] = {}
    removals: list[str] = []


class PropertiesChanged(msgspec.Struct, frozen=True):
    updated: list[str]
    removed: list[str]
    missing: list[str]


class Identifier(msgspec.Struct, frozen=True):
    namespace: list[str]
    name: str


class TableList(msgspec.Struct, frozen=True):
    identifiers: list[Identifier]


class RenameBody(msgspec.Struct, frozen=True):
    source: Identifier
    destination: Identifier


class CommitBody(msgspec.Struct, frozen=True):
    requirements: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    identifier: Identifier | None = None


class TransactionBody(msgspec.Struct, frozen=True, rename="kebab"):
    table_changes: Annotated[list[CommitBody], Meta(max_length=limits.TABLES_PER_COMMIT_MAX)]


class SignBody(msgspec.Struct, frozen=True):
    """A request to the S3 door that the server signs for a client."""

    uri: str
    method: str
    region: str = ""
    headers: dict[str, list[str]] = {}


class SignedRequest(msgspec.Struct, frozen=True):
    uri: str
    headers: dict[str, list[str]]


class StorageCredential(msgspec.Struct, frozen=True):
    prefix: str  # of locations
    config: dict[str, str]


class TableLoaded(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """`metadata-location` is absent for a table that is only staged."""

    metadata: Raw
    config: dict[str, str]
    metadata_location: str | None = None
    storage_credentials: list[StorageCredential] = []


class ViewLoaded(msgspec.Struct, frozen=True, rename="kebab"):
    metadata_location: str
    metadata: Raw
    config: dict[str, str]
