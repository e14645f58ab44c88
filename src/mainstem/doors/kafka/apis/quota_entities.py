"""Quota entities on the wire: components of a type and a name; no name means the default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kio.schema.errors import ErrorCode

from mainstem.broker.rates import RateEntity
from mainstem.doors.kafka.apis.bulk import ItemRefused

USER, CLIENT = "user", "client-id"


class _EntityPart(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_name(self) -> str | None: ...


def read_entity(parts: Sequence[_EntityPart]) -> RateEntity:
    """Raises Refused."""
    named: dict[str, str] = {}
    for part in parts:
        check_type(part.entity_type)
        if part.entity_type in named:
            raise ItemRefused(
                ErrorCode.invalid_request, f"an entity has two parts of type {part.entity_type}"
            )
        if part.entity_name == "":
            raise ItemRefused(
                ErrorCode.invalid_request, f"a {part.entity_type} has a name; null is the default"
            )
        named[part.entity_type] = part.entity_name or ""
    if not named:
        raise ItemRefused(ErrorCode.invalid_request, "a quota is for a user, a client id, or both")
    return RateEntity(named.get(USER), named.get(CLIENT))


def parts_of(entity: RateEntity) -> list[tuple[str, str | None]]:
    """(type, name) as in responses."""
    both = ((USER, entity.user), (CLIENT, entity.client))
    return [(kind, name or None) for kind, name in both if name is not None]


def check_type(kind: str, code: ErrorCode = ErrorCode.invalid_request) -> None:
    if kind not in (USER, CLIENT):
        raise ItemRefused(code, f"quotas are for {USER} and {CLIENT}, not {kind[:64]!r}")
