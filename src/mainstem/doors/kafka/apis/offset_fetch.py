"""OffsetFetch: the committed offsets of groups. Versions up to 9 name topics; later versions use ids."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from importlib import import_module
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.schema.offset_fetch.v10 import request as by_id
from kio.schema.offset_fetch.v10 import response as by_id_answer
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from mainstem.broker.groups.offsets import Cursor
from mainstem.broker.groups.service import Groups
from mainstem.doors.kafka.apis.topic_ids import id_of, name_of
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.doors.kafka.transport.versions import bridge, convert
from mainstem.errors import MainstemError, NotFound, UnstableOffsets

_KEY = 9
_FIRST, _LAST = 1, 10
_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_THROTTLE = 3
_FIRST_WITH_SEVERAL_GROUPS = 8
_FIRST_BY_ID = 10


async def handle(
    call: Call, request: OffsetFetchRequest | by_id.OffsetFetchRequest
) -> OffsetFetchResponse | by_id_answer.OffsetFetchResponse:
    await call.context.broker.barrier()  # a lagging broker must not move a client back
    stable = request.require_stable
    if isinstance(request, by_id.OffsetFetchRequest):
        return by_id_answer.OffsetFetchResponse(
            throttle_time=NO_THROTTLE,
            groups=tuple(_group_by_id(call, wanted, stable) for wanted in request.groups),
        )
    groups = tuple(_group(call, wanted, stable) for wanted in request.groups)
    return OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups)


def _group_by_id(
    call: Call, wanted: by_id.OffsetFetchRequestGroup, stable: bool
) -> by_id_answer.OffsetFetchResponseGroup:
    """As with names, with each topic's id in place of its name."""
    found = [(topic, name_of(call, topic.topic_id)) for topic in wanted.topics or ()]
    known = tuple(
        OffsetFetchRequestTopics(name=TopicName(name), partition_indexes=topic.partition_indexes)
        for topic, name in found
        if name is not None
    )
    named = _group(
        call,
        OffsetFetchRequestGroup(
            group_id=wanted.group_id,
            member_id=wanted.member_id,
            member_epoch=wanted.member_epoch,
            topics=None if wanted.topics is None else known,
        ),
        stable,
    )
    topics = [_with_id(id_of(call, topic.name), topic) for topic in named.topics]
    if not named.error_code:
        topics += [_unknown_id(topic) for topic, name in found if name is None]
    return by_id_answer.OffsetFetchResponseGroup(
        group_id=named.group_id, topics=tuple(topics), error_code=named.error_code
    )


def _with_id(
    topic_id: UUID | None, topic: OffsetFetchResponseTopics
) -> by_id_answer.OffsetFetchResponseTopics:
    partitions = tuple(
        convert(partition, by_id_answer.OffsetFetchResponsePartitions) for partition in topic.partitions
    )
    return by_id_answer.OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions)


def _unknown_id(topic: by_id.OffsetFetchRequestTopics) -> by_id_answer.OffsetFetchResponseTopics:
    nameless = OffsetFetchRequestTopics(name=TopicName(""), partition_indexes=topic.partition_indexes)
    return _with_id(topic.topic_id, _refused(nameless, ErrorCode.unknown_topic_id))


def _group(call: Call, wanted: OffsetFetchRequestGroup, stable: bool) -> OffsetFetchResponseGroup:
    groups = call.context.groups
    try:
        groups.check_fetch(wanted.group_id, wanted.member_id, wanted.member_epoch)
    except MainstemError as error:
        code = group_code_of(error)
        topics: tuple[OffsetFetchResponseTopics, ...] = ()
        if call.version < _FIRST_WITH_GROUP_ERROR:
            topics = tuple(_refused(topic, code) for topic in wanted.topics or ())
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics, error_code=code)
    unstable = groups.unstable(wanted.group_id) if stable else frozenset[int]()
    if wanted.topics is None:
        topics = _all_topics(groups, wanted.group_id, unstable)
    else:
        topics = tuple(_topic(groups, wanted.group_id, topic, unstable) for topic in wanted.topics)
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


def _all_topics(groups: Groups, group: str, unstable: Set[int]) -> tuple[OffsetFetchResponseTopics, ...]:
    return tuple(
        OffsetFetchResponseTopics(
            name=TopicName(name),
            partitions=tuple(
                _partition(groups, group, name, number, unstable) for number in sorted(partitions)
            ),
        )
        for name, partitions in groups.offsets.of_group(group).items()
    )


def _topic(
    groups: Groups, group: str, topic: OffsetFetchRequestTopics, unstable: Set[int]
) -> OffsetFetchResponseTopics:
    partitions = tuple(
        _partition(groups, group, topic.name, number, unstable) for number in topic.partition_indexes
    )
    return OffsetFetchResponseTopics(name=topic.name, partitions=partitions)


def _partition(
    groups: Groups, group: str, topic: str, number: int, unstable: Set[int]
) -> OffsetFetchResponsePartitions:
    try:
        return _committed(number, groups.committed(group, topic, number, unstable))
    except NotFound:
        return _committed(number, None)  # an unknown topic has no committed offsets, which is not an error
    except UnstableOffsets as error:
        return _committed(number, None, group_code_of(error))


def _committed(
    number: int, cursor: Cursor | None, code: ErrorCode = ErrorCode.none
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=i32(number),
        committed_offset=i64(-1 if cursor is None else cursor.offset),
        committed_leader_epoch=i32(-1 if cursor is None else cursor.leader_epoch),
        metadata="" if cursor is None else cursor.metadata,
        error_code=code,
    )


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = tuple(_committed(number, None, code) for number in topic.partition_indexes)
    return OffsetFetchResponseTopics(name=topic.name, partitions=partitions)


def _bridge_single_group(version: int) -> None:
    """Versions that ask for one group, and get it outside a list."""
    older = import_module(f"kio.schema.offset_fetch.v{version}.request").OffsetFetchRequest
    module = import_module(f"kio.schema.offset_fetch.v{version}.response")

    def up(request: Any) -> OffsetFetchRequest:
        topics = request.topics
        if topics is not None:
            topics = tuple(convert(topic, OffsetFetchRequestTopics) for topic in topics)
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        return OffsetFetchRequest(groups=(group,), require_stable=getattr(request, "require_stable", False))

    def down(response: OffsetFetchResponse) -> Any:
        [only] = response.groups
        fields: dict[str, Any] = {
            "topics": tuple(convert(topic, module.OffsetFetchResponseTopic) for topic in only.topics)
        }
        if version >= _FIRST_WITH_GROUP_ERROR:
            fields["error_code"] = only.error_code
        if version >= _FIRST_WITH_THROTTLE:
            fields["throttle_time"] = response.throttle_time
        return module.OffsetFetchResponse(**fields)

    bridge(older, by_id.OffsetFetchRequest, up)
    bridge(OffsetFetchResponse, module.OffsetFetchResponse, down)


for _version in range(_FIRST, _FIRST_WITH_SEVERAL_GROUPS):
    _bridge_single_group(_version)

# Versions with topic names convert to the newest such version: a name cannot be converted to an id here.
for _version in range(_FIRST_WITH_SEVERAL_GROUPS, _FIRST_BY_ID):
    bridge(
        load_request_schema(_KEY, _version),
        by_id.OffsetFetchRequest,
        partial(convert, target=OffsetFetchRequest),
    )

API = Api(_KEY, _FIRST, _LAST, handle, coordinated=True)
