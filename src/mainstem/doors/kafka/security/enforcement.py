"""Apply the access rules of an API to a request: handle what is allowed, refuse the rest in the API's own response."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.doors.kafka.apis.topic_ids import name_of
from mainstem.doors.kafka.security.refusals import (
    message_in,
    refused,
    refused_name,
    refused_partitions,
    zeroed,
)
from mainstem.doors.kafka.security.rules import (
    RULES,
    EachItemRule,
    FilteredListRule,
    SpecialRule,
    WholeRequestRule,
)
from mainstem.doors.kafka.transport.api import Api, Call

_OFFSET_FETCH, _WRITE_TXN_MARKERS, _ALTER_SCRAM = 9, 27, 51

CODES = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}


async def handle(api: Api, call: Call, request: Any) -> Any:
    """The response: the handler's for what the client may do, refusals for the rest."""
    answer_type = load_response_schema(api.key, type(request).__version__)
    added: list[tuple[str, list[Any]]] = []
    left = True
    for rule in RULES[api.key]:
        if isinstance(rule, WholeRequestRule | SpecialRule):
            code = _refusal(rule, call, request)
            if code is not None:
                return _refused_whole(api.key, request, answer_type, code)
        elif isinstance(rule, EachItemRule):
            request, refusals = _split(rule, call, request, answer_type)
            added.append((rule.answers, refusals))
            left = left and not (refusals and not getattr(request, rule.items))
    # An empty list may mean "all", so a request that lost every item does not reach the handler.
    answer = await api.handle(call, request) if left else zeroed(answer_type)
    for field, refusals in added:
        if refusals:
            answer = replace(answer, **{field: (*getattr(answer, field), *refusals)})
    for rule in RULES[api.key]:
        if isinstance(rule, FilteredListRule):
            answer = _visible_part(rule, call, answer)
    return _known_topics(call, request, answer) if api.key == _OFFSET_FETCH else answer


def _refusal(rule: WholeRequestRule | SpecialRule, call: Call, request: Any) -> ErrorCode | None:
    if isinstance(rule, SpecialRule):
        if rule.allowed(call, request):
            return None
        kind = _kind_of(rule, request)
        call.denied(type(request).__name__.removesuffix("Request"), kind, "")
        return CODES[kind]
    name = CLUSTER_NAME if rule.name is None else getattr(request, rule.name)
    return None if call.may_or_audit(rule.operation, rule.kind, name or "") else CODES[rule.kind]


def _kind_of(rule: SpecialRule, request: Any) -> ResourceType:
    named = getattr(request, "transactional_id", None) is not None
    return ResourceType.TRANSACTIONAL_ID if named else rule.kind


def _refused_whole(key: int, request: Any, answer_type: type[Any], code: ErrorCode) -> Any:
    if key == _WRITE_TXN_MARKERS:
        marker_type = message_in(answer_type, "markers")
        topic_type = message_in(marker_type, "topics")
        markers = tuple(
            replace(
                zeroed(marker_type),
                producer_id=marker.producer_id,
                topics=tuple(
                    refused_partitions(topic, topic_type, topic.partition_indexes, "partitions", code)
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
        return replace(zeroed(answer_type), markers=markers)
    if key == _ALTER_SCRAM:
        users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
        result = message_in(answer_type, "results")
        return replace(
            zeroed(answer_type), results=tuple(refused_name(user, result, "user", code) for user in users)
        )
    if hasattr(request, "v3_and_below_topics"):
        rule = next(rule for rule in RULES[key] if isinstance(rule, EachItemRule))
        refusals = [_denied(rule, item, answer_type, code) for item in request.v3_and_below_topics]
        return replace(zeroed(answer_type), **{rule.answers: tuple(refusals)})
    return refused(request, answer_type, code)


def _split(rule: EachItemRule, call: Call, request: Any, answer_type: type[Any]) -> tuple[Any, list[Any]]:
    """The request with the allowed items, and the responses to the others."""
    items = getattr(request, rule.items)
    if not items:
        return request, []
    codes = [_code(rule, call, request, item) for item in items]
    if rule.all_or_none and any(codes):
        codes = [code or ErrorCode.operation_not_attempted for code in codes]
    refusals = [
        _denied(rule, item, answer_type, code) for item, code in zip(items, codes, strict=True) if code
    ]
    if not refusals:
        return request, []
    kept = tuple(item for item, code in zip(items, codes, strict=True) if not code)
    return replace(request, **{rule.items: kept}), refusals


def _code(rule: EachItemRule, call: Call, request: Any, item: Any) -> ErrorCode:
    kind = rule.kind if isinstance(rule.kind, ResourceType) else rule.kind(request, item)
    name: str | None = CLUSTER_NAME
    if kind is not ResourceType.CLUSTER:
        name = item if isinstance(item, str) else getattr(item, rule.name, None)
        if name is None and getattr(item, "topic_id", None) is not None:
            name = name_of(call, item.topic_id)
    if name is None or call.may(rule.operation, kind, name):  # the handler reports an unknown id
        return ErrorCode.none
    if rule.or_cluster and call.may(rule.operation, ResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.none
    call.denied(rule.operation.name, kind, name)
    return CODES[kind]


def _denied(rule: EachItemRule, item: Any, answer_type: type[Any], code: ErrorCode) -> Any:
    item_type = message_in(answer_type, rule.answers)
    if rule.answer_name:
        name = item if isinstance(item, str) else getattr(item, rule.name)
        return refused_name(name, item_type, rule.answer_name, code)
    if rule.indexes:
        return refused_partitions(item, item_type, getattr(item, rule.indexes), rule.answer_indexes, code)
    return refused(item, item_type, code)


def _visible_part(rule: FilteredListRule, call: Call, answer: Any) -> Any:
    if rule.kind is ResourceType.GROUP and call.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return answer
    items = getattr(answer, rule.answers)
    kept = tuple(
        item
        for item in items
        if getattr(item, "error_code", 0) or call.may(Operation.DESCRIBE, rule.kind, getattr(item, rule.name))
    )
    return answer if len(kept) == len(items) else replace(answer, **{rule.answers: kept})


def _known_topics(call: Call, request: Any, answer: Any) -> Any:
    """OffsetFetch: hide the offsets of topics that the client may not describe; if it named none, the topics too."""
    all_topics = {wanted.group_id for wanted in request.groups if wanted.topics is None}
    groups = tuple(
        replace(
            group,
            topics=tuple(
                topic if may else _without_offsets(topic)
                for topic in group.topics
                if (may := _may_describe(call, topic)) or group.group_id not in all_topics
            ),
        )
        for group in answer.groups
    )
    return replace(answer, groups=groups)


def _may_describe(call: Call, topic: Any) -> bool:
    by_id = getattr(topic, "topic_id", None)
    name = name_of(call, by_id) if by_id is not None else getattr(topic, "name", None)
    return name is None or call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _without_offsets(topic: Any) -> Any:
    partitions = tuple(
        replace(
            partition,
            committed_offset=-1,
            metadata="",
            error_code=ErrorCode.topic_authorization_failed,
        )
        for partition in topic.partitions
    )
    return replace(topic, partitions=partitions)
