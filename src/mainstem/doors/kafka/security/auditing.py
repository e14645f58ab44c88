"""What the audit log learns from administrative requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import CLUSTER_NAME, ResourceType
from mainstem.doors.kafka.security.rules import RULES, EachItemRule
from mainstem.doors.kafka.transport.api import Call

_ALTER_SCRAM = 51
# CreateTopics, DeleteTopics, DeleteRecords, WriteTxnMarkers, CreateAcls, DeleteAcls, AlterConfigs, CreatePartitions,
# DeleteGroups, ElectLeaders, IncrementalAlterConfigs, OffsetDelete, AlterClientQuotas, AlterUserScramCredentials,
# AlterShareGroupOffsets, DeleteShareGroupOffsets
ADMINISTRATIVE = frozenset({19, 20, 21, 27, 30, 31, 33, 37, 42, 43, 44, 47, 49, _ALTER_SCRAM, 91, 92})

_DENIED = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)
_NAMES = ("name", "resource_name", "topic_name", "group_id", "user", "resource_name_filter")


def administered(key: int, call: Call, request: Any, answer: Any) -> None:
    """A client sent an administrative request. What of it was denied is recorded already."""
    audit = call.context.broker.audit
    if not audit.on or getattr(request, "validate_only", False):
        return
    operation = type(request).__name__.removesuffix("Request")
    for kind, name, code in _outcomes(key, request, answer):
        if code not in _DENIED:
            outcome = "failed" if code else "done"
            audit.record(call.principal, call.host, "kafka", operation, kind, name, outcome)  # type: ignore[arg-type]


def _outcomes(key: int, request: Any, answer: Any) -> Iterator[tuple[str, str, int]]:
    """The type and name of each resource of a request, and its error code."""
    rule = next((rule for rule in RULES[key] if isinstance(rule, EachItemRule)), None)
    if key == _ALTER_SCRAM:
        for result in answer.results:
            yield "user", result.user, result.error_code
    elif rule is None or hasattr(request, "group_id"):
        named = getattr(request, "group_id", CLUSTER_NAME)
        kind = "group" if hasattr(request, "group_id") else "cluster"
        yield kind, named, getattr(answer, "error_code", 0)
    else:
        answers = getattr(answer, rule.answers)
        codes = {_name(one, rule.answer_name or rule.name): _code(one) for one in answers}
        any_code = next(filter(None, map(_code, answers)), 0)
        for item in getattr(request, rule.items):
            name = _name(item, rule.name)
            kind = (
                rule.kind if isinstance(rule.kind, ResourceType) else rule.kind(request, item)
            ).name.lower()
            yield kind, name, codes.get(name, any_code)


def _code(answer: Any) -> int:
    """The error code of an item; for one with partitions, the first error among them."""
    code: int = getattr(answer, "error_code", 0)
    return code or next((part.error_code for part in getattr(answer, "partitions", ()) if part.error_code), 0)


def _name(item: Any, field: str) -> str:
    if isinstance(item, str):
        return item
    for each in (field, *_NAMES):
        found = getattr(item, each, None)
        if isinstance(found, str):
            return found
    entity = getattr(item, "entity", None)  # of a quota
    if entity is not None:
        return ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in entity)
    return CLUSTER_NAME
