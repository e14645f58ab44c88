"""The schema registry: Confluent's REST API. Errors have its shape as well."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mainstem import limits


class SchemaReferenceBody(msgspec.Struct, frozen=True):
    """A schema of another subject, by the name that the schema uses for it."""

    name: str
    subject: str
    version: int = -1  # the latest


class SchemaBody(msgspec.Struct, frozen=True, rename="camel"):
    """A schema to register or to look up. `id` and `version` are for import mode."""

    schema: str | None = None
    schema_type: str | None = None  # AVRO unless given
    references: Annotated[list[SchemaReferenceBody], Meta(max_length=limits.SCHEMA_REFERENCES_MAX)] | None = (
        None
    )
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None


class SchemaVersion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    guid: str
    schema: str
    schema_type: str | None = None  # AVRO unless given
    references: list[SchemaReferenceBody] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    deleted: bool = False


class SchemaText(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A schema by its id."""

    schema: str
    guid: str
    schema_type: str | None = None  # AVRO unless given
    references: list[SchemaReferenceBody] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    max_id: int | None = None


class SchemaUse(msgspec.Struct, frozen=True):
    """Where a schema is registered."""

    subject: str
    version: int


class SchemaContextId(msgspec.Struct, frozen=True):
    """The id of a schema in a context."""

    context: str
    id: int


class CompatibilityBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Settings to change; what is absent stays. The default and override fields are stored, and not applied."""

    compatibility: str | None = None
    compatibility_level: str | None = None  # the same
    normalize: bool | None = None
    alias: str | None = None
    validate_fields: bool | None = None
    compatibility_group: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rule_set: dict[str, Any] | None = None
    override_rule_set: dict[str, Any] | None = None


class CompatibilityReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a schema is compatible; with `verbose`, why not."""

    is_compatible: bool
    messages: list[str] | None = None


class RegistryMode(msgspec.Struct, frozen=True):
    mode: str


class SchemaError(msgspec.Struct, frozen=True):
    """Why a request failed: the status, or the status and two digits more."""

    error_code: int
    message: str
